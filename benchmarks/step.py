#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times one training step of a torchvision model here and in PyTorch, in turns, and prints ratios.

Needs a Python with torch and torchvision. Both sides: synthetic resident input, SGD with momentum 0.9
and weight decay 5e-5, cross entropy, the same precision and number of threads; each side runs in a process
of its own, alternated `--rounds` times. Prints one JSON line a run and one with the medians at the end.

    python benchmarks/step.py --model resnet50 --batch 16
    python benchmarks/step.py --model resnet50 --batch 256 --device cuda --precision fp16 --steps 20
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from common import PRECISIONS, ROOT, export, parse_args

PEER = ROOT / "benchmarks/peers/pytorch_step.py"


def run(command):
    """The program's last line as JSON, with the memory that the process had at most."""
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(map(str, command[:3]))} failed")
    result = json.loads(output.strip().splitlines()[-1])
    result["peak_rss_bytes"] = usage.ru_maxrss * 1024
    print(json.dumps(result), flush=True)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet50", help="a torchvision model")
    parser.add_argument("--onnx", type=pathlib.Path, help="its export, when there is one already")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--size", type=int, default=224, help="height and width of the images, pixels")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--precision", default="fp32", choices=PRECISIONS)
    parser.add_argument("--mode", default="eager,compile", help="of the peer on a GPU; on a CPU always eager")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3, help="how often the sides take turns")
    parser.add_argument("--steps", type=int, default=1, help="steps a window")
    parser.add_argument("--windows", type=int, default=5, help="windows a run")
    parser.add_argument("--program", nargs="+", default=[ROOT / "build/release/bin/renaissance"],
                        help="how to call renaissance")
    a = parse_args(parser)
    modes = a.mode.split(",") if a.device.startswith("cuda") else ["eager"]

    with tempfile.TemporaryDirectory() as folder:
        onnx = a.onnx or export(a.model, a.size, folder)
        ours, theirs = [], {mode: [] for mode in modes}
        for _ in range(a.rounds):
            ours.append(run([*a.program, "bench", "step", onnx, "--batch", a.batch, "--steps", a.steps, "--windows",
                             a.windows, "--threads", a.threads, "--device", a.device, "--precision", a.precision,
                             "--no-profile", "--json"]))
            for mode in modes:
                theirs[mode].append(run([sys.executable, PEER, a.model, a.batch, a.size, a.threads, a.steps, a.windows,
                                         a.device, a.precision, mode]))
    mine = statistics.median(r["ms"] for r in ours)
    summary = {"model": a.model, "batch": a.batch, "device": ours[0]["device"], "precision": a.precision,
               "threads": a.threads, "ms": mine, "arena_bytes": ours[0]["arena_bytes"], "host_us": ours[0]["host_us"],
               "peak_rss_bytes": max(r["peak_rss_bytes"] for r in ours)}
    for mode, runs in theirs.items():
        peer = statistics.median(r["ms"] for r in runs)
        summary |= {f"pytorch_{mode}_ms": peer, f"speedup_over_{mode}": peer / mine,
                    f"pytorch_{mode}_peak_rss_bytes": min(r["peak_rss_bytes"] for r in runs),
                    f"pytorch_{mode}_peak_device_bytes": min(r["peak_device_bytes"] for r in runs)}
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
