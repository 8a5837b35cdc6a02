# SPDX-License-Identifier: Apache-2.0
"""The engine from Python: Model, Dataset, Loader, Trainer, verify() and doctor().

    model = Model('model.onnx')
    data = Dataset('pictures/')
    trainer = Trainer(model, batch=64, learning_rate=0.1, momentum=0.9, nesterov=True, epochs=10,
                      schedule='cosine', normalize='imagenet')
    training = Loader(data, 'train', model, batch=64, shuffle=True, augmentation='auto')
    print(trainer.fit(training, Loader(data, 'val', model, batch=64)).validation.top1)
    trainer.export('trained.onnx')

Arrays are NumPy arrays, images [N, C, H, W] unless layout='NHWC' is said. Handles are
freed with their objects, or by close(). A failed call raises Error; before that, what can't be
handed to C is refused by its name: TypeError for a value of another kind, ValueError for an unknown
word, a number beyond the range, a text with a null byte.

Ctrl-C during fit(), evaluate(), pack() and inspect() ends them soon (after the step, picture or batch
that is running) and raises KeyboardInterrupt; their docstrings tell what is done then. Handlers of
other signals are called as soon, and what they raise comes out of the call, too. That goes for the
main thread, the only one on which Python handles signals; jobs on other threads go on.
"""
from __future__ import annotations

import ctypes as c
import json
import reprlib
from dataclasses import dataclass

import numpy as np

from . import abi
from . import arguments as given
from .signals import Deferred


class Error(RuntimeError):
    """A call of the engine failed: code and name of the status, op and node where it is about the model."""

    def __init__(self, code):
        lib = abi.library()
        self.code, self.name = code, lib.ren_status_name(code).decode()
        self.op, self.node = lib.ren_last_error_op().decode(), lib.ren_last_error_node().decode()
        super().__init__(lib.ren_last_error_message().decode())


def check(status):
    if status < 0:
        raise Error(status)
    return status


def read_text(function, *arguments):
    needed = c.c_size_t()
    check(function(*arguments, None, 0, c.byref(needed)))
    space = c.create_string_buffer(needed.value)
    check(function(*arguments, space, needed.value, None))
    return space.value.decode()


def read_values(function, *arguments):
    needed = c.c_size_t()
    check(function(*arguments, None, 0, c.byref(needed)))
    values = np.empty(needed.value, np.float32)
    check(function(*arguments, values.ctypes.data_as(abi.floats), values.size, None))
    return values


class Handle:
    """Owns one handle of the library."""
    _destroy = ''

    def __init__(self, create, *arguments):
        self._handle = c.c_void_p()
        check(create(*arguments, c.byref(self._handle)))

    def close(self):
        """Frees it now instead of with the object. Twice is once."""
        held, self._handle = self.__dict__.get('_handle'), None
        if held:
            getattr(abi.library(), self._destroy)(held)

    def __del__(self):
        try:
            self.close()
        except Exception:  # the interpreter is shutting down
            pass

    def __enter__(self):
        return self

    def __exit__(self, *problem):
        self.close()

    @property
    def handle(self):
        if not self.__dict__.get('_handle'):
            raise ValueError(f'this {type(self).__name__} is closed')
        return self._handle

    @classmethod
    def of(cls, name, value):
        """The handle of an argument that has to be of this class."""
        if not isinstance(value, cls):
            raise TypeError(f'{name} takes a {cls.__name__}, not {reprlib.repr(value)}')
        return value.handle


class Report(Handle):
    """A finished text: str() for people, json() for machines."""
    _destroy = 'ren_report_destroy'

    def __str__(self):
        return read_text(abi.library().ren_report_text, self.handle)

    def json(self):
        return json.loads(read_text(abi.library().ren_report_json, self.handle))

    def html(self):
        return read_text(abi.library().ren_report_html, self.handle)

    @property
    def passed(self):
        value = c.c_int32()
        check(abi.library().ren_report_passed(self.handle, c.byref(value)))
        return bool(value.value)


@dataclass
class Tensor:
    """A floating-point tensor of a model's file."""
    name: str
    shape: tuple
    role: str  # 'parameter', 'buffer', 'constant' or 'unused'
    trained: bool
    reason: str


