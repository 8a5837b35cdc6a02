#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer of data_loader.cpp: torch's DataLoader with torchvision's transforms on the same
zip archive. Prints one JSON object.

    data_loader.py URI.zip [--size N] [--batch N] [--workers N] [--epochs N] [--mode train|eval]
"""
import argparse
import io
import json
import time
import zipfile

import numpy as np
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
        return torch.from_numpy(np.array(self.transform(picture))), self.labels[index]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("uri")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--mode", choices=["train", "eval"], default="train")
    a = parser.parse_args()
    if a.mode == "eval":
        transform = T.Compose([T.Resize(round(a.size * 8 / 7)), T.CenterCrop(a.size)] if a.size > 64 else [])
    elif a.size > 64:
        transform = T.Compose([T.RandomResizedCrop(a.size), T.RandomHorizontalFlip()])
    else:
        transform = T.Compose([T.RandomCrop(a.size, a.size // 8), T.RandomHorizontalFlip()])
    # data_loader.cpp reads the training split unless --split says otherwise, in both modes
    pictures = ZipPictures(a.uri, transform, "train")
    loader = DataLoader(pictures, a.batch, shuffle=a.mode == "train", num_workers=a.workers,
                        persistent_workers=a.workers > 0)
    rates = []
    for _ in range(a.epochs):
        start, images = time.perf_counter(), 0
        for batch, _ in loader:
            images += len(batch)
        rates.append(images / (time.perf_counter() - start))
    print(json.dumps({"benchmark": "data_loader", "peer": "torch DataLoader", "uri": a.uri, "images": len(pictures),
                      "size": a.size, "batch": a.batch, "mode": a.mode, "workers": a.workers,
                      "images_per_second": rates, "torch": torch.__version__, "torchvision": torchvision.__version__,
                      "pillow": PIL.__version__}))


if __name__ == "__main__":
    main()
