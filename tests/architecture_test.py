#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks who includes whom under src/.

usage: architecture_test.py [SRC]      (default: src/ beside the folder of this script)

The table below is the dependency direction that docs/ARCHITECTURE.md draws. A
module may include what stands right of it, and what those may include in turn,
never back. Before the sources are read, the checks themselves are tested on
planted violations: a check that finds nothing there has to fail here.
"""
import os
import re
import sys
import tempfile

# module -> the modules it builds on; everything may include base
USES = {
    'cli': [],  # include/renaissance_c.h alone
    'capi': ['importer', 'train', 'data'],
    'train': ['compile', 'runtime', 'dist'],
    'compile': ['plan', 'ops', 'range', 'pointwise', 'ir'],
    'runtime': ['plan', 'ops', 'range', 'pointwise', 'device'],
    'dist': ['device'],
    'importer': ['ops', 'pointwise', 'ir'],
    'ops': ['pointwise', 'device', 'ir'],
    'range': ['ops', 'pointwise', 'device', 'ir'],  # a range operation is an op: it has an OpDef
    'pointwise': ['ir'],
    'device': ['ir'],
    'plan': ['ir'],
    'data': [],
    'ir': [],
    'base': [],
}
# Modules that a file of this module must not reach, not even through headers.
NEVER = {
    'plan': {'device', 'ops', 'range', 'runtime'},  # a pure function
    'data': {'ir', 'runtime'},
    'importer': {'runtime'},
}
CLI_LIBRARIES = ('CLI/', 'fmt/', 'nlohmann/')
POSIX = {'dirent.h', 'dlfcn.h', 'fcntl.h', 'poll.h', 'pthread.h', 'signal.h', 'termios.h', 'unistd.h',
         'sys/file.h', 'sys/ioctl.h', 'sys/resource.h', 'sys/stat.h', 'sys/statvfs.h', 'sys/time.h', 'sys/types.h', 'sys/utsname.h', 'sys/wait.h'}
CUDA = re.compile(r'^(cuda|cublas|cudnn|nvrtc|nccl|nvjpeg|nvToolsExt|cooperative_groups|cub/|thrust/|cutlass/|mma\.h)')
ONNX = re.compile(r'(^|/)(ren_)?onnx[^/]*\.pb\.h$|^onnx/|^google/protobuf/')
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)
SOURCES = ('.h', '.hpp', '.c', '.cc', '.cpp', '.cu', '.cuh', '.def', '.inc')


def closure(module):
    seen, todo = {module, 'base'}, [module]
    while todo:
        for used in USES[todo.pop()]:
            if used not in seen:
                seen.add(used)
                todo.append(used)
    return seen


# cli sees no module at all; importer sees op schemas, not the devices below them
ALLOWED = {m: closure(m) for m in USES}
ALLOWED['cli'] = {'cli'}
ALLOWED['importer'] = {'importer', 'ops', 'pointwise', 'ir', 'base'}


def module_of(path):
    """The module of a file, from its path relative to src/, or None."""
    parts = path.split('/')
    if parts[0] == 'engine':
        parts = parts[1:]
    return parts[0] if len(parts) > 1 else None


def may_use_cuda(path):
    stem = os.path.basename(path).rsplit('.', 1)[0]
    return stem.endswith('_cuda') or path.startswith(('engine/device/cuda/', 'engine/dist/nccl'))


class Tree:
    def __init__(self, src):
        self.files = {}  # path -> [(line, "<" or '"', name, path inside src or None)]
        for folder, _, names in os.walk(src):
            for name in sorted(names):
                if name.endswith(SOURCES):
                    full = os.path.join(folder, name)
                    with open(full, encoding='utf-8') as f:
                        text = f.read()
                    found = [(text.count('\n', 0, m.start()) + 1, m[1], m[2]) for m in INCLUDE.finditer(text)]
                    self.files[os.path.relpath(full, src).replace(os.sep, '/')] = found
        for path, found in self.files.items():
            self.files[path] = [(line, kind, name, self.resolve(path, kind, name)) for line, kind, name in found]

    def resolve(self, path, kind, name):
        places = [name] if kind == '<' else [os.path.join(os.path.dirname(path), name), name]
        for place in places:
            place = os.path.normpath(place).replace(os.sep, '/')
            if place in self.files:
                return place
        return None

    def reach(self, start):
        """path -> the chain of files that leads to it, for all that start includes."""
        chains, todo = {start: [start]}, [start]
        while todo:
            path = todo.pop()
            for _, _, _, target in self.files[path]:
                if target and target not in chains:
                    chains[target] = chains[path] + [target]
                    todo.append(target)
        return chains


def check(src):
    tree, problems = Tree(src), []
    for path, includes in sorted(tree.files.items()):
        module = module_of(path)
        if module not in USES:
            problems.append(f'{path}: in no known module; add it to the table in tests/architecture_test.py')
            continue
        for line, kind, name, target in includes:
            where = f'{path}:{line}: '
            if target:
                used = module_of(target)
                if used in USES and used not in ALLOWED[module]:
                    problems.append(f'{where}{module} may not include {used} ("{name}")')
            elif kind == '"' and name.startswith(('engine/', 'importer/', 'data/', 'capi/', 'cli/')) \
                    and not name.endswith('.pb.h'):
                problems.append(f'{where}"{name}" does not exist')
            if CUDA.match(name) and not target and not may_use_cuda(path):
                problems.append(f'{where}CUDA header <{name}> outside *_cuda.*, device/cuda and dist/nccl*')
            if ONNX.search(name) and module != 'importer':
                problems.append(f'{where}ONNX protobuf header <{name}> outside the importer')
            if module == 'cli' and not target and os.path.basename(name) != 'renaissance_c.h' and not (
                    name.startswith(CLI_LIBRARIES) or name in POSIX or re.fullmatch(r'[a-z_]+', name)):
                problems.append(f'{where}cli includes renaissance_c.h, CLI11, fmt, json and the standard library only, '
                                f'not "{name}"')
        for target, chain in tree.reach(path).items():
            used = module_of(target)
            if used in NEVER.get(module, ()):
                problems.append(f'{path}: {module} reaches {used} through {" -> ".join(chain[1:])}')
            if target != path and not may_use_cuda(path):
                for _, _, name, inner in tree.files[target]:
                    if CUDA.match(name) and not inner:
                        problems.append(f'{path}: reaches CUDA header <{name}> through {" -> ".join(chain[1:])}')
    return problems, len(tree.files), sum(len(i) for i in tree.files.values())


GOOD = {
    'engine/base/shape.h': '#include <vector>\n',
    'engine/base/batch_source.h': '',
    'engine/ir/graph.h': '#include "engine/base/shape.h"\n',
    'engine/device/context.h': '#include "engine/ir/graph.h"\n',
    'engine/device/cuda/stream.h': '#include <cuda_runtime.h>\n',
    'engine/ops/op.h': '#include "engine/ir/graph.h"\n',
    'engine/ops/conv/conv_cpu.cpp': '#include "engine/device/context.h"\n#include "../op.h"\n',
    'engine/ops/conv/conv_cuda.cpp': '#include "engine/device/cuda/stream.h"\n#include <cudnn.h>\n',
    'engine/range/cast/cast.h': '#include "engine/ops/op.h"\n',
    'engine/plan/plan.h': '#include "engine/ir/graph.h"\n',
    'engine/runtime/arena.h': '#include "engine/plan/plan.h"\n#include "engine/device/context.h"\n',
    'engine/dist/nccl_communicator.cpp': '#include <nccl.h>\n',
    'engine/train/trainer.cpp': '#include "engine/runtime/arena.h"\n#include "engine/plan/plan.h"\n',
    'importer/reader.cpp': '#include "ren_onnx.pb.h"\n#include "engine/ops/op.h"\n',
    'data/loader.cpp': '#include "engine/base/batch_source.h"\n',
    'capi/model.cpp': '#include "renaissance_c.h"\n#include "importer/reader.h"\n#include "engine/train/trainer.h"\n',
    'importer/reader.h': '', 'engine/train/trainer.h': '',
    'cli/main.cpp': '#include "renaissance_c.h"\n#include "cli/progress.h"\n#include <CLI/CLI.hpp>\n'
                    '#include <fmt/format.h>\n#include <nlohmann/json.hpp>\n#include <string>\n#include <unistd.h>\n',
    'cli/progress.h': '#include <cstdint>\n',
}
# what is planted, where -> what the message has to say
PLANTED = [
    ('engine/ir/graph.cpp', '#include "engine/plan/plan.h"', 'ir may not include plan'),
    ('engine/base/log.h', '  #  include "engine/ir/graph.h"', 'base may not include ir'),
    ('engine/plan/plan.cpp', '#include "engine/device/context.h"', 'plan may not include device'),
    ('engine/plan/plan.cpp', '#include "engine/device/context.h"', 'plan reaches device'),
    ('engine/ops/op.cpp', '#include "engine/runtime/arena.h"', 'ops may not include runtime'),
    ('engine/ops/op.cpp', '#include "../runtime/arena.h"', 'ops may not include runtime'),
    ('engine/ops/op.cpp', '#include "engine/range/cast/cast.h"', 'ops may not include range'),
    ('importer/a.cpp', '#include "engine/device/context.h"', 'importer may not include device'),
    ('data/a.cpp', '#include "engine/ir/graph.h"', 'data may not include ir'),
    ('data/a.cpp', '#include "engine/train/trainer.h"', 'data may not include train'),
    ('engine/train/a.cpp', '#include "data/loader.cpp"', 'train may not include data'),
    ('engine/runtime/a.cpp', '#include <cuda_runtime.h>', 'CUDA header <cuda_runtime.h> outside'),
    ('engine/device/a.cpp', '#include <cudnn_frontend.h>', 'CUDA header <cudnn_frontend.h> outside'),
    ('engine/dist/gloo.cpp', '#include <nccl.h>', 'CUDA header <nccl.h> outside'),
    ('engine/ops/a.cpp', '#include "engine/device/cuda/stream.h"', 'reaches CUDA header'),
    ('cli/a.cpp', '#include "engine/base/shape.h"', 'cli may not include base'),
    ('cli/a.cpp', '#include <spdlog/spdlog.h>', 'cli includes renaissance_c.h'),
    ('capi/a.cpp', '#include "importer/generated/ren_onnx.pb.h"', 'outside the importer'),
    ('engine/ir/a.cpp', '#include <onnx/onnx_pb.h>', 'outside the importer'),
    ('engine/base/a.cpp', '#include <google/protobuf/message.h>', 'outside the importer'),
    ('engine/extra/a.cpp', '', 'in no known module'),
    ('engine/ir/a.cpp', '#include "engine/ir/gone.h"', 'does not exist'),
]


def self_test():
    """The checks accept a tree in order and find each planted violation."""
    failures = []

    def run(files):
        with tempfile.TemporaryDirectory() as src:
            for path, text in files.items():
                os.makedirs(os.path.dirname(os.path.join(src, path)), exist_ok=True)
                with open(os.path.join(src, path), 'w', encoding='utf-8') as f:
                    f.write(text)
            return check(src)[0]

    for problem in run(GOOD):
        failures.append(f'self-test: refused without reason: {problem}')
    for path, line, expected in PLANTED:
        found = run({**GOOD, path: GOOD.get(path, '') + line + '\n'})
        if not any(expected in problem and problem.startswith(path) for problem in found):
            failures.append(f'self-test: {path} with {line!r} is not reported as "{expected}", but as {found}')
    return failures


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    src = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, '..', 'src')
    failures = self_test()
    problems, files, includes = check(src)
    if files == 0:
        failures.append(f'{src} holds no sources')
    for line in failures + problems:
        print(line)
    print(f'{len(PLANTED)} planted violations tried; {includes} includes in {files} files: '
          f'{len(problems)} violation(s)')
    return 1 if failures or problems else 0


if __name__ == '__main__':
    sys.exit(main())