def export_options(inference_form, use_ema, metadata):
    if metadata is not None and not isinstance(metadata, dict):
        raise TypeError(f'metadata takes a dict of texts, not {reprlib.repr(metadata)}')
    pairs = [s for pair in (metadata or {}).items() for s in pair]
    options = abi.ren_export_options(inference_form=inference_form, use_ema=use_ema)
    options.metadata, options.metadata_count = given.texts('metadata', pairs)
    return options


class Model(Handle):
    """An ONNX file. train, freeze: globs on parameters; train_norms, freeze_norms: on BatchNormalization nodes."""
    _destroy = 'ren_model_destroy'
    _roles = {abi.ROLE_PARAMETER: 'parameter', abi.ROLE_BUFFER: 'buffer', abi.ROLE_CONSTANT: 'constant',
              abi.ROLE_UNUSED: 'unused'}

    def __init__(self, path, train=(), freeze=(), train_norms=(), freeze_norms=()):
        options = abi.ren_model_options()
        options.train, options.train_count = given.texts('train', train)
        options.freeze, options.freeze_count = given.texts('freeze', freeze)
        options.train_norms, options.train_norm_count = given.texts('train_norms', train_norms)
        options.freeze_norms, options.freeze_norm_count = given.texts('freeze_norms', freeze_norms)
        super().__init__(abi.library().ren_model_load, given.text('path', path), c.byref(options))

    @property
    def info(self):
        info = abi.ren_model_info()
        check(abi.library().ren_model_get_info(self.handle, c.byref(info)))
        return info

    @property
    def input_name(self):
        return read_text(abi.library().ren_model_input_name, self.handle)

    @property
    def outputs(self):
        """{name: (channels, height, width)}, without the batch."""
        lib, found = abi.library(), {}
        for i in range(self.info.outputs):
            info = abi.ren_output_info()
            check(lib.ren_model_output_info(self.handle, i, c.byref(info)))
            found[read_text(lib.ren_model_output_name, self.handle, i)] = (info.channels, info.height, info.width)
        return found

    @property
    def tensors(self):
        return [self._tensor(i) for i in range(self.info.tensors)]

    def _tensor(self, index):
        lib, info = abi.library(), abi.ren_tensor_info()
        check(lib.ren_model_tensor_info(self.handle, index, c.byref(info)))
        return Tensor(name=read_text(lib.ren_model_tensor_name, self.handle, index),
                      shape=tuple(info.shape[:info.rank]), role=self._roles[info.role], trained=bool(info.trained),
                      reason=read_text(lib.ren_model_tensor_reason, self.handle, index))

    def shape(self, name):
        index = c.c_int64()
        check(abi.library().ren_model_tensor_find(self.handle, given.text('name', name), c.byref(index)))
        return self._tensor(index.value).shape

    @property
    def notes(self):
        return [read_text(abi.library().ren_model_note, self.handle, i) for i in range(self.info.notes)]

    @property
    def warnings(self):
        return [read_text(abi.library().ren_model_warning, self.handle, i) for i in range(self.info.warnings)]

    @property
    def normalization(self):
        """{'mean': [...], 'std': [...]} of pixels in 0..1, as the file's renaissance.normalize says; {} if it doesn't."""
        try:
            text = self.metadata('renaissance.normalize')
        except Error as error:
            if error.code != abi.ERROR_NOT_FOUND:
                raise
            return {}
        try:
            said = json.loads(text)
            return {name: [float(value) for value in said[name]] for name in ('mean', 'std')}
        except (ValueError, TypeError, KeyError):
            raise ValueError(f"the model's metadata 'renaissance.normalize' is damaged: {reprlib.repr(text)}; give normalize, "
                             'or mean and std') from None

    def metadata(self, key):
        return read_text(abi.library().ren_model_metadata, self.handle, given.text('key', key))

    def __getitem__(self, name):
        values = read_values(abi.library().ren_model_tensor_get, self.handle, given.text('name', name))
        return values.reshape(self.shape(name))

    def __setitem__(self, name, values):
        values = np.ascontiguousarray(np.broadcast_to(np.asarray(values, np.float32), self.shape(name)))
        check(abi.library().ren_model_tensor_set(self.handle, given.text('name', name),
                                                 values.ctypes.data_as(abi.floats), values.size))

    def export(self, path, inference_form=False, metadata=None):
        """Writes the file with the present values. Returns a Report of what else changed."""
        options = export_options(inference_form, False, metadata)
        return Report(abi.library().ren_model_export, self.handle, given.text('path', path), c.byref(options))

    def report(self):
        return Report(abi.library().ren_model_report, self.handle)


