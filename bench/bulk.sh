#!/usr/bin/env bash
# Updates beyond memory, and clearing: bench/bulk.sh [products], by default the 284,826 of 100 million triples
#
# Loads a BSBM dataset, deletes nearly all of it and copies half of it to another graph with --memory 1G, each killed five
# times on the way and then run to the end on a fresh copy; clears the default graph of a server, and asks one-row queries
# and counts right after it. Prints rates and times; exit code 1 if something was lost.
#
# Settings, by environment:
#   BENCH    the program stoa-bench, by default that of target/release; STOA the same of stoa
#   WORK     where data go, 8 GB for 100 million; by default a temporary folder
#   SECONDS_ABOUT   how long an update takes, about, over which its kills are spread; by default 130
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
target=${CARGO_TARGET_DIR:-$here/../target}
BENCH=${BENCH:-$target/release/stoa-bench}
STOA=${STOA:-$target/release/stoa}
products=${1:-284826}
about=${SECONDS_ABOUT:-130}
for it in "$BENCH" "$STOA"; do [ -x "$it" ] || { echo "$it is missing: make build, and cargo build --release --package stoa-bench" >&2; exit 1; }; done
work=$(mktemp -d ${WORK:+--tmpdir="$WORK"})
running=''
finish() {
  [ -z "$running" ] || kill "$running" 2>/dev/null || true
  wait
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

count() {
  "$STOA" query --db "$1" --memory 1G --format csv \
    'SELECT (COUNT(*) AS ?n) { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }' | tail -1 | tr -d '\r'
}

# copy NAME: a fresh copy of the data. What is still being written would be waited for by who reads.
copy() {
  rm -rf "${work:?}/$1"
  cp -r "$work/db" "$work/$1"
  sync
}

# attack NAME UPDATE: kills it five times, later each time.
attack() {
  local before after
  copy "$1"
  before=$(count "$work/$1")
  for part in 1 3 5 7 9; do
    "$STOA" update --db "$work/$1" --memory 1G "$2" 2>"$work/said" &
    running=$!
    sleep "$(awk "BEGIN { print $about * $part / 10 }")"
    if ! kill -9 "$running" 2>/dev/null; then
      echo "$1: done after $((about * part / 10)) s already: $(cat "$work/said")"
      break
    fi
    wait "$running" 2>/dev/null || true
    running=''
    after=$(count "$work/$1")
    echo "$1: killed after $((about * part / 10)) s, $after quads of $before"
    [ "$after" = "$before" ] || exit 1
  done
}

# whole NAME UPDATE: runs it on a fresh copy.
whole() {
  local before after begun ended
  copy "$1"
  before=$(count "$work/$1")
  begun=$(date +%s.%N)
  "$STOA" update --db "$work/$1" --memory 1G "$2"
  ended=$(date +%s.%N)
  after=$(count "$work/$1")
  awk "BEGIN { n = $after - $before; if (n < 0) n = -n; t = $ended - $begun;
    printf \"$1: %d quads in %.1f s, %d a second\\n\", n, t, n / t }"
  rm -rf "${work:?}/$1"
}

# ask NAME FIELD: prints the name and the milliseconds of a request.
ask() {
  curl --silent --fail --output "$work/answer" --write-out "$1 %{time_total}\n" "$address/sparql" --data-urlencode "$2" |
    awk '{ printf "%s %.1f\n", $1, $2 * 1000 }'
}

"$BENCH" generate bsbm --products "$products" --output /dev/stdout 2>/dev/null | "$STOA" load --db "$work/db" --format nt -

vocabulary=http://www4.wiwiss.fu-berlin.de/bizer/bsbm/v01/vocabulary
delete="DELETE { ?s ?p ?o } WHERE { ?s ?p ?o FILTER(?p != <$vocabulary/productPropertyNumeric5>) }"
copied="<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
for name in deliveryDays offerWebpage price product validFrom validTo vendor; do copied+=", <$vocabulary/$name>"; done
insert="INSERT { GRAPH <http://example.org/copy> { ?s ?p ?o } } WHERE { ?s ?p ?o FILTER(?p IN ($copied)) }"
attack delete "$delete"
whole delete "$delete"
attack insert "$insert"
whole insert "$insert"

copy clear
"$STOA" serve --db "$work/clear" --memory 1G --bind 127.0.0.1:0 >"$work/said" 2>&1 &
running=$!
until address=$(sed -n 's,^listening on ,,p' "$work/said") && [ -n "$address" ]; do
  kill -0 "$running" || { cat "$work/said" >&2; exit 1; }
  sleep 0.1
done
row='query=SELECT ?o { ?s a ?o } LIMIT 1'
all='query=SELECT (COUNT(*) AS ?n) { ?s ?p ?o }'
ask row "$row" >/dev/null
ask clear 'update=CLEAR DEFAULT'
for _ in $(seq 40); do
  ask row "$row"
  ask count "$all"
done | sort -k1,1 -k2,2n | awk '{ n[$1]++; most[$1] = $2 } END { for (k in n) printf "%s after it: %d, at most %.1f ms\n", k, n[k], most[k] }'
grep -q '"value":"0"' "$work/answer" || { echo "quads are left" >&2; exit 1; }
