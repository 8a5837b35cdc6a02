#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/fixtures/transforms: what torchvision's transforms make of small PIL images.

Needs Pillow, numpy, torch and torchvision. The pictures are those of tests/fixtures/data; the results are raw
bytes, all in one file, expected.bin. index.json lists
  cases:      picture, channels, function, arguments -> offset of the result
  magnitudes: RandAugment's and TrivialAugmentWide's tables
  hue:        CRC-32 of a cube of colours after a turn of its hue
Run again only when cases change.
"""
import json
import pathlib
import zlib

import numpy as np
import PIL
import torch
import torchvision
from PIL import Image
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / 'fixtures'
OUT = FIXTURES / 'transforms'
SHEARS, TURNS = (0.09, 0.3, -0.99), (9.0, 30.0, 90.0, -135.0, 180.0)


def auto_op(image, op, magnitude, interpolation='nearest'):
    mode = v2.InterpolationMode(interpolation)
    return v2.RandAugment()._apply_image_or_video_transform(image, op, magnitude, mode, {Image.Image: None})


def cases():
    """(function, arguments): the names are torchvision's."""
    for factor in (0.0, 0.35, 0.6, 1.0, 1.4, 1.9, 7.5):
        for name in ('adjust_brightness', 'adjust_contrast', 'adjust_saturation', 'adjust_sharpness'):
            yield name, [factor]
    for shift in (-0.5, -0.1, 0.0, 0.003, 0.05, 0.31, 0.5):
        yield 'adjust_hue', [shift]
    for bits in (1, 2, 4, 7, 8):
        yield 'posterize', [bits]
    for threshold in (0.0, 100.3, 178.5, 255.0):
        yield 'solarize', [threshold]
    for name in ('autocontrast', 'equalize', 'rgb_to_grayscale', 'vertical_flip'):
        yield name, []
    for size, sigma in ((3, 0.1), (3, 2.0), (9, 1.3), (23, 2.0), (1, 1.0), (5, 40.0)):
        yield 'gaussian_blur', [size, sigma]
    yield 'erase', [3, 5, 7, 11, 17]
    for mode in ('nearest', 'bilinear', 'bicubic'):
        for op in ('ShearX', 'ShearY'):
            for tangent in SHEARS:
                yield op, [tangent, mode]
        for op in ('TranslateX', 'TranslateY'):
            for distance in (0.0, 4.7, -9.2):
                yield op, [distance, mode]
        for angle in TURNS:
            yield 'Rotate', [angle, mode]
    for op, magnitude in (('Identity', 0.0), ('Brightness', 0.27), ('Color', -0.9), ('Contrast', -0.45), ('Sharpness', 0.9),
                          ('Posterize', 5.0), ('Solarize', 0.7), ('AutoContrast', 0.0), ('Equalize', 0.0)):
        yield op, [magnitude, 'nearest']


def result(image, name, arguments):
    if name[0].isupper():
        return auto_op(image, name, *arguments)
    if name == 'gaussian_blur':
        return F.gaussian_blur(image, [arguments[0]] * 2, [arguments[1]] * 2)
    if name == 'erase':
        i, j, h, w, value = arguments
        return F.to_pil_image(F.erase(F.pil_to_tensor(image), i, j, h, w, torch.tensor([value])[:, None, None]))
    if name == 'rgb_to_grayscale':
        return F.rgb_to_grayscale(image, num_output_channels=len(image.getbands()))
    return getattr(F, name)(image, *arguments)


def magnitudes():
    tables = []
    for transform in (v2.RandAugment, v2.TrivialAugmentWide):
        for bins in (2, 7, 10, 31, 100):
            for op, (table, signed) in transform._AUGMENTATION_SPACE.items():
                values = table(bins, 200, 333)
                tables.append({'transform': transform.__name__, 'op': op, 'bins': bins, 'height': 200, 'width': 333,
                               'signed': signed, 'values': [0.0] * bins if values is None else [float(v) for v in values]})
    return tables


def color_cube():
    """64^3 colours with every value of each channel in some of them."""
    i = np.arange(64 ** 3)
    parts = [i % 64, i // 64 % 64, i // 4096]
    low = [(i // 7) % 4, (i // 64 // 3) % 4, i % 4]
    cube = np.stack([p * 4 + l for p, l in zip(parts, low)], -1).astype(np.uint8)
    return Image.fromarray(cube.reshape(512, 512, 3), 'RGB')


def main():
    expected = bytearray()
    index = {'pillow': PIL.__version__, 'torchvision': torchvision.__version__, 'cases': []}
    for file, mode in (('rgb.png', 'RGB'), ('gray.png', 'L')):
        image = Image.open(FIXTURES / 'data' / file).convert(mode)
        for name, arguments in cases():
            if name == 'gaussian_blur' and arguments[0] // 2 >= min(image.size):
                continue
            out = result(image, name, arguments)
            assert out.size == image.size and out.mode == image.mode, (name, out.size, out.mode)
            index['cases'].append({'file': file, 'channels': len(mode), 'function': name, 'arguments': arguments, 'at': len(expected)})
            expected.extend(out.tobytes())
    index['magnitudes'] = magnitudes()
    index['hue'] = [{'shift': s, 'crc': zlib.crc32(F.adjust_hue(color_cube(), s).tobytes())} for s in (0.0, 0.01, -0.2, 0.5)]
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / 'expected.bin').write_bytes(bytes(expected))
    lines = {key: value for key, value in index.items() if not isinstance(value, list)}
    text = ',\n'.join([f'{json.dumps(k)}: {json.dumps(v)}' for k, v in lines.items()] + [
        f'{json.dumps(k)}: [\n' + ',\n'.join(json.dumps(e, separators=(',', ':')) for e in v) + '\n]' for k, v in index.items() if isinstance(v, list)])
    (OUT / 'index.json').write_text('{\n' + text + '\n}\n')
    print(len(index['cases']), 'cases,', sum(f.stat().st_size for f in OUT.iterdir()), 'bytes')


if __name__ == '__main__':
    main()
