// SPDX-License-Identifier: Apache-2.0
#include "data/loader/batch_loader.h"

#include <pthread.h>

#include <chrono>

#include "data/loader/identity.h"
#include "engine/base/memory.h"
#include "engine/base/status.h"
#include "engine/base/threads.h"

namespace ren::data {
namespace {

void check(bool good, const char* field, const char* rule) {
  if (!good) fail(StatusCode::invalid_argument, "loader: {} must be {}", field, rule);
}

void validate(const Split& split, const LoaderOptions& o) {
  check(split.store != nullptr && !split.files.empty(), "split", "one with pictures");
  check(split.labels.size() == split.files.size(), "split", "one with a label for each picture");
  check(o.batch >= 1 && o.batch <= kMostBatch, "batch", "1 to 16777216");
  check(o.height >= 1 && o.height <= kMostSide, "height", "1 to 65535");
  check(o.width >= 1 && o.width <= kMostSide, "width", "1 to 65535");
  check(o.channels == 1 || o.channels == 3, "channels", "1 (gray) or 3 (RGB)");
  check(o.threads >= 0 && o.threads <= kMostLoaderThreads, "threads", "0 (one a processor) to 1024");
  check(o.prefetch >= 1 && o.prefetch <= 1024, "prefetch", "1 to 1024");
  check(o.cache_bytes >= 0, "cache_bytes", "0 (none) or more");
  check(o.ranks >= 1 && o.ranks <= 65536, "ranks", "1 or more");
  check(o.rank >= 0 && o.rank < o.ranks, "rank", "0 to ranks - 1");
  o.augmentation.validate();
}

}  // namespace

BatchLoader::BatchLoader(const Split& split, const LoaderOptions& options) : samples_(split, options) {
  const LoaderOptions& o = samples_.options;
  batches_ = data::batches_per_epoch(samples_.split.size(), o);
  thread_count_ = o.threads > 0 ? o.threads : hardware_threads();
  depends_on_epoch_ = o.shuffle || o.augmentation.is_random();
  image_bytes_ = size_t(o.height * o.width * o.channels);
  describe();
}

BatchLoader::~BatchLoader() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    generation_.fetch_add(1);
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  for (Slot& slot : slots_)
    if (slot.memory != nullptr) allocator_->release(slot.memory);
}

void BatchLoader::describe() {
  const LoaderOptions& o = samples_.options;
  for (int64_t batch = 0; batch < batches_; ++batch) {
    const BatchRange range = batch_range(samples_.split.size(), o, batch);
    description_.samples += range.count;
  }
  description_.batch = o.batch;
  description_.height = o.height;
  description_.width = o.width;
  description_.channels = o.channels;
  description_.image_type = DType::u8;
  description_.classes = samples_.split.classes;
}

std::map<std::string, std::string> BatchLoader::identity() const {
  return data::identity(samples_.split, samples_.options);
}

std::string BatchLoader::sample_name(int64_t epoch, int64_t position) const {
  const Split& split = samples_.split;
  if (position < 0 || position >= split.size()) return {};
  if (!samples_.options.shuffle) return split.path(position);
  return split.path(epoch_order(split.size(), true, samples_.options.seed, epoch)[size_t(position)]);
}

void BatchLoader::use_allocator(HostAllocator& allocator) {
  if (!slots_.empty()) fail(StatusCode::invalid_state, "the allocator must be set before the first epoch");
  allocator_ = &allocator;
}

void BatchLoader::allocate_slots() {
  if (allocator_ == nullptr) allocator_ = &default_host_allocator();
  const LoaderOptions& o = samples_.options;
  const size_t images = size_t(align_up(uint64_t(o.batch) * image_bytes_));
  std::vector<Slot> slots(size_t(o.prefetch) + 2);  // two more are with the caller
  try {
    for (Slot& slot : slots) {
      slot.memory = allocator_->allocate(images + size_t(o.batch) * sizeof(int32_t));
      slot.images = static_cast<uint8_t*>(slot.memory);
      slot.labels = reinterpret_cast<int32_t*>(slot.images + images);
    }
  } catch (...) {
    for (Slot& slot : slots)
      if (slot.memory != nullptr) allocator_->release(slot.memory);
    throw;
  }
  slots_ = std::move(slots);
  for (Slot& slot : slots_) free_.push_back(&slot);
}

void BatchLoader::start_threads() {
  try {
    for (int i = int(threads_.size()); i < thread_count_; ++i) {
      threads_.emplace_back([this] { work(); });
      clockid_t clock;
      if (pthread_getcpuclockid(threads_.back().native_handle(), &clock) == 0) cpu_clocks_.push_back(clock);
    }
  } catch (const std::system_error& error) {
    // Fewer threads do the same work.
    if (threads_.empty())
      fail(StatusCode::out_of_memory, "no loader thread can be started: {}", error.what());
  }
}

