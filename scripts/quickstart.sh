#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From nothing to a trained network: builds, draws a data set, trains, exports,
# and checks the exported file.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'TEXT'
usage: [EPOCHS=N] scripts/quickstart.sh

EPOCHS is how long it trains (15). Everything that it makes lies in build/.
TEXT
}

case ${1:-} in
  -h | --help)
    usage
    exit 0
    ;;
esac
(($# == 0)) || refuse_usage "unknown argument '$1'"
readonly epochs=${EPOCHS:-15}
[[ $epochs =~ ^[1-9][0-9]{0,5}$ ]] || refuse_usage "EPOCHS is '$epochs', not a number of epochs"

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
if ((epochs >= 15)); then
  awk -v a="$after" 'BEGIN { exit !(a >= 95) }' || die "expected at least 95 %"
fi

say "What it made, and its use"
note "$trained is an ordinary ONNX file with the ten class names in it. It names the"
note "class of a picture, or of all in a folder:"
note ""
note "  $program predict $trained $data/val/star/0000.jpg"
note ""
note "It can be trained further. ONNX Runtime and others need its inference form, since they would go on"
note "training its batch normalisation:"
note ""
note "  $program export $trained --inference --out $work/shapes_deploy.onnx"

# The commands are README.md's, so that there is one text.
say "Next: your own data, as README.md has it"
sed -e '1,/^## Your own data$/d' -e '/^## /,$d' -e '/^```/d' -e 's/^./    &/' README.md
