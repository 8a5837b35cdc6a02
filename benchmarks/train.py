#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Images a second of whole trainings from full-size JPEG files, here and in PyTorch.

RandomResizedCrop, mirroring, ImageNet's normalisation, SGD with momentum 0.9. The zip archive of class folders is
unpacked and each picture repeated under further names (hard links: see common.py), so that both sides read ordinary
files; the model gets as many classes as there are folders. Parts, each of which can be left out (--parts):

  resident  steps on synthetic pictures that lie on the device (`renaissance bench step`): what the loader can't exceed
  files     `train` from the files; decoded pictures are not kept (--cache 0), as with data that no memory holds
  packed    `train` from a .dts of each --short-side (0: the files as they are), and how long packing took
  cached    `train` from the files, all decoded pictures kept after the first epoch
  eager     PyTorch: DataLoader, autocast, channels last, the same batch and number of loading threads
  compile   the same with torch.compile

Of a training the first epoch (compiling, measuring, filling queues) is left out; of PyTorch, --peer-warmup
batches of its one long epoch (0: two a worker, which may lie in its queue, and eight more). Each run is a process of its
own, and prints a line of JSON; the last line is a summary with ratios. `bound` tells what the training waited
for: `loader` where more than a tenth of the time went by without a batch, else `device`.
Needs a Python with torch, torchvision and onnx.

    python benchmarks/train.py imagenet-sample.zip --device cuda --precision fp16
    python benchmarks/train.py imagenet-sample.zip --model resnet18 --size 64 --batch 16 --images 32 --repeat 2
"""
import argparse
import json
import os
import pathlib
import sys
import tempfile
import time

from common import PRECISIONS, ROOT, export, json_lines, parse_args, unpack

PEER = ROOT / "benchmarks/peers/torchvision_train.py"
PARTS = ["resident", "files", "packed", "cached", "eager", "compile"]
WAIT_SHARE = 0.1  # as `train` has it for telling that it waited
PLENTY_MIB = 1 << 20


def show(result):
    print(json.dumps(result), flush=True)
    return result


def resident(a, onnx):
    report = json_lines([*a.program, "bench", "step", onnx, "--batch", a.batch, "--device", a.device, "--precision",
                         a.precision, "--threads", a.threads, "--steps", a.steps, "--windows", a.windows,
                         "--no-profile", "--json"])[-1]
    return show({"part": "resident"} | {k: report[k] for k in ("images_per_second", "ms", "device", "first_step_s")})


def use_of_loader(epochs):
    """What the loader's threads did in these epochs, and what the training waited for."""
    total = {k: sum(e["loader"][k] for e in epochs) for k in epochs[0]["loader"] if k != "threads"}
    seconds = sum(e["training"]["seconds"] for e in epochs)
    work = max(1e-9, sum(total[f"{k}_seconds"] for k in ("read", "decode", "transform")))
    waited = total["wait_seconds"] / seconds
    return {"bound": "loader" if waited > WAIT_SHARE else "device", "waited_share": waited,
            "loader_threads": epochs[0]["loader"]["threads"], "loader_cores": total["cpu_seconds"] / seconds,
            "pictures_per_core": total["pictures"] / max(1e-9, total["cpu_seconds"]),
            "pictures_read_share": total["pictures_read"] / max(1, total["pictures"]),
            "bytes_a_picture": total["bytes_read"] / max(1, total["pictures_read"]),
            "shares_of_work": {k: total[f"{k}_seconds"] / work for k in ("read", "decode", "transform")}}


def train(a, part, onnx, data, cache_mib=0):
    begin = time.perf_counter()
    events = json_lines([*a.program, "train", onnx, "--data", data, "--out", onnx.with_suffix(".trained"), "--epochs",
                         a.epochs, "--batch", a.batch, "--lr", 0.01, "--momentum", 0.9, "--augment",
                         "random-resized-crop,flip", "--normalize", "imagenet", "--drop-last", "--device", a.device,
                         "--precision", a.precision, "--threads", a.threads, "--loader-threads", a.workers,
                         "--cache", cache_mib, "--json"])
    epochs = [e for e in events if e.get("event") == "epoch"]
    steady = epochs[1:]
    rates = [e["training"]["samples"] / e["training"]["seconds"] for e in steady]
    return show({"part": part, "images_per_second": sum(e["training"]["samples"] for e in steady) /
                 sum(e["training"]["seconds"] for e in steady), "epochs": rates,
                 "images_an_epoch": steady[0]["training"]["samples"],
                 "first_epoch_s": epochs[0]["training"]["seconds"], "process_s": time.perf_counter() - begin}
                | use_of_loader(steady))


