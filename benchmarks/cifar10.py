#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An epoch of ResNet-20 on CIFAR-10 JPEGs here and in PyTorch, in turns; or a whole training for its accuracy.

    python benchmarks/cifar10.py MODEL.onnx CIFAR.zip                 # epochs in turns, ratio of the medians
    python benchmarks/cifar10.py MODEL.onnx CIFAR.zip --full --seeds 1  # five epochs, test top-1

Recipe: SGD, momentum 0.9, Nesterov, weight decay 5e-4, batch 128, a warm-up epoch from 0 to 0.1, cosine to
0 after it, pad 4 + crop + flip, last partial batch left out. Needs a Python with torch and Pillow.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def lines(command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command[0]} failed:\n{done.stdout}\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def ours(a, out, epochs, stop_after, seed):
    """Epoch results of one run, trained with the schedule of `epochs` epochs."""
    command = [a.build / "bin/renaissance", "train", a.model, "--data", a.data, "--out", out, "--epochs", epochs,
               "--batch", 128, "--lr", 0.1, "--momentum", 0.9, "--nesterov", "--weight-decay", 5e-4,
               "--schedule", "cosine", "--warmup-epochs", 1, "--augment", "flip,pad-crop:4", "--normalize", "cifar10",
               "--drop-last", "--seed", seed, "--threads", a.threads, "--loader-threads", a.loader_threads,
               "--device", a.device, "--precision", a.precision, "--json"]
    epochs_done = [e for e in lines(command) if e.get("event") == "epoch"]
    return epochs_done[:stop_after] if stop_after else epochs_done


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--full", action="store_true", help="train five epochs and print the accuracy; no peer")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--loader-threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--build", default=ROOT / "build/release", type=pathlib.Path)
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "trained.onnx"
        if a.full:
            for seed in range(a.seeds):
                for epoch in ours(a, out, 5, None, seed):
                    print(json.dumps(dict(epoch, seed=seed)), flush=True)
            return
        mine, theirs = [], []
        for _ in range(a.rounds):
            mine += [e["training"]["seconds"] for e in ours(a, out, 1, None, 0)]
            theirs += [e["seconds"] for e in lines([sys.executable, ROOT / "benchmarks/peers/resnet20_cifar.py", a.data,
                                                    "--epochs", 5, "--only", 1, "--threads", a.threads])]
            print(json.dumps({"seconds": mine[-1], "pytorch_seconds": theirs[-1]}), flush=True)
    print(json.dumps({"epoch_seconds": statistics.median(mine), "pytorch_epoch_seconds": statistics.median(theirs),
                      "ratio": statistics.median(mine) / statistics.median(theirs)}))


if __name__ == "__main__":
    main()
