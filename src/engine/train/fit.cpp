// SPDX-License-Identifier: Apache-2.0
// Trainer::fit: epochs, their evaluations and checkpoints.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <new>

#include "engine/base/file.h"
#include "engine/base/status.h"
#include "engine/train/facts.h"
#include "engine/train/trainer.h"
#include "engine/train/wall_clock.h"

namespace ren {

void Trainer::train_epoch(const FitOptions& options, const Schedule& schedule, FitProgress& progress) {
  BatchSource& source = *options.training;
  const WallClock watch;
  int64_t images = 0;
  drain();
  source.start_epoch(position_.epoch, position_.batch);
  const auto take = [&](Flight& flight) {
    if (!flight.active) return;
    const StepResult r = land(flight);
    account(r, epoch_so_far_);
    if (!mixed() && !std::isfinite(r.loss))
      fail(StatusCode::numerical,
           "the loss is {} in epoch {}, step {}: training has diverged; lower the learning rate", r.loss,
           position_.epoch + 1, position_.batch);
    if (r.skipped) {
      const double in_a_row = engine_->read_scalar(Scalar::skipped_in_a_row);
      if (in_a_row > options_.max_skipped_in_a_row)
        fail(StatusCode::numerical,
             "gradients overflowed in {} steps in a row (epoch {}, step {}, loss scale {}): training has "
             "diverged; "
             "lower the learning rate or use another precision",
             in_a_row, position_.epoch + 1, position_.batch, engine_->read_scalar(Scalar::loss_scale));
    }
  };
  for (int64_t k = 0;; ++k) {
    Flight& flight = flights_[k & 1];
    take(flight);  // its batch must be used up before the source reuses the memory
    if (stop_.exchange(false)) {
      take(flights_[(k + 1) & 1]);
      stop_training(options, progress);
    }
    BatchView view;
    if (!source.next(view)) break;
    progress.learning_rate = schedule.at(position_.global_step);
    launch(flight, step_variant(view.count), view.images, view.labels, view.count, view.first_sample,
           progress.learning_rate);
    ++position_.batch;
    ++position_.global_step;
    images += view.count;
    progress.phase = FitPhase::training;
    progress.epoch = position_.epoch;
    progress.step = position_.batch;
    progress.images_per_second = double(images) / std::max(1e-9, watch.seconds());
    const int64_t left = (options_.epochs - position_.epoch) * progress.steps - position_.batch;
    progress.seconds_left = watch.seconds() / double(k + 1) * double(left);
    progress.training = finished(epoch_so_far_, watch.seconds());
    if (options.observer && !options.observer(progress)) request_stop();
    if (options.checkpoint_every_steps > 0 && position_.global_step % options.checkpoint_every_steps == 0 &&
        position_.batch < progress.steps) {
      take(flights_[(k + 1) & 1]);
      take(flight);
      save_if_asked(options, progress);
    }
  }
  take(flights_[0]);
  take(flights_[1]);
  progress.training = finished(epoch_so_far_, watch.seconds());
}

void Trainer::save_if_asked(const FitOptions& options, FitProgress& progress) {
  if (options.checkpoint_path.empty()) return;
  progress.phase = FitPhase::checkpoint_written;
  progress.message.clear();
  try {
    save_checkpoint(options.checkpoint_path);
  } catch (const Error& e) {
    const bool about_the_file = e.code() == StatusCode::io || e.code() == StatusCode::not_found ||
                                e.code() == StatusCode::out_of_memory;
    if (!about_the_file) throw;  // the device's, for one: training can't go on
    progress.phase = FitPhase::checkpoint_failed;
    progress.message = e.what();
  } catch (const std::bad_alloc&) {
    progress.phase = FitPhase::checkpoint_failed;
    progress.message = fmt::format("there is no memory to write '{}'", options.checkpoint_path);
  }
  progress.failed_checkpoints += progress.phase == FitPhase::checkpoint_failed;
  if (options.observer && !options.observer(progress)) request_stop();
}

// Between two steps, or in an epoch's evaluation, which resuming repeats.
void Trainer::stop_training(const FitOptions& options, FitProgress& progress) {
  const std::string text =
      fmt::format("training was stopped in epoch {} after step {}", position_.epoch + 1, position_.batch);
  if (options.checkpoint_path.empty()) fail(StatusCode::cancelled, "{}", text);
  save_if_asked(options, progress);
  if (progress.phase == FitPhase::checkpoint_failed)
    fail(StatusCode::io, "{}, but its checkpoint was not written: {}", text, progress.message);
  stop_ = false;  // the observer's answer to the checkpoint
  fail(StatusCode::cancelled, "{}; a checkpoint was written to '{}'", text, options.checkpoint_path);
}

// For the new one beside the old one.
void Trainer::check_checkpoint_place(const std::string& path) const {
  std::error_code error;
  const auto found = std::filesystem::file_size(path, error);
  const uint64_t present = error ? 0 : uint64_t(found), one = checkpoint_bytes();
  check_can_write(path, std::max(one, 2 * one - std::min(2 * one, present)));
}

// The last update is followed by no loss that would show it.
void Trainer::check_finite_weights() const {
  const auto finite = [](const std::vector<float>& values) {
    return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
  };
  const auto refuse = [](const std::string& name) {
    fail(StatusCode::numerical,
         "'{}' holds values that are not finite after the last step: training has diverged; "
         "lower the learning rate",
         name);
  };
  for (size_t p = 0; p < model_.graph.parameters.size(); ++p)
    if (!finite(parameter(int32_t(p)))) refuse(model_.graph.parameters[p].name);
  for (size_t b = 0; b < model_.graph.buffers.size(); ++b)
    if (!finite(buffer(int32_t(b)))) refuse(model_.graph.buffers[b].name);
}

// The size of an epoch's last batch is known before the first step, and so is whether there is a program for
// it.
void Trainer::check_last_batch(const BatchSource& source) const {
  const BatchSource::Description& d = source.description();
  const int64_t rest = d.samples - (source.batches_per_epoch() - 1) * d.batch;
  if (rest <= 0 || rest >= d.batch || find_step_variant(rest)) return;
  fail(StatusCode::invalid_argument,
       "an epoch of {} samples ends with a batch of {}, which this trainer has no program for: give it among "
       "the other batch sizes when the trainer is made (other_batches), or have the loader drop the last "
       "batch "
       "(last_batch)",
       d.samples, rest);
}

void Trainer::validate(const FitOptions& options, FitProgress& progress) {
  if (options.validation == nullptr) return;
  const int64_t steps = progress.steps;
  try {
    progress.validation = evaluate_all(*options.validation, options.observer, false);
  } catch (const Error& e) {
    if (e.code() == StatusCode::cancelled) stop_training(options, progress);
    throw;
  }
  progress.steps = steps;
}

FitProgress Trainer::fit(const FitOptions& options) {
  if (options.training == nullptr) fail(StatusCode::invalid_argument, "there is no training data");
  check_source(*options.training, options_.batch, "the training data");
  check_last_batch(*options.training);
  if (options.validation != nullptr)
    check_source(*options.validation, options_.evaluation_batch, "the validation data");
  const Facts data = options.training->identity();
  Problems problems;
  compare_data(data, data_, problems);
  problems.throw_if_any(StatusCode::invalid_argument,
                        "the trainer's state belongs to a training with other data");
  data_ = data;
  if (!options.checkpoint_path.empty()) check_checkpoint_place(options.checkpoint_path);
  options.training->use_allocator(engine_->device().host_allocator());
  if (options.validation != nullptr) options.validation->use_allocator(engine_->device().host_allocator());

  FitProgress progress;
  progress.epochs = options_.epochs;
  progress.steps = options.training->batches_per_epoch();
  Schedule schedule;
  schedule.kind = options_.schedule;
  schedule.learning_rate = options_.learning_rate;
  schedule.final_rate = options_.final_rate;
  schedule.warmup_steps = std::llround(options_.warmup_epochs * double(progress.steps));
  schedule.total_steps = options_.epochs * progress.steps;
  schedule.step_size = std::llround(options_.step_epochs * double(progress.steps));
  schedule.gamma = options_.gamma;

  if (position_.epoch >= options_.epochs) validate(options, progress);  // resumed when all was done
  while (position_.epoch < options_.epochs) {
    train_epoch(options, schedule, progress);
    validate(options, progress);
    progress.loss_scale = engine_->read_scalar(Scalar::loss_scale);
    progress.phase = FitPhase::epoch_done;
    progress.epoch = position_.epoch;
    ++position_.epoch;
    position_.batch = 0;
    epoch_so_far_ = {};
    if (options.observer && !options.observer(progress)) request_stop();
    save_if_asked(options, progress);
    progress.phase = FitPhase::epoch_done;
  }
  check_finite_weights();
  return progress;
}

}  // namespace ren
