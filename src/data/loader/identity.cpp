// SPDX-License-Identifier: Apache-2.0
#include "data/loader/identity.h"

#include <fmt/format.h>

#include "engine/base/checksum.h"
#include "engine/base/threads.h"

namespace ren::data {
namespace {

constexpr int kVersion = 2;  // raise it when a sample's bytes or order change

const char* name_of(LastBatch last) {
  return last == LastBatch::keep ? "keep" : last == LastBatch::drop ? "drop" : "exact";
}

const char* name_of(BadFiles policy) {
  return policy == BadFiles::fail ? "fail" : policy == BadFiles::skip ? "skip" : "replace";
}

std::string hash_of_classes(const Split& split) {
  Fnv64 hash;
  for (const std::string& name : split.classes) hash.add(name);
  return hash.hex();
}

std::string hash_of_names(const Split& split) {
  Fnv64 hash;
  for (size_t i = 0; i < split.files.size(); ++i) {
    hash.add(split.store->path(split.files[i]));
    hash.add(fmt::format_int(split.labels[i]).c_str());
  }
  return hash.hex();
}

// A folder's files have to be asked for their sizes one by one, on network disks slowly.
std::vector<FileFacts> facts_of(const Split& split) {
  std::vector<FileFacts> facts(split.files.size());
  parallel_for(split.size(), 256, [&](int, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) facts[size_t(i)] = split.store->facts(split.files[size_t(i)]);
  });
  return facts;
}

}  // namespace

std::map<std::string, std::string> identity(const Split& split, const LoaderOptions& o) {
  Fnv64 sizes, checksums;
  bool all_have_checksums = true;
  for (const FileFacts& f : facts_of(split)) {
    sizes.add(fmt::format_int(f.size).c_str());
    checksums.add(fmt::format_int(f.crc).c_str());
    all_have_checksums = all_have_checksums && f.has_crc;
  }
  std::map<std::string, std::string> facts = {
      {"kind", fmt::format("pictures, version {}", kVersion)},
      {"classes", fmt::format("{} ({})", split.classes.size(), hash_of_classes(split))},
      {"picture names and labels", fmt::format("{} ({})", split.size(), hash_of_names(split))},
      {"picture sizes in bytes", sizes.hex()},
      {"size", fmt::format("{}x{}x{} (height, width, channels)", o.height, o.width, o.channels)},
      {"augmentation", o.augmentation.text()},
      {"decoding", o.decoding == Decoding::fast ? "fast" : "exact"},
      {"shuffle", o.shuffle ? "yes" : "no"},
      {"seed", fmt::format("{}", o.seed)},
      {"bad files", name_of(o.bad_files)},
      {"last batch", name_of(o.last_batch)}};
  if (all_have_checksums) facts["picture checksums"] = checksums.hex();
  return facts;
}

}  // namespace ren::data
