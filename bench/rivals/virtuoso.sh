#!/usr/bin/env bash
# Virtuoso 7, with the verbs of common.sh. From the Debian registry: the packages are unpacked, not installed, and bring
# the libraries that this machine lacks.
#
# Nagle's algorithm is switched off by a preloaded library; the variant `as-shipped` leaves it on. No cap on rows or
# time is set. Buffers by the rule of its documentation, two thirds of the memory that it may use. Files that the bulk
# loader names with an error are loaded again, and what it loaded is counted, because it has been seen to drop most of a
# file and to say nothing.
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
packages=(virtuoso-opensource-7-bin libminizip1 libpcre3)
graph=urn:bench:data
# A page is 8 KB, and what is kept about it about 700 bytes.
buffers=$((memory_mb * 2048 / 3 / 9))
libraries=$engine/usr/lib/$(uname -m)-linux-gnu:$engine/lib/$(uname -m)-linux-gnu

do_install() {
  needs apt-get dpkg cc
  mkdir "$engine/packages"
  (cd "$engine/packages" && quietly apt-get download "${packages[@]}")
  local package
  for package in "$engine"/packages/*.deb; do quietly dpkg --extract "$package" "$engine"; done
  rm -r "$engine/packages"
  local missing
  missing=$(LD_LIBRARY_PATH=$libraries ldd "$engine/usr/bin/virtuoso-t" | awk '/not found/ { print $1 }')
  [ -z "$missing" ] || die "virtuoso-t lacks the libraries $missing"
  quietly cc -O2 -shared -fPIC -o "$engine/nodelay.so" "$here/nodelay.c" -ldl
}

# settings SQL-PORT HTTP-PORT
settings() {
  cat >"$database/virtuoso.ini" <<INI
[Database]
DatabaseFile = $database/virtuoso.db
ErrorLogFile = $database/virtuoso.log
LockFile = $database/virtuoso.lck
TransactionFile = $database/virtuoso.trx
xa_persistent_file = $database/virtuoso.pxa
FileExtend = 2000
MaxCheckpointRemap = $((buffers / 4))
Striping = 0
TempStorage = TempDatabase
[TempDatabase]
DatabaseFile = $database/virtuoso-temp.db
TransactionFile = $database/virtuoso-temp.trx
MaxCheckpointRemap = 2000
Striping = 0
[Parameters]
ServerPort = 127.0.0.1:$1
NumberOfBuffers = $buffers
MaxDirtyBuffers = $((buffers * 3 / 4))
MaxQueryMem = $((memory_mb / 6))M
HashJoinSpace = $((memory_mb / 6))M
VectorSize = 1000
AdjustVectorSize = 1
ThreadsPerQuery = $cores
AsyncQueueMaxThreads = $((cores * 2))
ServerThreads = 100
MaxClientConnections = 100
CheckpointInterval = 0
DirsAllowed = /
CaseMode = 2
DisableTcpSocket = 0
[HTTPServer]
ServerPort = 127.0.0.1:$2
ServerRoot = $database
ServerThreads = 100
MaxKeepAlives = 100
KeepAliveTimeout = 60
[Client]
SQL_ROWSET = 1000
[SPARQL]
MaxConstructTriples = 100000000
INI
}

# serve NODELAY: starts it; sets $sql to its port.
serve() {
  local http preload=''
  sql=$(free_port) http=$(free_port)
  while [ "$http" = "$sql" ]; do http=$(free_port); done
  settings "$sql" "$http"
  [ "$1" = no ] || preload=$engine/nodelay.so
  start_server "http://127.0.0.1:$http/sparql?default-graph-uri=$graph" \
    env "LD_PRELOAD=$preload" "LD_LIBRARY_PATH=$libraries" "$engine/usr/bin/virtuoso-t" +foreground +configfile "$database/virtuoso.ini"
}

isql() { LD_LIBRARY_PATH=$libraries "$engine/usr/bin/isql-vt" "127.0.0.1:$sql" dba dba VERBOSE=OFF BANNER=OFF ERRORS=STDOUT "EXEC=$1"; }
say() { quietly isql "$1"; }
# number SQL: the number that a statement gives.
number() { isql "$1" | grep -E '^[0-9]+ *$' | tail -n 1 | tr -d ' '; }

load_all() {
  local loaders=() _
  for _ in $(seq "$cores"); do
    isql 'rdf_loader_run ()' >>"$log" 2>&1 &
    loaders+=($!)
  done
  wait "${loaders[@]}"
}

do_load() {
  local start server part count
  # The loader reads a file with one thread.
  mkdir -p "$database/parts"
  if [ $# -eq 1 ] && [ "${1##*.}" = nt ]; then
    quietly split --number "l/$cores" --numeric-suffixes --additional-suffix .nt "$1" "$database/parts/"
  else
    for part in "$@"; do ln -s "$(realpath "$part")" "$database/parts/"; done
  fi
  serve yes >"$dir/started"
  read -r _ server <"$dir/started"
  start=$(date +%s.%N)
  for part in "$database"/parts/*; do say "ld_add ('$part', '$graph')"; done
  load_all
  local again='from DB.DBA.load_list where ll_state <> 2 or ll_error is not null'
  for _ in 1 2 3; do
    count=$(number "select count (*) $again")
    [ "$count" -gt 0 ] || break
    echo "loading $count files again" >&2
    say "update DB.DBA.load_list set ll_state = 0, ll_error = null ${again#from DB.DBA.load_list }"
    load_all
  done
  [ "$(number "select count (*) $again")" -eq 0 ] || die "files that cannot be loaded: $(isql "select ll_file, ll_error $again")"
  say 'checkpoint'
  cpu=$(cpu_seconds "$server") peak=$(peak_bytes "$server")
  rm -r "$database/parts"
  loaded "$start"
  stop_server
}

do_start() {
  case ${1:-} in
    '') serve yes ;;
    as-shipped) serve no ;;
    # Whoever reaches the endpoint may update.
    writing)
      serve yes >"$dir/started"
      say 'grant SPARQL_UPDATE to "SPARQL"'
      cat "$dir/started"
      ;;
    *) die "no variant $1" ;;
  esac
}

do_update_address() { echo "$(server_url) query"; }

do_variants() { echo as-shipped; }
do_version() {
  local said
  # It ends with a status of its own after its help.
  said=$(LD_LIBRARY_PATH=$libraries "$engine/usr/bin/virtuoso-t" -? 2>&1 || true)
  grep -m 1 -oE 'Version [0-9.]+' <<<"$said" | sed 's/^Version /Virtuoso /'
}

run_verb "$@"