void BatchLoader::start_epoch(int64_t epoch, int64_t first_batch) {
  check(epoch >= 0 && epoch <= UINT32_MAX, "epoch", "0 to 4294967295");
  check(first_batch >= 0 && first_batch <= batches_, "first_batch", "0 to the batches of an epoch");
  std::unique_lock lock(mutex_);
  if (slots_.empty()) allocate_slots();
  if (threads_.empty()) start_threads();
  epoch_ = epoch;
  batch_ = first_batch;
  // Where the stream goes on from here; an epoch begun at its end leads into the next.
  const bool at_end = first_batch == batches_;
  const int64_t key = keyed_epoch(at_end ? epoch + 1 : epoch), batch = at_end ? 0 : first_batch;
  const bool failed = !queue_.empty() && queue_.front()->error != nullptr;
  const int64_t ahead_epoch = queue_.empty() ? schedule_epoch_ : queue_.front()->epoch;
  const int64_t ahead_batch = queue_.empty() ? schedule_batch_ : queue_.front()->batch;
  if (paused_ || failed || ahead_epoch != key || ahead_batch != batch) {
    discard_ahead(lock);
    schedule_epoch_ = key;
    schedule_batch_ = batch;
    paused_ = batches_ == 0;
  }
  work_.notify_all();
}

void BatchLoader::discard_ahead(std::unique_lock<std::mutex>& lock) {
  paused_ = true;
  generation_.fetch_add(1);
  idle_.wait(lock, [this] { return in_flight_ == 0; });
  for (Slot* slot : queue_) free_.push_back(slot);
  queue_.clear();
  stream_error_ = nullptr;
}

void BatchLoader::wait_for_batch(std::unique_lock<std::mutex>& lock) {
  const auto may_go_on = [this] { return stopped_ || stream_error_ || has_batch(); };
  if (may_go_on()) return;
  const auto begin = std::chrono::steady_clock::now();
  ready_.wait(lock, may_go_on);
  wait_ns_ += std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count();
}

bool BatchLoader::next(BatchView& view) {
  std::unique_lock lock(mutex_);
  ++calls_;
  release_held(calls_ - 2);
  if (stopped_) fail(StatusCode::cancelled, "loading was stopped");
  if (epoch_ < 0) fail(StatusCode::invalid_state, "no epoch was started");
  if (batch_ == batches_) return false;
  wait_for_batch(lock);
  if (stopped_) fail(StatusCode::cancelled, "loading was stopped");
  if (!has_batch()) std::rethrow_exception(stream_error_);
  Slot* const slot = queue_.front();
  if (slot->error) std::rethrow_exception(slot->error);  // and again until another epoch is started
  queue_.pop_front();
  held_.push_back(slot);
  slot->given = calls_;
  ++batch_;
  ++batches_given_;
  work_.notify_all();  // there is room in the queue
  view.images = slot->images;
  view.labels = slot->labels;
  view.count = slot->range.count;
  view.first_sample = slot->range.first;
  return true;
}

void BatchLoader::release_held(int64_t up_to_call) {
  const bool release = !held_.empty() && held_.front()->given <= up_to_call;
  for (; !held_.empty() && held_.front()->given <= up_to_call; held_.pop_front())
    free_.push_back(held_.front());
  if (release) work_.notify_all();
}

void BatchLoader::request_stop() noexcept {
  {
    const std::lock_guard lock(mutex_);  // a waiter must not miss it between its check and its sleep
    stopped_ = true;
    generation_.fetch_add(1);
  }
  ready_.notify_all();
  work_.notify_all();
}

LoaderReport BatchLoader::report() const {
  LoaderReport report;
  samples_.log.fill(report);
  report.cached_images = samples_.cache.images();
  report.cached_bytes = samples_.cache.bytes();
  return report;
}

// Asked of the system here, so that it costs the threads nothing; they live as long as the loader.
double BatchLoader::cpu_seconds() const {
  double seconds = 0;
  for (const clockid_t clock : cpu_clocks_) {
    timespec t{};
    if (clock_gettime(clock, &t) == 0) seconds += double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
  }
  return seconds;
}

