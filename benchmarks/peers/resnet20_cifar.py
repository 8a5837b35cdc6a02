#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ResNet-20 (He et al., 2016, option B shortcuts) on 32x32 JPEGs in PyTorch, the peer of cifar10.py.

Decodes everything beforehand, so its epoch holds augmentation and training alone. Prints one JSON line
an epoch: seconds, mean loss, test top-1.
"""
import argparse
import io
import json
import math
import time
import zipfile

import numpy
import torch
from PIL import Image
from torch import nn
from torch.nn import functional

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def norm_conv(channels_in, channels_out, size, stride):
    return nn.Sequential(nn.Conv2d(channels_in, channels_out, size, stride, size // 2, bias=False), nn.BatchNorm2d(channels_out))


class Residual(nn.Module):
    def __init__(self, channels_in, channels_out, stride):
        super().__init__()
        self.first = norm_conv(channels_in, channels_out, 3, stride)
        self.second = norm_conv(channels_out, channels_out, 3, 1)
        same = stride == 1 and channels_in == channels_out
        self.shortcut = nn.Identity() if same else norm_conv(channels_in, channels_out, 1, stride)

    def forward(self, x):
        return functional.relu(self.second(functional.relu(self.first(x))) + self.shortcut(x))


def resnet20():
    widths = [16] * 4 + [32] * 3 + [64] * 3
    blocks = [Residual(a, b, 2 if b > a else 1) for a, b in zip(widths, widths[1:])]
    net = nn.Sequential(norm_conv(3, 16, 3, 1), nn.ReLU(), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return net


def pictures(path, split):
    with zipfile.ZipFile(path) as archive:
        names = sorted(n for n in archive.namelist() if f"/{split}/" in n and n.endswith(".jpg"))
        classes = sorted({n.split("/")[-2] for n in names})
        images = [numpy.asarray(Image.open(io.BytesIO(archive.read(n))).convert("RGB")) for n in names]
    return torch.from_numpy(numpy.stack(images)), torch.tensor([classes.index(n.split("/")[-2]) for n in names])


def augmented(images):
    padded = functional.pad(images.permute(0, 3, 1, 2), (4, 4, 4, 4))
    rows, columns = torch.randint(0, 9, (2, len(images))).tolist()
    crops = [p[:, r:r + 32, c:c + 32] for p, r, c in zip(padded, rows, columns)]
    return torch.stack([crop.flip(2) if mirror else crop for crop, mirror in zip(crops, torch.rand(len(crops)) < 0.5)])


def normalised(images):
    mean, std = torch.tensor(MEAN).view(3, 1, 1) * 255, torch.tensor(STD).view(3, 1, 1) * 255
    return ((images.float() - mean) / std).contiguous(memory_format=torch.channels_last)


def rate(step, steps, total):
    if step < steps:
        return 0.1 * (step + 1) / steps
    return 0.05 * (1 + math.cos(math.pi * (step - steps) / max(1, total - steps)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("zip")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--only", type=int, default=0, help="stop after so many epochs (timing)")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    a = parser.parse_args()
    torch.manual_seed(a.seed)
    torch.set_num_threads(a.threads)
    net = resnet20().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    (images, labels), (test_images, test_labels) = pictures(a.zip, "train"), pictures(a.zip, "test")
    steps = len(labels) // a.batch
    done = 0
    for epoch in range(a.only or a.epochs):
        net.train()
        start, losses = time.perf_counter(), 0.0
        for batch in torch.randperm(len(labels))[:steps * a.batch].split(a.batch):
            for group in optimizer.param_groups:
                group["lr"] = rate(done, steps, steps * a.epochs)
            loss = functional.cross_entropy(net(normalised(augmented(images[batch]))), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses += loss.item()
            done += 1
        seconds = time.perf_counter() - start
        net.eval()
        with torch.no_grad():
            right = sum((net(normalised(x.permute(0, 3, 1, 2))).argmax(1) == y).sum().item()
                        for x, y in zip(test_images.split(500), test_labels.split(500)))
        print(json.dumps({"engine": "pytorch " + torch.__version__, "epoch": epoch + 1, "seconds": seconds,
                          "loss": losses / steps, "top1": right / len(test_labels)}), flush=True)


if __name__ == "__main__":
    main()
