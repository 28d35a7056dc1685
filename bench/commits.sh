#!/usr/bin/env bash
# What commits cost, on this machine: bench/commits.sh [PRODUCTS], 28482 by default (10 M triples), at least 500
#
# Loads BSBM into Stoa and serves it; then, with the results as lines of JSON in RESULTS:
#   opening     the time until a database that was stopped in good order answers, five times
#   small       one quad a request with full durability, 1 and 16 clients, in turns with durable appends to a file
#   before      Explore, before anything is in the delta
#   delta       1,000 requests of 1,000 new quads
#   after       Explore over that delta, in turns with a copy without it: rounds of before and after
#   checkpoint  Explore while checkpoints are made one after the other
#   large       1,000 quads a request from 4 clients for 60 s, 30 of 100 subjects existing
#   update      the five updates of Explore-and-Update, 200 mixes
#
# Settings, by environment:
#   WORK     where data and databases lie; by default target/commits          RIVAL_MEMORY_MB   what Stoa may plan with
#   RESULTS  a folder, by default WORK/results                                ROUNDS            of before and after, 3
#   BENCH    the program stoa-bench, by default that of target/release; STOA the same of stoa
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
products=${1:-28482}
[[ $products =~ ^[1-9][0-9]*$ ]] || { echo "usage: $0 [PRODUCTS]" >&2; exit 2; }
target=${CARGO_TARGET_DIR:-$here/../target}
WORK=${WORK:-$target/commits}
RESULTS=${RESULTS:-$WORK/results}
BENCH=${BENCH:-$target/release/stoa-bench}
STOA=${STOA:-$target/release/stoa}
mkdir -p "$WORK" "$RESULTS"
say() { printf '%s  %s\n' "$(date +%H:%M:%S)" "$*" >&2; }
stoa() { "$here/rivals/stoa.sh" "$1" "$WORK/$2" "${@:3}"; }

finish() { for it in main plain; do stoa stop $it || true; done; }
trap finish EXIT
trap 'exit 130' INT TERM

# start NAME: serves it; sets url and pid
start() {
  local said
  said=$(stoa start "$1")
  url=${said%% *} pid=${said##* }
}
explore() { # explore FILE [options]
  "$BENCH" run explore "$url" --products "$products" --server-pid "$pid" --warm-up 50 --mixes 200 --connection keep \
    --output "$RESULTS/$1" "${@:2}" >&2
}

say "generating and loading $products products"
for it in main plain; do stoa install $it; done
updates=400
[ -s "$WORK/data.nt.zst" ] || "$BENCH" generate bsbm --products "$products" --output "$WORK/data.nt.zst" \
  --update-transactions $updates --update-output "$WORK/updates.nt"
stoa load main "$WORK/data.nt.zst" >&2
cp -r "$WORK/main/database" "$WORK/plain/"
"$STOA" query --db "$WORK/main/database" --format tsv \
  'SELECT ?s { ?s <http://www4.wiwiss.fu-berlin.de/bizer/bsbm/v01/vocabulary/productFeature> ?f } LIMIT 100000' |
  tail -n +2 | sort -u > "$WORK/subjects"

say opening
"$STOA" query --db "$WORK/main/database" 'ASK {}' >/dev/null
for _ in 1 2 3 4 5; do
  begun=$(date +%s%N)
  "$STOA" query --db "$WORK/main/database" 'ASK {}' >/dev/null
  echo "{\"kind\":\"opening\",\"ms\":$((($(date +%s%N) - begun) / 1000000))}" >> "$RESULTS/opening.jsonl"
done

say "small commits"
start main
"$BENCH" run inserts "$url" --server-pid "$pid" --clients 1,16 --beside "$WORK" --output "$RESULTS/small.jsonl"

say "a delta of a million quads"
"$BENCH" run inserts "$url" --server-pid "$pid" --clients 4 --quads 1000 --count 250 --rounds 1 --subjects "$WORK/subjects" \
  --existing 30 --output "$RESULTS/delta.jsonl"
with=$url with_pid=$pid
start plain
for ((round = 1; round <= ${ROUNDS:-3}; round++)); do
  say "Explore without and with the delta, round $round"
  explore before.jsonl
  without=$url without_pid=$pid
  url=$with pid=$with_pid
  explore after.jsonl
  url=$without pid=$without_pid
done
stoa stop plain
url=$with pid=$with_pid

say "Explore beside checkpoints"
(
  while :; do
    "$BENCH" run inserts "$url" --clients 1 --quads 1000 --count 20 --rounds 1 >/dev/null
    "$STOA" checkpoint --server "${url%/sparql}" >/dev/null
  done
) &
checkpoints=$!
explore checkpoint.jsonl
kill "$checkpoints"
wait "$checkpoints" || true

say "large commits"
"$BENCH" run inserts "$url" --server-pid "$pid" --clients 4 --quads 1000 --duration 60s --rounds 1 --subjects "$WORK/subjects" \
  --existing 30 --output "$RESULTS/large.jsonl"
stoa stop main

say "Explore and Update"
start plain
"$BENCH" run explore-update "$url" --products "$products" --updates "$WORK/updates.nt" --server-pid "$pid" --warm-up 20 \
  --mixes 180 --connection keep --output "$RESULTS/update.jsonl"
say "done: $RESULTS"