def pack(a, source, short_side, target):
    begin = time.perf_counter()
    packed = json_lines([*a.program, "pack", source, "--out", target, "--short-side", short_side, "--threads",
                         a.workers, "--json"])[-1]
    return show({"part": f"pack_{short_side}", "pictures": packed["pictures"], "bytes": packed["bytes"],
                 "seconds": time.perf_counter() - begin})


def peer(a, mode, pictures):
    warmup = a.peer_warmup or 2 * a.workers + 8
    return show({"part": mode} | json_lines(
        [sys.executable, PEER, pictures, "--model", a.model, "--batch", a.batch, "--size", a.size, "--workers",
         a.workers, "--threads", a.threads, "--device", a.device, "--precision", a.precision, "--mode", mode,
         "--warmup", warmup, "--batches", a.peer_batches])[-1])


def summary(a, runs):
    """Images a second of each part, against the resident rate and against PyTorch."""
    rates = {name: run["images_per_second"] for name, run in runs.items()}
    result = {"model": a.model, "batch": a.batch, "size": a.size, "device": a.device, "precision": a.precision,
              "workers": a.workers, "cores": len(os.sched_getaffinity(0)), "images_per_second": rates,
              "bound": {name: run["bound"] for name, run in runs.items() if "bound" in run}}
    trained = {name: rate for name, rate in rates.items() if name not in ("resident", "eager", "compile")}
    for base in ("resident", "eager", "compile"):
        if base in rates:
            result[f"over_{base}"] = {name: rate / rates[base] for name, rate in trained.items()}
    return result


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zip", type=pathlib.Path, help="class folders of JPEG files")
    parser.add_argument("--parts", default="resident,files,packed,eager", help=f"of {','.join(PARTS)}")
    parser.add_argument("--model", default="resnet50", help="a torchvision model")
    parser.add_argument("--onnx", type=pathlib.Path, help="its export with as many classes, when there is one already")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--size", type=int, default=224, help="height and width of the model's input, pixels")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--precision", default="fp32", choices=PRECISIONS)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="threads that load, a side")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="threads that compute on a CPU")
    parser.add_argument("--images", type=int, help="different pictures (all)")
    parser.add_argument("--repeat", type=int, default=40, help="names of each")
    parser.add_argument("--epochs", type=int, default=5, help="of a training here, 2 or more; the first warms up")
    parser.add_argument("--short-side", default="256", help="of packed pictures, e.g. 256,400; 0: kept as they are")
    parser.add_argument("--steps", type=int, default=20, help="a window of the resident rate")
    parser.add_argument("--windows", type=int, default=3, help="of the resident rate")
    parser.add_argument("--peer-warmup", type=int, default=0, help="batches of the peer that aren't counted")
    parser.add_argument("--peer-batches", type=int, default=60, help="batches of the peer that are")
    parser.add_argument("--program", nargs="+", default=[ROOT / "build/release/bin/renaissance"],
                        help="how to call renaissance")
    a = parse_args(parser)
    a.parts = a.parts.split(",")
    if unknown := set(a.parts) - set(PARTS):
        parser.error(f"--parts: {', '.join(sorted(unknown))} is none of {', '.join(PARTS)}")
    if a.epochs < 2:
        parser.error("--epochs: the first warms up, so there must be 2")
    return a


def main():
    a = parse()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        pictures = folder / "pictures"
        classes = unpack(a.zip, a.repeat, pictures, a.images)
        runs = {}
        if set(a.parts) - {"eager", "compile"}:
            onnx = a.onnx or export(a.model, a.size, folder, classes)
        if "resident" in a.parts:
            runs["resident"] = resident(a, onnx)
        if "files" in a.parts:
            runs["files"] = train(a, "files", onnx, pictures)
        if "packed" in a.parts:
            for side in a.short_side.split(","):
                packed = folder / f"{side}.dts"
                pack(a, pictures, side, packed)
                runs[f"packed_{side}"] = train(a, f"packed_{side}", onnx, packed)
                packed.unlink()
        if "cached" in a.parts:
            runs["cached"] = train(a, "cached", onnx, pictures, PLENTY_MIB)
        for mode in ("eager", "compile"):
            if mode not in a.parts:
                continue
            try:
                runs[mode] = peer(a, mode, pictures)
            except SystemExit as problem:  # what was measured here is told all the same; its errors stand above
                show({"part": mode, "failed": str(problem)})
        print(json.dumps(summary(a, runs)))


if __name__ == "__main__":
    main()
