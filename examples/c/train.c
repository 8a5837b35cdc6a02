/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trains a model on class folders through the C API and writes it back.
 *
 *   usage: train MODEL.onnx PICTURES OUT.onnx [EPOCHS]
 *
 * PICTURES holds train/CLASS/ and val/CLASS/ with JPEG or PNG files, as a folder or a zip. EPOCHS is 10 by default.
 */
#include <renaissance_c.h>
#include <stdio.h>
#include <stdlib.h>

/* One handle of each kind; destroying NULL does nothing, so that any way out can free them all. */
typedef struct {
  ren_model *model;
  ren_dataset *data;
  ren_loader *training, *validation;
  ren_trainer *trainer;
} handles;

static int32_t on_progress(void *user, const ren_progress *progress) {
  (void)user;
  if (progress->phase == REN_PHASE_EPOCH_DONE)
    printf("epoch %lld of %lld: loss %.4f, held-out top-1 %.2f %%, %.0f images/s\n", (long long)progress->epoch + 1,
           (long long)progress->epochs, progress->training.loss, 100 * progress->validation.top1,
           progress->images_per_second);
  return 0; /* anything else would stop */
}

static int32_t run(handles *h, const char *model_path, const char *pictures, const char *out, int64_t epochs) {
  ren_model_info info = REN_MODEL_INFO_INIT;
  ren_loader_options loading = REN_LOADER_OPTIONS_INIT;
  ren_trainer_options training = REN_TRAINER_OPTIONS_INIT;
  ren_loader_info stream = REN_LOADER_INFO_INIT;
  int64_t last_batch;
  int32_t status;

  if ((status = ren_model_load(model_path, NULL, &h->model)) < 0) return status;
  if ((status = ren_model_get_info(h->model, &info)) < 0) return status;
  if ((status = ren_dataset_open(pictures, NULL, &h->data)) < 0) return status;

  loading.batch = 64;
  loading.channels = info.channels;
  loading.height = info.height;
  loading.width = info.width;
  loading.last_batch = REN_LAST_BATCH_EXACT;
  if ((status = ren_loader_create(h->data, "val", &loading, &h->validation)) < 0) return status;
  loading.shuffle = 1;
  loading.augmentation = "auto";
  loading.last_batch = REN_LAST_BATCH_KEEP;
  if ((status = ren_loader_create(h->data, "train", &loading, &h->training)) < 0) return status;
  if ((status = ren_loader_get_info(h->training, &stream)) < 0) return status;

  training.batch = loading.batch;
  last_batch = stream.samples % stream.batch; /* an epoch's last step is smaller */
  if (last_batch != 0) {
    training.other_batches = &last_batch;
    training.other_batch_count = 1;
  }
  training.normalize = "half";
  training.learning_rate = 0.1;
  training.momentum = 0.9;
  training.nesterov = 1;
  training.weight_decay = 5e-4;
  training.schedule = REN_SCHEDULE_COSINE;
  training.warmup_epochs = 1;
  training.epochs = epochs;
  training.seed = 1;
  if ((status = ren_trainer_create(h->model, &training, &h->trainer)) < 0) return status;
  if ((status = ren_trainer_fit(h->trainer, h->training, h->validation, NULL, NULL, on_progress, NULL)) < 0)
    return status;
  return ren_trainer_export(h->trainer, out, NULL, NULL);
}

int main(int argc, char **argv) {
  handles h = {NULL, NULL, NULL, NULL, NULL};
  int32_t status;
  long epochs = 10;
  char *end = "";
  if (argc == 5) epochs = strtol(argv[4], &end, 10);
  if (argc < 4 || argc > 5 || *end != '\0' || epochs < 1) {
    fprintf(stderr, "usage: %s MODEL.onnx PICTURES OUT.onnx [EPOCHS]\n", argv[0]);
    return 2;
  }
  status = run(&h, argv[1], argv[2], argv[3], epochs);
  if (status < 0)
    fprintf(stderr, "error (%s): %s\n", ren_status_name(status), ren_last_error_message());
  else
    printf("wrote %s\n", argv[3]);
  ren_trainer_destroy(h.trainer);
  ren_loader_destroy(h.training);
  ren_loader_destroy(h.validation);
  ren_dataset_destroy(h.data);
  ren_model_destroy(h.model);
  return status < 0;
}
