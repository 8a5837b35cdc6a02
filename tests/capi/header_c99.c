/* SPDX-License-Identifier: Apache-2.0 */
/* Uses the library as a C program would, compiled as strict C99: options, errors, strings, callbacks,
 * and the layout of every struct. usage: header_c99 MODEL */
#include "renaissance_c.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define ASSERT_STATIC(condition) typedef char JOIN(assertion_, __LINE__)[(condition) ? 1 : -1]
#define SIZE(type, bytes) ASSERT_STATIC(sizeof(type) == (bytes))
#define WAS(type, bytes) ASSERT_STATIC(sizeof(type) > (bytes))
#define AT(type, field, bytes) ASSERT_STATIC(offsetof(type, field) == (bytes))
#include "abi.h"

static int failures = 0;

static void expect(int good, const char* what) {
  if (!good) {
    printf("FAILED: %s (last error: %s)\n", what, ren_last_error_message());
    ++failures;
  }
}

static int32_t fill(void* user, int64_t epoch, int64_t first, int64_t count, void* images, int32_t* labels) {
  float* pixels = (float*)images;
  int64_t i, size = *(const int64_t*)user;
  (void)epoch;
  for (i = 0; i < count * size; ++i) pixels[i] = (float)((first + i) % 7) / 7.0f;
  for (i = 0; i < count; ++i) labels[i] = (int32_t)((first + i) % 10);
  return 0;
}

static int32_t watch(void* user, const ren_progress* progress) {
  if (progress->phase == REN_PHASE_TRAINING) ++*(int*)user;
  return 0;
}

static void train(const ren_model* model, const ren_model_info* info) {
  ren_trainer_options options = REN_TRAINER_OPTIONS_INIT;
  ren_source_options source = REN_SOURCE_OPTIONS_INIT;
  ren_progress last = REN_PROGRESS_INIT;
  ren_trainer* trainer = NULL;
  ren_loader* loader = NULL;
  int64_t size = info->channels * info->height * info->width;
  int steps = 0;
  options.batch = 4;
  options.image_type = REN_IMAGE_FLOAT32;
  options.learning_rate = 0.01;
  expect(ren_trainer_create(model, &options, &trainer) == REN_OK, "ren_trainer_create");
  source.image_type = REN_IMAGE_FLOAT32;
  source.samples = 12;
  source.batch = 4;
  source.channels = info->channels;
  source.height = info->height;
  source.width = info->width;
  expect(ren_loader_create_from_callback(&source, &loader, fill, &size) == REN_OK,
         "ren_loader_create_from_callback");
  expect(ren_trainer_fit(trainer, loader, NULL, NULL, &last, watch, &steps) == REN_OK, "ren_trainer_fit");
  expect(steps == 3, "three steps");
  expect(last.training.samples == 12, "twelve samples");
  ren_trainer_destroy(trainer);
  ren_loader_destroy(loader);
}

int main(int argc, char** argv) {
  ren_model* model = NULL;
  ren_model_info info = REN_MODEL_INFO_INIT;
  char* name = NULL;
  size_t needed = 0;
  if (argc != 2) return 2;
  expect(ren_model_load("no such file.onnx", NULL, &model) == REN_ERROR_NOT_FOUND,
         "a missing file is NOT_FOUND");
  expect(model == NULL, "nothing was written");
  expect(strstr(ren_last_error_message(), "no such file.onnx") != NULL, "the message names the file");
  expect(ren_model_load(argv[1], NULL, &model) == REN_OK, "ren_model_load");
  expect(ren_model_get_info(model, &info) == REN_OK, "ren_model_get_info");
  expect(ren_model_output_name(model, 0, NULL, 0, &needed) == REN_OK, "size of a name");
  name = (char*)malloc(needed);
  expect(ren_model_output_name(model, 0, name, needed, NULL) == REN_OK, "a name");
  expect(name != NULL && strlen(name) + 1 == needed, "its length");
  free(name);
  train(model, &info);
  ren_model_destroy(model);
  ren_model_destroy(NULL);
  if (failures == 0) printf("all well\n");
  return failures != 0;
}
