# SPDX-License-Identifier: Apache-2.0
"""include/renaissance_c.h for ctypes: structs, constants and functions.

The tests compare every struct's size and offsets, every constant and every
function's arguments with the header.
"""
from __future__ import annotations

import ctypes as c

from .arguments import converted, flag
from .native import LibraryNotFound, load_library

ABI_VERSION = 0x00000005

OK, END_OF_DATA = 0, 1
ERROR_NOT_FOUND, ERROR_CANCELLED = -4, -10
IMAGE_UINT8, IMAGE_FLOAT32 = 0, 1
LAYOUT_NCHW, LAYOUT_NHWC = 0, 1
BAD_FILES_FAIL, BAD_FILES_SKIP, BAD_FILES_REPLACE = 0, 1, 2
LAST_BATCH_KEEP, LAST_BATCH_DROP, LAST_BATCH_EXACT = 0, 1, 2
PRECISION_FP32, PRECISION_FP16, PRECISION_BF16, PRECISION_TF32 = 0, 1, 2, 3
OPTIMIZER_SGD, OPTIMIZER_LARS = 0, 1
SCHEDULE_CONSTANT, SCHEDULE_STEP, SCHEDULE_COSINE = 0, 1, 2
PHASE_TRAINING, PHASE_EVALUATING, PHASE_EPOCH_DONE, PHASE_CHECKPOINT, PHASE_CHECKPOINT_FAILED = 0, 1, 2, 3, 4
JOB_READING_PART, JOB_PACKING, JOB_VERIFYING, JOB_INSPECTING = 0, 1, 2, 3
ROLE_PARAMETER, ROLE_BUFFER, ROLE_CONSTANT, ROLE_UNUSED = 0, 1, 2, 3
TENSOR_PARAMETER, TENSOR_GRADIENT, TENSOR_MOMENTUM, TENSOR_EMA, TENSOR_STATISTIC = 0, 1, 2, 3, 4
MAX_RANK = 8

i32, i64, u32, u64, size, f32, f64 = c.c_int32, c.c_int64, c.c_uint32, c.c_uint64, c.c_size_t, c.c_float, c.c_double
text, handle = c.c_char_p, c.c_void_p
texts, floats, sizes = c.POINTER(c.c_char_p), c.POINTER(c.c_float), c.POINTER(c.c_size_t)


class Struct(c.Structure):
    """Begins with its size in bytes, set here unless the struct has no such field.

    Values are checked when they are set: TypeError and ValueError name the field (see arguments.py).
    """

    def __init__(self, **fields):
        super().__init__()
        if self._fields_[0][0] == 'struct_size':
            self.struct_size = c.sizeof(self)
        for name, value in fields.items():
            setattr(self, name, value)

    def __setattr__(self, name, value):
        kinds = dict(self._fields_)
        if name not in kinds:
            raise TypeError(f'{type(self).__name__} has no field {name!r}')
        super().__setattr__(name, converted(name, value, kinds[name]))


class ren_model_options(Struct):
    _fields_ = [('struct_size', u32), ('reserved0', u32), ('train', texts), ('train_count', size),
                ('freeze', texts), ('freeze_count', size), ('train_norms', texts), ('train_norm_count', size),
                ('freeze_norms', texts), ('freeze_norm_count', size)]


class ren_model_info(Struct):
    _fields_ = [('struct_size', u32), ('dynamic_batch', i32), ('static_batch', i64), ('channels', i64),
                ('height', i64), ('width', i64), ('opset', i64), ('ir_version', i64), ('outputs', i64),
                ('tensors', i64), ('notes', i64), ('warnings', i64), ('trained_elements', i64), ('nodes', i64),
                ('external_files', i64)]


class ren_output_info(Struct):
    _fields_ = [('struct_size', u32), ('reserved0', u32), ('channels', i64), ('height', i64), ('width', i64)]


class ren_tensor_info(Struct):
    _fields_ = [('struct_size', u32), ('role', i32), ('trained', i32), ('rank', i32), ('elements', i64),
                ('shape', i64 * MAX_RANK)]


class ren_export_options(Struct):
    _fields_ = [('struct_size', u32), ('inference_form', flag), ('use_ema', flag), ('reserved0', u32),
                ('metadata', texts), ('metadata_count', size)]


class ren_dataset_options(Struct):
    _fields_ = [('struct_size', u32), ('allow_empty_classes', flag), ('allow_one_class', flag), ('reserved0', u32),
                ('validation_uri', text)]


class ren_batch(Struct):
    _fields_ = [('struct_size', u32), ('image_type', i32), ('layout', i32), ('reserved0', u32), ('count', i64),
                ('channels', i64), ('height', i64), ('width', i64), ('images', c.c_void_p),
                ('labels', c.POINTER(i32)), ('label_count', size)]


