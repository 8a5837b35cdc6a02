/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Renaissance: trains a CNN exported from PyTorch as an ONNX file and writes the trained
 * weights back into it. This is the whole public interface, in C99.
 *
 *   ren_model *model = NULL;                     ren_dataset *data = NULL;
 *   ren_model_load("net.onnx", NULL, &model);    ren_dataset_open("pictures/", NULL, &data);
 *   ren_trainer_options options = REN_TRAINER_OPTIONS_INIT;
 *   options.batch = 64;
 *   ren_trainer *trainer = NULL;                 ren_loader *loader = NULL;
 *   ren_trainer_create(model, &options, &trainer);
 *   loader_options.last_batch = REN_LAST_BATCH_DROP;   (or its size among options.other_batches)
 *   ren_loader_create(data, "train", &loader_options, &loader);
 *   ren_trainer_fit(trainer, loader, NULL, NULL, NULL, NULL, NULL);
 *   ren_trainer_export(trainer, "trained.onnx", NULL, NULL);
 *
 * Rules that hold for every function; docs/c_api.md says more.
 *
 * Status.     Functions return int32_t: REN_OK (0), a negative REN_ERROR_*, or a positive
 *             REN_END_OF_DATA. Nothing is thrown, printed or exited; a failed call can be
 *             repeated and leaves its handles usable.
 * Errors.     The text of a thread's last failed call is at ren_last_error_message().
 * Out.        Out-parameters come last, before a callback, and are written only on success;
 *             the one exception is `needed` (below).
 * Strings.    UTF-8, NUL-terminated. Those given are copied. Those got go to a buffer of the
 *             caller's, (char *buffer, size_t capacity, size_t *needed): `needed`, if not NULL,
 *             gets the bytes with the NUL, also when the buffer is too small, which is
 *             REN_ERROR_INVALID_ARGUMENT and writes nothing else. buffer NULL and capacity 0
 *             asks for the size alone. Arrays of numbers work alike and count elements.
 * Memory.     What one side allocates, that side frees. Handles are freed by their _destroy,
 *             which takes NULL, in any order: children keep what they need of their parents.
 * Options.    Structs begin with struct_size, set by their _INIT macro; 0 or NULL in a field is
 *             its default. Later versions append fields only. A NULL options pointer is all defaults.
 * Threads.    Different handles may be used by different threads at once. One trainer or loader takes
 *             one call at a time; a second one is REN_ERROR_INVALID_STATE. The _request_stop functions
 *             may be called by any thread at any time before _destroy. Models and data sets may be
 *             used by several threads. Blocking functions say so.
 * Shapes.     As in the ONNX file, NCHW. Pictures of loaders are the exception: NHWC bytes.
 * Callbacks.  (fn, user) come last, run on the calling thread, and must not throw or longjmp; a
 *             non-zero return cancels the call with REN_ERROR_CANCELLED. They may call _request_stop
 *             and what says so, and nothing else of the handles that are in use.
 */
#ifndef RENAISSANCE_C_H
#define RENAISSANCE_C_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define REN_API __attribute__((visibility("default")))
#else
#define REN_API
#endif

