#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer of train.py: PyTorch trains a torchvision model from class folders of JPEG files. Prints one line of JSON.

ImageFolder, RandomResizedCrop, RandomHorizontalFlip, ToTensor and Normalize in a DataLoader with persistent workers and
pinned memory; channels last, SGD with momentum 0.9 (fused on a GPU), autocast in 16 bits with a GradScaler in fp16.
One long epoch of --warmup batches, which aren't counted, and --batches that are, drawn with replacement: so no
epoch's beginning, when the workers have nothing ready, is counted against it.
"""
import argparse
import json
import time

import torch
import torchvision
from torch.utils.data import DataLoader, RandomSampler
from torchvision import transforms as T

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("--model", default="resnet50")
parser.add_argument("--batch", type=int, default=256)
parser.add_argument("--size", type=int, default=224)
parser.add_argument("--workers", type=int, default=16)
parser.add_argument("--threads", type=int, default=16, help="that compute on a CPU")
parser.add_argument("--device", default="cuda")
parser.add_argument("--precision", choices=["fp32", "tf32", "fp16", "bf16"], default="fp32")
parser.add_argument("--mode", choices=["eager", "compile"], default="eager")
parser.add_argument("--warmup", type=int, default=40)
parser.add_argument("--batches", type=int, default=60)


def make_loader(a):
    transform = T.Compose([T.RandomResizedCrop(a.size), T.RandomHorizontalFlip(), T.ToTensor(),
                           T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])
    pictures = torchvision.datasets.ImageFolder(a.folder, transform)
    sampler = RandomSampler(pictures, replacement=True, num_samples=(a.warmup + a.batches) * a.batch)
    loader = DataLoader(pictures, a.batch, sampler=sampler, num_workers=a.workers, pin_memory=a.device != "cpu",
                        persistent_workers=a.workers > 0, drop_last=True)
    return loader, len(pictures.classes)


def make_step(a, classes):
    """A function of a batch that trains with it; on a GPU it doesn't wait for the result."""
    cuda = a.device != "cpu"
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = a.precision == "tf32"
    keywords = {"aux_logits": False} if a.model in ("googlenet", "inception_v3") else {}
    model = getattr(torchvision.models, a.model)(weights=None, num_classes=classes, **keywords)
    model = model.train().to(a.device).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=cuda)
    type_ = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(a.precision)
    scaler = torch.amp.GradScaler("cuda" if cuda else "cpu", enabled=a.precision == "fp16")

    def forward(x, y):
        with torch.autocast("cuda" if cuda else "cpu", dtype=type_, enabled=type_ is not None):
            return torch.nn.functional.cross_entropy(model(x), y)

    loss_of = torch.compile(forward) if a.mode == "compile" else forward

    def step(x, y):
        x = x.to(a.device, non_blocking=True).to(memory_format=torch.channels_last)
        y = y.to(a.device, non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss_of(x, y)).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def main():
    a = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(a.threads)
    torch.backends.cudnn.benchmark = True
    loader, classes = make_loader(a)
    step = make_step(a, classes)
    wait = torch.cuda.synchronize if a.device != "cpu" else lambda: None
    launched, waited, first, before = time.perf_counter(), 0.0, None, None
    for i, (x, y) in enumerate(loader):
        got = time.perf_counter()
        if before is not None:
            waited += got - before
        step(x, y)
        if i == 0:
            wait()
            first = time.perf_counter() - launched
        if i + 1 == a.warmup:
            wait()
            begin = time.perf_counter()
        if i + 1 >= a.warmup:
            before = time.perf_counter()
    wait()
    seconds = time.perf_counter() - begin
    print(json.dumps({"engine": "pytorch " + torch.__version__, "torchvision": torchvision.__version__,
                      "images_per_second": a.batches * a.batch / seconds, "batches": a.batches, "seconds": seconds,
                      "waited_share": waited / seconds, "first_step_s": first, "workers": a.workers}))


if __name__ == "__main__":
    main()
