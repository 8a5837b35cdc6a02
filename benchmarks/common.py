# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks share: exported models, folders of pictures, programs that print JSON."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PRECISIONS = ["fp32", "tf32", "fp16", "bf16"]  # tf32: on a GPU alone


def parse_args(parser):
    """The arguments, of which --device has --precision."""
    a = parser.parse_args()
    if a.precision == "tf32" and not a.device.startswith("cuda"):
        parser.error("--precision tf32: there is none on a CPU; take --device cuda")
    return a


def json_lines(command):
    """What a program prints as JSON, a value a line. Its errors go to standard error; failing ends this one."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def export(model, size, folder, classes=None):
    """A torchvision model as an ONNX file in `folder`, random weights."""
    onnx = pathlib.Path(folder) / f"{model}.onnx"
    command = [sys.executable, "-m", "renaissance", "export", "--torchvision", model, "--size", size, "--out", onnx]
    if classes is not None:
        command += ["--classes", classes]
    environment = dict(os.environ, PYTHONPATH=str(ROOT / "bindings/python"))
    subprocess.run([str(word) for word in command], check=True, env=environment, stdout=subprocess.DEVNULL)
    return onnx


def unpack(archive, repeat, folder, limit=None):
    """The JPEG files of a zip archive (the first `limit` of them) as one folder a class in `folder`, `repeat` names for
    each. Further names are hard links where the file system has them, so that a small disk is enough: each name is
    opened, read and decoded by itself all the same. What copies would change is where the bytes lie in the system's
    cache of files, which either way has them all. Gives the number of classes."""
    with zipfile.ZipFile(archive) as z:
        names = [n for n in z.namelist() if n.lower().endswith((".jpg", ".jpeg"))][:limit]
        for name in names:
            target = folder / pathlib.Path(name).parent.name
            target.mkdir(parents=True, exist_ok=True)
            first = target / f"0-{pathlib.Path(name).name}"
            first.write_bytes(z.read(name))
            for i in range(1, repeat):
                further = target / f"{i}-{pathlib.Path(name).name}"
                try:
                    os.link(first, further)
                except OSError:
                    shutil.copyfile(first, further)
    return len({pathlib.Path(name).parent.name for name in names})
