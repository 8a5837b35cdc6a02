// SPDX-License-Identifier: Apache-2.0
// MNIST's IDX files: pictures in NAME-images-idx3-ubyte, labels in NAME-labels-idx1-ubyte, either also as
// .gz.
#include <sys/stat.h>

#include "data/source/labelled.h"
#include "data/source/labels.h"
#include "data/source/pixel_store.h"
#include "engine/base/status.h"

namespace ren::data {
namespace {

constexpr int64_t kMostInflated = int64_t{2} << 30;  // held in memory
constexpr int64_t kMostPictures = 20'000'000;        // each has a name
constexpr uint32_t kImagesMagic = 0x0803, kLabelsMagic = 0x0801;

uint32_t big_endian(const unsigned char* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

// A header and the size that follows from it.
struct Header {
  int64_t count = 0, height = 1, width = 1, bytes = 0;
  int64_t size() const { return bytes + count * height * width; }
};

Header parse_header(const std::string& path, std::string_view head, bool images) {
  const auto* const bytes = reinterpret_cast<const unsigned char*>(head.data());
  const char* const what = images ? "of pictures (magic 00000803)" : "of labels (magic 00000801)";
  const uint32_t wanted = images ? kImagesMagic : kLabelsMagic,
                 magic = head.size() < 4 ? 0 : big_endian(bytes);
  if (magic != wanted)
    fail(StatusCode::invalid_data,
         "'{}' is no IDX file {}, but begins {:08x}: copy it again, or name another", path, what, magic);
  Header header;
  header.bytes = images ? 16 : 8;
  if (int64_t(head.size()) < header.bytes)
    fail(StatusCode::invalid_data, "'{}' is cut off: copy it again", path);
  header.count = big_endian(bytes + 4);
  if (images) header.height = big_endian(bytes + 8), header.width = big_endian(bytes + 12);
  if (header.count == 0 || header.count > kMostPictures || header.height < 1 || header.width < 1 ||
      header.height > 65535 || header.width > 65535 || header.height * header.width > kMostFileBytes)
    fail(StatusCode::invalid_data, "'{}' says that it has {} pictures of {} x {} pixels: copy it again", path,
         header.count, header.height, header.width);
  return header;
}

std::shared_ptr<const PixelFile> open_pixels(const std::string& path, bool images, Header& header) {
  char bytes[16];
  std::string head;
  std::shared_ptr<const PixelFile> file;
  {
    const InputFile input(path);
    head.assign(bytes, input.read(0, bytes, sizeof bytes));
  }
  if (is_gzip(head)) {
    header = parse_header(path, inflate_gzip(path, 16), images);
    if (header.size() > kMostInflated)
      fail(StatusCode::invalid_data, "'{}' holds more than {} bytes: unpack it (gunzip)", path,
           kMostInflated);
    file = std::make_shared<const PixelFile>(path, inflate_gzip(path, header.size() + 1));
  } else {
    header = parse_header(path, head, images);
    file = std::make_shared<const PixelFile>(path);
  }
  if (file->size() != header.size())
    fail(StatusCode::invalid_data, "'{}' {} the {} bytes that its header says: copy it again", path,
         file->size() < header.size() ? "is cut off: it has fewer than" : "has more than", header.size());
  return file;
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.rfind(from);
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

bool exists(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0;
}

std::string without_gz(const std::string& name) {
  return name.ends_with(".gz") ? name.substr(0, name.size() - 3) : name;
}

// The labels' file beside the pictures', compressed or not.
std::string labels_path_of(const std::string& images) {
  const size_t slash = images.rfind('/') + 1;
  const std::string name = without_gz(images.substr(slash));
  const std::string labels = replaced(replaced(name, "images", "labels"), "idx3", "idx1");
  const std::string plain = images.substr(0, slash) + labels;
  if (labels == name)
    fail(StatusCode::invalid_data,
         "the labels of '{}' can't be found by its name: name it as MNIST does, train-images-idx3-ubyte "
         "beside "
         "train-labels-idx1-ubyte",
         images);
  if (exists(plain)) return plain;
  if (exists(plain + ".gz")) return plain + ".gz";
  fail(StatusCode::not_found, "the labels of '{}' are missing: put '{}' (or .gz) beside it", images, plain);
}

std::string split_of(std::string_view name) {
  const std::string lower = lower_case(name);
  for (const char* split : {"train", "val", "test"})
    if (lower.find(split) != std::string::npos) return split;
  return lower.find("t10k") != std::string::npos ? "test" : "all";
}

class IdxReader {
 public:
  IdxReader(const std::string& uri, const std::string& folder, Purpose purpose)
      : uri_(uri), folder_(folder), purpose_(purpose) {}

  void add(const std::string& path, const std::string& split) {
    Header header;
    std::shared_ptr<const PixelFile> images = open_pixels(path, true, header);
    PixelForm form;
    form.height = int(header.height), form.width = int(header.width), form.channels = 1;
    if (!store_) store_ = std::make_shared<PixelStore>(uri_, folder_, form);
    if (form.height != store_->pixel_form().height || form.width != store_->pixel_form().width)
      fail(StatusCode::invalid_data,
           "'{}' has pictures of {} x {} pixels, the files before it of {} x {}: take them "
           "apart",
           path, form.height, form.width, store_->pixel_form().height, store_->pixel_form().width);
    LabelledFiles found;
    found.split = split;
    for (int64_t i = 0; i < header.count; ++i) found.files.push_back(store_->size() + i);
    store_->add(std::move(images), header.bytes, header.height * header.width, header.count);
    if (purpose_ == Purpose::labels) read_labels(path, header.count, found.labels);
    source_.splits.push_back(std::move(found));
  }

  Source finish() {
    source_.labelled = true;
    source_.store = std::move(store_);
    source_.classes = numbered_classes(classes_);
    return std::move(source_);
  }

 private:
  void read_labels(const std::string& images, int64_t count, std::vector<int32_t>& labels) {
    const std::string path = labels_path_of(images);
    Header header;
    const auto file = open_pixels(path, false, header);
    if (header.count != count)
      fail(StatusCode::invalid_data, "'{}' has {} labels for the {} pictures of '{}': copy both again", path,
           header.count, count, images);
    std::vector<uint8_t> bytes(static_cast<size_t>(count));
    file->read(header.bytes, bytes.data(), bytes.size());
    labels.assign(bytes.begin(), bytes.end());
    for (const int32_t label : labels) classes_ = std::max<int64_t>(classes_, label + 1);
  }

  const std::string uri_, folder_;
  const Purpose purpose_;
  std::shared_ptr<PixelStore> store_;
  Source source_;
  int64_t classes_ = 0;
};

}  // namespace

bool is_idx(std::string_view head) {
  return head.size() >= 4 && head[0] == 0 && head[1] == 0 && head[2] >= 8 && head[2] <= 14 && head[3] >= 1 &&
         head[3] <= 4;
}

bool is_idx_images_name(std::string_view name) {
  const std::string lower = without_gz(lower_case(name));
  return lower.ends_with("idx3-ubyte") && lower.find("images") != std::string::npos;
}

Source open_idx_file(const std::string& path, Purpose purpose) {
  const size_t slash = path.rfind('/');
  IdxReader reader(path, slash == std::string::npos ? "." : path.substr(0, slash), purpose);
  reader.add(path, "all");
  return reader.finish();
}

Source open_idx_folder(const std::string& uri, const std::string& folder,
                       const std::vector<std::string>& names, Purpose purpose) {
  IdxReader reader(uri, folder, purpose);
  for (const char* split : {"all", "train", "val", "test"}) {
    std::string chosen;
    for (const std::string& name : names) {
      if (!is_idx_images_name(name) || split_of(name) != split || without_gz(name) == chosen) continue;
      if (!chosen.empty() && without_gz(chosen) != without_gz(name))
        fail(StatusCode::invalid_data,
             "'{}' holds several data sets, '{}' and '{}': name one file of pictures, and "
             "another for validation",
             folder, chosen, name);
      if (chosen.empty()) chosen = name;  // sorted: the one that isn't compressed comes first
    }
    if (!chosen.empty()) reader.add(folder + '/' + chosen, split);
  }
  return reader.finish();
}

}  // namespace ren::data
