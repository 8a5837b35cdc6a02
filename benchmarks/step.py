#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times one training step of a torchvision model here and in PyTorch, in turns, and prints ratios.

Needs a Python with torch and torchvision. Both sides: synthetic resident input, SGD with momentum 0.9
and weight decay 5e-5, cross entropy, FP32, the same number of threads; each side runs in a process of
its own, alternated `--rounds` times. Prints one JSON line a run and one with the medians at the end.

    python benchmarks/step.py --model resnet50 --batch 16
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

PEER = r"""
import json, resource, sys, time, torch, torchvision
name, batch, size, threads, steps, windows = sys.argv[1], *map(int, sys.argv[2:])
torch.manual_seed(0)
torch.set_num_threads(threads)
keywords = {"aux_logits": False} if name in ("googlenet", "inception_v3") else {}
model = getattr(torchvision.models, name)(weights=None, **keywords).train().to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-5)
x = torch.randn(batch, 3, size, size).to(memory_format=torch.channels_last)
y = torch.ones(batch, dtype=torch.int64)
def step():
    optimizer.zero_grad(set_to_none=True)
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
step()
times = []
for _ in range(windows):
    start = time.perf_counter()
    for _ in range(steps):
        step()
    times.append((time.perf_counter() - start) / steps)
times.sort()
median = times[len(times) // 2]
print(json.dumps({"engine": "pytorch " + torch.__version__, "model": name, "batch": batch, "ms": median * 1e3,
                  "ms_min": times[0] * 1e3, "ms_max": times[-1] * 1e3, "images_per_second": batch / median,
                  "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))
"""


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command[:3]))} failed:\n{done.stderr}")
    print(done.stdout.strip(), flush=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet50", help="a torchvision model")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--size", type=int, default=224, help="height and width of the images, pixels")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3, help="how often the two sides take turns")
    parser.add_argument("--steps", type=int, default=1, help="steps a window")
    parser.add_argument("--windows", type=int, default=5, help="windows a run")
    parser.add_argument("--build", default=ROOT / "build/release", type=pathlib.Path)
    a = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        onnx = pathlib.Path(folder) / f"{a.model}.onnx"
        environment = dict(os.environ, PYTHONPATH=str(ROOT / "bindings/python"))
        subprocess.run([sys.executable, "-m", "renaissance", "export", "--torchvision", a.model, "--size", str(a.size),
                        "--out", onnx], check=True, env=environment, stdout=subprocess.DEVNULL)
        ours, theirs = [], []
        for _ in range(a.rounds):
            ours.append(run([a.build / "bin/bench_step", onnx, "--batch", str(a.batch), "--steps", str(a.steps),
                             "--windows", str(a.windows), "--threads", str(a.threads)]))
            theirs.append(run([sys.executable, "-c", PEER, a.model, str(a.batch), str(a.size), str(a.threads),
                               str(a.steps), str(a.windows)]))
    mine = statistics.median(r["ms"] for r in ours)
    peer = statistics.median(r["ms"] for r in theirs)
    print(json.dumps({"model": a.model, "batch": a.batch, "threads": a.threads, "ms": mine, "pytorch_ms": peer,
                      "speedup": peer / mine, "peak_rss_bytes": max(r["peak_rss_bytes"] for r in ours),
                      "pytorch_peak_rss_bytes": min(r["peak_rss_bytes"] for r in theirs)}))


if __name__ == "__main__":
    main()
