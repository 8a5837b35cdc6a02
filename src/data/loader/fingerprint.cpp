// SPDX-License-Identifier: Apache-2.0
#include "data/loader/fingerprint.h"

#include <fmt/format.h>

namespace ren::data {
namespace {

class Fnv64 {
 public:
  void add(std::string_view text) {
    for (const char c : text) step(uint8_t(c));
    step(0);  // so that "ab","c" and "a","bc" differ
  }
  uint64_t value() const { return value_; }

 private:
  void step(uint8_t byte) { value_ = (value_ ^ byte) * 0x100000001B3u; }
  uint64_t value_ = 0xCBF29CE484222325u;
};

}  // namespace

std::string fingerprint(const Split& split, const LoaderOptions& o) {
  Fnv64 hash;
  hash.add("renaissance data 1");  // raise the number when a sample's bytes or order change
  for (const std::string& name : split.classes) hash.add(name);
  for (size_t i = 0; i < split.files.size(); ++i) {
    hash.add(split.store->path(split.files[i]));
    hash.add(fmt::format_int(split.labels[i]).c_str());
  }
  hash.add(fmt::format("{}x{}x{} {} shuffle={} seed={} bad={}", o.height, o.width, o.channels,
                       o.augmentation.text(), o.shuffle, o.seed, int(o.bad_files)));
  return fmt::format("{:016x}", hash.value());
}

}  // namespace ren::data
