#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the two untrained models of the quick start, with PyTorch.

usage: make_models.py [DIR]        (default: the folder of this script)

  shapes_cnn.onnx     four convolutions with BatchNormalization, to be trained to
                      more than 95 % on the pictures of scripts/make_shapes.py
  shapes_linear.onnx  one linear layer on the pixels, to show that those pictures
                      need more than that

Both are checked in; only somebody who changes them runs this. It also shows how
any other module gets from PyTorch into a file to train: renaissance.export().
Needs torch and onnx.
"""
import os
import sys

import torch
from torch import nn

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', '..', 'bindings', 'python'))
import renaissance  # noqa: E402

SIZE, CLASSES = 40, 10


class ConvBlock(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(outputs)

    def forward(self, x):
        return torch.relu(self.bn(self.conv(x)))


class ShapesCNN(nn.Module):
    def __init__(self, widths=(16, 32, 64, 96)):
        super().__init__()
        self.blocks = nn.ModuleList(ConvBlock(i, o) for i, o in zip((3,) + widths, widths))
        self.pool = nn.MaxPool2d(2)
        self.average = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(widths[-1], CLASSES)

    def forward(self, x):
        for i, block in enumerate(self.blocks):
            x = block(x if i == 0 else self.pool(x))
        return self.classifier(torch.flatten(self.average(x), 1))


class ShapesLinear(nn.Module):
    def __init__(self):
        super().__init__()
        self.classifier = nn.Linear(3 * SIZE * SIZE, CLASSES)

    def forward(self, x):
        return self.classifier(torch.flatten(x, 1))


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else HERE
    for name, kind in (('shapes_cnn', ShapesCNN), ('shapes_linear', ShapesLinear)):
        torch.manual_seed(0)
        report = renaissance.export(kind(), torch.randn(2, 3, SIZE, SIZE), os.path.join(folder, f'{name}.onnx'),
                                    input_names=['image'], output_names=['logits'])
        print(report)


if __name__ == '__main__':
    main()
