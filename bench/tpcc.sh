#!/usr/bin/env bash
# The transactions of TPC-C on Stoa, with checkpoints beside them and kill -9 in the end: bench/tpcc.sh WAREHOUSES...
#
# For each number of warehouses (4 and 16 by default): generates and loads them, and for each way (`update`, `interactive`)
# serves a copy, lets clients work with three checkpoints in their midst, ends the server by kill -9, starts it again, and
# counts the new orders that survived and whether the four consistency conditions hold (`stoa-bench run tpcc-rdf`). Results
# go into bench/results/DATE-tpcc, with REPORT.md. What is there already is not run again.
#
# Settings, by environment:
#   CLIENTS   of each run, by default two a warehouse and at least 8    MODES     by default update interactive
#   TIME      in which orders count, 10m                                WARM_UP   before that, 30s
#   RESULTS   the folder of the results                                 WORK      where data and databases lie, target/tpcc
#   SCALE     options of the generator and the driver for trying out, such as '--items 1000 --customers 100'
#   RIVAL_MEMORY_MB   what Stoa may plan with                           KEEP_DATA=1   leaves data and databases
#   BENCH     the program stoa-bench, by default that of target/release; STOA the same of stoa
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[ $# -gt 0 ] || set -- 4 16
for warehouses in "$@"; do
  [[ $warehouses =~ ^[1-9][0-9]*$ ]] || { echo "usage: $0 WAREHOUSES..." >&2; exit 2; }
done
target=${CARGO_TARGET_DIR:-$here/../target}
WORK=${WORK:-$target/tpcc}
BENCH=${BENCH:-$target/release/stoa-bench}
STOA=${STOA:-$target/release/stoa}
RESULTS=${RESULTS:-$here/results/$(date +%F)-tpcc}
TIME=${TIME:-10m}
WARM_UP=${WARM_UP:-30s}
MODES=${MODES:-update interactive}
RIVAL_MEMORY_MB=${RIVAL_MEMORY_MB:-$(awk '/^MemTotal:/ { print int($2 / 2048) }' /proc/meminfo)}
export STOA RIVAL_MEMORY_MB
read -r -a scale <<<"${SCALE:-}"
say() { printf '%s  %s\n' "$(date +%H:%M:%S)" "$*" >&2; }
die() { echo "$*" >&2; exit 1; }
stoa() { "$here/rivals/stoa.sh" "$1" "$WORK/$2" "${@:3}"; }
for it in "$BENCH" "$STOA"; do [ -x "$it" ] || die "$it is missing: make build, and cargo build --release --package stoa-bench"; done
mkdir -p "$WORK" "$RESULTS/stoa"
WORK=$(cd "$WORK" && pwd) RESULTS=$(cd "$RESULTS" && pwd)
finish() { for it in base run; do stoa stop "$it" || true; done; }
trap finish EXIT
trap 'exit 130' INT TERM

# step WAREHOUSES MODE CLIENTS: its name.
step() { echo "tpcc-rdf-$1-warehouses-$2-$3"; }
clients() { echo "${CLIENTS:-$(($1 * 2 < 8 ? 8 : $1 * 2))}"; }

# load WAREHOUSES: makes the database that runs begin with.
load() {
  [ "$(cat "$WORK/loaded" 2>/dev/null)" != "$1 ${SCALE:-}" ] || return 0
  say "generating and loading $1 warehouses"
  rm -f "$WORK/loaded"
  stoa install base
  "$BENCH" generate tpcc --warehouses "$1" "${scale[@]}" --output "$WORK/data.nt.zst" 2>"$WORK/said" || { cat "$WORK/said" >&2; exit 1; }
  triples=$(sed -n 's/^\([0-9]*\) .*/\1/p' "$WORK/said" | tail -n 1)
  stoa load base "$WORK/data.nt.zst" |
    awk -v triples="${triples:-0}" 'BEGIN { printf "{\"kind\": \"load\", \"triples\": %s", triples }
      { printf ", \"%s\": %s", $1, $2 } END { print "}" }' >"$RESULTS/stoa/load.jsonl"
  rm "$WORK/data.nt.zst"
  echo "$1 ${SCALE:-}" >"$WORK/loaded"
}

# killed: ends the server without a chance to tidy up, starts it again, prints its URL and process.
killed() {
  local url pid
  read -r url pid <<<"$(stoa address run)"
  kill -KILL "$pid"
  while kill -0 "$pid" 2>/dev/null; do sleep 0.01; done
  stoa start run
}
[ "${TPCC_KILL:-}" = '' ] || { trap - EXIT; killed; exit; }

# run WAREHOUSES MODE CLIENTS
run() {
  local name said url pid base status=0
  name=$(step "$@")
  [ ! -e "$RESULTS/stoa/$name.jsonl" ] || return 0
  load "$1"
  stoa install run
  stoa delete run
  cp -r --reflink=auto "$WORK/base/database" "$WORK/run/database"
  said=$(stoa start run)
  url=${said%% *} pid=${said##* } base=${said%%/sparql*}
  say "$name"
  "$BENCH" run tpcc-rdf "$url" --warehouses "$1" "${scale[@]}" --clients "$3" --duration "$TIME" --warm-up "$WARM_UP" --server-pid "$pid" \
    --transactions "$2" --repository "$base/repositories/default" \
    --checkpoint "$(printf '%q checkpoint --server %q' "$STOA" "$base")" \
    --restart "$(printf 'TPCC_KILL=1 WORK=%q RESULTS=%q BENCH=%q %q' "$WORK" "$RESULTS" "$BENCH" "${BASH_SOURCE[0]}")" \
    --output "$RESULTS/stoa/$name.part" >"$RESULTS/stoa/$name.txt" || status=$?
  cat "$RESULTS/stoa/$name.txt" >&2
  # Orders that are lost and conditions that do not hold are figures, too.
  [ "$status" -le 1 ] && [ -s "$RESULTS/stoa/$name.part" ] || die "$name: stoa-bench ended with status $status"
  mv "$RESULTS/stoa/$name.part" "$RESULTS/stoa/$name.jsonl"
  stoa stop run
}

settings() { # settings STEPS: as bench/compare.sh writes them
  local commit
  commit=$(git -C "$here" rev-parse --short HEAD 2>/dev/null || echo unknown)
  git -C "$here" diff --quiet HEAD 2>/dev/null || commit="$commit, changed"
  cat <<JSON
{"date": "$(date +%F)", "dataset": "tpcc", "script": "bench/tpcc.sh", "scale": "$(echo "${warehouses[*]}" | sed 's/ / and /g') warehouses", "size": "${warehouses[*]}",
"triples": "about 5.5 million a warehouse", "commit": "$commit", "processor": "$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)",
"cores": $(nproc), "memory_mb": $(awk '/^MemTotal:/ { print int($2 / 1024) }' /proc/meminfo), "kernel": "$(uname -sr)",
"engine_memory_mb": $RIVAL_MEMORY_MB, "engines": "stoa", "steps": "$1", "query_timeout": "none", "step_time": "$TIME",
"mixes": "$TIME", "warm_up": "$WARM_UP"}
JSON
}

warehouses=("$@")
steps=()
for each in "${warehouses[@]}"; do
  for mode in $MODES; do
    run "$each" "$mode" "$(clients "$each")"
    steps+=("$(step "$each" "$mode" "$(clients "$each")")")
  done
done
"$STOA" --version >"$RESULTS/stoa/version"
settings "${steps[*]}" >"$RESULTS/settings.json"
"$BENCH" report "$RESULTS"
[ -n "${KEEP_DATA:-}" ] || rm -rf "$WORK"
say "done: $RESULTS/REPORT.md"
