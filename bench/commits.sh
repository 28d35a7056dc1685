#!/usr/bin/env bash
# What commits cost, on this machine: bench/commits.sh [PRODUCTS], 28482 by default (10 M triples), at least 500
#
# Loads BSBM into Stoa once; each step works on a copy of that database. Results go as lines of JSON into RESULTS, and what
# they come to into SUMMARY.md there. The steps:
#   opening     the time until a database that was stopped in good order answers, five times
#   small       one quad a request: 1 and 16 clients, in turns with durable appends to a file on the same disk (fsync.c);
#               1, 16 and 64 clients where syncs are free, and where each takes 2 ms, as on slower disks (sync.c)
#   delta       Explore without and with a delta of a million quads, in turns
#   checkpoint  Explore without and with checkpoints one after the other beside it, in turns; the same requests are compared
#               by the server's clock, those that met a checkpoint
#   large       1,000 quads a request from 4 clients for 60 s, 30 of 100 subjects existing, with a checkpoint in their midst
#   update      the five updates of Explore-and-Update, 180 mixes
# Replays of long logs are measured by bench/replay.sh.
#
# Settings, by environment:
#   STEPS    of these, by default all                           ROUNDS   of what is done in turns, 5
#   WORK     where data and databases lie; by default target/commits    RIVAL_MEMORY_MB   what Stoa may plan with
#   RESULTS  a folder that has no results yet, by default WORK/results   MIXES    of Explore in a round, 200
#   SECONDS_EACH   of small and its appends, 5    SECONDS_LARGE   60     DELTA    requests of 1,000 quads in it, 1000
#   BENCH    the program stoa-bench, by default that of target/release; STOA the same of stoa; CC the compiler of C
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
products=${1:-28482}
[[ $products =~ ^[1-9][0-9]*$ ]] || { echo "usage: $0 [PRODUCTS]" >&2; exit 2; }
target=${CARGO_TARGET_DIR:-$here/../target}
WORK=${WORK:-$target/commits}
RESULTS=${RESULTS:-$WORK/results}
BENCH=${BENCH:-$target/release/stoa-bench}
STOA=${STOA:-$target/release/stoa}
ROUNDS=${ROUNDS:-5}
MIXES=${MIXES:-200}
SECONDS_EACH=${SECONDS_EACH:-5}
SECONDS_LARGE=${SECONDS_LARGE:-60}
DELTA=${DELTA:-1000}
STEPS=${STEPS:-opening small delta checkpoint large update}
export STOA
say() { printf '%s  %s\n' "$(date +%H:%M:%S)" "$*" >&2; }
die() { echo "$*" >&2; exit 1; }
stoa() { "$here/rivals/stoa.sh" "$1" "$WORK/$2" "${@:3}"; }
mkdir -p "$WORK" "$RESULTS"
WORK=$(cd "$WORK" && pwd) RESULTS=$(cd "$RESULTS" && pwd)
for it in "$BENCH" "$STOA"; do [ -x "$it" ] || die "$it is missing: make build, and cargo build --release --package stoa-bench"; done
for it in $STEPS; do
  ! compgen -G "$RESULTS/$it*.jsonl" >/dev/null || die "$RESULTS has results of $it: RESULTS names another folder"
done

checkpoints=''
finish() {
  [ -z "$checkpoints" ] || { touch "$WORK/enough"; wait "$checkpoints" || true; }
  for it in main plain; do stoa stop $it || true; done
}
trap finish EXIT
trap 'exit 130' INT TERM

