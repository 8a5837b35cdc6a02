#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Images a second from full-size JPEG files to training batches, here and in torchvision, in turns.

RandomResizedCrop and RandomHorizontalFlip to 224 x 224, exact pixels, nothing cached. The zip archive of class folders
is unpacked and its pictures repeated under further names (hard links: see common.py), `--repeat` for each thread, so that
every thread has as much to do whatever their number; both sides read ordinary files. This side gives bytes, which the device normalises; the peer
gives bytes, too, and once more the normalised floats of torchvision's training recipes. Each side runs in a process of its own,
alternated `--rounds` times; its first epoch warms up. Prints one JSON line a run and one with the medians at the end:
by the clock, and per second of processor time ("per core": other work on the machine changes that one little);
`scaling` is a thread's rate by the clock as a share of what it is with the first number of threads (1: linear).
Needs a Python with torch and torchvision.

Published by FFCV: 652 images a second and physical core, on another machine (cited in the summary).

    python benchmarks/data.py imagenet-sample.zip --repeat 4 --threads 1,2
    python benchmarks/data.py imagenet-sample.zip --repeat 2 --threads 1,2,4,8,16 --rounds 1 --outputs floats
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from common import ROOT, unpack

PEER = ROOT / "benchmarks/peers/torchvision_loader.py"
FFCV_PER_PHYSICAL_CORE = 652


def run(command):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, check=True)
    result = json.loads(done.stdout)
    print(json.dumps(result), flush=True)
    return result


def per_cpu(runs):
    """A list has an epoch a value, the first of which warms up; the peer's workers can be asked at their end only."""
    values = [r["images_per_cpu_second"] for r in runs]
    return statistics.median(statistics.median(v[1:] or v) if isinstance(v, list) else v for v in values)


def by_clock(runs):
    return statistics.median(statistics.median(r["images_per_second"][1:] or r["images_per_second"]) for r in runs)


def measure(a, threads, outputs, folder):
    """Medians of one number of threads."""
    common = [folder, "--size", a.size, "--epochs", a.epochs, "--batch", a.batch]
    ours, theirs = [], {output: [] for output in outputs}
    for _ in range(a.rounds):
        ours.append(run([*a.program, *common, "--threads", threads, "--cache", 0, "--decode", a.decode]))
        for output, runs in theirs.items():
            runs.append(run([sys.executable, PEER, *common, "--workers", threads, "--output", output]))
    result = {"images_per_second": by_clock(ours), "per_core": per_cpu(ours)}
    for output, runs in theirs.items():
        rate, per_core = by_clock(runs), per_cpu(runs)
        result[f"torchvision_{output}"] = {"images_per_second": rate, "per_core": per_core,
                                           "ratio": result["images_per_second"] / rate,
                                           "ratio_per_core": result["per_core"] / per_core}
    return result


def add_scaling(results):
    """To each number of threads, and to its peers: the rate of a thread against that of the first number."""
    (first, base), *_ = results.items()
    for threads, result in results.items():
        for name, side in [(None, result)] + [(k, v) for k, v in result.items() if isinstance(v, dict)]:
            alone = (base[name] if name else base)["images_per_second"]
            side["scaling"] = side["images_per_second"] / threads / (alone / first)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zip", type=pathlib.Path, help="class folders of JPEG files")
    parser.add_argument("--images", type=int, help="different pictures (all)")
    parser.add_argument("--repeat", type=int, default=4, help="names of each picture for each thread")
    parser.add_argument("--threads", default="1,2", help="of the loader, workers of the peer")
    parser.add_argument("--epochs", type=int, default=3, help="a run")
    parser.add_argument("--batch", type=int, default=64, help="of which the peer's workers make whole ones")
    parser.add_argument("--rounds", type=int, default=3, help="how often the sides take turns")
    parser.add_argument("--size", type=int, default=224, help="height and width of the batches, pixels")
    parser.add_argument("--decode", choices=["exact", "fast"], default="exact")
    parser.add_argument("--outputs", default="bytes,floats", help="of the peer")
    parser.add_argument("--no-peer", action="store_true", help="measure this side alone")
    parser.add_argument("--program", nargs="+", default=[ROOT / "build/release/bin/bench_data_loader"],
                        help="how to call bench_data_loader")
    a = parser.parse_args()
    results = {}
    for threads in map(int, a.threads.split(",")):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            unpack(a.zip, a.repeat * threads, folder, a.images)
            results[threads] = measure(a, threads, [] if a.no_peer else a.outputs.split(","), folder)
    add_scaling(results)
    print(json.dumps({"size": a.size, "decode": a.decode, "cores": len(os.sched_getaffinity(0)),
                      "ffcv_published_per_physical_core": FFCV_PER_PHYSICAL_CORE}
                     | {f"threads_{threads}": result for threads, result in results.items()}))


if __name__ == "__main__":
    main()