class Callback:
    """A Python function as a progress callback. What it raises comes out of call(), and so does what a
    handler of a signal raises meanwhile, as Ctrl-C's does."""

    def __init__(self, function, kind=abi.progress_fn):
        self.problem, self.function = None, given.function('progress', function)
        self.signals = Deferred()
        self.pointer = kind(self._run)

    def _run(self, user, progress):
        try:
            self.signals.deliver()
            if self.problem is not None or self.function is None:
                return int(self.problem is not None)
            try:
                self.signals.open = True
                stop = self.function(progress.contents)
            finally:
                self.signals.open = False
            return int(bool(stop))
        except BaseException as problem:  # KeyboardInterrupt too
            self.problem = problem
            return 1

    def call(self, function, *arguments):
        """function(*arguments, the callback, its user), a call of C; gives its status."""
        with self.signals:
            status = function(*arguments, self.pointer, None)
            if self.problem is None:
                return check(status)
            try:
                check(abi.OK if status == abi.ERROR_CANCELLED else status)
            except Error:  # a checkpoint that couldn't be written, say: the traceback tells both
                raise self.problem
            raise self.problem


class Dataset(Handle):
    """Labelled pictures: class folders in a folder, zip or tar, a CSV list, tar shards, a .dts, IDX or CIFAR files."""
    _destroy = 'ren_dataset_destroy'

    def __init__(self, uri, validation=None, allow_empty_classes=False, allow_one_class=False):
        options = abi.ren_dataset_options(allow_empty_classes=allow_empty_classes, allow_one_class=allow_one_class)
        options.validation_uri = given.text('validation', validation, optional=True)
        super().__init__(abi.library().ren_dataset_open, given.text('uri', uri), c.byref(options))

    @property
    def classes(self):
        count = c.c_int64()
        check(abi.library().ren_dataset_class_count(self.handle, c.byref(count)))
        return [read_text(abi.library().ren_dataset_class_name, self.handle, i) for i in range(count.value)]

    def size(self, split):
        pictures = c.c_int64()
        check(abi.library().ren_dataset_size(self.handle, given.text('split', split), c.byref(pictures)))
        return pictures.value

    def __getitem__(self, item):
        """(path, label) of dataset['train', index]."""
        split, index = item
        split, index, label = given.text('split', split), given.whole('index', index), c.c_int32()
        check(abi.library().ren_dataset_label(self.handle, split, index, c.byref(label)))
        return read_text(abi.library().ren_dataset_path, self.handle, split, index), label.value

    def pack(self, path, short_side=0, quality=90, threads=0, bad_files='fail', progress=None):
        """Writes all splits, with labels, classes and paths, into one .dts file, which Dataset() takes.

        short_side: pixels, at most 65500; pictures whose short side is longer are resized to it (as Pillow,
        bilinear) and encoded as JPEG of `quality`, 1 to 100; all others keep their bytes, with 0 all do.
        threads: that read, decode and encode, at most 1024; 0: one a processor. The file is the same for any number.
        bad_files: 'fail' raises Error at the first picture that can't be decoded, 'skip' leaves such pictures out.
        progress(ren_job_progress) is called after each picture and several times a second, on this thread: phase
        (abi.JOB_*), done and total (pictures of the phase), pictures_per_second, seconds_left, message (bytes, mostly
        None). A true result, what it raises and Ctrl-C stop it: the same call goes on with the PATH.part that stays.
        KeyboardInterrupt may also come when the file is complete already; nothing is lost either way.

        Returns a Report: what was packed, left out and damaged. A file at `path` is replaced if it is a .dts. Raises
        Error: a bad picture, a full disk, a place that can't be written, a source that changed meanwhile.
        """
        bad_files = given.word('bad_files', bad_files, {name: Loader._bad[name] for name in ('fail', 'skip')})
        options = abi.ren_pack_options(short_side=short_side, quality=quality, threads=threads, bad_files=bad_files)
        return self._job(progress, abi.library().ren_dataset_pack, given.text('path', path), c.byref(options))

    def inspect(self, quick=False, threads=0, progress=None):
        """Decodes every picture (quick: reads its header only). Returns a Report: splits, classes with their counts,
        formats, sizes, damaged pictures and broken ones with the reason; .passed is False when any is broken.

        threads: at most 1024; 0: one a processor. progress: as of pack(); what stops it raises Error or comes out, as
        KeyboardInterrupt after Ctrl-C does.
        """
        options = abi.ren_inspect_options(quick=quick, threads=threads)
        return self._job(progress, abi.library().ren_dataset_inspect, c.byref(options))

    def _job(self, progress, function, *arguments):
        callback = Callback(progress, abi.job_progress_fn)
        return Report(lambda report: callback.call(function, self.handle, *arguments, report))


