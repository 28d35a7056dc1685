#!/usr/bin/env bash
# Memory and short queries under attack: bench/hostile.sh [arguments of stoa-bench hostile, such as --seconds 60 --only M4]
#
# Serves an empty database with --memory 256M and has sixty clients send hostile requests, while another one asks one-row
# queries. Prints how the requests ended, the times of the queries and the peak of the resident memory; exit code 1 if more
# than 282 MB were resident, or the slowest hundredth of the queries took more than 50 ms.
#
# Settings, by environment:
#   BENCH    the program stoa-bench, by default that of target/release; STOA the same of stoa
#   MEMORY   what --memory is, by default 256M
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
target=${CARGO_TARGET_DIR:-$here/../target}
BENCH=${BENCH:-$target/release/stoa-bench}
STOA=${STOA:-$target/release/stoa}
MEMORY=${MEMORY:-256M}
for it in "$BENCH" "$STOA"; do [ -x "$it" ] || { echo "$it is missing: make build, and cargo build --release --package stoa-bench" >&2; exit 1; }; done
work=$(mktemp -d)
server=''
finish() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  wait
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM
"$STOA" serve --db "$work/db" --create --bind 127.0.0.1:0 --memory "$MEMORY" >"$work/said" 2>&1 &
server=$!
until address=$(sed -n 's,^listening on http://,,p' "$work/said") && [ -n "$address" ]; do
  kill -0 "$server" || { cat "$work/said" >&2; exit 1; }
  sleep 0.1
done
"$BENCH" hostile "$address" --server-pid "$server" "$@"