#ifdef __cplusplus
/* T value = ren_zeroed_options_<T>(): what the _INIT macros are in C++. */
template <typename T>
inline T ren_zeroed_options_() {
  T options = T();
  options.struct_size = static_cast<uint32_t>(sizeof(T));
  return options;
}
#define REN_INIT_(type) ren_zeroed_options_<type>()
extern "C" {
#else
#define REN_INIT_(type) \
  { .struct_size = (uint32_t)sizeof(type) }
#endif

/* ---- Version -------------------------------------------------------------------------- */

/* Grows with every change that a caller could notice; a library serves all older headers of
 * its major version (the upper 16 bits). */
#define REN_ABI_VERSION UINT32_C(0x00000005)

/* The library's ABI version. A caller that needs REN_ABI_VERSION checks that the upper 16 bits
 * are equal and the lower ones not smaller. */
REN_API uint32_t ren_abi_version(void);
/* "0.1.0"; static memory. */
REN_API const char* ren_version(void);

/* ---- Status and errors ----------------------------------------------------------------- */

enum {
  REN_OK = 0,
  REN_END_OF_DATA = 1,             /* an epoch is over; not an error */
  REN_ERROR_INVALID_ARGUMENT = -1, /* a value is out of range, NULL, of the wrong kind or size */
  REN_ERROR_INVALID_MODEL = -2,    /* the ONNX file is damaged or contradicts itself */
  REN_ERROR_UNSUPPORTED = -3,      /* understood, but the engine cannot do it */
  REN_ERROR_NOT_FOUND = -4,        /* no such file, tensor, split, device ... */
  REN_ERROR_IO = -5,               /* reading or writing failed */
  REN_ERROR_INVALID_DATA = -6,     /* a data set, a picture or a checkpoint is unusable */
  REN_ERROR_OUT_OF_MEMORY = -7,
  REN_ERROR_DEVICE = -8,        /* a device, its driver or its libraries failed */
  REN_ERROR_INVALID_STATE = -9, /* the call makes no sense now */
  REN_ERROR_CANCELLED = -10,    /* a stop was requested, or a callback said so */
  REN_ERROR_NUMERICAL = -11,    /* training diverged */
  REN_ERROR_INTERNAL = -12      /* a fault of the library's own: please report it */
};

/* "invalid argument" for a status, "?" for an unknown one; static memory. */
REN_API const char* ren_status_name(int32_t status);

/* The calling thread's last failed call: its status (REN_OK when none failed yet), its text, and
 * for what concerns the model the ONNX op and node, else "". Never NULL. The texts belong to the
 * thread and stay until its next failing call or its end; calls that succeed leave them alone.
 * Languages that move work between threads must read them on the thread that made the call. */
REN_API int32_t ren_last_error_code(void);
REN_API const char* ren_last_error_message(void);
REN_API const char* ren_last_error_op(void);
REN_API const char* ren_last_error_node(void);

/* ---- Handles --------------------------------------------------------------------------- */

typedef struct ren_model ren_model;     /* an ONNX file: graph and values */
typedef struct ren_dataset ren_dataset; /* labelled pictures in splits */
typedef struct ren_loader ren_loader;   /* a stream of batches, epoch by epoch */
typedef struct ren_trainer ren_trainer; /* a model on a device, ready to run */
typedef struct ren_report ren_report;   /* a finished text, for people and for machines */

/* ---- Reports --------------------------------------------------------------------------- */

/* Text for a terminal. */
REN_API int32_t ren_report_text(const ren_report* report, char* buffer, size_t capacity, size_t* needed);
/* The same facts as one JSON value. */
REN_API int32_t ren_report_json(const ren_report* report, char* buffer, size_t capacity, size_t* needed);
/* A self-contained page; REN_ERROR_UNSUPPORTED where a report has none (only plans have one). */
REN_API int32_t ren_report_html(const ren_report* report, char* buffer, size_t capacity, size_t* needed);
enum { REN_REPORT_TEXT = 0, REN_REPORT_JSON = 1, REN_REPORT_HTML = 2 };
/* Writes one of them to a file, whole or not at all. UNSUPPORTED, IO. */
REN_API int32_t ren_report_write(const ren_report* report, int32_t format, const char* path);
/* 1, or 0 where the report is of a check that failed (ren_verify) or of broken pictures
 * (ren_dataset_inspect). */
REN_API int32_t ren_report_passed(const ren_report* report, int32_t* passed);
REN_API void ren_report_destroy(ren_report* report);

/* ---- Process --------------------------------------------------------------------------- */

/* Threads that computing on the CPU uses from the next trainer on; 0: one a processor. Process-wide;
 * results are bit-equal for equal counts only. Loaders have their own (ren_loader_options). */
REN_API int32_t ren_set_compute_threads(int32_t count);

/* Tries, before long work, what writing `path` later will do, and leaves nothing behind. IO when the file
 * can't be made or `bytes` don't fit; INVALID_ARGUMENT when it is one of the `others`, seen through links:
 * files that are still needed, or that will be written as well. */
REN_API int32_t ren_check_output(const char* path, uint64_t bytes, const char* const* others,
                                 size_t other_count);

/* What was found on this machine: processor, memory, devices, libraries, and what is missing. */
REN_API int32_t ren_doctor(ren_report** report);

/* ---- Models ---------------------------------------------------------------------------- */

typedef struct ren_model_options {
  uint32_t struct_size;
  uint32_t reserved0;
  /* Globs ('*', '?') on initializer names: trained or kept as they are, whatever else speaks for
   * or against it. A name that matches both is frozen; a glob that matches nothing is an error. */
  const char* const* train;
  size_t train_count;
  const char* const* freeze;
  size_t freeze_count;
  /* Globs on the names of BatchNormalization nodes: use the batch's statistics, or the running ones. */
  const char* const* train_norms;
  size_t train_norm_count;
  const char* const* freeze_norms;
  size_t freeze_norm_count;
} ren_model_options;
#define REN_MODEL_OPTIONS_INIT REN_INIT_(ren_model_options)

#define REN_MAX_RANK 8

/* The model as a whole. Set struct_size (the _INIT macro) before asking. */
typedef struct ren_model_info {
  uint32_t struct_size;
  int32_t dynamic_batch;           /* 1: the file takes any batch size */
  int64_t static_batch;            /* the file's batch size when it is fixed, else 0 */
  int64_t channels, height, width; /* of the one input, pictures [N, channels, height, width] */
  int64_t opset, ir_version;
  int64_t outputs, tensors, notes, warnings; /* counts, for the functions below */
  int64_t trained_elements;                  /* numbers that training changes, statistics not counted */
  int64_t nodes;                             /* of the engine's forward graph */
  int64_t external_files;                    /* count, for ren_model_external_file */
} ren_model_info;
#define REN_MODEL_INFO_INIT REN_INIT_(ren_model_info)

/* An output without its batch dimension; height = width = 1 for class scores [N, channels]. */
typedef struct ren_output_info {
  uint32_t struct_size;
  uint32_t reserved0;
  int64_t channels, height, width;
} ren_output_info;
#define REN_OUTPUT_INFO_INIT REN_INIT_(ren_output_info)

enum {
  REN_ROLE_PARAMETER = 0, /* a weight: trained or frozen */
  REN_ROLE_BUFFER = 1,    /* a running statistic */
  REN_ROLE_CONSTANT = 2,  /* part of the computation, not kept apart */
  REN_ROLE_UNUSED = 3
};

/* A floating-point tensor of the file: an initializer or a Constant node's value. */
typedef struct ren_tensor_info {
  uint32_t struct_size;
  int32_t role;    /* REN_ROLE_* */
  int32_t trained; /* 1: training changes it */
  int32_t rank;    /* of shape; 0 for a scalar */
  int64_t elements;
  int64_t shape[REN_MAX_RANK];
} ren_tensor_info;
#define REN_TENSOR_INFO_INIT REN_INIT_(ren_tensor_info)

/* Reads and checks an ONNX file, external data beside it included. All problems of a file come in
 * one message. Errors: NOT_FOUND, IO, INVALID_MODEL, UNSUPPORTED. */
REN_API int32_t ren_model_load(const char* path, const ren_model_options* options, ren_model** model);
REN_API void ren_model_destroy(ren_model* model);

REN_API int32_t ren_model_get_info(const ren_model* model, ren_model_info* info);
REN_API int32_t ren_model_input_name(const ren_model* model, char* buffer, size_t capacity, size_t* needed);
REN_API int32_t ren_model_producer(const ren_model* model, char* buffer, size_t capacity, size_t* needed);
/* Outputs in the file's order; index from 0. */
REN_API int32_t ren_model_output_info(const ren_model* model, int64_t index, ren_output_info* info);
REN_API int32_t ren_model_output_name(const ren_model* model, int64_t index, char* buffer, size_t capacity,
                                      size_t* needed);
/* Tensors in the file's order; index from 0. The reason says why one is trained or not. */
REN_API int32_t ren_model_tensor_info(const ren_model* model, int64_t index, ren_tensor_info* info);
REN_API int32_t ren_model_tensor_name(const ren_model* model, int64_t index, char* buffer, size_t capacity,
                                      size_t* needed);
REN_API int32_t ren_model_tensor_reason(const ren_model* model, int64_t index, char* buffer, size_t capacity,
                                        size_t* needed);
/* The index of a tensor; NOT_FOUND. */
REN_API int32_t ren_model_tensor_find(const ren_model* model, const char* name, int64_t* index);
/* What the importer did that a user may want to know, and what looks wrong; one text an index. */
REN_API int32_t ren_model_note(const ren_model* model, int64_t index, char* buffer, size_t capacity,
                               size_t* needed);
REN_API int32_t ren_model_warning(const ren_model* model, int64_t index, char* buffer, size_t capacity,
                                  size_t* needed);

/* The files that external data was read from, by their full paths; index from 0. */
REN_API int32_t ren_model_external_file(const ren_model* model, int64_t index, char* buffer, size_t capacity,
                                        size_t* needed);

/* A value of the file's metadata_props; NOT_FOUND. ren_trainer_export leaves "renaissance.normalize" (a JSON
 * object with the mean and std of the trainer's options, for UINT8 images) and, after ren_trainer_fit, the
 * training loader's class names as "renaissance.classes" (a JSON list) there, unless its options name others.
 */
REN_API int32_t ren_model_metadata(const ren_model* model, const char* key, char* buffer, size_t capacity,
                                   size_t* needed);

/* Values of a parameter or statistic, by name, in the file's shape and order. Trainers copy the
 * model's values when they are made. NOT_FOUND; INVALID_ARGUMENT for another role or count. */
REN_API int32_t ren_model_tensor_get(const ren_model* model, const char* name, float* values, size_t capacity,
                                     size_t* needed);
REN_API int32_t ren_model_tensor_set(ren_model* model, const char* name, const float* values, size_t count);

typedef struct ren_export_options {
  uint32_t struct_size;
  int32_t inference_form; /* 1: BatchNormalization and Dropout in their inference form */
  int32_t use_ema;        /* 1: the averaged weights; the trainer must keep them (ema_decay) */
  uint32_t reserved0;
  /* Added to the file's metadata_props, or replacing what is there: key, value, key, value ... */
  const char* const* metadata;
  size_t metadata_count; /* strings, so twice the pairs */
} ren_export_options;
#define REN_EXPORT_OPTIONS_INIT REN_INIT_(ren_export_options)

/* Writes the file as it was read with the model's present values, atomically: whole or not at all; external
 * data, where the model had some, to NAME.HASH.data beside it. Nothing of the files that the model was read
 * from is needed any more; its own file may be the target. The result is read back and compared. `notes`, if
 * not NULL, gets a report of what else changed (mostly empty). Errors: IO (disk full, no such folder ...),
 * INVALID_ARGUMENT (the path of the model's external data; metadata "renaissance.trainable", ".classes" or
 * ".normalize" of another form than this program reads). */
REN_API int32_t ren_model_export(const ren_model* model, const char* path, const ren_export_options* options,
                                 ren_report** notes);

/* Everything above at once: inputs, outputs, op counts, tensors with reasons, notes, warnings. */
REN_API int32_t ren_model_report(const ren_model* model, ren_report** report);

/* ---- Data sets ------------------------------------------------------------------------- */

typedef struct ren_dataset_options {
  uint32_t struct_size;
  int32_t allow_empty_classes; /* 1: a class folder without pictures keeps its label */
  int32_t allow_one_class;
  uint32_t reserved0;
  const char* validation_uri; /* pictures for the split "val", with the same classes */
} ren_dataset_options;
#define REN_DATASET_OPTIONS_INIT REN_INIT_(ren_dataset_options)

/* Opens pictures with labels. What `uri` is, is found by content (docs/data.md):
 *  - a folder, zip or tar of class folders with JPEG or PNG files: CLASS/... gives one split, "all";
 *    train/CLASS/..., val/..., test/... give "train", "val", "test". A single root folder is stripped;
 *    classes are sorted by bytes.
 *  - a CSV list of lines "path,label" or "path,label,split", the paths below the list's folder;
 *  - tar archives with KEY.jpg or KEY.png beside KEY.cls or KEY.json: one, a folder of them, or a
 *    pattern "shards-{0000..0009}.tar";
 *  - a packed data set (.dts, docs/dts.md), which has its own splits and classes;
 *  - MNIST's IDX files (also .gz) or CIFAR-10's or CIFAR-100's binary files: their folder, or one file.
 * In lists, tar archives and binary files, labels that are whole numbers are the class indices; names are
 * sorted by bytes.
 * Files are listed, not decoded. Blocks while listing.
 * Errors: NOT_FOUND, IO, INVALID_DATA with every problem, UNSUPPORTED for a form that must be unpacked,
 * INVALID_ARGUMENT for a pattern that stands for nothing. */
REN_API int32_t ren_dataset_open(const char* uri, const ren_dataset_options* options, ren_dataset** dataset);
/* Pictures without labels: one file, or all of a folder or archive, by path, or of what else
 * ren_dataset_open() takes, in its order; one split, "all". */
REN_API int32_t ren_dataset_open_pictures(const char* uri, ren_dataset** dataset);
REN_API void ren_dataset_destroy(ren_dataset* dataset);

REN_API int32_t ren_dataset_class_count(const ren_dataset* dataset, int64_t* count);
REN_API int32_t ren_dataset_class_name(const ren_dataset* dataset, int64_t index, char* buffer,
                                       size_t capacity, size_t* needed);
/* Where a split is asked for by name, "train" also finds "all", and "val" also finds "test";
 * NOT_FOUND when there is none. */
REN_API int32_t ren_dataset_size(const ren_dataset* dataset, const char* split, int64_t* pictures);
/* The path of a picture, in the split's order (by class, then path; of lists, shards and binary files
 * the order there), and its label (-1: none). Pixels of a binary file have FILE/NUMBER for a path. */
REN_API int32_t ren_dataset_path(const ren_dataset* dataset, const char* split, int64_t index, char* buffer,
                                 size_t capacity, size_t* needed);
REN_API int32_t ren_dataset_label(const ren_dataset* dataset, const char* split, int64_t index,
                                  int32_t* label);
/* What was left out when it was opened. */
REN_API int32_t ren_dataset_warning_count(const ren_dataset* dataset, int64_t* count);
REN_API int32_t ren_dataset_warning(const ren_dataset* dataset, int64_t index, char* buffer, size_t capacity,
                                    size_t* needed);

/* ---- Batches and loaders --------------------------------------------------------------- */

enum { REN_IMAGE_UINT8 = 0, REN_IMAGE_FLOAT32 = 1 };
enum { REN_LAYOUT_NCHW = 0, REN_LAYOUT_NHWC = 1 };

/* Pictures with labels. Given by the caller (ren_trainer_step ...), the memory is the caller's and
 * only read during the call. */
typedef struct ren_batch {
  uint32_t struct_size;
  int32_t image_type; /* REN_IMAGE_*; has to be the trainer's */
  int32_t layout;     /* REN_LAYOUT_* */
  uint32_t reserved0;
  int64_t count; /* pictures, at least 1 */
  int64_t channels, height, width;
  const void* images;    /* count * channels * height * width values */
  const int32_t* labels; /* class indices, one a picture, or one a position [N, H, W] of the
                            first output with a loss; NULL where only predictions are wanted */
  size_t label_count;
} ren_batch;
#define REN_BATCH_INIT REN_INIT_(ren_batch)

enum {
  REN_BAD_FILES_FAIL = 0,   /* the call that meets one fails with its path */
  REN_BAD_FILES_SKIP = 1,   /* the next good picture takes its place */
  REN_BAD_FILES_REPLACE = 2 /* what could be decoded is kept, the rest is gray */
};
enum {
  REN_LAST_BATCH_KEEP = 0, /* an epoch ends with what is left */
  REN_LAST_BATCH_DROP = 1, /* full batches only */
  REN_LAST_BATCH_EXACT = 2 /* every picture once; for evaluation */
};

enum {
  REN_DECODE_EXACT = 0, /* the pixels of Pillow's decoder */
  REN_DECODE_FAST = 1   /* where random-resized-crop reduces a part of a JPEG file to half or less, that is
                           decoded at a half, a quarter or an eighth of its size (docs/data.md: how far off);
                           such pictures are not cached */
};

typedef struct ren_loader_options {
  uint32_t struct_size;
  int32_t shuffle;                 /* 1: an exact shuffle, by seed and epoch */
  int64_t batch;                   /* pictures a batch; 0: 32 */
  int64_t channels, height, width; /* of the model's input; channels 3 (RGB) or 1 (gray); required */
  /* What is done to the pictures, a list with commas; NULL: "none".
   *   none                      resize and centre crop, nothing random
   *   auto                      what suits training at this size: pad-crop or random-resized-crop, with flip;
   *                             more transforms may follow
   *   exact                     as they are; they must have the model's size
   *   flip[:P]                  mirrored with probability P (0.5)
   *   pad-crop[:PIXELS]         random crop after padding with PIXELS (4) of black
   *   random-resized-crop[:MIN[-MAX[,RATIO-RATIO]]]   of MIN..MAX (0.08-1) of the area, width by height
   *                             within the ratios (0.75-1.3333)
   *   center-crop[:SHORT]       short side resized to SHORT pixels (8/7 of the model's) before the crop
   *   resize                    to the model's height and width
   *   resize:SHORT              the short side first; center-crop or pad-crop has to follow
   *   bilinear, bicubic         the resizing filter (bilinear)
   * Behind the crop, in the order given, each at most once; numbers are separated by commas, later ones may
   * be left out. Names, meanings and defaults are torchvision's (docs/data.md): vertical-flip[:P]         P 0
   * to 1 (0.5) color-jitter:B[,C[,S[,H]]]    brightness, contrast, saturation 0 to 100, hue 0 to 0.5 (0)
   *   random-grayscale[:P]      P 0 to 1 (0.1)
   *   gaussian-blur:SIZE[,MIN,MAX]  odd kernel size 1 to 255, sigma 0.001 to 1000 (0.1,2)
   *   random-erasing[:P[,SCALE,SCALE[,RATIO,RATIO[,R,G,B]]]]   (0.5,0.02,0.33,0.3,3.3,0,0,0)
   *   rand-augment[:OPS[,MAGNITUDE[,BINS]]][:nearest|bilinear|bicubic]   (2,9,31:nearest)
   *   trivial-augment-wide[:BINS][:nearest|bilinear|bicubic]   (31:nearest)
   *   auto-contrast[:P]         P 0 to 1 (0.5)
   * Last, for training, what mixes each picture of a batch with the one before it; with both, each step takes
   * one of them at random. The trainer does it, not the loader: give it the alphas of ren_loader_info.
   *   mixup[:ALPHA]             0.001 to 1000 (1)
   *   cutmix[:ALPHA]            0.001 to 1000 (1)
   * Or a JSON list, e.g. [{"name": "RandAugment", "num_ops": 2, "magnitude": 9}], as the text itself or as
   * the name of a file that ends with ".json", which is read by ren_loader_create. */
  const char* augmentation;
  uint64_t seed;
  int32_t last_batch;  /* REN_LAST_BATCH_* */
  int32_t bad_files;   /* REN_BAD_FILES_* */
  int32_t threads;     /* that decode; 0: one a processor */
  int32_t prefetch;    /* batches made ahead; 0: 3 */
  int64_t cache_bytes; /* decoded pictures kept for later epochs; 0: 512 MiB, -1: none */
  int32_t decode;      /* REN_DECODE_* */
  uint32_t reserved0;
} ren_loader_options;
#define REN_LOADER_OPTIONS_INIT REN_INIT_(ren_loader_options)

typedef struct ren_loader_info {
  uint32_t struct_size;
  int32_t image_type;               /* REN_IMAGE_* */
  int64_t samples, batch, batches;  /* in one epoch; batches rounded as last_batch says */
  int64_t bad_files, damaged_files; /* so far: unusable, and usable with the decoder's warning */
  double mixup_alpha, cutmix_alpha; /* what its augmentation asks of the trainer; 0: not that one */
} ren_loader_info;
#define REN_LOADER_INFO_INIT REN_INIT_(ren_loader_info)

/* A stream of one split's pictures. Its bytes depend on the pictures and the options but threads,
 * prefetch and cache_bytes. Has threads of its own. Errors: NOT_FOUND (split, augmentation file), IO,
 * INVALID_ARGUMENT. */
REN_API int32_t ren_loader_create(const ren_dataset* dataset, const char* split,
                                  const ren_loader_options* options, ren_loader** loader);

typedef struct ren_source_options {
  uint32_t struct_size;
  int32_t image_type;              /* REN_IMAGE_* that fn writes */
  int64_t samples;                 /* in one epoch; required */
  int64_t batch;                   /* required */
  int64_t channels, height, width; /* required */
  int64_t labels_per_sample;       /* 0: 1 */
} ren_source_options;
#define REN_SOURCE_OPTIONS_INIT REN_INIT_(ren_source_options)

/* Fills pictures first_sample .. first_sample + count - 1 of an epoch: images NCHW and labels, into
 * memory of the library's. Has to give the same for the same arguments if checkpoints are to resume
 * exactly. */
typedef int32_t (*ren_fill_fn)(void* user, int64_t epoch, int64_t first_sample, int64_t count, void* images,
                               int32_t* labels);

/* A stream whose pictures the caller makes. fn runs on the thread that asks for the next batch. */
REN_API int32_t ren_loader_create_from_callback(const ren_source_options* options, ren_loader** loader,
                                                ren_fill_fn fn, void* user);

REN_API int32_t ren_loader_get_info(const ren_loader* loader, ren_loader_info* info);
/* What is done to the pictures, in the words of ren_loader_options.augmentation with all its values: what
 * "auto" has chosen. Empty for callbacks. */
REN_API int32_t ren_loader_augmentation(const ren_loader* loader, char* buffer, size_t capacity,
                                        size_t* needed);
/* The bad files met so far, each with its reason. Callable while the loader is in use. */
REN_API int32_t ren_loader_report(const ren_loader* loader, ren_report** report);

/* Where the time of a loader goes, in sums since it was made: the difference of two calls tells of what lies
 * between. Batches are made ahead, and count when they are made. Zero for callbacks, but `threads` is 1. */
typedef struct ren_loader_statistics {
  uint32_t struct_size;
  int32_t threads;       /* that read, decode and transform */
  int64_t batches;       /* given to the trainer or by ren_loader_next */
  int64_t pictures;      /* made into samples */
  int64_t pictures_read; /* from the data set; the others came from the cache */
  int64_t bytes_read;
  double read_seconds, decode_seconds, transform_seconds; /* by the clock, of all threads together */
  double cpu_seconds;                                     /* processor time of all threads together */
  double wait_seconds; /* that the trainer or ren_loader_next waited for a batch */
} ren_loader_statistics;
#define REN_LOADER_STATISTICS_INIT REN_INIT_(ren_loader_statistics)
/* Callable while the loader is in use, from any thread and from callbacks. */
REN_API int32_t ren_loader_get_statistics(const ren_loader* loader, ren_loader_statistics* statistics);

/* Reading a loader by hand; ren_trainer_fit and ren_trainer_evaluate do it themselves. Begins an epoch
 * at one of its batches; the stream is the one that an epoch begun at batch 0 has from there. */
REN_API int32_t ren_loader_start_epoch(ren_loader* loader, int64_t epoch, int64_t first_batch);
/* The next batch, or REN_END_OF_DATA. Blocks until it is ready. batch->images and labels belong to the
 * loader and stay until the second next call of this, _start_epoch or _destroy. */
REN_API int32_t ren_loader_next(ren_loader* loader, ren_batch* batch);
/* Makes a blocked or the next ren_loader_next return REN_ERROR_CANCELLED. From any thread. */
REN_API int32_t ren_loader_request_stop(ren_loader* loader);
REN_API void ren_loader_destroy(ren_loader* loader);

/* ---- Packing data sets, looking into them ---------------------------------------------- */

enum {
  REN_JOB_READING_PART = 0, /* what an unfinished pack holds is looked through */
  REN_JOB_PACKING = 1,
  REN_JOB_VERIFYING = 2, /* the pack is read back from the disk */
  REN_JOB_INSPECTING = 3
};

typedef struct ren_job_progress {
  uint32_t struct_size;
  int32_t phase;       /* REN_JOB_* */
  int64_t done, total; /* pictures of this phase */
  double pictures_per_second, seconds_left;
  const char* message; /* something to tell a user, during this call only; mostly NULL */
} ren_job_progress;

/* Called after each picture and several times a second. Non-zero stops the job: REN_ERROR_CANCELLED.
 * progress belongs to the library. */
typedef int32_t (*ren_job_progress_fn)(void* user, const ren_job_progress* progress);

typedef struct ren_pack_options {
  uint32_t struct_size;
  int32_t short_side; /* pixels; pictures whose short side is longer are resized to it and encoded as JPEG,
                         all others keep their bytes; 0: all keep them; at most 65500 */
  int32_t quality;    /* libjpeg's, 1 to 100, of the resized ones; 0: 90 */
  int32_t threads;    /* that read, decode and encode; 0: one a processor; at most 1024 */
  int32_t bad_files;  /* REN_BAD_FILES_FAIL, or _SKIP: bad pictures are left out */
  uint32_t reserved0;
} ren_pack_options;
#define REN_PACK_OPTIONS_INIT REN_INIT_(ren_pack_options)

/* Writes all splits of a data set, with labels, classes and paths, into one file (docs/dts.md) that
 * ren_dataset_open() takes. Each picture is decoded once to see that it can be. Resizing is Pillow's
 * antialiased bilinear, bit for bit; what it gives is baseline JPEG with chroma at half the size, gray where
 * the picture was. Pixels of IDX and CIFAR files stay bare unless they are resized. The file is the same for
 * any number of threads. While it is made it is called PATH.part (beside the file that links lead to), and is
 * renamed when it is complete and was read back without a fault. A job that ends early leaves PATH.part; the
 * same job (pictures by path, size and time or checksum, labels, options that change bytes) goes on with it,
 * another begins anew; fn is told which. A file at PATH is replaced if it is a .dts and nobody changes it
 * meanwhile. `report` (may be NULL): text and JSON: what was packed, the bad pictures left out, the damaged
 * ones. fn may be NULL. Blocks.
 * Errors: INVALID_DATA, NOT_FOUND, UNSUPPORTED (the first bad picture; all of a class are bad), IO (full
 * disk, no such folder, another process packs to it, PATH, PATH.part or the source was changed meanwhile,
 * what is read back isn't what was written ...), INVALID_ARGUMENT (PATH or PATH.part is the data set, another
 * file or one that can't be read; splits of bare pixels in several forms), CANCELLED. */
REN_API int32_t ren_dataset_pack(const ren_dataset* dataset, const char* path,
                                 const ren_pack_options* options, ren_report** report, ren_job_progress_fn fn,
                                 void* user);

typedef struct ren_inspect_options {
  uint32_t struct_size;
  int32_t quick;   /* 1: headers only; damage behind them goes unnoticed */
  int32_t threads; /* 0: one a processor; at most 1024 */
  uint32_t reserved0;
} ren_inspect_options;
#define REN_INSPECT_OPTIONS_INIT REN_INIT_(ren_inspect_options)

/* Decodes every picture of a data set and tells, as text and JSON, the splits, the classes with their counts,
 * formats, widths, heights (pixels) and bytes (least, median, most), damaged pictures and broken ones with
 * the reason. Broken ones are no error: ren_report_passed is 0 then. fn may be NULL. Blocks. CANCELLED. */
REN_API int32_t ren_dataset_inspect(const ren_dataset* dataset, const ren_inspect_options* options,
                                    ren_report** report, ren_job_progress_fn fn, void* user);

/* Writes a contact sheet, a PNG file: the first options->batch pictures (or all there are) that a loader
 * with these options gives in its first epoch, as a network will see them before normalisation. last_batch,
 * prefetch and cache_bytes don't matter, and MixUp and CutMix are not shown. Blocks. Errors: as of the
 * loader; IO; INVALID_ARGUMENT (`path` is the data set, one of its pictures, or any file but a PNG file; a
 * sheet of more than 178,956,970 pixels). */
REN_API int32_t ren_dataset_sheet(const ren_dataset* dataset, const char* split,
                                  const ren_loader_options* options, const char* path);

/* ---- Trainers -------------------------------------------------------------------------- */

enum { REN_PRECISION_FP32 = 0, REN_PRECISION_FP16 = 1, REN_PRECISION_BF16 = 2, REN_PRECISION_TF32 = 3 };
enum { REN_OPTIMIZER_SGD = 0, REN_OPTIMIZER_LARS = 1 };
enum { REN_SCHEDULE_CONSTANT = 0, REN_SCHEDULE_STEP = 1, REN_SCHEDULE_COSINE = 2 };

typedef struct ren_trainer_options {
  uint32_t struct_size;
  int32_t precision; /* REN_PRECISION_*; 16 bits: mixed precision with a dynamic loss scale; TF32, on GPUs
                        alone (else UNSUPPORTED): FP32 tensors, but convolutions and matrix products round
                        what they multiply to 11 bits */
  const char*
      device;    /* "cpu", "cuda", "cuda:1" or "auto": the first GPU there is, else the CPU; NULL: "auto" */
  int64_t batch; /* of a full step; 0: 32 */
  /* Further step sizes, e.g. that of an epoch's last batch (samples % batch). */
  const int64_t* other_batches;
  size_t other_batch_count;
  int64_t evaluation_batch; /* most pictures in evaluating and predicting; 0: as batch */
  int32_t evaluation_only;  /* 1: no training, hence less memory */
  int32_t image_type;       /* REN_IMAGE_* of the batches; loaders of pictures give UINT8 */

  /* Pictures reach the network as (x - mean[c]) / std[c], x = byte / 255 for UINT8, or the value as
   * it is for FLOAT32. By name ("none", "half", "imagenet", "cifar10", "cifar100", "mnist", "clip") or by
   * numbers; by name NULL and no numbers: "none". */
  const char* normalize;
  const float* mean;
  const float* std;
  size_t channel_count; /* of mean and std: 0, 1 or the model's channels */

  /* Cross entropy of outputs with weights, "logits:1.0,aux:0.3"; NULL: the first output. */
  const char* losses;    /* each output once, weights above 0 */
  float label_smoothing; /* 0..1, of training only */
  int32_t ignore_index;  /* a label that counts nowhere; 0: none */

  int32_t optimizer;          /* REN_OPTIMIZER_* */
  int32_t nesterov;           /* 1: Nesterov's momentum, as PyTorch has it */
  double learning_rate;       /* > 0; 0: 0.1 */
  double momentum;            /* 0..1; 0: none */
  double weight_decay;        /* added to the gradient (L2), of everything trained */
  int32_t decay_weights_only; /* 1: no weight decay on biases and norms */
  int32_t schedule;           /* REN_SCHEDULE_*, by ren_trainer_fit */
  double warmup_epochs;       /* linear rise before the schedule begins */
  double final_learning_rate; /* where COSINE ends */
  double step_epochs;         /* STEP: epochs between two reductions; required by it */
  double gamma;               /* STEP: the factor; 0: 0.1 */
  double trust_coefficient;   /* LARS; 0: 0.001 */
  double ema_decay;           /* > 0: an exponential average of the weights is kept */
  int64_t epochs;             /* that ren_trainer_fit runs and the schedule spans; 0: 1 */
  uint64_t seed;
  uint64_t memory_limit;     /* bytes of the device that may be used; 0: what is free */
  int32_t max_skipped_steps; /* 16 bits: overflow in more steps in a row ends training; 0: 50 */
  float loss_scale;          /* 16 bits: the first loss scale; 0: 65536 */
  /* 1: a GPU's libraries are chosen by rules instead of measuring them, so that the same run gives the same
   * bits on every machine with that GPU and these libraries, however its cache is filled. 0: what measured
   * fastest; the same bits as long as the cache of such choices stays. The CPU is deterministic either way,
   * for one number of threads. */
  int32_t deterministic;
  /* MixUp and CutMix, as torchvision.transforms.v2 has them, of all training steps, wherever their batches
   * come from: ren_trainer_fit and ren_trainer_step, not evaluation and prediction. Each is 0 (not that one)
   * or 0.001 to 1000, the alpha of the Beta distribution that a batch's share is drawn from; with both, each
   * step takes one of them, with equal chances. Each picture is mixed with the one before it in the batch
   * (the first with the last), after the normalisation; the loss is that of both labels, by their shares.
   * What is drawn depends on seed and the number of the step alone. Needs outputs with one class of several a
   * picture (UNSUPPORTED). */
  double mixup_alpha, cutmix_alpha;
} ren_trainer_options;
#define REN_TRAINER_OPTIONS_INIT REN_INIT_(ren_trainer_options)

typedef struct ren_step_result {
  uint32_t struct_size;
  int32_t skipped;           /* 1: the gradients overflowed and no parameter was updated */
  double loss;               /* mean over the batch's targets, weighted sum over outputs */
  int64_t samples;           /* targets that counted */
  int64_t correct, correct5; /* where the label is the largest score, among the five largest; of a picture
                                mixed with another, the label with the larger share */
} ren_step_result;
#define REN_STEP_RESULT_INIT REN_INIT_(ren_step_result)

/* Sums over many batches. This struct is fixed for the major ABI version. */
typedef struct ren_metrics {
  double loss;       /* mean over all targets */
  double top1, top5; /* shares, 0..1; see ren_step_result for mixed pictures */
  int64_t samples, steps, skipped;
  double seconds;
} ren_metrics;

enum {
  REN_PHASE_TRAINING = 0,         /* after each step */
  REN_PHASE_EVALUATING = 1,       /* after each batch */
  REN_PHASE_EPOCH_DONE = 2,       /* after an epoch and its evaluation */
  REN_PHASE_CHECKPOINT = 3,       /* a checkpoint was written */
  REN_PHASE_CHECKPOINT_FAILED = 4 /* a checkpoint could not be written: `message`; training goes on */
};

typedef struct ren_progress {
  uint32_t struct_size;
  int32_t phase;         /* REN_PHASE_* */
  int64_t epoch, epochs; /* epoch from 0 */
  int64_t step, steps;   /* done within the epoch, or the evaluation */
  double learning_rate, images_per_second, seconds_left, loss_scale;
  ren_metrics training;       /* so far in this epoch */
  ren_metrics validation;     /* so far, or of the last evaluation; samples 0: none yet */
  int64_t failed_checkpoints; /* so far in this call */
  const char* message;        /* of CHECKPOINT_FAILED, during the callback; else NULL */
} ren_progress;
#define REN_PROGRESS_INIT REN_INIT_(ren_progress)

/* Non-zero stops as ren_trainer_request_stop does. progress belongs to the library. */
typedef int32_t (*ren_progress_fn)(void* user, const ren_progress* progress);

/* Compiles the model for a device and takes its memory, once. Blocks (on a GPU, seconds to minutes the
 * first time). Errors: UNSUPPORTED (all ops without a kernel), OUT_OF_MEMORY (the largest batch that
 * fits), DEVICE, NOT_FOUND (device, output), INVALID_ARGUMENT. */
REN_API int32_t ren_trainer_create(const ren_model* model, const ren_trainer_options* options,
                                   ren_trainer** trainer);
REN_API void ren_trainer_destroy(ren_trainer* trainer);

/* "cpu (AMD EPYC 7763, avx2, 2 threads)". */
REN_API int32_t ren_trainer_device_name(const ren_trainer* trainer, char* buffer, size_t capacity,
                                        size_t* needed);

/* One step on a batch of `batch` or one of `other_batches` pictures, with this learning rate (>= 0).
 * Blocks until its result is known. `result` may be NULL. */
REN_API int32_t ren_trainer_step(ren_trainer* trainer, const ren_batch* batch, double learning_rate,
                                 ren_step_result* result);
/* Loss and counts of up to evaluation_batch pictures in inference mode, without label smoothing. */
REN_API int32_t ren_trainer_evaluate_batch(ren_trainer* trainer, const ren_batch* batch,
                                           ren_step_result* result);
/* The outputs for up to evaluation_batch pictures in inference mode: outputs[i], if not NULL, takes
 * output i (of the file's order) as [count, channels, height, width], exactly counts[i] values. They are
 * raw scores: a softmax at the model's end is left off. */
REN_API int32_t ren_trainer_predict(ren_trainer* trainer, const ren_batch* batch, float* const* outputs,
                                    const size_t* counts, size_t output_count);

typedef struct ren_fit_options {
  uint32_t struct_size;
  uint32_t reserved0;
  const char* checkpoint;         /* file that is written after each epoch and on a stop; NULL: none */
  int64_t checkpoint_every_steps; /* also after that many steps; 0: not */
} ren_fit_options;
#define REN_FIT_OPTIONS_INIT REN_INIT_(ren_fit_options)

/* Trains all epochs that are left, from the start or from a loaded checkpoint's position, evaluating
 * after each when there is a validation loader (may be NULL). Blocks. After a stop (request, callback)
 * it returns REN_ERROR_CANCELLED, the running step finished and the checkpoint, if named, written.
 * `result` (may be NULL) gets the last epoch's metrics; fn may be NULL. The checkpoint's place is tried
 * before the first step: IO, or INVALID_ARGUMENT when it is the model's file, its external data or the data
 * set, or when the training loader's augmentation names MixUp or CutMix other than the trainer's. A
 * checkpoint that can't be written later on doesn't end the training: fn is told, and `result` counts them;
 * only a stop whose checkpoint fails is IO. Non-finite losses or weights in training: NUMERICAL; the validation's
 * loss may be NaN in `result`, where the trained network's outputs aren't finite in this precision. Where no
 * epoch is left, the validation alone is done. */
REN_API int32_t ren_trainer_fit(ren_trainer* trainer, ren_loader* training, ren_loader* validation,
                                const ren_fit_options* options, ren_progress* result, ren_progress_fn fn,
                                void* user);
/* All pictures of a loader once, in inference mode. Blocks. fn may be NULL. NUMERICAL, naming the first
 * picture, when the output for one is not finite. Nothing is mixed, whatever the loader's augmentation says.
 */
REN_API int32_t ren_trainer_evaluate(ren_trainer* trainer, ren_loader* loader, ren_metrics* metrics,
                                     ren_progress_fn fn, void* user);
/* Ends a running ren_trainer_fit or _evaluate after its present step, or the next one at once. From any
 * thread or signal handler (async-signal-safe; its one error, INVALID_ARGUMENT, leaves no text). */
REN_API int32_t ren_trainer_request_stop(ren_trainer* trainer);

typedef struct ren_position {
  uint32_t struct_size;
  uint32_t reserved0;
  int64_t epoch; /* the epoch that the next step belongs to */
  int64_t steps; /* done in all */
} ren_position;
#define REN_POSITION_INIT REN_INIT_(ren_position)
REN_API int32_t ren_trainer_position(const ren_trainer* trainer, ren_position* position);

enum {
  REN_TENSOR_PARAMETER = 0, /* FP32 master value */
  REN_TENSOR_GRADIENT = 1,  /* of the last step, without weight decay and loss scale; get only */
  REN_TENSOR_MOMENTUM = 2,
  REN_TENSOR_EMA = 3,
  REN_TENSOR_STATISTIC = 4 /* running mean or variance */
};

/* Values by initializer name, in the file's shape and order. Waits for the device. NOT_FOUND (name);
 * INVALID_STATE where the trainer keeps no such kind; INVALID_ARGUMENT for a wrong count. A momentum,
 * gradient or average exists for every parameter of the model, zero for those not trained. */
REN_API int32_t ren_trainer_tensor_get(ren_trainer* trainer, const char* name, int32_t kind, float* values,
                                       size_t capacity, size_t* needed);
REN_API int32_t ren_trainer_tensor_set(ren_trainer* trainer, const char* name, int32_t kind,
                                       const float* values, size_t count);

/* Everything that decides how training goes on, as one file with a checksum, written whole or not at all.
 * Loading needs a trainer of the same model and settings (docs/checkpoints.md; all that differs is listed
 * in one error), and goes on bit for bit. Whether the data is the same, ren_trainer_fit checks;
 * ren_trainer_resume does so at once. INVALID_DATA: no checkpoint, a damaged one, one of another version. */
REN_API int32_t ren_trainer_checkpoint_save(ren_trainer* trainer, const char* path);
REN_API int32_t ren_trainer_checkpoint_load(ren_trainer* trainer, const char* path);
REN_API int32_t ren_trainer_resume(ren_trainer* trainer, ren_loader* training, const char* path);

/* The model's file with the trained values; see ren_model_export. "renaissance.normalize" and
 * "renaissance.classes" are added to its metadata (ren_model_metadata tells what they hold). */
REN_API int32_t ren_trainer_export(ren_trainer* trainer, const char* path, const ren_export_options* options,
                                   ren_report** notes);

/* The memory plan: text, JSON and HTML. */
REN_API int32_t ren_trainer_plan(const ren_trainer* trainer, ren_report** report);

/* ---- Verification ---------------------------------------------------------------------- */

typedef struct ren_verify_options {
  uint32_t struct_size;
  int32_t precision;  /* REN_PRECISION_* */
  const char* device; /* as in ren_trainer_options */
  double
      tolerance; /* 0: 1e-4 in FP32, 3e-2 in FP16 and TF32, 1e-1 in BF16; scales all bounds (docs/cli.md) */
  /* A file with PyTorch's own errors (docs/cli.md) in FP16, BF16 or TF32, not in FP32; NULL: none.
   * A number passes then within the tolerance (0: 3e-2 in BF16, too), its bounds not widened for fewer bits,
   * or within twice PyTorch's error. INVALID_DATA for another case's, another precision's or an incomplete
   * one. */
  const char* peer;
} ren_verify_options;
#define REN_VERIFY_OPTIONS_INIT REN_INIT_(ren_verify_options)

/* Replays PyTorch's recorded training of a model (a golden file, docs/cli.md) and compares outputs, losses,
 * gradients, parameters and statistics. REN_OK with a report whether or not the numbers agree
 * (ren_report_passed); an error when the model or the golden file is refused. Blocks. */
REN_API int32_t ren_verify(const char* model_path, const char* golden_path, const ren_verify_options* options,
                           ren_report** report);

/* ---- Benchmark ------------------------------------------------------------------------- */

typedef struct ren_bench_options {
  uint32_t struct_size;
  int32_t steps;      /* a window, at most 1,000,000; 0: 20 */
  int32_t windows;    /* after one that warms up, at most 1,000; 0: 5 */
  int32_t no_profile; /* 1: don't time the single operations */
} ren_bench_options;
#define REN_BENCH_OPTIONS_INIT REN_INIT_(ren_bench_options)

/* Times one training step on synthetic images that lie on the device already: the median of the windows,
 * images/s, the launching thread's microseconds a step, arena bytes, seconds to the first step (as the
 * caches are, and again), and each operation's time; text and JSON. `options` as for ren_trainer_create;
 * epochs and schedule don't matter. The model's values stay as they are. Blocks; needs the memory of one
 * trainer at a time. */
REN_API int32_t ren_bench_step(const ren_model* model, const ren_trainer_options* options,
                               const ren_bench_options* bench, ren_report** report);

#ifdef __cplusplus
}
#endif
#endif /* RENAISSANCE_C_H */
