#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a model on class folders through the Python binding and writes it back.

usage: train.py MODEL.onnx PICTURES OUT.onnx [EPOCHS]

PICTURES holds train/CLASS/ and val/CLASS/ with JPEG or PNG files, as a folder or a zip.
EPOCHS is 10 by default. Needs NumPy and librenaissance.so: that of build/release, an installed one, or what
RENAISSANCE_LIBRARY names.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'bindings', 'python'))
try:
    from renaissance import Dataset, Error, Loader, Model, Trainer, abi
except ModuleNotFoundError as missing:
    sys.exit(f'error: this Python ({sys.executable}) has no {missing.name}: pip install {missing.name}')

BATCH = 64


def on_progress(progress):
    if progress.phase == abi.PHASE_EPOCH_DONE:
        print(f'epoch {progress.epoch + 1} of {progress.epochs}: loss {progress.training.loss:.4f}, '
              f'held-out top-1 {100 * progress.validation.top1:.2f} %, {progress.images_per_second:.0f} images/s')


def train(model_path, pictures, out, epochs):
    model, data = Model(model_path), Dataset(pictures)
    training = Loader(data, 'train', model, batch=BATCH, shuffle=True, augmentation='auto')
    validation = Loader(data, 'val', model, batch=BATCH, last_batch='exact')
    rest = training.info.samples % BATCH  # an epoch's last step is smaller
    trainer = Trainer(model, batch=BATCH, other_batches=[rest] if rest else [], normalize='half', learning_rate=0.1,
                      momentum=0.9, nesterov=True, weight_decay=5e-4, schedule='cosine', warmup_epochs=1,
                      epochs=epochs, seed=1)
    trainer.fit(training, validation, progress=on_progress)
    trainer.export(out)
    print(f'wrote {out}')


if __name__ == '__main__':
    if len(sys.argv) not in (4, 5) or not ''.join(sys.argv[4:] or ['10']).isdigit():
        sys.exit(__doc__)
    try:
        train(*sys.argv[1:4], int(sys.argv[4]) if len(sys.argv) > 4 else 10)
    except (Error, OSError) as problem:
        sys.exit(f'error: {problem}')
