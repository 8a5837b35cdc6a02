// SPDX-License-Identifier: Apache-2.0
#include "capi/loader.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "capi/augmentation_text.h"
#include "capi/callback_source.h"
#include "capi/dataset.h"
#include "capi/report.h"

namespace ren::capi {

LoaderState::LoaderState(std::unique_ptr<data::Loader> pictures, std::string place, std::string augmentation,
                         MixSpec mix)
    : pictures_(pictures.get()), place_(std::move(place)), augmentation_(std::move(augmentation)), mix_(mix) {
  source_ = std::move(pictures);
}

void LoaderState::use_allocator(HostAllocator& allocator) {
  if (started_ || owner_ != nullptr) return;
  owner_ = std::move(offered_owner_);
  source_->use_allocator(allocator);
}

void LoaderState::start_epoch(int64_t epoch, int64_t first_batch) {
  started_ = true;
  offered_owner_.reset();
  source_->start_epoch(epoch, first_batch);
}

data::LoaderReport LoaderState::report() const {
  return pictures_ != nullptr ? pictures_->report() : data::LoaderReport{};
}

data::LoaderStatistics LoaderState::statistics() const {
  if (pictures_ != nullptr) return pictures_->statistics();
  data::LoaderStatistics none;
  none.threads = 1;
  return none;
}

namespace {

template <typename Enum>
Enum one_of(int32_t value, Enum last, const char* what) {
  if (value < 0 || value > int32_t(last)) fail(StatusCode::invalid_argument, "{} is {}", what, value);
  return Enum(value);
}

data::BadFiles bad_files_of(int32_t value) {
  static_assert(int(data::BadFiles::fail) == REN_BAD_FILES_FAIL &&
                int(data::BadFiles::skip) == REN_BAD_FILES_SKIP &&
                int(data::BadFiles::replace) == REN_BAD_FILES_REPLACE);
  return one_of(value, data::BadFiles::replace, "bad_files");
}

data::LastBatch last_batch_of(int32_t value) {
  static_assert(int(data::LastBatch::keep) == REN_LAST_BATCH_KEEP &&
                int(data::LastBatch::drop) == REN_LAST_BATCH_DROP &&
                int(data::LastBatch::exact) == REN_LAST_BATCH_EXACT);
  return one_of(value, data::LastBatch::exact, "last_batch");
}

data::Decoding decoding_of(int32_t value) {
  static_assert(int(data::Decoding::exact) == REN_DECODE_EXACT &&
                int(data::Decoding::fast) == REN_DECODE_FAST);
  return one_of(value, data::Decoding::fast, "decode");
}

}  // namespace

data::LoaderOptions loader_options(const ren_loader_options& o) {
  check_flag(o.shuffle, "shuffle");
  const std::pair<int64_t, const char*> sizes[] = {
      {o.channels, "channels"}, {o.height, "height"}, {o.width, "width"}};
  for (const auto& [value, name] : sizes)
    if (value < 1 || value > kMostSide)
      fail(StatusCode::invalid_argument, "{} is {}: it has to be the model's (1 to {})", name, value,
           kMostSide);
  if (o.channels != 1 && o.channels != 3)
    fail(StatusCode::invalid_argument,
         "channels is {}: pictures have 3 (RGB) or 1 (gray); others come from "
         "ren_loader_create_from_callback",
         o.channels);
  if (o.batch < 0 || o.batch > kMostBatch)
    fail(StatusCode::invalid_argument, "batch is {}: 1 to {} are possible", o.batch, kMostBatch);
  if (o.threads < 0 || o.threads > kMostLoaderThreads)
    fail(StatusCode::invalid_argument, "threads is {}: 0 (one a processor) to {} are possible", o.threads,
         kMostLoaderThreads);
  if (o.cache_bytes < -1) fail(StatusCode::invalid_argument, "cache_bytes is {}", o.cache_bytes);
  data::LoaderOptions out;
  out.batch = o.batch == 0 ? 32 : o.batch;
  out.channels = o.channels;
  out.height = o.height;
  out.width = o.width;
  out.augmentation =
      parse_augmentation(text_or(o.augmentation, "none", "augmentation"), int(o.height), int(o.width));
  out.shuffle = o.shuffle != 0;
  out.seed = o.seed;
  out.last_batch = last_batch_of(o.last_batch);
  out.bad_files = bad_files_of(o.bad_files);
  out.decoding = decoding_of(o.decode);
  out.threads = o.threads;
  if (o.prefetch != 0) out.prefetch = o.prefetch;
  if (o.cache_bytes != 0) out.cache_bytes = std::max<int64_t>(0, o.cache_bytes);
  return out;
}

namespace {

Report bad_files_report(const data::LoaderReport& r) {
  Report report;
  for (const std::string& message : r.bad) report.text += fmt::format("bad: {}\n", message);
  if (r.bad_files > int64_t(r.bad.size()))
    report.text += fmt::format("bad: {} more\n", r.bad_files - int64_t(r.bad.size()));
  for (const std::string& path : r.damaged)
    report.text += fmt::format("damaged, used as far as it could be decoded: {}\n", path);
  if (r.damaged_files > int64_t(r.damaged.size()))
    report.text += fmt::format("damaged: {} more\n", r.damaged_files - int64_t(r.damaged.size()));
  const nlohmann::json json = {{"bad_files", r.bad_files},         {"bad", r.bad},
                               {"damaged_files", r.damaged_files}, {"damaged", r.damaged},
                               {"cached_images", r.cached_images}, {"cached_bytes", r.cached_bytes}};
  report.json = json_text(json);
  return report;
}

}  // namespace
}  // namespace ren::capi

