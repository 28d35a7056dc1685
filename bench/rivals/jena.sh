#!/usr/bin/env bash
# Apache Jena Fuseki over TDB2, with the verbs of common.sh. From the Maven registry, by jena.xml.
# Loaded by the parallel loader; then the statistics of the optimizer are made, as part of the load. The heap is small, as files are
# mapped into memory; no time-out is set.
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
heap_mb=$((memory_mb / 2 < 8192 ? memory_mb / 2 : 8192))

# java_in COMMAND-CLASS...: the command line of a program of Jena's.
java_in() { exec java "-Xmx${heap_mb}m" -cp "$engine/*" "$@"; }

do_install() {
  needs java mvn
  quietly mvn --batch-mode --file "$here/jena.xml" dependency:copy-dependencies "-DoutputDirectory=$engine"
}

do_load() {
  local start
  needs java
  start=$(date +%s.%N)
  measured java_in tdb2.tdbloader --loader=parallel --loc "$database" "$@"
  measured statistics
  mv "$dir/stats.opt" "$database/Data-0001/stats.opt"
  loaded "$start"
}

# The optimizer reads them from the folder of the data's generation.
statistics() { java_in tdb2.tdbstats --loc "$database" >"$dir/stats.opt"; }

do_start() {
  local port update=()
  needs java
  port=$(free_port)
  [ "${1:-}" != writing ] || update=(--update)
  start_server "http://127.0.0.1:$port/data/query" java "-Xmx${heap_mb}m" -cp "$engine/*" \
    org.apache.jena.fuseki.main.cmds.FusekiMainCmd --port "$port" --localhost "${update[@]}" --tdb2 --loc "$database" /data
}

do_update_address() {
  local url
  url=$(server_url)
  echo "${url%/query}/update body"
}

do_version() {
  local jar
  jar=$(basename "$(ls "$engine"/jena-tdb2-*.jar)" .jar)
  echo "Apache Jena ${jar#jena-tdb2-}"
}

run_verb "$@"