# start NAME: serves it; sets url and pid. What is set before it as SYNC_MICROSECONDS is what each sync takes.
start() {
  local said
  if [ -n "${SYNC_MICROSECONDS:-}" ]; then
    said=$(LD_PRELOAD=$WORK/sync.so stoa start "$1")
  else
    said=$(stoa start "$1")
  fi
  url=${said%% *} pid=${said##* }
}
# fresh NAME: the database NAME is as it was loaded.
fresh() {
  stoa install "$1"
  stoa delete "$1"
  cp -r --reflink=auto "$WORK/base/database" "$WORK/$1/database"
}
# status STEP WHEN: what the server says of itself.
status() {
  printf '{"kind":"status","when":"%s","status":%s}\n' "$2" "$(curl --silent --fail "${url%/sparql}/status")" >>"$RESULTS/$1-status.jsonl"
}
checkpointed() { curl --silent --fail "${url%/sparql}/status" | sed 's/.*"checkpoint":{"commit":\([0-9]*\).*/\1/'; }
explore() { # explore PATH [options]
  "$BENCH" run explore "$url" --products "$products" --server-pid "$pid" --warm-up "$((MIXES / 4))" --mixes "$MIXES" \
    --connection keep --output "$1" "${@:2}" >&2
}
# inserts FILE [options]: of quads in requests of 1,000 to the server at url.
inserts() {
  "$BENCH" run inserts "$url" --server-pid "$pid" --quads 1000 --rounds 1 --output "$RESULTS/$1" "${@:2}" >&2
}

# median FILE NAME [WORD]: of the figures of that name in lines with that word.
median() {
  [ -s "$RESULTS/$1" ] || return 0
  awk -v word="${3:-}" 'index($0, word)' "$RESULTS/$1" | sed -n "s/.*\"$2\":\([-+0-9.e]*\).*/\1/p" | sort -g |
    awk '{ value[NR] = $1 } END { if (NR) printf "%.5g\n", value[int((NR + 1) / 2)] }'
}
# share A B: A / B, if both are there.
share() { awk -v a="$1" -v b="$2" 'BEGIN { if (a != "" && b > 0) printf "%.2f", a / b; else printf "-" }'; }

prepare() {
  "${CC:-cc}" -O2 -o "$WORK/fsync" "$here/fsync.c"
  "${CC:-cc}" -O2 -shared -fPIC -o "$WORK/sync.so" "$here/sync.c"
  stoa install base
  if [ "$(cat "$WORK/loaded" 2>/dev/null)" != "$products" ]; then
    say "generating and loading $products products"
    "$BENCH" generate bsbm --products "$products" --output "$WORK/data.nt.zst" \
      --update-transactions "$((products < 1200 ? products / 3 : 400))" --update-output "$WORK/updates.nt"
    stoa load base "$WORK/data.nt.zst" >&2
    "$STOA" query --db "$WORK/base/database" --format tsv \
      'SELECT ?s { ?s <http://www4.wiwiss.fu-berlin.de/bizer/bsbm/v01/vocabulary/productFeature> ?f } LIMIT 100000' |
      tail -n +2 | sort -u >"$WORK/subjects"
    echo "$products" >"$WORK/loaded"
  fi
}

step_opening() {
  local begun
  "$STOA" query --db "$WORK/base/database" 'ASK {}' >/dev/null
  for _ in 1 2 3 4 5; do
    begun=$(date +%s%N)
    "$STOA" query --db "$WORK/base/database" 'ASK {}' >/dev/null
    echo "{\"kind\":\"opening\",\"ms\":$((($(date +%s%N) - begun) / 1000000))}" >>"$RESULTS/opening.jsonl"
  done
}

# small FILE CLIENTS [options]: one quad a request, to the server at url.
small() {
  "$BENCH" run inserts "$url" --server-pid "$pid" --clients "$2" --rounds "$ROUNDS" --duration "${SECONDS_EACH}s" \
    --output "$RESULTS/$1" "${@:3}" >&2
}
step_small() {
  local appends
  appends=$(printf '%q %q 200 %s' "$WORK/fsync" "$WORK" "$SECONDS_EACH")
  fresh main
  start main
  small small.jsonl 1,16 --beside "$appends"
  say "small commits, where syncs are free"
  fresh main
  SYNC_MICROSECONDS=0 start main
  small small-0.jsonl 1,16,64
  say "small commits, where a sync takes 2 ms"
  fresh main
  SYNC_MICROSECONDS=2000 start main
  small small-2000.jsonl 1,16,64 --beside "SYNC_MICROSECONDS=2000 LD_PRELOAD=$(printf %q "$WORK/sync.so") $appends"
  stoa stop main
}

step_delta() {
  local with with_pid without without_pid before
  fresh main
  fresh plain
  start main
  with=$url with_pid=$pid before=$(checkpointed)
  inserts delta.jsonl --clients 4 --count "$((DELTA / 4))" --subjects "$WORK/subjects" --existing 30
  status delta filled
  [ "$(checkpointed)" = "$before" ] || say "a checkpoint has taken some of the delta: RIVAL_MEMORY_MB gives it more room"
  start plain
  without=$url without_pid=$pid
  for ((round = 1; round <= ROUNDS; round++)); do
    say "Explore without and with the delta, round $round"
    url=$without pid=$without_pid
    explore "$RESULTS/delta-without.jsonl"
    url=$with pid=$with_pid
    explore "$RESULTS/delta-with.jsonl"
  done
  status delta asked
  stoa stop plain
  stoa stop main
}

# Fills the delta and writes it into the trees, over and over; notes when it did the latter.
checkpoints() {
  local from
  while [ ! -e "$WORK/enough" ]; do
    inserts checkpoint-filled.jsonl --clients 1 --count "$((DELTA / 5))" 2>/dev/null
    from=$(($(date +%s%N) / 1000))
    "$STOA" checkpoint --server "${url%/sparql}" >/dev/null
    echo "{\"from_us\":$from,\"to_us\":$(($(date +%s%N) / 1000))}" >>"$WORK/checkpoints.jsonl"
  done
}

step_checkpoint() {
  fresh main
  start main
  rm -f "$WORK/quiet.jsonl" "$WORK/busy.jsonl" "$WORK/checkpoints.jsonl"
  for ((round = 1; round <= ROUNDS; round++)); do
    say "Explore without and with checkpoints beside it, round $round"
    explore "$WORK/quiet.jsonl" --samples
    rm -f "$WORK/enough"
    checkpoints &
    checkpoints=$!
    explore "$WORK/busy.jsonl" --samples
    touch "$WORK/enough"
    wait "$checkpoints"
    checkpoints=''
  done
  "$BENCH" compare-samples "$WORK/quiet.jsonl" "$WORK/busy.jsonl" --during "$WORK/checkpoints.jsonl" --output "$RESULTS/checkpoint.jsonl" >&2
  stoa stop main
}

step_large() {
  fresh main
  start main
  status large before
  (sleep "$((SECONDS_LARGE / 2))"; "$STOA" checkpoint --server "${url%/sparql}" >/dev/null) &
  local checkpoint=$!
  inserts large.jsonl --clients 4 --duration "${SECONDS_LARGE}s" --subjects "$WORK/subjects" --existing 30
  wait "$checkpoint"
  status large after
  stoa stop main
}

step_update() {
  local count
  fresh main
  start main
  count=$(($(grep -c '^#__SEP__' "$WORK/updates.nt") / 2))
  "$BENCH" run explore-update "$url" --products "$products" --updates "$WORK/updates.nt" --server-pid "$pid" --warm-up 20 \
    --mixes "$((count < 180 ? count : 180))" --connection keep --output "$RESULTS/update.jsonl" >&2
  stoa stop main
}

# Rows of R1: what is called, and the file.
small_rows() {
  local appends one sixteen
  appends=$(median "$2" requests_a_second '"kind":"appends"')
  one=$(median "$2" requests_a_second '"clients":1,')
  sixteen=$(median "$2" requests_a_second '"clients":16,')
  cat <<ROWS
| R1 $1: durable appends of 200 bytes, a second | ${appends:--} | |
| R1 $1: one client, one quad a request, a second | ${one:--} | |
| R1 $1: of what the disk allows | $(share "$one" "$appends") | at least 0.80 |
| R1 $1: 16 clients, a second | ${sixteen:--} | |
| R1 $1: of what one client does | $(share "$sixteen" "$one") | at least 10 |
ROWS
}
summary() {
  local without with
  without=$(median delta-without.jsonl server_cpu_ms_a_mix) with=$(median delta-with.jsonl server_cpu_ms_a_mix)
  cat <<SUMMARY
# Commits at $products products: $(date +%F)

$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores, $(git -C "$here" rev-parse --short HEAD 2>/dev/null || echo unknown).
Medians of $ROUNDS rounds.

| what | found | wanted |
|---|---:|---:|
$(small_rows "this disk" small.jsonl)
$(small_rows "a sync takes 2 ms" small-2000.jsonl)
| R1 syncs are free: 16 clients, a second | $(median small-0.jsonl requests_a_second '"clients":16,') | at least 15000 |
| R1 syncs are free: 64 clients, a second | $(median small-0.jsonl requests_a_second '"clients":64,') | |
| R2 requests of 1,000 quads from 4 clients, a second | $(median large.jsonl requests_a_second) | at least 100 |
| R3 server CPU ms a mix without a delta, and with | ${without:--}, ${with:--} | |
| R3 how many times | $(share "$with" "$without") | at most 1.15 |
| R3 p99 of all queries during checkpoints, how many times | $(median checkpoint.jsonl p99_ratio '"query":"all"') | at most 2 |
| R4 server CPU ms of the five updates of a mix | $(median update.jsonl update_cpu_ms_a_mix) | at most 6 |
| R6 ms until a database answers | $(median opening.jsonl ms) | less than 20 |
SUMMARY
}

prepare
for step in $STEPS; do
  say "$step"
  "step_$step"
done
summary >"$RESULTS/SUMMARY.md"
cat "$RESULTS/SUMMARY.md"
