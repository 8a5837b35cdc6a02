#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Images a second from full-size JPEG files to training batches, here and in torchvision, in turns.

RandomResizedCrop and RandomHorizontalFlip to 224 x 224, exact pixels, nothing cached. The zip archive of class folders
is unpacked and repeated, so both sides read ordinary files. This side gives bytes, which the device normalises; the peer
gives bytes, too, and once more the normalised floats of torchvision's training recipes. Each side runs in a process of its own,
alternated `--rounds` times; its first epoch warms up. Prints one JSON line a run and one with the medians at the end:
by the clock, and per second of processor time ("per core": other work on the machine changes that one little).
Needs a Python with torch and torchvision.

Published by FFCV: 652 images a second and physical core, on another machine (cited in the summary).

    python benchmarks/data.py imagenet-sample.zip --repeat 4 --threads 1,2
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEER = ROOT / "benchmarks/peers/torchvision_loader.py"
FFCV_PER_PHYSICAL_CORE = 652


def run(command):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, check=True)
    result = json.loads(done.stdout)
    print(json.dumps(result), flush=True)
    return result


def unpack(archive, repeat, folder):
    """One folder a class in `folder`, with `repeat` copies of each picture."""
    with zipfile.ZipFile(archive) as z:
        for name in z.namelist():
            if not name.lower().endswith((".jpg", ".jpeg")):
                continue
            target = folder / pathlib.Path(name).parent.name
            target.mkdir(exist_ok=True)
            for i in range(repeat):
                with z.open(name) as source, open(target / f"{i}-{pathlib.Path(name).name}", "wb") as copy:
                    shutil.copyfileobj(source, copy)


def per_cpu(runs):
    """A list has an epoch a value, the first of which warms up; the peer's workers can be asked at their end only."""
    values = [r["images_per_cpu_second"] for r in runs]
    return statistics.median(statistics.median(v[1:] or v) if isinstance(v, list) else v for v in values)


def by_clock(runs):
    return statistics.median(statistics.median(r["images_per_second"][1:] or r["images_per_second"]) for r in runs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zip", type=pathlib.Path, help="class folders of JPEG files")
    parser.add_argument("--repeat", type=int, default=4, help="copies of each picture")
    parser.add_argument("--threads", default="1,2", help="of the loader, workers of the peer")
    parser.add_argument("--epochs", type=int, default=3, help="a run")
    parser.add_argument("--rounds", type=int, default=3, help="how often the sides take turns")
    parser.add_argument("--size", type=int, default=224, help="height and width of the batches, pixels")
    parser.add_argument("--decode", choices=["exact", "fast"], default="exact")
    parser.add_argument("--no-peer", action="store_true", help="measure this side alone")
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/bin/bench_data_loader")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        unpack(a.zip, a.repeat, folder)
        summary = {"size": a.size, "decode": a.decode, "cores": len(os.sched_getaffinity(0)),
                   "ffcv_published_per_physical_core": FFCV_PER_PHYSICAL_CORE}
        for threads in map(int, a.threads.split(",")):
            common = [folder, "--size", a.size, "--epochs", a.epochs]
            ours, theirs = [], {output: [] for output in ([] if a.no_peer else ["bytes", "floats"])}
            for _ in range(a.rounds):
                ours.append(run([a.program, *common, "--threads", threads, "--cache", 0, "--decode", a.decode]))
                for output, runs in theirs.items():
                    runs.append(run([sys.executable, PEER, *common, "--workers", threads, "--output", output]))
            result = {"images_per_second": by_clock(ours), "per_core": per_cpu(ours)}
            for output, runs in theirs.items():
                rate, per_core = by_clock(runs), per_cpu(runs)
                result[f"torchvision_{output}"] = {"images_per_second": rate, "per_core": per_core,
                                                   "ratio": result["images_per_second"] / rate,
                                                   "ratio_per_core": result["per_core"] / per_core}
            summary[f"threads_{threads}"] = result
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
