#!/usr/bin/env bash
# Oxigraph, with the verbs of common.sh. The package of the Python registry brings the program.
# `--timeout-s` is left out: it holds a thread for that long with every query.
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
release=0.5.13

do_install() {
  needs python3
  quietly python3 -m pip install --no-deps --target "$engine" "oxigraph==$release"
}

do_load() {
  local start
  start=$(date +%s.%N)
  measured "$engine/bin/oxigraph" load --location "$database" --lenient --file "$@"
  measured "$engine/bin/oxigraph" optimize --location "$database"
  loaded "$start"
}

do_start() {
  local port serve=serve-read-only
  port=$(free_port)
  [ "${1:-}" != writing ] || serve=serve
  start_server "http://127.0.0.1:$port/query" "$engine/bin/oxigraph" "$serve" --location "$database" --bind "127.0.0.1:$port"
}

do_update_address() {
  local url
  url=$(server_url)
  echo "${url%/query}/update body"
}

do_version() { "$engine/bin/oxigraph" --version; }

run_verb "$@"
