// SPDX-License-Identifier: Apache-2.0
// Which samples a batch of a rank holds: pure functions of the options.
#include <numeric>

#include "data/dataset.h"
#include "data/loader/purpose.h"
#include "engine/base/rng.h"

namespace ren::data {

std::vector<uint32_t> epoch_order(int64_t samples, bool shuffle, uint64_t seed, int64_t epoch) {
  std::vector<uint32_t> order(static_cast<size_t>(samples));
  std::iota(order.begin(), order.end(), 0u);
  if (!shuffle) return order;
  RandomStream random(seed, kPurposeShuffle, 0, uint32_t(epoch));
  for (size_t left = order.size(); left > 1; --left)  // Fisher-Yates from the end
    std::swap(order[left - 1], order[random.below(uint32_t(left))]);
  return order;
}

namespace {

// The samples behind the last full global batch.
struct Tail {
  int64_t full_batches, samples;
};

Tail tail_of(int64_t samples, const LoaderOptions& o) {
  const int64_t global = o.batch * o.ranks;
  Tail tail{samples / global, samples % global};
  const bool dropped =
      o.last_batch == LastBatch::drop || (o.last_batch == LastBatch::keep && tail.samples < o.ranks);
  if (dropped) tail.samples = 0;
  return tail;
}

// Rank r's part of the tail; parts differ by one sample at most.
BatchRange tail_range(const Tail& tail, const LoaderOptions& o) {
  const int64_t begin = tail.samples * o.rank / o.ranks, end = tail.samples * (o.rank + 1) / o.ranks;
  return {tail.full_batches * o.batch * o.ranks + begin, end - begin};
}

}  // namespace

int64_t batches_per_epoch(int64_t samples, const LoaderOptions& options) {
  const Tail tail = tail_of(samples, options);
  return tail.full_batches + (tail_range(tail, options).count > 0 ? 1 : 0);
}

BatchRange batch_range(int64_t samples, const LoaderOptions& options, int64_t batch) {
  const Tail tail = tail_of(samples, options);
  if (batch < tail.full_batches)
    return {(batch * options.ranks + options.rank) * options.batch, options.batch};
  return tail_range(tail, options);
}

}  // namespace ren::data
