#!/usr/bin/env bash
# Compares Stoa with the engines of bench/rivals on the same data and the same machine: bench/compare.sh 1m|10m|100m
#
# Each engine is loaded, asked and deleted before the next one. Each step (load, explore with 1, 4 and 16 clients, bi, cold,
# ...) writes a result file of its own into bench/results/DATE-SCALE/ENGINE, when it is done; called again, an interrupted
# comparison goes on with the first step that has none. A step that fails leaves a file ENGINE/STEP.failed with the
# reason, and the others go on; RETRY=1 tries such steps again. In the end `stoa-bench report` writes REPORT.md.
#
# Answers are verified after they are timed: Stoa's by Oxigraph, all others' by Stoa.
#
# Steps explore-update-N and tpcc-rdf-N write: each begins with a copy of the database as it was loaded, which is deleted
# afterwards. Where explore-update is named, the data leave out what its updates insert, and the results go into a folder
# DATE-SCALE-updates.
#
# Settings, by environment:
#   DATASET     bsbm, by default; path-graph, genealogy; tpcc, at a scale of so many warehouses
#   ENGINES     which, in this order; by default: stoa oxigraph virtuoso jena blazegraph
#   STEPS       by default, of bsbm: explore-1 explore-4 explore-16 bi cold; of path-graph: paths-1 paths-4; of genealogy:
#               genealogy-1 genealogy-4; of tpcc: tpcc-rdf-4 tpcc-rdf-16. The number is that of the clients. bi-drilldown and operators take longer, and
#               explore-update-1 and explore-update-4 have other data: these are run when they are named
#   RESULTS     the folder of the results
#   WORK        where engines, data and databases lie; by default target/rivals
#   QUERY_TIMEOUT   of each query, 60s     STEP_TIME   the time after which a step begins no further mix, 5m
#   TRANSACTION_TIME   how long tpcc-rdf is measured, 5m
#   MIXES, WARM_UP  of explore and explore-update, 500 and 100; of a small dataset as many mixes write as a third of its
#               products are enough for     COLD_TIME   how long a cold start is watched, 60s
#   RIVAL_MEMORY_MB what an engine may plan with; by default half of the machine's
#   KEEP_DATA=1     leaves the generated data for the next comparison
#   RIVALS, BENCH   the scripts of the engines, and the program stoa-bench
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
scale=${1:-}
DATASET=${DATASET:-bsbm}
# $size is the number of products, edges or people; $about is how many triples these are.
case $DATASET/$scale in
  bsbm/1m) size=2848 ;;
  bsbm/10m) size=28482 ;;
  bsbm/100m) size=284826 ;;
  path-graph/*m) size=${scale%m}000000 ;;
  genealogy/*m) size=$((${scale%m} * 110000)) ;;
  */ | *[!0-9a-z/-]*) size='' ;;
  *) size=$scale ;;
esac
case $DATASET in
  bsbm) option=--products about=$((size * 355)) default=(explore-1 explore-4 explore-16 bi cold) ;;
  path-graph) option=--edges about=$size default=(paths-1 paths-4) ;;
  genealogy) option=--people about=$((size * 9)) default=(genealogy-1 genealogy-4) ;;
  tpcc) option=--warehouses about=$((size * 5500000)) default=(tpcc-rdf-4 tpcc-rdf-16) ;;
  *) size='' ;;
esac
if [[ ! $size =~ ^[1-9][0-9]*$ ]]; then
  echo "usage: [DATASET=bsbm|path-graph|genealogy|tpcc] $0 1m|10m|100m|PRODUCTS, EDGES, PEOPLE OR WAREHOUSES" >&2
  exit 2
