#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The quick start's pictures: the same twice, complete, in class folders, and an existing folder is left alone.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=scripts/lib.sh
source "$root/scripts/lib.sh"
python=$(python_that 'import numpy, PIL') || {
  echo "skipped: no python3 with NumPy and Pillow"
  exit 77
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# refused COMMAND...: the command has to fail
refused() {
  if "$@" >/dev/null 2>&1; then
    echo "should have failed: $*"
    exit 1
  fi
}

make=("$python" "$root/scripts/make_shapes.py")

"${make[@]}" "$work/a" --train 40 --val 20
"${make[@]}" "$work/b" --train 40 --val 20
diff -r "$work/a" "$work/b"
"${make[@]}" "$work/c" --train 40 --val 20 --seed 2
refused diff -rq "$work/a" "$work/c"
[[ $(find "$work/a/train" -name '*.jpg' | wc -l) == 40 && $(find "$work/a/val" -name '*.jpg' | wc -l) == 20 ]]
[[ $(find "$work/a/train" -mindepth 1 -maxdepth 1 -type d | wc -l) == 10 ]]
"${make[@]}" "$work/a" --train 40 --val 20 | grep -q 'there already'
refused "${make[@]}" "$work/a" --train 50 --val 20
refused "${make[@]}" "$work/d" --train 41 --val 20
[[ $(ls -A "$work") == $'a\nb\nc' ]]
echo "data set in order"
