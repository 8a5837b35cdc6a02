# SPDX-License-Identifier: Apache-2.0
"""Python helper of Renaissance.

    import renaissance
    renaissance.export(module, torch.randn(2, 3, 224, 224), 'model.onnx')
    renaissance.record_golden('model.onnx', 'model.golden.safetensors', module)

and the engine itself: Model, Dataset, Loader, Trainer, verify, doctor (see the
module renaissance.engine). export(), record_golden() and record_peer() (PyTorch's own
error in 16 bits) need PyTorch and onnx, the engine its shared library; each is imported
when it is first used. From a shell: `python -m renaissance export --help`, `golden --help`,
`autocast --help`.
"""
__version__ = '0.1.0'

_HOMES = {
    'export': 'exporter',
    'ExportReport': 'exporter',
    'load_initializers': 'exporter',
    'record_golden': 'recorder',
    'GoldenReport': 'recorder',
    'record_peer': 'autocast',
    'PeerReport': 'autocast',
    'load_library': 'native',
    'LibraryNotFound': 'native',
}
_HOMES.update(dict.fromkeys(('Model', 'Dataset', 'Loader', 'Trainer', 'Report', 'Error', 'verify', 'doctor',
                             'set_compute_threads'), 'engine'))
__all__ = sorted(_HOMES)


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    import importlib
    return getattr(importlib.import_module(f'.{_HOMES[name]}', __name__), name)


def __dir__():
    return sorted(list(globals()) + __all__)
