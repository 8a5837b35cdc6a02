#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From nothing to a trained network: builds, draws a data set, trains, exports,
# and checks the exported file.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  echo "usage: scripts/quickstart.sh"
  echo "Everything it makes lies in build/; EPOCHS=N changes how long it trains."
  exit 0
fi

readonly epochs=${EPOCHS:-15}
readonly model=examples/quickstart/shapes_cnn.onnx
readonly work=build/quickstart
readonly data=$work/shapes
readonly trained=$work/shapes_trained.onnx
readonly program=build/release/bin/renaissance
cd "$root"
start=$SECONDS

cat <<TEXT
${bold}Renaissance quick start${plain}

This is going to
  1. install what is missing (Debian packages with apt-get, the rest into .deps/)
     and build the program in build/release         minutes, the first time
  2. draw 5,000 JPEG pictures of ten shapes into $data
  3. train $model, a small CNN exported
     from PyTorch with random weights, for $epochs epochs
  4. write the trained weights back into that model: $trained
  5. read that file again and evaluate it on the 1,000 held-out pictures

TEXT

"$root/scripts/deps.sh"
build_target=renaissance_cli build_preset release  # without the tests, which scripts/build.sh builds too
[[ -x $program ]] || die "the build made no $program"
built=$SECONDS

say "Drawing the pictures"
python=$(python_that 'import numpy, PIL') || die "no python3 with NumPy and Pillow: install python3-numpy python3-pil"
mkdir -p "$work"
"$python" scripts/make_shapes.py "$data"

say "Training $model"
train_start=$SECONDS
"$program" train "$model" --data "$data" --epochs "$epochs" --batch 64 \
  --lr 0.1 --momentum 0.9 --nesterov --weight-decay 5e-4 --schedule cosine --warmup-epochs 1 \
  --augment flip,pad-crop:4 --normalize half --seed 1 --out "$trained" | tee "$work/train.log"
train_time=$((SECONDS - train_start))

say "Evaluating the exported file"
"$program" eval "$trained" --data "$data" | tee "$work/eval.log"

before=$(top1 "$work/train.log")
after=$(top1 "$work/eval.log")
say "Done in $(took $((SECONDS - start))): $(took $((built - start))) for the build, $(took $train_time) of training"
note "held-out top-1 after training:          $before %"
note "held-out top-1 of the exported file:    $after %"
[[ $before == "$after" ]] || die "the exported file does not give the accuracy of the trained model"
awk -v a="$after" 'BEGIN { exit !(a >= 95) }' || die "expected at least 95 %"

cat <<TEXT

${bold}Next: your own data${plain}
  1. Export your network on a machine with PyTorch (bindings/python):
       pip install ./bindings/python torch torchvision onnx onnxscript safetensors
       python -m renaissance export --torchvision resnet18 --classes 10 --size 224 --out model.onnx
     or in your own code: renaissance.export(module, example_input, "model.onnx")
  2. Put your pictures into class folders, DATA/train/CLASS/*.jpg and DATA/val/CLASS/*.jpg, and train:
       $program train model.onnx --data DATA --epochs 30 --batch 64 --lr 0.05 --momentum 0.9 --nesterov \\
         --schedule cosine --augment random-resized-crop,flip --out trained.onnx
  3. Use it:
       $program predict $trained $data/val/star/0000.jpg
       $program inspect $trained
     trained.onnx is an ordinary ONNX file: ONNX Runtime and others read it as well.
TEXT
