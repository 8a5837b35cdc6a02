#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing (scripts/deps.sh), then configures and builds.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'TEXT'
usage: scripts/build.sh [PRESET] [CMAKE ARGUMENT...]

  PRESET           release (the default), dev, tsan, or cuda: release with the
                   CUDA module beside it. See CMakePresets.json.
                   The result is build/PRESET/bin/renaissance and build/PRESET/lib/.
  CMAKE ARGUMENT   -DNAME=VALUE, -UNAME or --fresh

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
  release | dev | cuda | tsan)
    preset=$1
    shift
    ;;
  '' | -*) ;;
  *) refuse_usage "unknown preset '$1'" ;;
esac
for argument in "$@"; do
  case $argument in
    -D?* | -U?* | --fresh) ;;
    *) refuse_usage "unknown argument '$argument'" ;;
  esac
done

dependencies=()
if [[ $preset == cuda ]]; then
  dependencies=(--cuda)
fi
"$root/scripts/deps.sh" "${dependencies[@]}"
build_preset "$preset" "$@"

say "Built"
program=build/$preset/bin/renaissance
if [[ -x $root/$program ]]; then
  printf '    %-48s  %s\n' "$program --help" "what it can do" \
    "$program doctor" "what it found on this machine" \
    "scripts/quickstart.sh" "train a first model"
fi
printf '    %-48s  %s\n' "ctest --test-dir build/$preset -j$(nproc)" "run the tests" \
  "cmake --install build/$preset --prefix DIR" "program, library and header into DIR"
