#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: examples_test.sh BUILD_DIR c|python
# Runs an example for two epochs on a few pictures; the file it writes is read again.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=scripts/lib.sh
source "$root/scripts/lib.sh"
build=$1
python=$(python_that 'import numpy, PIL') || {
  echo "skipped: no python3 with NumPy and Pillow"
  exit 77
}
case $2 in
  c) example=("$build/bin/example_train") ;;
  python) example=(env "RENAISSANCE_LIBRARY=$build/lib/librenaissance.so" "$python" "$root/examples/python/train.py") ;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" "$root/scripts/make_shapes.py" "$work/shapes" --train 200 --val 50
"${example[@]}" "$root/examples/quickstart/shapes_cnn.onnx" "$work/shapes" "$work/out.onnx" 2 | tee "$work/log"
grep -q '^epoch 2 of 2: ' "$work/log"
"${example[@]}" "$work/out.onnx" "$work/shapes" "$work/again.onnx" 1
if "${example[@]}" "$work/out.onnx" "$work/nowhere" "$work/none.onnx" 1 2>"$work/errors"; then
  echo "a missing folder should be an error"
  exit 1
fi
grep -q '^error.*nowhere' "$work/errors"
if "${example[@]}" "$work/out.onnx" "$work/shapes" "$work/none.onnx" few 2>"$work/errors"; then
  echo "a number of epochs that is none should be an error"
  exit 1
fi
grep -q '^usage: ' "$work/errors"
[[ ! -e $work/none.onnx ]]