class Loader(Handle):
    """A stream of batches of one split, at the input size of a model. Options: see ren_loader_options."""
    _destroy = 'ren_loader_destroy'
    _last = {'keep': abi.LAST_BATCH_KEEP, 'drop': abi.LAST_BATCH_DROP, 'exact': abi.LAST_BATCH_EXACT}
    _bad = {'fail': abi.BAD_FILES_FAIL, 'skip': abi.BAD_FILES_SKIP, 'replace': abi.BAD_FILES_REPLACE}
    _others = ('seed', 'threads', 'prefetch', 'cache_bytes', 'decode')

    def __init__(self, dataset, split, model, batch=32, shuffle=False, augmentation=None, last_batch='keep',
                 bad_files='fail', **options):
        dataset, _ = Dataset.of('dataset', dataset), Model.of('model', model)
        info = model.info
        filled = abi.ren_loader_options(batch=batch, shuffle=shuffle, channels=info.channels, width=info.width,
                                        height=info.height, augmentation=augmentation,
                                        last_batch=given.word('last_batch', last_batch, self._last),
                                        bad_files=given.word('bad_files', bad_files, self._bad))
        for name, value in options.items():
            if name not in self._others:
                raise TypeError(f'Loader has no option {name!r}; there are ' + ', '.join(self._others))
            setattr(filled, name, value)
        super().__init__(abi.library().ren_loader_create, dataset, given.text('split', split), c.byref(filled))

    @property
    def info(self):
        info = abi.ren_loader_info()
        check(abi.library().ren_loader_get_info(self.handle, c.byref(info)))
        return info

    @property
    def statistics(self):
        """Where its time went since it was made (ren_loader_statistics): sums over its threads, in seconds."""
        statistics = abi.ren_loader_statistics()
        check(abi.library().ren_loader_get_statistics(self.handle, c.byref(statistics)))
        return statistics

    def epoch(self, epoch=0, first_batch=0):
        """The batches of an epoch: (images [N, H, W, C] as bytes, labels), copied."""
        check(abi.library().ren_loader_start_epoch(self.handle, given.whole('epoch', epoch),
                                                   given.whole('first_batch', first_batch)))
        batch = abi.ren_batch()
        while check(abi.library().ren_loader_next(self.handle, c.byref(batch))) == abi.OK:
            kind = c.c_uint8 if batch.image_type == abi.IMAGE_UINT8 else c.c_float
            sides = (batch.channels, batch.height, batch.width)
            shape = (batch.count, *(sides if batch.layout == abi.LAYOUT_NCHW else sides[1:] + sides[:1]))
            images = np.ctypeslib.as_array(c.cast(batch.images, c.POINTER(kind)), shape)
            yield images.copy(), np.ctypeslib.as_array(batch.labels, (batch.label_count,)).copy()


def make_batch(images, labels, layout):
    """(ren_batch, the arrays that it points into)."""
    images = np.ascontiguousarray(images)
    if images.dtype not in (np.uint8, np.float32) or images.ndim != 4:
        raise ValueError(f'images are uint8 or float32 with four axes, not {images.dtype} {images.shape}')
    layouts = {'NCHW': abi.LAYOUT_NCHW, 'NHWC': abi.LAYOUT_NHWC}
    n, *sides = images.shape
    channels, height, width = sides if layout == 'NCHW' else (sides[2], sides[0], sides[1])
    batch = abi.ren_batch(image_type=abi.IMAGE_UINT8 if images.dtype == np.uint8 else abi.IMAGE_FLOAT32,
                          layout=given.word('layout', layout, layouts), count=n,
                          channels=channels, height=height, width=width, images=images.ctypes.data)
    if labels is not None:
        labels = given.labels(labels)
        batch.labels, batch.label_count = labels.ctypes.data_as(c.POINTER(c.c_int32)), labels.size
    return batch, (images, labels)