class ren_loader_options(Struct):
    _fields_ = [('struct_size', u32), ('shuffle', flag), ('batch', i64), ('channels', i64), ('height', i64),
                ('width', i64), ('augmentation', text), ('seed', u64), ('last_batch', i32), ('bad_files', i32),
                ('threads', i32), ('prefetch', i32), ('cache_bytes', i64), ('decode', i32), ('reserved0', u32)]


class ren_loader_info(Struct):
    _fields_ = [('struct_size', u32), ('image_type', i32), ('samples', i64), ('batch', i64), ('batches', i64),
                ('bad_files', i64), ('damaged_files', i64), ('mixup_alpha', f64), ('cutmix_alpha', f64)]


class ren_loader_statistics(Struct):
    _fields_ = [('struct_size', u32), ('threads', i32), ('batches', i64), ('pictures', i64), ('pictures_read', i64),
                ('bytes_read', i64), ('read_seconds', f64), ('decode_seconds', f64), ('transform_seconds', f64),
                ('cpu_seconds', f64), ('wait_seconds', f64)]


class ren_job_progress(Struct):
    _fields_ = [('struct_size', u32), ('phase', i32), ('done', i64), ('total', i64), ('pictures_per_second', f64),
                ('seconds_left', f64), ('message', text)]


class ren_pack_options(Struct):
    _fields_ = [('struct_size', u32), ('short_side', i32), ('quality', i32), ('threads', i32), ('bad_files', i32),
                ('reserved0', u32)]


class ren_inspect_options(Struct):
    _fields_ = [('struct_size', u32), ('quick', flag), ('threads', i32), ('reserved0', u32)]


class ren_trainer_options(Struct):
    _fields_ = [('struct_size', u32), ('precision', i32), ('device', text), ('batch', i64),
                ('other_batches', c.POINTER(i64)), ('other_batch_count', size), ('evaluation_batch', i64),
                ('evaluation_only', flag), ('image_type', i32), ('normalize', text), ('mean', floats),
                ('std', floats), ('channel_count', size), ('losses', text), ('label_smoothing', f32),
                ('ignore_index', i32), ('optimizer', i32), ('nesterov', flag), ('learning_rate', f64),
                ('momentum', f64), ('weight_decay', f64), ('decay_weights_only', flag), ('schedule', i32),
                ('warmup_epochs', f64), ('final_learning_rate', f64), ('step_epochs', f64), ('gamma', f64),
                ('trust_coefficient', f64), ('ema_decay', f64), ('epochs', i64), ('seed', u64),
                ('memory_limit', u64), ('max_skipped_steps', i32), ('loss_scale', f32),
                ('deterministic', flag), ('mixup_alpha', f64), ('cutmix_alpha', f64)]


class ren_step_result(Struct):
    _fields_ = [('struct_size', u32), ('skipped', i32), ('loss', f64), ('samples', i64), ('correct', i64),
                ('correct5', i64)]


class ren_metrics(Struct):
    _fields_ = [('loss', f64), ('top1', f64), ('top5', f64), ('samples', i64), ('steps', i64), ('skipped', i64),
                ('seconds', f64)]


class ren_progress(Struct):
    _fields_ = [('struct_size', u32), ('phase', i32), ('epoch', i64), ('epochs', i64), ('step', i64), ('steps', i64),
                ('learning_rate', f64), ('images_per_second', f64), ('seconds_left', f64), ('loss_scale', f64),
                ('training', ren_metrics), ('validation', ren_metrics), ('failed_checkpoints', i64), ('message', text)]


class ren_fit_options(Struct):
    _fields_ = [('struct_size', u32), ('reserved0', u32), ('checkpoint', text), ('checkpoint_every_steps', i64)]


class ren_position(Struct):
    _fields_ = [('struct_size', u32), ('reserved0', u32), ('epoch', i64), ('steps', i64)]


class ren_verify_options(Struct):
    _fields_ = [('struct_size', u32), ('precision', i32), ('device', text), ('tolerance', f64), ('peer', text)]


P = c.POINTER
progress_fn = c.CFUNCTYPE(i32, c.c_void_p, P(ren_progress))
job_progress_fn = c.CFUNCTYPE(i32, c.c_void_p, P(ren_job_progress))
out = P(handle)  # a new handle
buffer = (c.c_char_p, size, sizes)  # text of the library's, for _text()
values = (floats, size, sizes)