fi
target=${CARGO_TARGET_DIR:-$here/../target}
WORK=${WORK:-$target/rivals}
BENCH=${BENCH:-$target/release/stoa-bench}
RIVALS=${RIVALS:-$here/rivals}
QUERY_TIMEOUT=${QUERY_TIMEOUT:-60s}
STEP_TIME=${STEP_TIME:-5m}
MIXES=${MIXES:-500}
WARM_UP=${WARM_UP:-100}
COLD_TIME=${COLD_TIME:-60s}
TRANSACTION_TIME=${TRANSACTION_TIME:-5m}
RIVAL_MEMORY_MB=${RIVAL_MEMORY_MB:-$(awk '/^MemTotal:/ { print int($2 / 2048) }' /proc/meminfo)}
export RIVAL_MEMORY_MB
read -r -a engines <<<"${ENGINES:-stoa oxigraph virtuoso jena blazegraph}"
read -r -a steps <<<"${STEPS:-${default[*]}}"
label=$scale
[ "$DATASET" = bsbm ] || label=$DATASET-$scale
# Transactions of one product each for the steps that write: two a mix. $dataset is what the engines load.
transactions=0
case " ${steps[*]}" in
  *' explore-update-'*)
    [ "$DATASET" = bsbm ] || { echo "explore-update is for the dataset bsbm" >&2; exit 2; }
    transactions=$((2 * MIXES < size / 3 ? 2 * MIXES : size / 3))
    label=$label-updates
    ;;
esac
dataset=$DATASET-$size
[ "$transactions" -eq 0 ] || dataset=$dataset-$transactions-updates

# Progress bars need the terminal itself, not the pipe that keeps a step's last words.
exec 3>&2
bench() { if [ -t 3 ]; then "$BENCH" "$@" 2>&3; else "$BENCH" "$@"; fi; }

say() { printf '%s  %s\n' "$(date +%H:%M:%S)" "$*" >&2; }
die() { echo "$*" >&2; exit 1; }
rival() { "$RIVALS/$1.sh" "$2" "$WORK/$1" "${@:3}"; }

# The folder of the results: one that is not finished goes on.
results() {
  local folder
  for folder in "$here/results"/????-??-??-"$label"; do
    if [ -e "$folder/settings.json" ] && [ ! -e "$folder/finished" ]; then
      echo "$folder"
      return
    fi
  done
  echo "$here/results/$(date +%F)-$label"
}

# Bytes a triple: the data 260, the databases of the engines that verify answers, which stay until the end, and the largest
# one of the others; steps that write have a copy of a database.
check_disk() {
  local needed free name size each=260 largest=0
  for name in "${engines[@]}"; do
    case $name in
      stoa) size=40 ;;
      oxigraph) size=190 ;;
      virtuoso) size=130 ;;
      *) size=250 ;;
    esac
    case $name in
      stoa | oxigraph) each=$((each + size)) ;;
      *) largest=$((size > largest ? size : largest)) ;;
    esac
  done
  each=$((each + largest))
  [ "$transactions" -eq 0 ] && [ "$DATASET" != tpcc ] || each=$((each + (largest > 190 ? largest : 190)))
  needed=$((about * each / 1048576 + 1024))
  free=$(df --output=avail --block-size=1M "$WORK" | tail -n 1)
  [ "$free" -ge "$needed" ] || die "$WORK needs $needed MB of free disk for $label, and has $free MB; WORK names another place"
}

quoted() { printf '"%s"' "$(printf %s "$1" | tr -d '\000-\037' | sed 's/[\\"]/\\&/g')"; }

settings() {
  local commit
  commit=$(git -C "$here" rev-parse --short HEAD 2>/dev/null || echo unknown)
  git -C "$here" diff --quiet HEAD 2>/dev/null || commit="$commit, changed"
  cat <<JSON
{"date": "$(date +%F)", "dataset": $(quoted "$DATASET"), "scale": $(quoted "$scale"), "size": $size, "triples": $triples, "commit": $(quoted "$commit"),
"processor": $(quoted "$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)"), "cores": $(nproc),
"memory_mb": $(awk '/^MemTotal:/ { print int($2 / 1024) }' /proc/meminfo), "kernel": $(quoted "$(uname -sr)"),
"engine_memory_mb": $RIVAL_MEMORY_MB, "engines": $(quoted "${engines[*]}"), "steps": $(quoted "${steps[*]}"),
"query_timeout": $(quoted "$QUERY_TIMEOUT"), "step_time": $(quoted "$STEP_TIME"), "mixes": $MIXES, "warm_up": $WARM_UP,
"transactions": $transactions}
JSON
}

