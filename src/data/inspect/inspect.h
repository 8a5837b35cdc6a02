// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/pipeline/job.h"

namespace ren::data {

struct InspectOptions {
  bool quick = false;  // headers only: damage behind them goes unnoticed
  int threads = 0;     // 0 = one a processor
};

// Of the pictures that aren't broken; the median of an even number is the lower one of the two in the middle.
struct SizeRange {
  int64_t least = 0, median = 0, most = 0;
};

struct Findings {
  struct InSplit {
    std::string name;
    int64_t pictures = 0, broken = 0;
    std::vector<int64_t> by_class;  // broken ones, too
  };
  struct Broken {
    std::string path, reason;
  };

  std::vector<InSplit> splits;
  std::vector<std::string> classes;
  std::map<std::string, int64_t> formats;  // "JPEG", "PNG", "bare pixels"; broken ones left out
  int64_t gray = 0;
  SizeRange width, height, bytes;
  int64_t pictures = 0, broken_files = 0, damaged_files = 0;  // damaged: decoded, but the decoder warned
  std::vector<Broken> broken;                                 // the first 10,000
  std::vector<std::string> damaged;                           // the same
};

// Looks at every picture of a data set. Bad ones are findings, not errors. Throws cancelled.
Findings inspect_dataset(const Dataset& set, const InspectOptions& options, const JobWatch& watch);

// The first pictures that a loader with these options gives, options.batch of them or all, side by side:
// a PNG file. Throws as the loader does, and invalid_argument where it would be larger than a picture may be.
std::string contact_sheet(const Split& split, const LoaderOptions& options);

}  // namespace ren::data
