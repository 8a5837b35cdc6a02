# SPDX-License-Identifier: Apache-2.0
"""One PyTorch training step on synthetic resident input; prints one JSON line. The peer of `renaissance bench step`.

usage: pytorch_step.py MODEL BATCH SIZE THREADS STEPS WINDOWS DEVICE PRECISION MODE
MODEL: a torchvision model, or mlp (784-512-256-10 with tanh). MODE: eager | compile.
Channels last, cross entropy, SGD with momentum 0.9 and weight decay 5e-5; in 16 bits autocast, and a GradScaler
in fp16.
"""
import json
import statistics
import sys
import time

import torch
import torchvision

name, batch, size, threads, steps, windows = sys.argv[1], *map(int, sys.argv[2:7])
device, precision, mode = sys.argv[7:10]
cuda = device.startswith("cuda")
torch.manual_seed(0)
torch.set_num_threads(threads)
torch.backends.cudnn.benchmark = True
# By default PyTorch runs FP32 convolutions in TF32 and FP32 products without.
torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
if name == "mlp":
    layers = [torch.nn.Linear(784, 512), torch.nn.Tanh(), torch.nn.Linear(512, 256), torch.nn.Tanh(),
              torch.nn.Linear(256, 10)]
    model, x, classes = torch.nn.Sequential(torch.nn.Flatten(), *layers), torch.randn(batch, 1, 28, 28), 10
else:
    keywords = {"aux_logits": False} if name in ("googlenet", "inception_v3") else {}
    model = getattr(torchvision.models, name)(weights=None, **keywords)
    x, classes = torch.randn(batch, 3, size, size), 1000
model = model.train().to(device).to(memory_format=torch.channels_last)
x = x.to(device).to(memory_format=torch.channels_last)
y = (torch.arange(batch) % classes).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-5, fused=cuda)
type_ = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(precision)
scaler = torch.amp.GradScaler(device, enabled=precision == "fp16", init_scale=1024.0)


def forward():
    with torch.autocast("cuda" if cuda else "cpu", dtype=type_, enabled=type_ is not None):
        return torch.nn.functional.cross_entropy(model(x), y)


loss_of = torch.compile(forward) if mode == "compile" else forward


def step():
    optimizer.zero_grad(set_to_none=True)
    scaler.scale(loss_of()).backward()
    scaler.step(optimizer)
    scaler.update()


def wait():
    if cuda:
        torch.cuda.synchronize()


begin = time.perf_counter()
step()
wait()
first = time.perf_counter() - begin
for _ in range(steps if cuda else 0):
    step()
wait()
times, memory = [], 0
for _ in range(windows):
    start = time.perf_counter()
    for _ in range(steps):
        step()
    wait()
    times.append((time.perf_counter() - start) / steps * 1e3)
if cuda:
    memory = torch.cuda.max_memory_allocated()
median = statistics.median(times)
print(json.dumps({"engine": "pytorch " + torch.__version__, "mode": mode, "model": name, "batch": batch,
                  "precision": precision, "ms": median, "ms_min": min(times), "ms_max": max(times),
                  "images_per_second": batch / median * 1e3, "first_step_s": first, "peak_device_bytes": memory}))
