// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/pipeline/job.h"

namespace ren::data {

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
// with it. Throws io (full disk ..., the source or a file in the way changed meanwhile; what is packed so far
// stays), invalid_data or not_found (a bad picture), invalid_argument, cancelled.
PackReport pack_dataset(const Dataset& set, const std::string& path, const PackOptions& options,
                        const JobWatch& watch);

}  // namespace ren::data
