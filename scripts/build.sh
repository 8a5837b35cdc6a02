#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing (scripts/deps.sh), then configures and builds.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'TEXT'
usage: scripts/build.sh [PRESET] [CMAKE ARGUMENT...]

  PRESET   release (the default), dev, cuda or tsan: see CMakePresets.json.
           The result is build/PRESET/bin/renaissance and build/PRESET/lib/.

CMAKE_BUILD_PARALLEL_LEVEL sets the number of jobs; by default as many as cores
and memory allow.
TEXT
}

preset=release
case ${1:-} in
  -h | --help)
    usage
    exit 0
    ;;
  '' | -*) ;;
  *)
    preset=$1
    shift
    ;;
esac

dependencies=()
if [[ $preset == cuda ]]; then
  dependencies=(--cuda)
fi
"$root/scripts/deps.sh" "${dependencies[@]}"
build_preset "$preset" "$@"

say "Built"
program=build/$preset/bin/renaissance
if [[ -x $root/$program ]]; then
  note "$program --help          what it can do"
  note "$program doctor          what it found on this machine"
  note "scripts/quickstart.sh                        train a first model"
fi
note "ctest --test-dir build/$preset -j$(nproc)           run the tests"
note "cmake --install build/$preset --prefix DIR   library, header and program into DIR"