class Trainer(Handle):
    """A model on a device, ready to run. Options: the fields of ren_trainer_options.

    precision is 'fp32', 'fp16', 'bf16' or, on GPUs, 'tf32'; schedule 'constant', 'step' or 'cosine'; optimizer 'sgd' or
    'lars'; image_type 'uint8' (what loaders give) or 'float32'; mean and std lists of numbers. uint8 images whose
    normalisation isn't said (normalize, or mean and std) get the one that the model's file says, as trained files do.
    """
    _destroy = 'ren_trainer_destroy'
    _words = {'precision': {'fp32': abi.PRECISION_FP32, 'fp16': abi.PRECISION_FP16, 'bf16': abi.PRECISION_BF16,
                            'tf32': abi.PRECISION_TF32},
              'schedule': {'constant': abi.SCHEDULE_CONSTANT, 'step': abi.SCHEDULE_STEP,
                           'cosine': abi.SCHEDULE_COSINE},
              'optimizer': {'sgd': abi.OPTIMIZER_SGD, 'lars': abi.OPTIMIZER_LARS},
              'image_type': {'uint8': abi.IMAGE_UINT8, 'float32': abi.IMAGE_FLOAT32}}
    _kinds = {'parameter': abi.TENSOR_PARAMETER, 'gradient': abi.TENSOR_GRADIENT, 'momentum': abi.TENSOR_MOMENTUM,
              'ema': abi.TENSOR_EMA, 'statistic': abi.TENSOR_STATISTIC}

    def __init__(self, model, **options):
        Model.of('model', model)
        self._model = model
        filled = abi.ren_trainer_options()
        if not {'normalize', 'mean', 'std'} & options.keys() and options.get('image_type', 'uint8') == 'uint8':
            options.update(model.normalization)
        for name, value in options.items():
            if name not in dict(filled._fields_) or name in ('struct_size', 'channel_count', 'other_batch_count'):
                raise TypeError(f'Trainer has no option {name!r}')
            if name in self._words:
                value = given.word(name, value, self._words[name])
            elif name in ('mean', 'std'):
                value = given.array(name, value, c.c_float)
                if filled.channel_count not in (0, len(value)):  # of the other one: C knows one length
                    raise ValueError('mean and std have different lengths')
                filled.channel_count = len(value)
            elif name == 'other_batches':
                value = given.array(name, value, c.c_int64)
                filled.other_batch_count = len(value)
            setattr(filled, name, value)
        super().__init__(abi.library().ren_trainer_create, model.handle, c.byref(filled))

    @property
    def device(self):
        return read_text(abi.library().ren_trainer_device_name, self.handle)

    def step(self, images, labels, learning_rate, layout='NCHW'):
        """One step of training; a ren_step_result with loss, samples, correct, correct5, skipped."""
        batch, keep = make_batch(images, labels, layout)
        result = abi.ren_step_result()
        check(abi.library().ren_trainer_step(self.handle, c.byref(batch),
                                             given.real('learning_rate', learning_rate), c.byref(result)))
        return result

    def evaluate_batch(self, images, labels, layout='NCHW'):
        batch, keep = make_batch(images, labels, layout)
        result = abi.ren_step_result()
        check(abi.library().ren_trainer_evaluate_batch(self.handle, c.byref(batch), c.byref(result)))
        return result

    def predict(self, images, layout='NCHW'):
        """{output name: array [N, C] or [N, C, H, W]}, raw scores."""
        batch, keep = make_batch(images, None, layout)
        results = {}
        for name, (channels, height, width) in self._model.outputs.items():
            shape = (channels,) if height == width == 1 else (channels, height, width)
            results[name] = np.empty((batch.count, *shape), np.float32)
        pointers = (abi.floats * len(results))(*[r.ctypes.data_as(abi.floats) for r in results.values()])
        counts = (c.c_size_t * len(results))(*[r.size for r in results.values()])
        check(abi.library().ren_trainer_predict(self.handle, c.byref(batch), pointers, counts, len(results)))
        return results

    def fit(self, training, validation=None, checkpoint=None, checkpoint_every_steps=0, progress=None):
        """Trains all epochs that are left; a ren_progress with training and validation metrics of the last.

        progress(ren_progress) is called after each step, and stops training by a true result.

        After that (Error), after Ctrl-C (KeyboardInterrupt) and after what progress raises the step that ran is
        finished, the checkpoint, if named, written, and the trainer holds what was trained: save(), export()
        and evaluate() work, and fit() goes on from there. When that checkpoint can't be written, the context
        of the exception says so. Ctrl-C in the last moment may come when all epochs are done.
        """
        options = abi.ren_fit_options(checkpoint=checkpoint, checkpoint_every_steps=checkpoint_every_steps)
        result, callback = abi.ren_progress(), Callback(progress)
        loaders = Loader.of('training', training), None if validation is None else Loader.of('validation', validation)
        callback.call(abi.library().ren_trainer_fit, self.handle, *loaders, c.byref(options), c.byref(result))
        return result

    def evaluate(self, loader, progress=None):
        """All pictures of a loader once: ren_metrics with loss, top1, top5, samples, seconds.

        progress(ren_progress) is called after each batch. What it raises comes out, as KeyboardInterrupt after
        Ctrl-C does; the trainer is as it was then.
        """
        metrics, callback = abi.ren_metrics(), Callback(progress)
        callback.call(abi.library().ren_trainer_evaluate, self.handle, Loader.of('loader', loader), c.byref(metrics))
        return metrics

    def request_stop(self):
        """Ends a running fit() or evaluate() after its step. From any thread."""
        check(abi.library().ren_trainer_request_stop(self.handle))

    @property
    def position(self):
        """(epoch, steps done in all)."""
        position = abi.ren_position()
        check(abi.library().ren_trainer_position(self.handle, c.byref(position)))
        return position.epoch, position.steps

    def get(self, name, kind='parameter'):
        """A parameter, gradient, momentum, ema or statistic, in the file's shape."""
        values = read_values(abi.library().ren_trainer_tensor_get, self.handle, given.text('name', name),
                             given.word('kind', kind, self._kinds))
        return values.reshape(self._model.shape(name))

    def set(self, name, values, kind='parameter'):
        values = np.ascontiguousarray(np.broadcast_to(np.asarray(values, np.float32), self._model.shape(name)))
        check(abi.library().ren_trainer_tensor_set(self.handle, given.text('name', name),
                                                   given.word('kind', kind, self._kinds),
                                                   values.ctypes.data_as(abi.floats), values.size))

    def save(self, path):
        check(abi.library().ren_trainer_checkpoint_save(self.handle, given.text('path', path)))

    def load(self, path):
        check(abi.library().ren_trainer_checkpoint_load(self.handle, given.text('path', path)))

    def export(self, path, inference_form=False, use_ema=False, metadata=None):
        """Writes the model's file with the trained values. Returns a Report of what else changed."""
        options = export_options(inference_form, use_ema, metadata)
        return Report(abi.library().ren_trainer_export, self.handle, given.text('path', path), c.byref(options))

    def plan(self):
        return Report(abi.library().ren_trainer_plan, self.handle)


def verify(model_path, golden_path, device=None, precision='fp32', tolerance=0.0, peer=None):
    """Replays a golden file; a Report whose .passed says whether all numbers agree.

    peer: a file of record_peer(), for fp16 and bf16: what is within twice PyTorch's own error passes, too.
    """
    options = abi.ren_verify_options(precision=given.word('precision', precision, Trainer._words['precision']),
                                     device=device, tolerance=tolerance, peer=peer)
    return Report(abi.library().ren_verify, given.text('model_path', model_path),
                  given.text('golden_path', golden_path), c.byref(options))


def doctor():
    """What was found on this machine."""
    return Report(abi.library().ren_doctor)


def set_compute_threads(count):
    check(abi.library().ren_set_compute_threads(given.whole('count', count, c.c_int32)))