# name -> argument types; what is not here returns int32_t, see RESULTS
FUNCTIONS = {
    'ren_abi_version': (), 'ren_version': (), 'ren_status_name': (i32,), 'ren_last_error_code': (),
    'ren_last_error_message': (), 'ren_last_error_op': (), 'ren_last_error_node': (),
    'ren_report_text': (handle, *buffer), 'ren_report_json': (handle, *buffer), 'ren_report_html': (handle, *buffer),
    'ren_report_passed': (handle, P(i32)), 'ren_report_destroy': (handle,),
    'ren_set_compute_threads': (i32,), 'ren_doctor': (out,),
    'ren_model_load': (text, P(ren_model_options), out), 'ren_model_destroy': (handle,),
    'ren_model_get_info': (handle, P(ren_model_info)), 'ren_model_input_name': (handle, *buffer),
    'ren_model_output_info': (handle, i64, P(ren_output_info)), 'ren_model_output_name': (handle, i64, *buffer),
    'ren_model_tensor_info': (handle, i64, P(ren_tensor_info)), 'ren_model_tensor_name': (handle, i64, *buffer),
    'ren_model_tensor_reason': (handle, i64, *buffer), 'ren_model_tensor_find': (handle, text, P(i64)),
    'ren_model_note': (handle, i64, *buffer), 'ren_model_warning': (handle, i64, *buffer),
    'ren_model_metadata': (handle, text, *buffer), 'ren_model_tensor_get': (handle, text, *values),
    'ren_model_tensor_set': (handle, text, floats, size),
    'ren_model_export': (handle, text, P(ren_export_options), out), 'ren_model_report': (handle, out),
    'ren_dataset_open': (text, P(ren_dataset_options), out), 'ren_dataset_destroy': (handle,),
    'ren_dataset_class_count': (handle, P(i64)), 'ren_dataset_class_name': (handle, i64, *buffer),
    'ren_dataset_size': (handle, text, P(i64)), 'ren_dataset_path': (handle, text, i64, *buffer),
    'ren_dataset_label': (handle, text, i64, P(i32)),
    'ren_dataset_pack': (handle, text, P(ren_pack_options), out, job_progress_fn, c.c_void_p),
    'ren_dataset_inspect': (handle, P(ren_inspect_options), out, job_progress_fn, c.c_void_p),
    'ren_loader_create': (handle, text, P(ren_loader_options), out),
    'ren_loader_get_statistics': (handle, P(ren_loader_statistics)),
    'ren_loader_get_info': (handle, P(ren_loader_info)), 'ren_loader_start_epoch': (handle, i64, i64),
    'ren_loader_next': (handle, P(ren_batch)), 'ren_loader_destroy': (handle,),
    'ren_trainer_create': (handle, P(ren_trainer_options), out), 'ren_trainer_destroy': (handle,),
    'ren_trainer_device_name': (handle, *buffer),
    'ren_trainer_step': (handle, P(ren_batch), f64, P(ren_step_result)),
    'ren_trainer_evaluate_batch': (handle, P(ren_batch), P(ren_step_result)),
    'ren_trainer_predict': (handle, P(ren_batch), P(floats), sizes, size),
    'ren_trainer_fit': (handle, handle, handle, P(ren_fit_options), P(ren_progress), progress_fn, c.c_void_p),
    'ren_trainer_evaluate': (handle, handle, P(ren_metrics), progress_fn, c.c_void_p),
    'ren_trainer_request_stop': (handle,), 'ren_trainer_position': (handle, P(ren_position)),
    'ren_trainer_tensor_get': (handle, text, i32, *values),
    'ren_trainer_tensor_set': (handle, text, i32, floats, size),
    'ren_trainer_checkpoint_save': (handle, text), 'ren_trainer_checkpoint_load': (handle, text),
    'ren_trainer_export': (handle, text, P(ren_export_options), out), 'ren_trainer_plan': (handle, out),
    'ren_verify': (text, text, P(ren_verify_options), out),
}
RESULTS = {'ren_abi_version': u32}
RESULTS.update({name: text for name in ('ren_version', 'ren_status_name', 'ren_last_error_message',
                                        'ren_last_error_op', 'ren_last_error_node')})
RESULTS.update({name: None for name in FUNCTIONS if name.endswith('_destroy')})

_library = None


def library():
    """The opened library, its functions declared. Raises LibraryNotFound when it is absent or does not fit."""
    global _library
    if _library is None:
        opened = load_library()
        try:
            for name, arguments in FUNCTIONS.items():
                function = getattr(opened, name)
                function.argtypes, function.restype = list(arguments), RESULTS.get(name, i32)
        except AttributeError as problem:
            raise LibraryNotFound(f'{opened._name} is not the library for this package: {problem}') from None
        found = opened.ren_abi_version()
        if found >> 16 != ABI_VERSION >> 16 or found & 0xffff < ABI_VERSION & 0xffff:
            raise LibraryNotFound(f'{opened._name} has ABI {found:#010x}, this package needs {ABI_VERSION:#010x}')
        _library = opened
    return _library