LoaderStatistics BatchLoader::statistics() const {
  constexpr double kSecond = 1e9;
  const std::lock_guard lock(mutex_);
  LoaderStatistics s;
  s.threads = thread_count_;
  s.batches = batches_given_;
  s.pictures = work_done_.pictures;
  s.pictures_read = work_done_.files;
  s.bytes_read = work_done_.bytes;
  s.read_seconds = double(work_done_.read_ns) / kSecond;
  s.decode_seconds = double(work_done_.decode_ns) / kSecond;
  s.transform_seconds = double(work_done_.transform_ns) / kSecond;
  s.cpu_seconds = cpu_seconds();
  s.wait_seconds = double(wait_ns_) / kSecond;
  return s;
}

// Begins the next batch of the stream if a slot is free.
bool BatchLoader::schedule() {
  if (free_.empty() || int64_t(queue_.size()) >= samples_.options.prefetch) return false;
  if (samples_.options.shuffle && order_epoch_ != schedule_epoch_) {
    order_ = std::make_shared<const std::vector<uint32_t>>(
        epoch_order(samples_.split.size(), true, samples_.options.seed, schedule_epoch_));
    order_epoch_ = schedule_epoch_;
  }
  Slot* const slot = free_.back();
  queue_.push_back(slot);
  free_.pop_back();
  slot->epoch = schedule_epoch_;
  slot->batch = schedule_batch_;
  slot->range = batch_range(samples_.split.size(), samples_.options, schedule_batch_);
  slot->order = order_;
  slot->next = 0;
  slot->done = 0;
  slot->error = nullptr;
  slot->error_at = slot->range.count;
  if (++schedule_batch_ == batches_) {
    schedule_batch_ = 0;
    schedule_epoch_ = keyed_epoch(schedule_epoch_ + 1);
  }
  return true;
}

bool BatchLoader::take(Task& task) {
  if (paused_ || stopped_) return false;
  for (;;) {  // workers take samples all the while
    if (queue_.empty() || !has_samples_left(*queue_.back()))
      if (!schedule()) return false;
    Slot& slot = *queue_.back();
    task = {&slot, slot.next.fetch_add(1), generation_.load()};
    if (task.first < slot.range.count) return true;
  }
}

void BatchLoader::work() noexcept {
  std::unique_ptr<SampleMaker> maker;
  std::unique_lock lock(mutex_);
  for (;;) {
    Task task;
    std::exception_ptr failed;
    work_.wait(lock, [&] {
      if (closing_) return true;
      try {
        return take(task);
      } catch (...) {  // no memory for the epoch's order
        failed = std::current_exception();
        return true;
      }
    });
    if (closing_) return;
    if (failed) {
      fail_stream(failed);
      continue;
    }
    ++in_flight_;
    lock.unlock();
    const ThreadWork done = run(task, maker);
    lock.lock();
    --in_flight_;
    work_done_.add(done);
    task.slot->done += task.made;
    if (is_ready(*task.slot)) ready_.notify_all();
    if (in_flight_ == 0 && paused_) idle_.notify_all();
  }
}

ThreadWork BatchLoader::run(Task& task, std::unique_ptr<SampleMaker>& maker) noexcept {
  Slot& slot = *task.slot;
  const auto goes_on = [&] { return generation_.load(std::memory_order_relaxed) == task.generation; };
  for (int64_t sample = task.first; sample < slot.range.count && goes_on(); sample = slot.next.fetch_add(1)) {
    make_sample(slot, sample, maker);
    ++task.made;
  }
  return maker ? maker->take_work() : ThreadWork{};
}

void BatchLoader::make_sample(Slot& slot, int64_t sample, std::unique_ptr<SampleMaker>& maker) noexcept {
  try {
    if (!maker) maker = std::make_unique<SampleMaker>(samples_);
    maker->make(slot.range.first + sample, slot.order.get(), slot.epoch,
                slot.images + size_t(sample) * image_bytes_, slot.labels[sample]);
  } catch (const Error&) {
    note_error(slot, sample, std::current_exception());
  } catch (const std::bad_alloc&) {
    note_error(slot, sample, no_memory_);  // made beforehand: there may be no memory for it now
  } catch (const std::exception& error) {
    note_error(slot, sample, std::make_exception_ptr(Error(StatusCode::internal, error.what())));
  }
}

// Of several failures the first in the stream is told, whichever thread came first.
void BatchLoader::note_error(Slot& slot, int64_t sample, std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (sample >= slot.error_at) return;
  slot.error_at = sample;
  slot.error = std::move(error);
}

// Failing outside a sample stops the stream; the waiting call is told why.
void BatchLoader::fail_stream(const std::exception_ptr& error) {
  stream_error_ = error;
  paused_ = true;
  ready_.notify_all();
}

std::unique_ptr<Loader> make_loader(const Split& split, const LoaderOptions& options) {
  validate(split, options);
  return std::make_unique<BatchLoader>(split, options);
}

}  // namespace ren::data
