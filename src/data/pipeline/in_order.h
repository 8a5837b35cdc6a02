// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

namespace ren::data {

// Work on many items by several threads whose results are taken in the items' order, so that what comes of
// it doesn't depend on the number of threads.
struct InOrder {
  int64_t begin = 0, end = 0;
  int threads = 1;
  // On one of the threads, numbered from 0: makes the result of an item in a slot, one of slots_for(threads)
  // that the caller has.
  std::function<void(int thread, int64_t item, size_t slot)> make;
  // On the calling thread: takes the results, item by item.
  std::function<void(int64_t item, size_t slot)> take;
  // On the calling thread, between results and several times a second while there is none; may throw to stop.
  std::function<void()> wait;
};

// Results that may wait: that many items are in memory at most.
size_t slots_for(int threads);

// Returns when all items are taken. What make() of an item throws is thrown at its turn, what take() or
// wait() throws at once; the threads end with the items that they are at.
void run_in_order(const InOrder& work);

}  // namespace ren::data