# Generates the data in as many files as there are cores, once; sets $triples and $data.
generate() {
  local folder=$WORK/data/$dataset said updates=()
  if [ ! -e "$folder/triples" ]; then
    say "generating $DATASET of size $size"
    rm -rf "$folder"
    mkdir -p "$folder"
    if [ "$DATASET" = bsbm ]; then
      [ "$transactions" -eq 0 ] || updates=(--update-transactions "$transactions" --update-output "$folder/updates")
      said=$("$BENCH" generate bsbm --products "$size" --parts "$(nproc)" --output "$folder/part.nt" "${updates[@]}" 2>&1)
    else
      said=$("$BENCH" generate "$DATASET" "$option" "$size" --output "$folder/whole" 2>&1)
      split --number "l/$(nproc)" --additional-suffix .nt "$folder/whole" "$folder/part"
      rm "$folder/whole"
    fi
    printf '%s\n' "${said%% *}" >"$folder/triples"
  fi
  triples=$(cat "$folder/triples")
  data=("$folder"/part*.nt)
}

# Servers that this script started end with it.
running=()
finish() {
  local name
  for name in "${running[@]}"; do rival "$name" stop || true; done
}
trap finish EXIT
trap 'exit 130' INT TERM

# up ENGINE [VARIANT]: starts its server unless it is up; sets $url and $pid.
up() {
  local address
  address=$(rival "$1" address)
  if [ -z "$address" ]; then
    running+=("$1")
    address=$(rival "$1" start "${@:2}") || return 1
  fi
  read -r url pid <<<"$address"
}

down() {
  local name still=()
  rival "$1" stop
  for name in "${running[@]}"; do [ "$name" = "$1" ] || still+=("$name"); done
  running=("${still[@]}")
}

# is_done ENGINE STEP: whether it has a result, or a reason why not.
is_done() { [ -e "$out/$1/$2.jsonl" ] || { [ -z "${RETRY:-}" ] && [ -e "$out/$1/$2.failed" ]; }; }
has_failed() { [ -e "$out/$1/load.failed" ] || [ -e "$out/$1/install.failed" ]; }

# failed ENGINE STEP REASON
failed() {
  say "$1: $2 failed: $3"
  printf '%s\n' "$3" >"$out/$1/$2.failed"
}

# attempt ENGINE STEP COMMAND...: runs it; where it fails, its last words are the reason.
attempt() {
  local log=$out/$1/$2.log
  rm -f "$out/$1/$2.failed"
  if "${@:3}" 2> >(tee "$log" >&2); then return 0; fi
  # The log may still be on its way through the pipe.
  wait $! 2>/dev/null || true
  local reason
  # Without the lines of `say`.
  reason=$(grep -vE '^$|^[0-9]{2}:[0-9]{2}:[0-9]{2}  ' "$log" | tail -n 2 | tr '\n' ' ')
  failed "$1" "$2" "${reason:-it gave no reason, see $WORK/$1/log}"
  return 1
}

install() {
  [ -e "$RIVALS/$1.sh" ] || { echo "there is no $RIVALS/$1.sh" >&2; return 1; }
  if [ "$1" = stoa ] || [ ! -d "$WORK/$1/engine" ]; then
    rival "$1" install || { rm -rf "$WORK/$1/engine"; return 1; }
  fi
  rival "$1" version >"$out/$1/version"
}

count() {
  curl --silent --fail --get --data-urlencode 'query=SELECT (COUNT(*) AS ?n) { ?s ?p ?o }' --header 'Accept: text/csv' "$1" |
    tr -dc '0-9\n' | tail -n 1
}

load() {
  local figures loaded
  for _ in 1 2; do
    say "$1: loading"
    rm -f "$WORK/$1/loaded"
    figures=$(rival "$1" load "${data[@]}") || return 1
    up "$1" || return 1
    loaded=$(count "$url")
    down "$1"
    if [ "$loaded" = "$triples" ]; then
      echo "$dataset" >"$WORK/$1/loaded"
      awk -v triples="$triples" 'BEGIN { printf "{\"kind\": \"load\", \"triples\": %s", triples }
        { printf ", \"%s\": %s", $1, $2 } END { print "}" }' <<<"$figures" >"$out/$1/load.part"
      [ -e "$out/$1/load.jsonl" ] || mv "$out/$1/load.part" "$out/$1/load.jsonl"
      rm -f "$out/$1/load.part"
      return 0
    fi
    say "$1: loaded ${loaded:-no} of $triples triples"
  done
  echo "loaded ${loaded:-no} of $triples triples, twice" >&2
  return 1
}

