#!/usr/bin/env bash
# Fetches six novels by Jane Austen as plain text (from Debian's package r-cran-janeaustenr) into
# the cache and prints their directory. Nothing is downloaded where they are there already.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

novels=$cache/novels
lock_cache
if [[ ! -f $novels/complete ]]; then
  python=$(tools_python)
  say "Six novels from Debian's r-cran-janeaustenr, into $novels"
  quietly "fetch the novels" "$python" "$root/scripts/fetch_novels.py" "$novels"
  touch "$novels/complete"
fi
printf '%s\n' "$novels"
