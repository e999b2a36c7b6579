#!/usr/bin/env bash
# Installs the Debian or Ubuntu packages that building and testing longtune needs, where they are
# missing: scripts/setup.sh [--fuzz]   (--fuzz: also Clang with libFuzzer)
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

fuzz=no
case ${1-} in
  "") ;;
  --fuzz) fuzz=yes ;;
  *) die "unknown option $1 (the only one is --fuzz)" ;;
esac

packages=(g++ cmake ninja-build ccache libfmt-dev nlohmann-json3-dev libcli11-dev libtomlplusplus-dev
  libpcre2-dev libutf8proc-dev liburing-dev libgtest-dev pkg-config python3 python3-venv)

as_root() {
  if [[ $(id -u) == 0 ]]; then
    "$@"
  else
    command -v sudo >/dev/null || die "not root, and no sudo: run as root: $*"
    sudo "$@"
  fi
}

is_installed() {
  [[ $(dpkg-query --show --showformat '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

is_known() {
  apt-cache show "$1" >/dev/null 2>&1
}

update_once() {
  if [[ -z ${updated-} ]]; then
    updated=yes
    quietly "update the package lists" as_root apt-get update
  fi
}

install() {
  local missing=() package
  for package; do
    is_installed "$package" || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  say "installing ${missing[*]}"
  update_once
  quietly "install ${missing[*]}" as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install --yes --no-install-recommends "${missing[@]}"
}

can_fuzz() {
  echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
    clang++ -fsanitize=fuzzer,address -fopenmp -x c++ -o /dev/null - 2>/dev/null
}

# libFuzzer is in libclang-rt-N-dev, and in older distributions in libclang-common-N-dev.
install_fuzzer() {
  local version runtime
  can_fuzz && return 0
  install clang libomp-dev
  version=$(clang++ -dumpversion | cut -d . -f 1)
  runtime=libclang-rt-$version-dev
  is_known "$runtime" || runtime=libclang-common-$version-dev
  install "$runtime"
  can_fuzz || die "clang++ $version cannot link a fuzzer, with $runtime installed"
}

command -v apt-get >/dev/null ||
  die "no apt-get here: install the equivalents of ${packages[*]}, then build with cmake --preset release"
install "${packages[@]}"
# The novels come from a package as well: its name must be known.
[[ -f $cache/novels/complete ]] || is_known r-cran-janeaustenr || update_once
if [[ $fuzz == yes ]]; then
  install_fuzzer
fi
version=$(cmake --version | sed -n '1s/[^0-9]*//p')
if [[ $(printf '3.25\n%s\n' "$version" | sort --version-sort | head -n 1) != 3.25 ]]; then
  die "CMake 3.25 or newer is needed, $version is installed: put a newer one first in PATH (pip install cmake)"
fi
