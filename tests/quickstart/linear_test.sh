#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: linear_test.sh BUILD_DIR
# A linear model, trained on the quick start's pictures by its recipe, stays below 60 %.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=scripts/lib.sh
source "$root/scripts/lib.sh"
program=$1/bin/renaissance
[[ -x $program ]] || {
  echo "skipped: no $program"
  exit 77
}
python=$(python_that 'import numpy, PIL') || {
  echo "skipped: no python3 with NumPy and Pillow"
  exit 77
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" "$root/scripts/make_shapes.py" "$work/shapes"
for lr in 0.1 0.01; do
  "$program" train "$root/examples/quickstart/shapes_linear.onnx" --data "$work/shapes" --epochs 15 --batch 64 \
    --lr $lr --momentum 0.9 --nesterov --weight-decay 5e-4 --schedule cosine --warmup-epochs 1 \
    --augment flip,pad-crop:4 --normalize half --seed 1 --out "$work/linear.onnx" >"$work/train.log"
  "$program" eval "$work/linear.onnx" --data "$work/shapes" >"$work/eval.log"
  accuracy=$(top1 "$work/eval.log")
  echo "linear model, lr $lr: $accuracy % held-out top-1 (10 % is chance)"
  [[ -n $accuracy ]] && awk -v a="$accuracy" 'BEGIN { exit !(a < 60) }' || exit 1
done