# ready ENGINE: installed and loaded.
ready() {
  mkdir -p "$out/$1" "$WORK/$1"
  restore "$1"
  if has_failed "$1" && [ -z "${RETRY:-}" ]; then return 1; fi
  if [ "$(cat "$WORK/$1/loaded" 2>/dev/null)" != "$dataset" ] || [ ! -e "$out/$1/load.jsonl" ]; then
    attempt "$1" install install "$1" && attempt "$1" load load "$1" || return 1
  elif [ ! -e "$out/$1/version" ]; then
    rival "$1" version >"$out/$1/version"
  fi
}

# reference_of ENGINE: the engine that verifies its answers.
reference_of() { if [ "$1" = stoa ]; then echo oxigraph; else echo stoa; fi; }
wanted() { [[ " ${engines[*]} " == *" $1 "* ]]; }

# run ENGINE STEP VARIANT OPTION...: what `stoa-bench run` measures, verified if the reference is there.
run() {
  local name=$1 step=$2 variant=$3 part status=0 reference check=() mix=("$option" "$size" --at-most "$STEP_TIME")
  part=$out/$name/$step.part
  reference=$(reference_of "$name")
  rm -f "$part"
  if wanted "$reference" && ready "$reference"; then
    up "$reference" || return 1
    check=(--check "$url")
    mix+=(--check-mixes "${check_mixes:-5}")
  else
    say "$name: $step is not verified, because $reference is missing"
  fi
  # shellcheck disable=SC2086 # No variant is no argument.
  up "$name" $variant || return 1
  # These take no mixes, and make their queries from the data.
  [ "$4" != operators ] || mix=(--queries "$(operators)")
  bench run "${@:4}" "$url" --server-pid "$pid" --timeout "$QUERY_TIMEOUT" "${mix[@]}" \
    "${check[@]}" --output "$part" >"$out/$name/$step.txt" || status=$?
  [ ${#check[@]} -eq 0 ] || down "$reference"
  # Queries that failed are figures, too.
  if [ "$status" -gt 1 ] || [ ! -s "$part" ]; then
    echo "stoa-bench ended with status $status" >&2
    return 1
  fi
  mv "$part" "$out/$name/$step.jsonl"
}

# keep ENGINE: a copy of its database for `restore`, which puts it back in place of what was written since.
keep() {
  down "$1"
  rm -rf "$WORK/$1/kept.part"
  cp -a --reflink=auto "$WORK/$1/database" "$WORK/$1/kept.part" && mv "$WORK/$1/kept.part" "$WORK/$1/kept"
}

restore() {
  [ -d "$WORK/$1/kept" ] || return 0
  down "$1"
  rm -rf "$WORK/$1/database"
  mv "$WORK/$1/kept" "$WORK/$1/database"
}

# write ENGINE STEP CLIENTS OPTION...: what `stoa-bench run` measures of a mix that writes; the database is left changed.
write() {
  local name=$1 part=$out/$1/$2.part status=0 updates form
  rm -f "$part"
  keep "$name" || return 1
  up "$name" writing || return 1
  read -r updates form <<<"$(rival "$name" update-address)"
  [ -n "$updates" ] || { echo "its script names no address for updates" >&2; return 1; }
  bench run "${@:4}" "$url" --server-pid "$pid" --timeout "$QUERY_TIMEOUT" "$option" "$size" \
    --update-url "$updates" --update-form "$form" --clients "$3" --output "$part" >"$out/$name/$2.txt" || status=$?
  if [ "$status" -gt 1 ] || [ ! -s "$part" ]; then
    echo "stoa-bench ended with status $status" >&2
    return 1
  fi
  mv "$part" "$out/$name/$2.jsonl"
}

# The set of operators for the data: a frozen one if there is one, else one that the first engine makes.
operators() {
  local frozen=$here/queries/operators/$dataset.json
  if [ -e "$frozen" ]; then echo "$frozen"; else echo "$out/operators.json"; fi
}

restart_command() { printf '%q restart %q %s' "$RIVALS/$1.sh" "$WORK/$1" "$2"; }

# perform ENGINE STEP [VARIANT]: one step by its name. Further mixes of queries get a line here.
perform() {
  local name=$1 step=$2 variant=${3:-} file=$2${3:+-$3} clients
  is_done "$name" "$file" && return
  ready "$name" || return 1
  say "$name: $file"
  clients=${step##*-}
  case $step in
    explore-update-*)
      attempt "$name" "$file" write "$name" "$file" "$clients" explore-update --updates "$WORK/data/$dataset/updates" \
        --warm-up "$WARM_UP" --mixes "$((transactions / 2))" --at-most "$STEP_TIME" || true
      restore "$name"
      ;;
    tpcc-rdf-*)
      attempt "$name" "$file" write "$name" "$file" "$clients" tpcc-rdf --duration "$TRANSACTION_TIME" \
        --restart "$(restart_command "$name" writing)" || true
      restore "$name"
      ;;
    explore-* | paths-* | genealogy-*)
      check_mixes=20 attempt "$name" "$file" run "$name" "$file" "$variant" \
        "${step%-*}" --clients "$clients" --warm-up "$WARM_UP" --mixes "$MIXES" || true
      ;;
    operators)
      attempt "$name" "$file" run "$name" "$file" "$variant" \
        operators --restart "$(restart_command "$name" "$variant")" || true
      ;;
    bi | bi-drilldown)
      check_mixes=2 attempt "$name" "$file" run "$name" "$file" "$variant" \
        "$step" --warm-up 1 --mixes 10 --restart "$(restart_command "$name" "$variant")" || true
      ;;
    cold) attempt "$name" "$file" cold "$name" "$file" || true ;;
    *) die "there is no step $step" ;;
  esac
}

