#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How far `--decode fast` is from the exact pixels: the same random-resized-crops of the same pictures, both ways.

Prints one JSON line a size: over the crops that were decoded smaller (the others are equal), the mean and the root
mean square of a byte's error, and the shares of bytes that differ by more than 2, 8 and 32 of 255; and how many
crops these were. RENAISSANCE_LIBRARY names librenaissance.so where it isn't found.

    PYTHONPATH=bindings/python python benchmarks/decode_error.py imagenet-sample.zip --sizes 64,112,224
"""
import argparse
import json
from types import SimpleNamespace

import numpy as np

from renaissance import engine


def crops(dataset, size, epochs, decode):
    model = SimpleNamespace(info=SimpleNamespace(channels=3, height=size, width=size))
    loader = engine.Loader(dataset, "train", model, batch=64, shuffle=True, augmentation="random-resized-crop",
                           seed=1, decode=decode, cache_bytes=-1)
    for epoch in range(epochs):
        for images, _ in loader.epoch(epoch):
            yield from images


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("uri")
    parser.add_argument("--sizes", default="64,112,224")
    parser.add_argument("--epochs", type=int, default=2, help="crops of each picture")
    a = parser.parse_args()
    dataset = engine.Dataset(a.uri)
    for size in map(int, a.sizes.split(",")):
        histogram, reduced, total, worst = np.zeros(256, np.int64), 0, 0, 0.0
        for exact, fast in zip(crops(dataset, size, a.epochs, 0), crops(dataset, size, a.epochs, 1)):
            difference = np.abs(exact.astype(np.int16) - fast)
            total += 1
            if difference.any():
                reduced += 1
                histogram += np.bincount(difference.ravel(), minlength=256)
                worst = max(worst, float(difference.mean()))
        share, levels = histogram / max(1, histogram.sum()), np.arange(256)
        print(json.dumps({"size": size, "crops": total, "decoded_smaller": reduced,
                          "mean": float(share @ levels), "rms": float(np.sqrt(share @ levels**2)),
                          "worst_mean_of_a_crop": worst, "largest": int(np.flatnonzero(histogram)[-1]) if reduced else 0,
                          **{f"more_than_{n}": float(share[n + 1:].sum()) for n in (2, 8, 32)}}))


if __name__ == "__main__":
    main()
