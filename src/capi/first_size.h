// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "renaissance_c.h"

// The size that each struct of the C API had when it first appeared. It is pinned by the last field
// of that version, so that a struct that grows still takes the programs built before; a struct
// that isn't listed doesn't compile.
namespace ren::capi {

template <typename T>
struct FirstSize;

template <typename T>
constexpr uint32_t first_size = FirstSize<T>::value;

#define REN_FIRST_SIZE(type, last_field)                                                         \
  template <>                                                                                    \
  struct FirstSize<type> {                                                                       \
    static constexpr size_t end = offsetof(type, last_field) + sizeof(type::last_field);         \
    static constexpr uint32_t value = (end + alignof(type) - 1) / alignof(type) * alignof(type); \
  };

REN_FIRST_SIZE(ren_model_options, freeze_norm_count)
REN_FIRST_SIZE(ren_model_info, nodes)
REN_FIRST_SIZE(ren_output_info, width)
REN_FIRST_SIZE(ren_tensor_info, shape)
REN_FIRST_SIZE(ren_export_options, metadata_count)
REN_FIRST_SIZE(ren_dataset_options, validation_uri)
REN_FIRST_SIZE(ren_batch, label_count)
REN_FIRST_SIZE(ren_loader_options, cache_bytes)
REN_FIRST_SIZE(ren_loader_info, damaged_files)
REN_FIRST_SIZE(ren_loader_statistics, wait_seconds)
REN_FIRST_SIZE(ren_source_options, labels_per_sample)
REN_FIRST_SIZE(ren_pack_options, reserved0)
REN_FIRST_SIZE(ren_inspect_options, reserved0)
REN_FIRST_SIZE(ren_trainer_options, loss_scale)
REN_FIRST_SIZE(ren_step_result, correct5)
REN_FIRST_SIZE(ren_progress, validation)
REN_FIRST_SIZE(ren_fit_options, checkpoint_every_steps)
REN_FIRST_SIZE(ren_position, steps)
REN_FIRST_SIZE(ren_verify_options, tolerance)
REN_FIRST_SIZE(ren_bench_options, no_profile)

#undef REN_FIRST_SIZE

}  // namespace ren::capi
