#!/usr/bin/env bash
# Stoa itself, with the verbs of common.sh. `install` takes the release build of this tree, or the binary $STOA.
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
binary=$(realpath --canonicalize-missing "${STOA:-${CARGO_TARGET_DIR:-$here/../../target}/release/stoa}")

do_install() {
  [ -x "$binary" ] || die "$binary is missing: make build"
  cp "$binary" "$engine/stoa"
}

do_load() {
  local start
  start=$(date +%s.%N)
  measured "$engine/stoa" load --db "$database" --memory "${memory_mb}M" "$@"
  loaded "$start"
}

do_start() {
  local port
  port=$(free_port)
  start_server "http://127.0.0.1:$port/sparql" \
    "$engine/stoa" serve --db "$database" --bind "127.0.0.1:$port" --memory "${memory_mb}M" --timeout 24h
}

do_update_address() { echo "$(server_url) body"; }
do_version() { "$engine/stoa" --version; }

run_verb "$@"
