#!/usr/bin/env bash
# How long logs take to replay, on this machine: bench/replay.sh [MEGABYTES], of log, 1024 by default
#
# Serves an empty database with --archive-log, makes a backup, and posts BSBM as N-Triples in pieces until the log that was
# archived is so long. Then, with the results as lines of JSON in RESULTS:
#   killed    kill -9 in the midst, and the time until the database answers again: what is behind the last checkpoint
#   restored  the backup restored with all of the archived log, under --memory 1G; its quads must be those that there were
#             after one of the pieces
#
# Settings, by environment:
#   WORK     where data and databases lie; by default target/replay    MEMORY   of the restore, 1G
#   RESULTS  a folder, by default WORK/results                         LINES    of a piece, 20000
#   BENCH    the program stoa-bench, by default that of target/release; STOA the same of stoa
# A server takes what is longer than some megabytes for a bulk load, which is in no log: 20,000 lines have about five.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
megabytes=${1:-1024}
[[ $megabytes =~ ^[1-9][0-9]*$ ]] || { echo "usage: $0 [MEGABYTES]" >&2; exit 2; }
target=${CARGO_TARGET_DIR:-$here/../target}
WORK=${WORK:-$target/replay}
RESULTS=${RESULTS:-$WORK/results}
BENCH=${BENCH:-$target/release/stoa-bench}
STOA=${STOA:-$target/release/stoa}
MEMORY=${MEMORY:-1G}
LINES=${LINES:-20000}
export STOA
say() { printf '%s  %s\n' "$(date +%H:%M:%S)" "$*" >&2; }
die() { echo "$*" >&2; exit 1; }
stoa() { "$here/rivals/stoa.sh" "$1" "$WORK/main" "${@:2}"; }
mkdir -p "$WORK" "$RESULTS"
WORK=$(cd "$WORK" && pwd) RESULTS=$(cd "$RESULTS" && pwd)
for it in "$BENCH" "$STOA"; do [ -x "$it" ] || die "$it is missing: make build, and cargo build --release --package stoa-bench"; done
finish() { stoa stop || true; }
trap finish EXIT
trap 'exit 130' INT TERM

archive=$WORK/archive
export archive megabytes
archived() { du --summarize --block-size=1 "$archive" | cut -f 1; }
export -f archived die
count() {
  curl --silent --fail --get --data-urlencode 'query=SELECT (COUNT(*) AS ?n) { ?s ?p ?o }' --header 'Accept: text/csv' "$1" |
    tr -dc '0-9\n' | tail -n 1
}
milliseconds() { echo $((($(date +%s%N) - $1) / 1000000)); }

# Sends what it reads, unless the log is long enough; then it fails with 100, and `split` with it.
post() {
  [ "$(archived)" -lt $((megabytes * 1000000)) ] || exit 100
  curl --silent --show-error --fail-with-body --output "$WORK/said" --write-out '%header{stoa-added}\n' --header 'Content-Type: application/n-triples' --data-binary @- \
    --request POST "$base/store?default" >>"$WORK/added" || { cat "$WORK/said" >&2; exit 1; }
  # By then a checkpoint was made, and files of the log are used again.
  [ "$(awk '{ sum += $1 } END { print sum }' "$WORK/added")" -lt 4000000 ] || [ "$(archived)" -gt 1000000 ] ||
    die "4 million quads left no log in $archive: pieces are loaded in bulk, LINES must be less"
}
export -f post

say "an empty database and its backup"
stoa install
stoa delete
rm -rf "$archive" "$WORK/backup" "$WORK/restored" "$WORK/added"
mkdir -p "$archive"
echo '<urn:stoa-bench:first> <urn:stoa-bench:first> "first" .' >"$WORK/first.nt"
stoa load "$WORK/first.nt" >/dev/null
"$STOA" backup --db "$WORK/main/database" --to "$WORK/backup"

say "filling the log"
said=$(STOA_ARCHIVE_LOG=$archive stoa start)
url=${said%% *} pid=${said##* }
base=${url%/sparql}
export WORK base
# A log of a gigabyte has 30 to 40 M quads: data of more products than that, of which the end is not reached.
products=$((megabytes * 200 < 500 ? 500 : megabytes * 200))
status=0
"$BENCH" generate bsbm --products "$products" 2>/dev/null | SHELL=/bin/bash split --lines "$LINES" --filter post - || status=$?
quads=$(count "$url")
[ "$(archived)" -ge $((megabytes * 1000000)) ] ||
  die "$(archived) bytes of log were archived of $quads quads; split ended with status $status"
say "$quads quads in $(archived) bytes of log"

say "kill -9"
kill -KILL "$pid"
while kill -0 "$pid" 2>/dev/null; do sleep 0.01; done
behind=$(du --summarize --block-size=1 "$WORK/main/database" | cut -f 1)
begun=$(date +%s%N)
"$STOA" query --db "$WORK/main/database" 'ASK {}' >/dev/null
echo "{\"kind\":\"killed\",\"ms\":$(milliseconds "$begun"),\"database_bytes\":$behind}" | tee -a "$RESULTS/replay.jsonl"
said=$(stoa start)
url=${said%% *}
[ "$(count "$url")" = "$quads" ] || die "after kill -9 there are $(count "$url") of $quads quads"
stoa stop

say "restoring"
begun=$(date +%s%N)
/usr/bin/env time -f '%M' -o "$WORK/peak" true 2>/dev/null && timed=(time -f '%M' -o "$WORK/peak") || timed=()
"${timed[@]}" "$STOA" restore --from "$WORK/backup" --archive-log "$archive" --db "$WORK/restored" --memory "$MEMORY"
spent=$(milliseconds "$begun")
restored=$("$STOA" query --db "$WORK/restored" --format csv 'SELECT (COUNT(*) AS ?n) { ?s ?p ?o }' | tr -dc '0-9\n' | tail -n 1)
peak=$(tail -n 1 "$WORK/peak" 2>/dev/null || echo null)
echo "{\"kind\":\"restored\",\"ms\":$spent,\"log_bytes\":$(archived),\"quads\":$restored,\"of_quads\":$quads,\"peak_kb\":${peak:-null}}" |
  tee -a "$RESULTS/replay.jsonl"
rm -rf "$WORK/restored"
# The last files of the log are not in the archive; what is there must be all pieces up to one of them.
awk -v restored="$restored" 'BEGIN { sum = 1 } { sum += $1; if (sum == restored) found = 1 } END { exit !found }' "$WORK/added" ||
  die "the restored database has $restored of $quads quads, which it never had"
say "done: $RESULTS/replay.jsonl"
