// SPDX-License-Identifier: Apache-2.0
#pragma once

// The one header of the data module: open a data set, make a loader for a split of it,
// decode single pictures.
//
//   Dataset set = open_dataset("cifar10.zip");
//   LoaderOptions options;
//   options.batch = 128; options.height = options.width = 32;
//   options.augmentation = Augmentation::train(32, 32);
//   options.shuffle = true;
//   std::unique_ptr<Loader> train = make_loader(set.train(), options);

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/augment/augmentation.h"
#include "data/augment/normalization.h"
#include "data/source/file_store.h"
#include "engine/base/batch_source.h"

namespace ren::data {

// Labelled pictures of one data set. Cheap to copy; keeps its files open while it lives.
struct Split {
  std::string name;  // "train", "val", "test", or "all" without split folders
  std::shared_ptr<const FileStore> store;
  std::vector<int64_t> files;   // positions in the store, by class, then path, or as the source lists them
  std::vector<int32_t> labels;  // one a file; -1 when there are no classes
  std::vector<std::string> classes;  // by label; empty when there are none

  int64_t size() const { return int64_t(files.size()); }
  std::string path(int64_t sample) const { return store->full_path(files[size_t(sample)]); }
};

struct DatasetOptions {
  std::string validation_uri;        // validation pictures, when the data set has none or others are wanted
  bool allow_empty_classes = false;  // a class folder without pictures keeps its label instead of failing
  bool allow_one_class = false;
};

struct Dataset {
  std::string uri;
  std::vector<std::string> classes;  // the same for every split
  std::vector<Split> splits;
  std::vector<std::string> warnings;  // what was left out, one line each

  const Split* find(const std::string& name) const;  // or nullptr
  const Split& train() const;                        // "train", else "all"; throws not_found
  const Split* validation() const;                   // "val", else "test", or nullptr
  bool has_validation() const { return validation() != nullptr; }
};

// Opens class folders of JPEG and PNG files in a folder, a zip or a tar archive (also one named otherwise):
//   [ROOT/]CLASS/.../picture            -> one split, "all"
//   [ROOT/]train/CLASS/..., val/...     -> "train" and "val" ("valid" and "validation" count as
//                                          "val"), "test"
// or a source with labels of its own: a CSV list, tar shards as WebDataset has them, a .dts, IDX, CIFAR
// (docs/data.md). A single root folder is stripped. Classes are sorted by their bytes. Files are listed and,
// where the name doesn't say that it is a picture, recognised by their first bytes; they are
// not decoded. Throws not_found, io, unsupported or invalid_data; all problems of a data set come at once.
Dataset open_dataset(const std::string& uri, const DatasetOptions& options = {});

// Pictures without classes, for prediction: one file, or all of a folder or archive, ordered by
// path, or of another source, in its order; labels are -1.
Split open_pictures(const std::string& uri);

// What happens when a picture can't be read or decoded.
enum class BadFiles {
  fail,    // next() throws invalid_data, not_found or io with the path
  skip,    // the next good sample in the epoch's order takes its place, its label with it; in
           // evaluation that sample then counts twice
  replace  // what could be decoded is kept, the rest is mid-gray; the label stays
};

enum class LastBatch {
  keep,  // short last batch; over several ranks it is shared out evenly, and dropped when
         // there is less than one sample a rank, so that all ranks see equally many batches
  drop,  // only full batches
  exact  // as keep, but never drops: a rank may have one batch fewer. For evaluation.
};

enum class Decoding {
  exact,  // Pillow's pixels
  fast    // where random_resized_crop reduces a part of a JPEG file to half or less, decode it smaller
};

struct LoaderOptions {
  int64_t batch = 0;              // samples a batch, on this rank
  int64_t height = 0, width = 0;  // of the model's input
  int64_t channels = 3;           // 3 = RGB, 1 = gray
  Augmentation augmentation = Augmentation::eval();
  bool shuffle = false;  // an exact shuffle, keyed by (seed, epoch)
  uint64_t seed = 0;
  LastBatch last_batch = LastBatch::keep;
  BadFiles bad_files = BadFiles::fail;
  Decoding decoding = Decoding::exact;
  int threads = 0;                           // 0 = one a processor
  int prefetch = 3;                          // batches made ahead; memory is bounded by prefetch + 2 batches
  int64_t cache_bytes = int64_t{512} << 20;  // decoded pictures kept for later epochs; 0 = none
  int rank = 0, ranks = 1;                   // batch k of rank r is block r of the global batch k
};

struct LoaderReport {
  int64_t bad_files = 0;             // distinct ones, so far
  std::vector<std::string> bad;      // their messages with path, ordered by sample; at most 100
  int64_t damaged_files = 0;         // decoded, but the decoder warned (as Pillow does, they are used)
  std::vector<std::string> damaged;  // their paths, at most 100
  int64_t cached_images = 0, cached_bytes = 0;
};

// Where the time of a loader went: sums since it was made, so that the difference of two tells of what lies
// between. What is made ahead counts when it is made.
struct LoaderStatistics {
  int64_t threads = 0;
  int64_t batches = 0;                        // that next() gave
  int64_t pictures = 0;                       // that threads made into samples
  int64_t pictures_read = 0, bytes_read = 0;  // the other pictures came from the cache
  // Of all threads together, by the clock: on a busy machine more than what they computed.
  double read_seconds = 0, decode_seconds = 0, transform_seconds = 0;
  double cpu_seconds = 0;   // processor time of all threads
  double wait_seconds = 0;  // that next() waited for a batch
};

class Loader : public BatchSource {
 public:
  virtual LoaderReport report() const = 0;          // callable from any thread
  virtual LoaderStatistics statistics() const = 0;  // callable from any thread
};

// The bytes of a batch depend on the split, the options other than threads, prefetch and
// cache_bytes, the epoch and the batch number alone. Description::samples counts this rank's
// samples. The split is copied; threads start with the first epoch. Throws invalid_argument
// for options out of range.
std::unique_ptr<Loader> make_loader(const Split& split, const LoaderOptions& options);

// Where a batch of a rank lies in the epoch's order.
struct BatchRange {
  int64_t first = 0, count = 0;
};
int64_t batches_per_epoch(int64_t samples, const LoaderOptions& options);
BatchRange batch_range(int64_t samples, const LoaderOptions& options, int64_t batch);

// The epoch's order: position -> sample.
std::vector<uint32_t> epoch_order(int64_t samples, bool shuffle, uint64_t seed, int64_t epoch);

// Decodes one file and brings it to height x width as evaluation does; `pixels` becomes
// height * width * channels bytes, NHWC. Throws not_found, io, unsupported or invalid_data
// with the path.
void decode_image_file(const std::string& path, const Augmentation& augmentation, int64_t height,
                       int64_t width, int64_t channels, std::vector<uint8_t>& pixels);

}  // namespace ren::data
