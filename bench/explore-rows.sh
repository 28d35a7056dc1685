#!/usr/bin/env bash
# Whether the answers of the Explore queries have as many rows as the original's: bench/explore-rows.sh [PRODUCTS [DATASETS]]
#
# The original's figures (bench/explore-rows.tsv) come from one dataset, that is from one tree of types and one set of
# vendors, so what they can be compared with are datasets. This generates DATASETS of them (8 by default) with as many seeds,
# each with PRODUCTS products (2848 by default), loads each into Stoa, runs a share of MIXES mixes there with parameters of
# its own, deletes it, and lets `stoa-bench explore-rows` compare the means. The exit code is 1 if a query is off.
#
# Results stay in RESULTS and are taken as they are when it is called again; remove them to begin anew.
#
# Settings, by environment:
#   MIXES    of all datasets together, 2000         RIVAL_MEMORY_MB   what Stoa may plan with
#   WORK     where data and databases lie; by default target/explore-rows
#   RESULTS  the results, a file for each dataset; by default WORK/PRODUCTS
#   BENCH    the program stoa-bench, by default that of target/release; STOA the same of stoa
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
products=${1:-2848}
datasets=${2:-8}
if [[ ! $products =~ ^[1-9][0-9]*$ || ! $datasets =~ ^[1-9][0-9]*$ || $datasets -lt 2 ]]; then
  echo "usage: $0 [PRODUCTS [DATASETS]], two datasets or more" >&2
  exit 2
fi
target=${CARGO_TARGET_DIR:-$here/../target}
WORK=${WORK:-$target/explore-rows}
RESULTS=${RESULTS:-$WORK/$products}
BENCH=${BENCH:-$target/release/stoa-bench}
mixes=$(((${MIXES:-2000} + datasets - 1) / datasets))
mkdir -p "$WORK" "$RESULTS"
stoa() { "$here/rivals/stoa.sh" "$1" "$WORK/stoa" "${@:2}"; }
say() { printf '%s  %s\n' "$(date +%H:%M:%S)" "$*" >&2; }

finish() {
  stoa delete || true
  rm -f "$WORK/data.nt.zst"
}
trap finish EXIT
trap 'exit 130' INT TERM

installed='' files=()
for ((seed = 1; seed <= datasets; seed++)); do
  file=$RESULTS/$seed.jsonl
  files+=("$file")
  if [ -s "$file" ]; then
    say "dataset $seed: as it is in $file"
    continue
  fi
  [ -n "$installed" ] || stoa install
  installed=1
  say "dataset $seed of $datasets: generating and loading $products products"
  "$BENCH" generate bsbm --products "$products" --seed "$seed" --output "$WORK/data.nt.zst"
  stoa load "$WORK/data.nt.zst" >&2
  rm "$WORK/data.nt.zst"
  url=$(stoa start)
  say "dataset $seed: $mixes mixes"
  "$BENCH" run explore "${url%% *}" --products "$products" --data-seed "$seed" --seed $((808079 + seed)) \
    --warm-up 0 --mixes "$mixes" --quirks bsbm --connection keep --output "$file.part" >/dev/null
  mv "$file.part" "$file"
  stoa delete
done
"$BENCH" explore-rows --products "$products" --expected "$here/explore-rows.tsv" "${files[@]}"
