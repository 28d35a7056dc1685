# shellcheck shell=bash disable=SC2034
# What the scripts of all engines share. Each is called as `ENGINE.sh VERB DIR`, and defines a function for each verb:
#
#   install DIR            puts the engine into DIR/engine, from the package registries that this machine is set up for
#   load DIR FILE...       makes the database DIR/database of files (.nt or .ttl); prints `NAME VALUE` lines: seconds,
#                          cpu_seconds, peak_bytes (resident memory), disk_bytes
#   start DIR [VARIANT]    starts a server on a free port of the loopback and waits until it answers; prints `URL PID`. The
#                          variant `writing` takes updates, others need not
#   variants DIR           ways to start it that are worth a measurement of their own, one a line; often none
#   address DIR            prints `URL PID` of the server, if it is up
#   update-address DIR     prints `URL FORM` of a server that was started for writing: where updates go, and how, as
#                          `stoa-bench run --update-form` names it; nothing if the engine takes none
#   restart DIR [VARIANT]  stop and start
#   stop DIR               ends that server, and no other process
#   version DIR            prints a line
#   delete DIR             deletes the database
#
# RIVAL_MEMORY_MB is the memory that an engine may plan with; without it, half of the machine's. What an engine says goes
# to DIR/log.
set -euo pipefail

verb=${1:?"usage: $0 install|load|start|restart|address|update-address|variants|stop|version|delete DIR [ARGUMENT...]"}
mkdir -p "${2:?"usage: $0 $verb DIR"}"
dir=$(cd "$2" && pwd)
shift 2
engine=$dir/engine
database=$dir/database
log=$dir/log
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cores=$(nproc)
memory_mb=${RIVAL_MEMORY_MB:-$(awk '/^MemTotal:/ { print int($2 / 2048) }' /proc/meminfo)}

die() {
  echo "$*" >&2
  exit 1
}

# needs PROGRAM...: says which one is missing.
needs() {
  local program
  for program in "$@"; do
    command -v "$program" >/dev/null 2>&1 || die "$program is not installed"
  done
}

# quietly COMMAND...: what it says goes to the log; the end of that is shown if it fails.
quietly() {
  local status=0
  "$@" >>"$log" 2>&1 || status=$?
  [ "$status" -eq 0 ] || { tail -n 5 "$log" >&2; die "$1 failed, see $log"; }
}

# When a process was started, to tell it from a later one with the same id.
birth() { sed 's/^.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20; }

# free_port: a port of the loopback that nothing listens on.
free_port() {
  local port
  while port=$((20000 + RANDOM % 12000)); do
    if ! (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      echo "$port"
      return
    fi
  done
}

# peak_bytes PID: the most resident memory that a process had so far.
peak_bytes() { awk '/^VmHWM:/ { printf "%.0f\n", $2 * 1024 }' "/proc/$1/status" 2>/dev/null || true; }

# cpu_seconds PID: what it used so far; nothing if it has just ended.
cpu_seconds() {
  sed 's/^.*) //' "/proc/$1/stat" 2>/dev/null | awk -v hz="$(getconf CLK_TCK)" 'NF { print ($12 + $13) / hz }' || true
}

seconds_since() { awk -v from="$1" -v to="$(date +%s.%N)" 'BEGIN { printf "%.2f\n", to - from }'; }

# A load that fails or is interrupted leaves no process and no database behind.
child='' loading=''
finish() {
  [ -z "$child" ] || kill "$child" 2>/dev/null || true
  [ -z "$loading" ] || do_delete
}
trap finish EXIT

# measured COMMAND...: runs it, watches it, and adds to $peak and $cpu.
peak=0 cpu=0
measured() {
  local now_peak now_cpu last_peak=0 last_cpu=0 pid status=0
  "$@" >>"$log" 2>&1 &
  pid=$! child=$!
  while kill -0 "$pid" 2>/dev/null; do
    now_peak=$(peak_bytes "$pid") now_cpu=$(cpu_seconds "$pid")
    last_peak=${now_peak:-$last_peak} last_cpu=${now_cpu:-$last_cpu}
    sleep 0.1
  done
  wait "$pid" || status=$?
  child=''
  [ "$status" -eq 0 ] || { tail -n 5 "$log" >&2; die "$1 failed, see $log"; }
  peak=$((last_peak > peak ? last_peak : peak))
  cpu=$(awk -v a="$cpu" -v b="$last_cpu" 'BEGIN { print a + b }')
}

# loaded START: the figures of a load that began then.
loaded() {
  echo "seconds $(seconds_since "$1")"
  echo "cpu_seconds $cpu"
  echo "peak_bytes $peak"
  echo "disk_bytes $(du --summarize --block-size=1 "$database" | cut -f 1)"
}

# answers URL: whether the endpoint answers a query.
answers() {
  curl --silent --fail --max-time 10 --output "$dir/first" --get --data-urlencode 'query=ASK {}' \
    --header 'Accept: application/sparql-results+xml' "$1"
}

# start_server URL COMMAND...: in a session of its own, so that a Ctrl-C on the terminal is for the caller to handle.
start_server() {
  local url=$1
  shift
  [ ! -e "$dir/server" ] || stop_server
  setsid "$@" >>"$log" 2>&1 </dev/null &
  local pid=$!
  echo "$pid $(birth "$pid") $url" >"$dir/server"
  local _
  for _ in $(seq 1800); do
    if answers "$url"; then
      echo "$url $pid"
      return
    fi
    kill -0 "$pid" 2>/dev/null || { rm "$dir/server"; tail -n 5 "$log" >&2; die "the server did not start, see $log"; }
    sleep 0.1
  done
  stop_server
  die "the server does not answer, see $log"
}

stop_server() {
  [ -e "$dir/server" ] || return 0
  local pid born _
  read -r pid born _ <"$dir/server"
  if [ "$(birth "$pid")" = "$born" ]; then
    kill "$pid" 2>/dev/null || true
    for _ in $(seq 600); do
      [ "$(birth "$pid")" = "$born" ] || break
      sleep 0.1
    done
    [ "$(birth "$pid")" != "$born" ] || kill -KILL "$pid" 2>/dev/null || true
  fi
  rm -f "$dir/server"
}

do_stop() { stop_server; }
do_variants() { :; }
do_address() {
  [ -e "$dir/server" ] || return 0
  local pid born url
  read -r pid born url <"$dir/server"
  [ "$(birth "$pid")" != "$born" ] || echo "$url $pid"
}
# server_url: the URL of the server, if it is up.
server_url() { do_address | cut -d ' ' -f 1; }
do_update_address() { :; }
do_delete() {
  stop_server
  rm -rf "$database"
}

# Called at the end of each script. Engines leave files of their own where they are started.
run_verb() {
  if [ "$verb" = load ]; then
    local files=() file
    for file in "$@"; do files+=("$(realpath "$file")"); done
    set -- "${files[@]}"
  fi
  cd "$dir" || exit
  case $verb in
    install) rm -rf "$engine"; mkdir -p "$engine"; : >"$log"; do_install ;;
    load) [ $# -gt 0 ] || die "usage: $0 load DIR FILE..."; do_delete; mkdir -p "$database"; loading=1; do_load "$@"; loading='' ;;
    restart) stop_server; do_start "$@" ;;
    start) [ -d "$database" ] || die "there is no database in $dir"; do_start "$@" ;;
    variants | address | update-address | stop | version | delete) "do_${verb//-/_}" ;;
    *) die "$verb is none of install, load, start, restart, address, update-address, variants, stop, version, delete" ;;
  esac
}
