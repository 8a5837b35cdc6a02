# SPDX-License-Identifier: Apache-2.0
"""Python helper of Renaissance.

    import renaissance
    renaissance.export(module, torch.randn(2, 3, 224, 224), 'model.onnx')
    renaissance.record_golden(module, 'model.onnx', 'model.golden.safetensors')

export() and record_golden() need PyTorch and onnx; load_library() needs the
engine's shared library. Each is imported when it is first used. From a shell:
`python -m renaissance export --help`, `python -m renaissance golden --help`.
"""
__version__ = '0.1.0'

_HOMES = {
    'export': 'exporter',
    'ExportReport': 'exporter',
    'load_initializers': 'exporter',
    'record_golden': 'recorder',
    'GoldenReport': 'recorder',
    'load_library': 'native',
    'LibraryNotFound': 'native',
}
__all__ = sorted(_HOMES)


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    import importlib
    return getattr(importlib.import_module(f'.{_HOMES[name]}', __name__), name)


def __dir__():
    return sorted(list(globals()) + __all__)
