# shellcheck shell=bash
# What the scripts beside this file share. Source it after `set -euo pipefail`.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${LONGTUNE_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/longtune}
script=$(basename "$0" .sh)

die() {
  printf '%s: %s\n' "$script" "$*" >&2
  exit 1
}

say() {
  printf '==> %s\n' "$*" >&2
}

# quietly WHAT COMMAND...: runs the command with its output in a log, of which a failure shows the
# last line that says something.
quietly() {
  local what=$1 log last
  shift
  mkdir -p "$cache/logs" 2>/dev/null || die "cannot create $cache/logs: set LONGTUNE_CACHE to a writable directory"
  log=$cache/logs/$script-$$.log
  if ! "$@" >"$log" 2>&1 </dev/null; then
    last=$(grep -Ei '^(E:|ERROR|.*error)' "$log" | tail -n 1) || last=$(grep . "$log" | tail -n 1) || true
    die "cannot $what: ${last:-no message} (all of it in $log)"
  fi
  rm -f "$log"
}

# One process at a time works in the cache; the lock goes with the process.
lock_cache() {
  mkdir -p "$cache" 2>/dev/null || die "cannot create $cache: set LONGTUNE_CACHE to a writable directory"
  exec 9>"$cache/.lock"
  flock 9
}

# The interpreter of a virtual environment in the cache that holds scripts/requirements.txt.
# Call it with the cache locked.
tools_python() {
  local venv=$cache/venv wanted
  wanted=$(python3 --version && cat "$root/scripts/requirements.txt")
  if [[ ! -f $venv/complete || $(<"$venv/complete") != "$wanted" ]]; then
    say "Python packages for reading the novels, into $venv"
    rm -rf "$venv"
    quietly "create a Python environment" python3 -m venv "$venv"
    quietly "install scripts/requirements.txt from PyPI" \
      "$venv/bin/python" -m pip install --disable-pip-version-check -r "$root/scripts/requirements.txt"
    printf '%s\n' "$wanted" >"$venv/complete"
  fi
  printf '%s\n' "$venv/bin/python"
}
