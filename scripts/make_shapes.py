#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draw a JPEG data set of ten shapes, as class folders.

usage: make_shapes.py DIR [--train N] [--val N] [--size PIXELS] [--seed S]

Writes DIR/train/CLASS/*.jpg and DIR/val/CLASS/*.jpg. Every picture shows one
shape, at any place, size and angle, in any colour on any coloured background,
dark on light or light on dark, with clutter, noise and JPEG artefacts. So a
single pixel says nothing about the class: a linear model stays far below what
a convolutional one reaches. The same arguments draw the same pictures.

Needs Pillow and NumPy (Debian: python3-pil python3-numpy).
"""
import argparse
import math
import os
import shutil
import sys
import tempfile

import numpy as np
from PIL import Image, ImageDraw

OVERSAMPLE = 4


def ngon(n, start=0.0):
    return [(math.cos(start + 2 * math.pi * i / n), math.sin(start + 2 * math.pi * i / n)) for i in range(n)]


def star(points, inner):
    corners = []
    for i in range(2 * points):
        radius = 1.0 if i % 2 == 0 else inner
        angle = math.pi * i / points
        corners.append((radius * math.cos(angle), radius * math.sin(angle)))
    return corners


CROSS = [(-0.3, -1), (0.3, -1), (0.3, -0.3), (1, -0.3), (1, 0.3), (0.3, 0.3),
         (0.3, 1), (-0.3, 1), (-0.3, 0.3), (-1, 0.3), (-1, -0.3), (-0.3, -0.3)]
ARROW = [(-1, -0.25), (0.1, -0.25), (0.1, -0.8), (1, 0), (0.1, 0.8), (0.1, 0.25), (-1, 0.25)]
LETTER_L = [(-0.7, -1), (-0.15, -1), (-0.15, 0.45), (0.75, 0.45), (0.75, 1), (-0.7, 1)]
HOURGLASS = [(-0.8, -1), (0.8, -1), (0.12, 0), (0.8, 1), (-0.8, 1), (-0.12, 0)]

# name -> (outline, hole or None), in a box from -1 to 1
SHAPES = {
    'arrow': (ARROW, None),
    'circle': (ngon(48), None),
    'crescent': (ngon(48), [(0.45 + 0.85 * x, 0.85 * y) for x, y in ngon(48)]),
    'cross': (CROSS, None),
    'frame': (ngon(4, math.pi / 4), [(0.55 * x, 0.55 * y) for x, y in ngon(4, math.pi / 4)]),
    'hourglass': (HOURGLASS, None),
    'letter_l': (LETTER_L, None),
    'ring': (ngon(48), [(0.6 * x, 0.6 * y) for x, y in ngon(48)]),
    'star': (star(5, 0.42), None),
    'triangle': (ngon(3), None),
}


def luminance(colour):
    return float(np.dot(colour, (0.299, 0.587, 0.114)))


def two_colours(rng):
    """Any two colours that differ enough in brightness to be told apart."""
    while True:
        first, second = rng.uniform(10, 245, (2, 3))
        if abs(luminance(first) - luminance(second)) > 55:
            return first, second


def mask_of(polygon, hole, size, centre, radius, angle):
    """How much of each pixel the shape covers, 0 to 1."""
    big = size * OVERSAMPLE
    cos, sin = math.cos(angle), math.sin(angle)

    def place(points):
        return [(OVERSAMPLE * (centre[0] + radius * (cos * x - sin * y)),
                 OVERSAMPLE * (centre[1] + radius * (sin * x + cos * y))) for x, y in points]

    image = Image.new('L', (big, big), 0)
    draw = ImageDraw.Draw(image)
    draw.polygon(place(polygon), fill=255)
    if hole:
        draw.polygon(place(hole), fill=0)
    pixels = np.asarray(image, dtype=np.float64)
    return pixels.reshape(size, OVERSAMPLE, size, OVERSAMPLE).mean((1, 3)) / 255.0


def picture(rng, name, size):
    inside, outside = two_colours(rng)
    # a background that changes across the picture, and some clutter in it
    canvas = np.empty((size, size, 3))
    slope = rng.uniform(-30, 30, (2, 3)) / size
    rows, columns = np.mgrid[0:size, 0:size] - size / 2
    canvas[:] = outside + rows[..., None] * slope[0] + columns[..., None] * slope[1]
    for _ in range(rng.integers(0, 4)):
        line = Image.new('L', (size * OVERSAMPLE, size * OVERSAMPLE), 0)
        ends = rng.uniform(0, size * OVERSAMPLE, 4)
        ImageDraw.Draw(line).line([tuple(ends[:2]), tuple(ends[2:])], fill=255, width=int(rng.integers(3, 7)))
        cover = np.asarray(line, dtype=np.float64).reshape(size, OVERSAMPLE, size, OVERSAMPLE).mean((1, 3)) / 255.0
        canvas += cover[..., None] * rng.uniform(-60, 60, 3)
    radius = rng.uniform(0.22, 0.42) * size
    centre = rng.uniform(radius * 0.95, size - radius * 0.95, 2)
    outline, hole = SHAPES[name]
    cover = mask_of(outline, hole, size, centre, radius, rng.uniform(0, 2 * math.pi))
    canvas += cover[..., None] * (inside - canvas)
    canvas += rng.normal(0, rng.uniform(2, 14), canvas.shape)
    return Image.fromarray(np.clip(np.rint(canvas), 0, 255).astype(np.uint8))


def count(folder):
    return sum(len([f for f in files if f.endswith('.jpg')]) for _, _, files in os.walk(folder))


def make(target, train, val, size, seed):
    """Draws everything into a temporary folder first: target is complete or absent."""
    parent = os.path.dirname(os.path.abspath(target))
    os.makedirs(parent, exist_ok=True)
    work = tempfile.mkdtemp(prefix='.shapes-', dir=parent)
    try:
        os.chmod(work, 0o755)
        names = sorted(SHAPES)
        for part, (split, total) in enumerate((('train', train), ('val', val))):
            for label, name in enumerate(names):
                folder = os.path.join(work, split, name)
                os.makedirs(folder)
                for i in range(total // len(names)):
                    rng = np.random.default_rng((seed, part, label, i))
                    image = picture(rng, name, size)
                    image.save(os.path.join(folder, f'{i:04d}.jpg'), quality=int(rng.integers(70, 96)))
        os.rename(work, target)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


def main():
    parser = argparse.ArgumentParser(description='Draw a JPEG data set of ten shapes.')
    parser.add_argument('dir', help='folder to create')
    parser.add_argument('--train', type=int, default=4000, help='training pictures, all classes together')
    parser.add_argument('--val', type=int, default=1000, help='held-out pictures, all classes together')
    parser.add_argument('--size', type=int, default=40, help='width and height in pixels')
    parser.add_argument('--seed', type=int, default=1)
    args = parser.parse_args()
    if min(args.train, args.val) < len(SHAPES) or args.train % len(SHAPES) or args.val % len(SHAPES):
        parser.error(f'--train and --val are multiples of {len(SHAPES)}, one share a class')
    if args.size < 16:
        parser.error('--size is at least 16')
    if os.path.exists(args.dir):
        found = count(args.dir)
        if found == args.train + args.val:
            print(f'{args.dir}: {found} pictures are there already')
            return 0
        print(f'{args.dir} exists but holds {found} pictures, not {args.train + args.val}: '
              'remove it or name another folder', file=sys.stderr)
        return 1
    make(args.dir, args.train, args.val, args.size, args.seed)
    print(f'{args.dir}: {args.train} + {args.val} pictures of {len(SHAPES)} classes, '
          f'{args.size}x{args.size} pixels')
    return 0


if __name__ == '__main__':
    sys.exit(main())
