#!/usr/bin/env bash
# Sets up, builds and runs every test: the fuzzers for a minute in all, then the whole suite, with
# the real model and the novels.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

"$root/scripts/setup.sh" --fuzz
LONGTUNE_TEST_MODEL=$("$root/scripts/fetch_model.sh")
LONGTUNE_TEST_BOOKS=$("$root/scripts/fetch_novels.sh")
export LONGTUNE_TEST_MODEL LONGTUNE_TEST_BOOKS

cd "$root"
say "building"
quietly "configure" cmake --preset dev
cmake --build --preset dev
"$root/scripts/fuzz.sh" 60
say "testing"
ctest --preset all
