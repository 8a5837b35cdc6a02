#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/fixtures/data: small pictures and what Pillow makes of them.

Needs Pillow, numpy and torchvision. Expected pixels are raw bytes, all in one file,
expected.bin; index.json says where:
  decode: picture file -> offset of its RGB and of its gray ("L") bytes, width, height
  resize: picture, box, size, filter -> offset of the result
  fit:    picture, short side, crop -> offset of what Resize and CenterCrop give
Run again only when cases change; the results depend on Pillow's JPEG library.
"""
import io
import json
import pathlib
import struct
import zlib

import numpy as np
import PIL
from PIL import Image, features
from torchvision import transforms

OUT = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "data"
expected = bytearray()
index = {"pillow": PIL.__version__, "jpeg": features.version("libjpeg_turbo"), "decode": [], "resize": [], "fit": []}


def store(data):
    offset = len(expected)
    expected.extend(data)
    return offset


def picture(width, height, seed=0):
    """A smooth picture with edges and noise, so that every stage has something to get wrong."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    r = 128 + 127 * np.sin(x / 7.0 + y / 11.0)
    g = 255 * x / max(1, width - 1)
    b = 255 * y / max(1, height - 1)
    a = np.stack([r, g, b], -1)
    a[height // 3: height // 2, width // 4: width // 2] = (250, 5, 10)
    a[height // 2:, width // 2:] += rng.normal(0, 25, a[height // 2:, width // 2:].shape)
    return Image.fromarray(np.clip(a, 0, 255).astype(np.uint8), "RGB")


def add(name, data, gray=True):
    (OUT / name).write_bytes(data)
    image = Image.open(io.BytesIO(data))
    image.load()
    if image.mode.startswith("I"):  # 16-bit gray: Pillow clamps, the high byte is wanted
        high = (np.asarray(image).astype(np.uint32) >> 8).astype(np.uint8)
        image = Image.fromarray(high, "L")
    rgb = image.convert("RGB")
    entry = {"file": name, "width": rgb.width, "height": rgb.height, "rgb": store(rgb.tobytes())}
    if gray:
        entry["gray"] = store(image.convert("L").tobytes())
    index["decode"].append(entry)


def encode(image, kind, **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def png_chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, depth, color, rows, before=b""):
    """A PNG that Pillow can't write: any depth and colour type, filter 0."""
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    raw = b"".join(b"\0" + row for row in rows)
    return (b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header) + before + png_chunk(b"IDAT", zlib.compress(raw))
            + png_chunk(b"IEND", b""))


def jpegs():
    p = picture(53, 37)
    add("baseline_420.jpg", encode(p, "JPEG", quality=85, subsampling=2))
    add("baseline_422.jpg", encode(p, "JPEG", quality=90, subsampling=1))
    add("baseline_444.jpg", encode(p, "JPEG", quality=95, subsampling=0))
    add("progressive_420.jpg", encode(p, "JPEG", quality=80, subsampling=2, progressive=True))
    add("progressive_444.jpg", encode(p, "JPEG", quality=60, subsampling=0, progressive=True))
    add("gray.jpg", encode(p.convert("L"), "JPEG", quality=80))
    add("one_pixel.jpg", encode(picture(1, 1), "JPEG", quality=80))
    add("restart.jpg", encode(p, "JPEG", quality=80, restart_marker_blocks=2))
    add("keep_rgb.jpg", encode(p, "JPEG", quality=90, keep_rgb=True))
    cmyk = Image.merge("CMYK", [*picture(24, 17).split(), picture(24, 17, 3).convert("L").point(lambda v: v // 2)])
    data = encode(cmyk, "JPEG", quality=90)
    add("cmyk_adobe.jpg", data)
    at = data.index(b"Adobe\x00")
    add("ycck_adobe.jpg", data[: at + 11] + b"\x02" + data[at + 12:])
    app14 = data.index(b"\xff\xee")
    length = struct.unpack(">H", data[app14 + 2: app14 + 4])[0]
    add("cmyk_plain.jpg", data[:app14] + data[app14 + 2 + length:])
    tail = encode(picture(16, 16), "JPEG", quality=80)
    add("trailing_bytes.jpg", tail + b"\0\1\2 trailing" * 9)


def pngs():
    p = picture(29, 23)
    add("rgb.png", encode(p, "PNG"))
    alpha = p.convert("L").rotate(90).resize(p.size)
    add("rgba.png", encode(Image.merge("RGBA", [*p.split(), alpha]), "PNG"))
    add("gray.png", encode(p.convert("L"), "PNG"))
    add("gray_alpha.png", encode(Image.merge("LA", [p.convert("L"), alpha]), "PNG"))
    add("palette.png", encode(p.quantize(40), "PNG"))
    add("palette_4bit.png", encode(p.quantize(11), "PNG", bits=4))
    add("palette_transparent.png", encode(p.quantize(9), "PNG", transparency=3))
    add("one_bit.png", encode(p.convert("1"), "PNG"))
    add("transparent_color.png", encode(p, "PNG", transparency=(250, 5, 10)))
    rng = np.random.default_rng(5)
    words = rng.integers(0, 65536, (7, 9), dtype=np.uint16)
    add("gray_16bit.png", png(9, 7, 16, 0, [row.astype(">u2").tobytes() for row in words]))
    words = rng.integers(0, 65536, (7, 9, 3), dtype=np.uint16)
    add("rgb_16bit.png", png(9, 7, 16, 2, [row.astype(">u2").tobytes() for row in words]))
    words = rng.integers(0, 65536, (7, 9, 4), dtype=np.uint16)
    add("rgba_16bit.png", png(9, 7, 16, 6, [row.astype(">u2").tobytes() for row in words]))
    words = rng.integers(0, 65536, (7, 9, 2), dtype=np.uint16)
    add("gray_alpha_16bit.png", png(9, 7, 16, 4, [row.astype(">u2").tobytes() for row in words]))
    add("gray_2bit.png", png(8, 4, 2, 0, [bytes([0x1B, 0xE4])] * 4))
    add("gray_4bit.png", png(8, 4, 4, 0, [bytes([0x01, 0x23, 0x9A, 0xEF])] * 4))
    add("palette_2bit.png", png(8, 4, 2, 3, [bytes([0x1B, 0xE4])] * 4, png_chunk(b"PLTE", bytes(range(10, 130, 10)))))
    # Adam7: each pass is a small picture of its own.
    a = np.asarray(picture(11, 9))
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    raw = b"".join(b"\0" + row.tobytes() for x, y, dx, dy in passes for row in a[y::dy, x::dx] if row.size)
    header = struct.pack(">IIBBBBB", 11, 9, 8, 2, 0, 0, 1)
    add("interlaced.png", b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header) + png_chunk(b"IDAT", zlib.compress(raw))
        + png_chunk(b"IEND", b""))


FILTERS = {"bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC}


def resizes():
    cases = []
    sizes = [(1, 1), (2, 3), (7, 5), (13, 31), (24, 24), (32, 32), (52, 37), (53, 36), (53, 37), (64, 40), (97, 3), (3, 90), (50, 20), (45, 30)]
    for size in sizes:
        cases.append(("baseline_444.jpg", None, size))
    for box in [(0, 0, 53, 37), (1, 2, 40, 30), (0.5, 0.25, 52.75, 36.5), (10, 5, 11, 6), (10.2, 5.7, 12.4, 36.9), (3, 0, 53, 37), (0, 0, 20, 37)]:
        for size in [(24, 24), (33, 9)]:
            cases.append(("baseline_420.jpg", box, size))
    for size in [(5, 5), (31, 40), (16, 23)]:
        cases.append(("gray.png", None, size))
    cases.append(("one_pixel.jpg", None, (9, 4)))
    for name, box, size in cases:
        image = Image.open(OUT / name)
        if image.mode not in ("L", "RGB"):
            image = image.convert("RGB")
        for filter_name, resample in FILTERS.items():
            result = image.resize(size, resample, box=box)
            index["resize"].append({
                "file": name, "channels": len(image.getbands()), "box": box or [0, 0, *image.size], "width": size[0],
                "height": size[1], "filter": filter_name, "at": store(result.tobytes())})


def fits():
    """torchvision's Resize(short) + CenterCrop on PIL images."""
    for name in ["baseline_444.jpg", "rgb.png", "one_pixel.jpg"]:
        image = Image.open(OUT / name).convert("RGB")
        for short, (height, width) in [(32, (28, 28)), (20, (20, 20)), (17, (16, 15)), (12, (21, 12)), (9, (20, 31)), (37, (37, 37))]:
            for filter_name, mode in [("bilinear", transforms.InterpolationMode.BILINEAR), ("bicubic", transforms.InterpolationMode.BICUBIC)]:
                result = transforms.CenterCrop((height, width))(transforms.Resize(short, mode)(image))
                assert result.size == (width, height)
                index["fit"].append({"file": name, "short": short, "width": width, "height": height,
                                     "filter": filter_name, "at": store(result.tobytes())})


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    for old in OUT.iterdir():
        old.unlink()
    jpegs()
    pngs()
    resizes()
    fits()
    (OUT / "expected.bin").write_bytes(bytes(expected))
    lines = {key: value for key, value in index.items() if not isinstance(value, list)}
    text = ",\n".join([f"{json.dumps(k)}: {json.dumps(v)}" for k, v in lines.items()] + [
        f"{json.dumps(k)}: [\n" + ",\n".join(json.dumps(e, separators=(",", ":")) for e in v) + "\n]" for k, v in index.items() if isinstance(v, list)])
    (OUT / "index.json").write_text("{\n" + text + "\n}\n")
    total = sum(f.stat().st_size for f in OUT.iterdir())
    print(f"{len(index['decode'])} pictures, {len(index['resize'])} resizes, {len(index['fit'])} fits, {total} bytes")


if __name__ == "__main__":
    main()