using namespace ren;
using namespace ren::capi;

extern "C" {

int32_t ren_loader_create(const ren_dataset* dataset, const char* split, const ren_loader_options* given,
                          ren_loader** out) {
  return guard([&] {
    const auto& set = state_of(dataset, "dataset");
    const std::string name = text_of(split, "split");
    const ren_loader_options options =
        read_options(not_null(given, "ren_loader_options"), "ren_loader_options");
    not_null(out, "loader");
    const data::Split& chosen = find_split(*set, name);
    const data::LoaderOptions o = loader_options(options);
    const MixSpec mix{o.augmentation.mixup, o.augmentation.cutmix};
    give_handle(out, std::make_shared<LoaderState>(data::make_loader(chosen, o), chosen.store->uri(),
                                                   augmentation_text(o.augmentation), mix));
  });
}

int32_t ren_loader_create_from_callback(const ren_source_options* given, ren_loader** out, ren_fill_fn fn,
                                        void* user) {
  return guard([&] {
    const ren_source_options options =
        read_options(not_null(given, "ren_source_options"), "ren_source_options");
    not_null(out, "loader");
    give_handle(out, std::make_shared<LoaderState>(make_callback_source(options, fn, user)));
  });
}

int32_t ren_loader_get_info(const ren_loader* loader, ren_loader_info* out) {
  return guard([&] {
    const auto& state = state_of(loader, "loader");
    check_result(out, "info");
    const BatchSource::Description& d = state->description();
    const data::LoaderReport report = state->report();
    ren_loader_info info{};
    info.image_type = d.image_type == DType::f32 ? REN_IMAGE_FLOAT32 : REN_IMAGE_UINT8;
    info.samples = d.samples;
    info.batch = d.batch;
    info.batches = state->batches_per_epoch();
    info.bad_files = report.bad_files;
    info.damaged_files = report.damaged_files;
    info.mixup_alpha = state->mix().mixup;
    info.cutmix_alpha = state->mix().cutmix;
    give_result(out, info);
  });
}

int32_t ren_loader_get_statistics(const ren_loader* loader, ren_loader_statistics* out) {
  return guard([&] {
    const auto& state = state_of(loader, "loader");
    check_result(out, "statistics");
    const data::LoaderStatistics s = state->statistics();
    ren_loader_statistics given{};
    given.threads = int32_t(s.threads);
    given.batches = s.batches;
    given.pictures = s.pictures;
    given.pictures_read = s.pictures_read;
    given.bytes_read = s.bytes_read;
    given.read_seconds = s.read_seconds;
    given.decode_seconds = s.decode_seconds;
    given.transform_seconds = s.transform_seconds;
    given.cpu_seconds = s.cpu_seconds;
    given.wait_seconds = s.wait_seconds;
    give_result(out, given);
  });
}

int32_t ren_loader_augmentation(const ren_loader* loader, char* buffer, size_t capacity, size_t* needed) {
  return guard([&] { give_text(state_of(loader, "loader")->augmentation(), buffer, capacity, needed); });
}

int32_t ren_loader_report(const ren_loader* loader, ren_report** out) {
  return guard([&] {
    const auto& state = state_of(loader, "loader");
    not_null(out, "report");
    give_report(out, bad_files_report(state->report()));
  });
}

int32_t ren_loader_start_epoch(ren_loader* loader, int64_t epoch, int64_t first_batch) {
  return guard([&] {
    const auto state = state_of(loader, "loader");
    if (epoch < 0 || first_batch < 0)
      fail(StatusCode::invalid_argument, "an epoch can't begin at epoch {}, batch {}", epoch, first_batch);
    const InUse use(state->use, "loader");
    state->start_epoch(epoch, first_batch);
  });
}

int32_t ren_loader_next(ren_loader* loader, ren_batch* batch) {
  return guard([&]() -> int32_t {
    const auto state = state_of(loader, "loader");
    check_result(batch, "batch");
    const InUse use(state->use, "loader");
    if (!state->has_started()) fail(StatusCode::invalid_state, "call ren_loader_start_epoch first");
    BatchView view;
    if (!state->next(view)) return REN_END_OF_DATA;
    const BatchSource::Description& d = state->description();
    ren_batch out{};
    out.image_type = d.image_type == DType::f32 ? REN_IMAGE_FLOAT32 : REN_IMAGE_UINT8;
    out.layout = REN_LAYOUT_NHWC;
    out.count = view.count;
    out.channels = d.channels;
    out.height = d.height;
    out.width = d.width;
    out.images = view.images;
    out.labels = view.labels;
    out.label_count = size_t(view.count * state->description().labels_per_sample);
    give_result(batch, out);
    return REN_OK;
  });
}

int32_t ren_loader_request_stop(ren_loader* loader) {
  return guard([&] { state_of(loader, "loader")->request_stop(); });
}

void ren_loader_destroy(ren_loader* loader) { destroy_handle(loader); }

}  // extern "C"
