#!/usr/bin/env bash
# Blazegraph, with the verbs of common.sh. From the Maven registry; unpacked, because its server does not find its pages
# in the jar, and with the packages of Java opened that it looks into.
# A triple store without inference, text index and history, in blazegraph.properties, as its own benchmarks have it.
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
release=2.1.5
heap_mb=$((memory_mb * 3 / 4 < 8192 ? memory_mb * 3 / 4 : 8192))
open=(--add-opens java.base/java.lang=ALL-UNNAMED --add-opens java.base/java.util=ALL-UNNAMED
  --add-opens java.base/java.nio=ALL-UNNAMED --add-opens java.base/sun.nio.ch=ALL-UNNAMED)

do_install() {
  needs java mvn unzip
  quietly mvn --batch-mode dependency:copy "-Dartifact=com.blazegraph:blazegraph-jar:$release" "-DoutputDirectory=$engine"
  quietly unzip -q "$engine/blazegraph-jar-$release.jar" -d "$engine/unpacked"
  rm "$engine/blazegraph-jar-$release.jar"
}

properties() {
  sed "s|^com.bigdata.journal.AbstractJournal.file=.*|com.bigdata.journal.AbstractJournal.file=$database/data.jnl|" \
    "$here/blazegraph.properties" >"$database/store.properties"
}

java_in() { exec java -server "-Xmx${heap_mb}m" "${open[@]}" -cp "$engine/unpacked" "$@"; }

do_load() {
  local start
  needs java
  properties
  start=$(date +%s.%N)
  measured java_in com.bigdata.rdf.store.DataLoader -quiet -namespace kb "$database/store.properties" "$@"
  loaded "$start"
}

do_start() {
  local port
  needs java
  port=$(free_port)
  start_server "http://127.0.0.1:$port/blazegraph/namespace/kb/sparql" \
    java -server "-Xmx${heap_mb}m" "${open[@]}" "-Djetty.home=file://$engine/unpacked/war" -Djetty.host=127.0.0.1 \
    -cp "$engine/unpacked" com.bigdata.rdf.sail.webapp.NanoSparqlServer "$port" kb "$database/store.properties"
}

do_update_address() { echo "$(server_url) update"; }
do_version() { echo "Blazegraph $release"; }

run_verb "$@"
