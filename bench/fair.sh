#!/usr/bin/env bash
# How short queries fare beside long ones, and long ones beside each other: bench/fair.sh [PRODUCTS], 28482 by default
#
# Serves BSBM, asks Explore with one client, alone and beside so many clients that ask a long query (a search in all texts)
# one after the other. Each round appends a line of JSON to RESULTS/fair.jsonl: how many long ones, their answers, those of
# the client that had the fewest and the most, and of Explore the mixes and the milliseconds of all queries: median, p99, most.
#
# Settings, by environment:
#   WORK     where data and databases lie; by default target/fair      LONG     rounds, "0 1 4 16 64"
#   RESULTS  a folder, by default WORK/results                         MIXES    of Explore, 40
#   BENCH    the program stoa-bench, by default that of target/release; STOA the same of stoa
#   DATABASE a database with the data of so many products, in place of one that is made
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
products=${1:-28482}
[[ $products =~ ^[1-9][0-9]*$ ]] || { echo "usage: $0 [PRODUCTS]" >&2; exit 2; }
target=${CARGO_TARGET_DIR:-$here/../target}
WORK=${WORK:-$target/fair}
RESULTS=${RESULTS:-$WORK/results}
BENCH=${BENCH:-$target/release/stoa-bench}
STOA=${STOA:-$target/release/stoa}
LONG=${LONG:-0 1 4 16 64}
MIXES=${MIXES:-40}
mkdir -p "$WORK" "$RESULTS"
for it in "$BENCH" "$STOA"; do [ -x "$it" ] || { echo "$it is missing: make build, and cargo build --release --package stoa-bench" >&2; exit 1; }; done
server='' asking=()
finish() {
  for pid in "${asking[@]}" $server; do kill "$pid" 2>/dev/null || true; done
  wait
  rm -rf "$WORK/answers"
}
trap finish EXIT
trap 'exit 130' INT TERM

if [ -z "${DATABASE:-}" ]; then
  DATABASE=$WORK/database
  [ -d "$DATABASE" ] || "$BENCH" generate bsbm --products "$products" | "$STOA" load --db "$DATABASE" --format nt -
fi
"$STOA" serve --db "$DATABASE" --bind 127.0.0.1:0 --timeout 1h >"$WORK/said" 2>&1 &
server=$!
url=''
until url=$(grep --only-matching --max-count=1 'http://[0-9.:]*' "$WORK/said"); do
  kill -0 "$server" || { cat "$WORK/said" >&2; exit 1; }
  sleep 0.1
done
url=$url/sparql

search='SELECT (COUNT(*) AS ?n) { ?s ?p ?o FILTER(CONTAINS(UCASE(STR(?o)), "QWERTZUIOP")) }'
# Asks until it is ended; a dot for each answer.
ask_on() {
  local child=''
  trap 'kill "$child" 2>/dev/null; exit 0' TERM
  while true; do
    curl --silent --fail --output /dev/null --get --data-urlencode "query=$search" "$url" &
    child=$!
    wait "$child" || exit 1
    printf . >>"$1"
  done
}

for long in $LONG; do
  rm -rf "$WORK/answers" "$WORK/explore.jsonl"
  mkdir "$WORK/answers"
  asking=()
  for ((number = 0; number < long; number++)); do
    : >"$WORK/answers/$number"
    ask_on "$WORK/answers/$number" &
    asking+=($!)
  done
  "$BENCH" run explore "$url" --products "$products" --connection keep --warm-up 5 --mixes "$MIXES" --samples \
    --output "$WORK/explore.jsonl" >/dev/null
  counts=$(cd "$WORK/answers" && for it in *; do [ ! -f "$it" ] || wc --bytes <"$it"; done | sort --numeric-sort)
  for pid in "${asking[@]}"; do kill "$pid" && wait "$pid" || true; done
  python3 - "$WORK/explore.jsonl" "$long" "$MIXES" $counts <<'PYTHON' | tee -a "$RESULTS/fair.jsonl"
import json, sys
file, long, mixes, *counts = sys.argv[1:]
counts = [int(count) for count in counts]
lines = [json.loads(line) for line in open(file)]
ms = sorted(line["ms"] for line in lines if line["kind"] == "sample")
print(json.dumps({
    "long_clients": int(long), "long_answers": sum(counts),
    "fewest": min(counts, default=None), "most": max(counts, default=None), "explore_mixes": int(mixes),
    "ms_p50": round(ms[len(ms) // 2], 3), "ms_p99": round(ms[len(ms) * 99 // 100], 3), "ms_max": round(ms[-1], 3),
}))
PYTHON
done
