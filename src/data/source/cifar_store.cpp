// SPDX-License-Identifier: Apache-2.0
// CIFAR-10's and CIFAR-100's binary version: records of one or two label bytes and 3 planes of 32 x 32.
#include <sys/stat.h>

#include "data/source/csv.h"
#include "data/source/labelled.h"
#include "data/source/labels.h"
#include "data/source/pixel_store.h"
#include "engine/base/status.h"

namespace ren::data {
namespace {

constexpr PixelForm kForm{32, 32, 3, true};
constexpr int64_t kPixels = 3072;
constexpr int64_t kMostNamesBytes = int64_t{1} << 16;

struct Kind {
  const char* name;
  int64_t classes, label_bytes;  // the last of these counts
  const char* names_file;
  int64_t record() const { return label_bytes + kPixels; }
};
constexpr Kind kTen{"CIFAR-10", 10, 1, "batches.meta.txt"};
constexpr Kind kHundred{"CIFAR-100", 100, 2, "fine_label_names.txt"};

bool is_ten_name(std::string_view name) {
  return name == "test_batch.bin" || (name.starts_with("data_batch_") && name.ends_with(".bin"));
}

// Names in the order of the labels, where the file with them is there.
std::vector<std::string> class_names(const std::string& folder, const Kind& kind) {
  const std::string path = folder + '/' + kind.names_file;
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return numbered_classes(kind.classes);
  const std::string text = read_text_file(path, kMostNamesBytes, "a list of class names");
  std::vector<std::string> names;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty()) names.push_back(std::move(line));
    begin = end + 1;
  }
  std::vector<std::string> sorted = names;
  std::sort(sorted.begin(), sorted.end());
  const bool twice = std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
  if (int64_t(names.size()) != kind.classes || twice || !is_utf8(text))
    fail(StatusCode::invalid_data,
         "'{}' doesn't hold the {} different class names of {}, one a line: copy it again, or "
         "remove it",
         path, kind.classes, kind.name);
  return names;
}

class CifarReader {
 public:
  CifarReader(const std::string& uri, const std::string& folder, const Kind& kind)
      : folder_(folder), kind_(kind), store_(std::make_shared<PixelStore>(uri, folder, kForm)) {
    source_.labelled = true;
    source_.classes = class_names(folder, kind);
  }

  void add(const std::string& path, LabelledFiles& out) {
    auto file = std::make_shared<const PixelFile>(path);
    if (file->size() == 0 || file->size() % kind_.record() != 0)
      fail(StatusCode::invalid_data,
           "'{}' is cut off or not of {}: it has {} bytes, which are no whole records of {}: copy it again",
           path, kind_.name, file->size(), kind_.record());
    const int64_t count = file->size() / kind_.record();
    Tally bad;
    for (int64_t i = 0; i < count; ++i) {
      uint8_t label = 0;
      file->read(i * kind_.record() + kind_.label_bytes - 1, &label, 1);
      if (label >= kind_.classes) bad.add(fmt::format("{} in picture {}", label, i));
      out.files.push_back(store_->size() + i);
      out.labels.push_back(label);
    }
    store_->add(std::move(file), kind_.label_bytes, kind_.record(), count);
    bad.report(problems_, fmt::format("'{}'", path), "label is out of range", "labels are out of range",
               "copy it again: it is damaged, or another data set's");
  }

  void add_split(const char* name, const std::vector<std::string>& files) {
    LabelledFiles split;
    split.split = name;
    for (const std::string& file : files) add(folder_ + '/' + file, split);
    if (!files.empty()) source_.splits.push_back(std::move(split));
  }

  Source finish() {
    problems_.throw_if_any(StatusCode::invalid_data,
                           fmt::format("the data set '{}' can't be used", store_->uri()));
    source_.store = std::move(store_);
    return std::move(source_);
  }

 private:
  const std::string folder_;
  const Kind& kind_;
  std::shared_ptr<PixelStore> store_;
  Source source_;
  Problems problems_;
};

}  // namespace

bool is_cifar_name(std::string_view name) {
  return is_ten_name(name) || name == "train.bin" || name == "test.bin";
}

bool is_cifar_size(int64_t bytes) {
  return bytes > 0 && (bytes % kTen.record() == 0 || bytes % kHundred.record() == 0);
}

Source open_cifar_file(const std::string& path, int64_t bytes) {
  const size_t slash = path.rfind('/');
  const std::string name = path.substr(slash == std::string::npos ? 0 : slash + 1);
  const bool hundred = name == "train.bin" || name == "test.bin";
  const bool ten = is_ten_name(name) || (!hundred && bytes % kTen.record() == 0);
  CifarReader reader(path, slash == std::string::npos ? "." : path.substr(0, slash), ten ? kTen : kHundred);
  reader.add_split("all", {name});
  return reader.finish();
}

Source open_cifar_folder(const std::string& uri, const std::string& folder,
                         const std::vector<std::string>& names) {
  const bool ten = std::any_of(names.begin(), names.end(), is_ten_name);
  CifarReader reader(uri, folder, ten ? kTen : kHundred);
  std::vector<std::string> train, test;
  for (const std::string& name : names) {
    if (name == (ten ? "test_batch.bin" : "test.bin")) test.push_back(name);
    if (ten ? name.starts_with("data_batch_") && is_ten_name(name) : name == "train.bin")
      train.push_back(name);
  }
  // data_batch_10 behind data_batch_9
  std::stable_sort(train.begin(), train.end(),
                   [](const auto& a, const auto& b) { return a.size() < b.size(); });
  reader.add_split("train", train);
  reader.add_split("test", test);
  return reader.finish();
}

}  // namespace ren::data