cold() {
  local part=$out/$1/$2.part
  rm -f "$part"
  down "$1"
  running+=("$1")
  bench cold "$option" "$size" --stop "$(printf '%q stop %q' "$RIVALS/$1.sh" "$WORK/$1")" \
    --start "$(printf '%q start %q' "$RIVALS/$1.sh" "$WORK/$1")" --files "$WORK/$1/database" \
    --timeout "$QUERY_TIMEOUT" --watch "$COLD_TIME" --output "$part" >"$out/$1/$2.txt" || return 1
  mv "$part" "$out/$1/$2.jsonl"
}

engine() {
  local step variant
  mkdir -p "$out/$1"
  for step in "${steps[@]}"; do perform "$1" "$step" || break; done
  has_failed "$1" && return
  # Variants are for queries.
  if [[ ${steps[0]} == explore-update-* || ${steps[0]} == tpcc-rdf-* ]]; then
    [ ! -d "$WORK/$1" ] || down "$1"
    return
  fi
  for variant in $(rival "$1" variants); do
    [ ! -d "$WORK/$1/database" ] || down "$1"
    perform "$1" "${steps[0]}" "$variant" || true
  done
  [ ! -d "$WORK/$1" ] || down "$1"
}

delete() {
  [ -e "$RIVALS/$1.sh" ] || return 0
  rm -f "$WORK/$1/loaded"
  rival "$1" delete
  rm -rf "$WORK/$1/kept" "$WORK/$1/kept.part"
}

mkdir -p "$WORK"
WORK=$(cd "$WORK" && pwd)
out=${RESULTS:-$(results)}
mkdir -p "$out"
[ ! -e "$out/finished" ] || die "$out is finished: remove it to compare again today"
[ -x "$BENCH" ] || die "$BENCH is missing: cargo build --release --package stoa-bench"
[ -e "$out/settings.json" ] || check_disk
generate
[ -e "$out/settings.json" ] || settings >"$out/settings.json"
say "results go to $out"
for name in "${engines[@]}"; do
  say "$name"
  engine "$name"
  # The databases that verify others' answers are needed until the end.
  case $name in
    stoa | oxigraph) ;;
    *) delete "$name" ;;
  esac
done
for name in stoa oxigraph; do ! wanted "$name" || delete "$name"; done
[ -n "${KEEP_DATA:-}" ] || rm -rf "$WORK/data/$dataset"
"$BENCH" report "$out"
touch "$out/finished"
say "done: $out/REPORT.md"
