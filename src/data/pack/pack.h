// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace ren::data {

// How far a long job is.
struct JobProgress {
  enum class Phase { reading_part, packing, verifying, inspecting };
  Phase phase = Phase::packing;
  int64_t done = 0, total = 0;  // pictures
  double pictures_per_second = 0, seconds_left = 0;
  std::string message;  // something to tell, once; mostly empty
};
// Called on the thread that called the job; false stops it (cancelled).
using JobWatch = std::function<bool(const JobProgress&)>;

struct PackOptions {
  int short_side = 0;  // > 0: pictures whose short side is longer are resized to it and encoded as JPEG
  int quality = 90;    // of these, 1 to 100
  int threads = 0;     // 0 = one a processor; the file is the same for any number
  BadFiles bad_files = BadFiles::fail;  // or skip: left out
};

struct PackReport {
  int64_t pictures = 0, resized = 0, continued = 0;  // continued: were in the unfinished file already
  int64_t bytes = 0;                                 // of the file
  int64_t bad_files = 0, damaged_files = 0;          // left out; decoded, but the decoder warned
  std::vector<std::string> bad, damaged;             // the first hundred
};

// Packs all splits of a data set into one file, docs/dts.md. Every picture is decoded once to see that it can
// be; its bytes are kept as they are but for those that are resized (Pillow's bilinear filter; EXIF goes).
// While it is made, the file is called PATH.part; a job that ends early leaves it, and the same job goes on
// with it. Throws io (full disk ...; what is packed so far stays), invalid_data or not_found (a bad picture),
// invalid_argument, cancelled.
PackReport pack_dataset(const Dataset& set, const std::string& path, const PackOptions& options,
                        const JobWatch& watch);

}  // namespace ren::data
