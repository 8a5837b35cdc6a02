#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer of data_loader.cpp: torch's DataLoader with torchvision's transforms on class folders or a zip archive
of them. --output bytes: as there, nothing is converted or normalised; floats: converted and normalised by the
workers, as torchvision's training recipes do. Prints one JSON object.

    torchvision_loader.py URI [--size N] [--batch N] [--workers N] [--epochs N] [--mode train|eval]
                          [--output bytes|floats]
"""
import argparse
import io
import json
import resource
import time
import zipfile

import PIL
import torch
import torchvision
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as T


class ZipPictures(Dataset):
    def __init__(self, path, transform, part):
        self.path, self.transform, self.archive = path, transform, None
        with zipfile.ZipFile(path) as archive:
            names = [n for n in archive.namelist() if n.lower().endswith((".jpg", ".jpeg", ".png"))]
        split = [n for n in names if f"/{part}/" in "/" + n]
        self.names = sorted(split or names)
        classes = sorted({n.split("/")[-2] for n in self.names})
        self.labels = [classes.index(n.split("/")[-2]) for n in self.names]

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        if self.archive is None:  # one a worker process
            self.archive = zipfile.ZipFile(self.path)
        picture = Image.open(io.BytesIO(self.archive.read(self.names[index]))).convert("RGB")
        return self.transform(picture), self.labels[index]


def cpu_seconds():
    """Of this process and of the workers that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("uri")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--mode", choices=["train", "eval"], default="train")
    parser.add_argument("--output", choices=["bytes", "floats"], default="bytes")
    a = parser.parse_args()
    if a.mode == "eval":
        steps = [T.Resize(round(a.size * 8 / 7)), T.CenterCrop(a.size)] if a.size > 64 else []
    elif a.size > 64:
        steps = [T.RandomResizedCrop(a.size), T.RandomHorizontalFlip()]
    else:
        steps = [T.RandomCrop(a.size, a.size // 8), T.RandomHorizontalFlip()]
    steps += ([T.PILToTensor()] if a.output == "bytes" else
              [T.ToTensor(), T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])
    transform = T.Compose(steps)
    # data_loader.cpp reads the training split unless --split says otherwise, in both modes
    pictures = (ZipPictures(a.uri, transform, "train") if a.uri.endswith(".zip")
                else torchvision.datasets.ImageFolder(a.uri, transform))
    loader = DataLoader(pictures, a.batch, shuffle=a.mode == "train", num_workers=a.workers,
                        persistent_workers=a.workers > 0)
    rates, images = [], 0
    begin_cpu = cpu_seconds()
    for _ in range(a.epochs):
        start, before = time.perf_counter(), images
        for batch, _ in loader:
            images += len(batch)
        rates.append((images - before) / (time.perf_counter() - start))
    del loader  # ends the workers
    print(json.dumps({"benchmark": "data_loader", "peer": "torch DataLoader", "uri": a.uri, "images": len(pictures),
                      "size": a.size, "batch": a.batch, "mode": a.mode, "workers": a.workers,
                      "output": a.output,
                      "images_per_second": rates, "images_per_cpu_second": images / (cpu_seconds() - begin_cpu),
                      "torch": torch.__version__, "torchvision": torchvision.__version__,
                      "pillow": PIL.__version__}))


if __name__ == "__main__":
    main()
