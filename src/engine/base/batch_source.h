// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/base/dtype.h"

namespace ren {

// Memory for the slots that batches are built in. A GPU engine hands out pinned
// memory here, so that uploads run beside the computation.
class HostAllocator {
 public:
  virtual ~HostAllocator() = default;
  virtual void* allocate(size_t bytes) = 0;  // 256-byte aligned; throws out_of_memory
  virtual void release(void* memory) noexcept = 0;
};

HostAllocator& default_host_allocator();

// What sources and trainers take at most, wherever it is said.
constexpr int64_t kMostBatch = int64_t{1} << 24;  // samples a batch
constexpr int64_t kMostSide = 65535;              // pixels of a picture's side; channels, too
constexpr int kMostLoaderThreads = 1024;

// One batch as the trainer takes it: images NHWC without padding, labels as
// class indices. Valid until the second call of BatchSource::next after the one
// that gave it, so that one batch can be on its way up while the next is taken.
struct BatchView {
  const void* images = nullptr;     // [batch, h, w, c], u8 or f32; beyond `count` the content is undefined
  const int32_t* labels = nullptr;  // [batch, labels_per_sample]
  int64_t count = 0;                // valid samples, 1 .. batch size
  int64_t first_sample = 0;         // position of the batch's first sample in the epoch's order
};

// What training and evaluation read from. Implemented by data/, used by train/,
// joined by capi/. One thread calls it at a time, but for request_stop.
class BatchSource {
 public:
  // The label of a sample that counts nowhere: losses and metrics leave it out.
  static constexpr int32_t kIgnoredLabel = -100;
  struct Description {
    int64_t samples = 0;  // in one epoch
    int64_t batch = 0;    // samples in a full batch
    int64_t height = 0, width = 0, channels = 0;
    int64_t labels_per_sample = 1;
    DType image_type = DType::u8;
    std::vector<std::string> classes;  // sorted by bytes; empty when the labels have no names
  };

  virtual ~BatchSource() = default;
  virtual const Description& description() const = 0;

  // Everything that the stream's content depends on, by name, as text for people: what the samples are, their
  // order, their treatment; not what only decides how fast it comes. Two sources that agree in all names
  // that both have give the same stream. May read the file system (sizes of files).
  virtual std::map<std::string, std::string> identity() const = 0;

  // How a user finds the sample at a position of an epoch's order, e.g. its path; may be empty.
  virtual std::string sample_name(int64_t epoch, int64_t position) const {
    (void)epoch, (void)position;
    return {};
  }

  // Where slots are taken from; called once, before the first epoch.
  virtual void use_allocator(HostAllocator& allocator) = 0;

  // Batches that an epoch yields.
  virtual int64_t batches_per_epoch() const = 0;

  // Begins an epoch at one of its batches: the stream from there on is the one
  // that an epoch begun at batch 0 has, whatever the number of threads.
  virtual void start_epoch(int64_t epoch, int64_t first_batch) = 0;

  // The next batch; false when the epoch is over. Blocks until one is ready.
  virtual bool next(BatchView& view) = 0;

  // Makes a blocked or later `next` throw `cancelled`. Callable from any thread.
  virtual void request_stop() noexcept = 0;
};

}  // namespace ren
