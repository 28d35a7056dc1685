#!/usr/bin/env bash
# Whether the driver costs a server what a Java client costs it: bench/java-client/run.sh URL PID PRODUCTS [PAIRS]
#
# The original driver of BSBM is a Java program that asks with HttpURLConnection, a connection for each query. This writes the
# queries of `stoa-bench run explore --quirks bsbm` down (record.py), and asks them in turns with Java (Replay.java) and with
# the driver, PAIRS times (3 by default). Each line gives the time of the server's process PID on processors, in ms a mix.
#
# Settings, by environment: MIXES and WARM_UP, 120 and 30; BENCH, the program stoa-bench.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [ $# -lt 3 ] || [ $# -gt 4 ]; then
  echo "usage: $0 URL PID PRODUCTS [PAIRS]" >&2
  exit 2
fi
url=$1 pid=$2 products=$3 pairs=${4:-3}
BENCH=${BENCH:-${CARGO_TARGET_DIR:-$here/../../target}/release/stoa-bench}
MIXES=${MIXES:-120}
WARM_UP=${WARM_UP:-30}
work=$(mktemp -d)
recorder=''
finish() {
  [ -z "$recorder" ] || kill "$recorder" 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT

coproc RECORDER { exec python3 "$here/record.py" "$work/queries"; }
recorder=$RECORDER_PID
read -r address <&"${RECORDER[0]}"
# As the driver counts them: those of the warm-up have other parameters.
"$BENCH" run explore "$address" --products "$products" --quirks bsbm --warm-up "$WARM_UP" --mixes "$MIXES" >/dev/null 2>&1
kill "$recorder"
javac -d "$work" "$here/Replay.java"

for ((pair = 1; pair <= pairs; pair++)); do
  printf 'java    '
  java -cp "$work" Replay "$url" "$pid" "$work/queries" "$WARM_UP"
  printf 'driver  '
  "$BENCH" run explore "$url" --server-pid "$pid" --products "$products" --quirks bsbm --warm-up "$WARM_UP" --mixes "$MIXES" 2>/dev/null |
    sed -n 's/^server CPU a mix *\([0-9.]*\).*/\1/p'
done
