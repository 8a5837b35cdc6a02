// SPDX-License-Identifier: Apache-2.0
#include "capi/repeated_key.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

namespace ren::capi {
namespace {

using nlohmann::json;

// Follows the objects and lists that are open; false ends the reading.
class KeyWatcher final : public nlohmann::json_sax<json> {
 public:
  std::optional<RepeatedKey> found;

  bool null() override { return count(); }
  bool boolean(bool) override { return count(); }
  bool number_integer(number_integer_t) override { return count(); }
  bool number_unsigned(number_unsigned_t) override { return count(); }
  bool number_float(number_float_t, const string_t&) override { return count(); }
  bool string(string_t&) override { return count(); }
  bool binary(binary_t&) override { return count(); }
  bool start_object(size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool start_array(size_t) override { return open(); }
  bool end_array() override { return close(); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }
  bool key(string_t& name) override {
    if (keys_.back().insert(name).second) return true;
    found = RepeatedKey{name, keys_.size() > 1 ? elements_ - 1 : 0};
    return false;
  }

 private:
  bool count() {
    if (keys_.size() == 1) ++elements_;
    return true;
  }
  bool open() {
    count();
    keys_.emplace_back();
    return true;
  }
  bool close() {
    keys_.pop_back();
    return true;
  }
  std::vector<std::set<std::string>> keys_;  // of each that is open; a list has none
  size_t elements_ = 0;                      // of the outermost one, begun so far
};

}  // namespace

std::optional<RepeatedKey> find_repeated_key(std::string_view text) {
  KeyWatcher watcher;
  json::sax_parse(text, &watcher);
  return watcher.found;
}

}  // namespace ren::capi
