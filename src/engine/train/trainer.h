// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/batch_source.h"
#include "engine/compile/spec.h"
#include "engine/runtime/engine.h"
#include "engine/train/schedule.h"

namespace ren {

// A model as the trainer takes it: the importer's graph and values, without the importer.
struct ModelState {
  Graph graph;                                 // forward
  std::vector<std::vector<float>> parameters;  // engine layout, by Graph::parameters
  std::vector<std::vector<float>> buffers;     // by Graph::buffers
};

struct TrainerOptions {
  TrainingSpec spec;
  int64_t batch = 32;
  std::vector<int64_t> other_batches;  // further step sizes, e.g. an epoch's last batch
  int64_t evaluation_batch = 0;        // 0: as batch
  bool evaluation_only = false;        // no gradients, no step variants
  double learning_rate = 0.1, momentum = 0.9, weight_decay = 0.0, trust_coefficient = 0.001,
         ema_decay = 0.999;
  ScheduleKind schedule = ScheduleKind::constant;
  double warmup_epochs = 0, final_rate = 0, step_epochs = 0, gamma = 0.1;
  int64_t epochs = 1;
  uint64_t seed = 0;
  int max_skipped_in_a_row = 50;     // overflow in more steps than that ends training (numerical)
  const Backend* backend = nullptr;  // nullptr: the CPU
  int device_index = 0;
  uint64_t memory_limit = 0;
  bool deterministic = false;  // EngineOptions::deterministic
  bool profile = false;        // EngineOptions::profile
};

struct StepResult {
  double loss = 0;  // mean over the batch's targets, all outputs weighted
  // Of the first output that carries a loss. Of mixed samples (MixSpec) the label with the larger share
  // counts.
  int64_t samples = 0, correct = 0, correct5 = 0;
  bool skipped = false;  // overflow: no parameter was updated
};

struct Metrics {
  double loss = 0;            // mean over all targets
  double top1 = 0, top5 = 0;  // shares, 0..1
  int64_t samples = 0, steps = 0, skipped = 0;
  double seconds = 0;
};

enum class FitPhase : uint8_t { training, evaluating, epoch_done, checkpoint_written, checkpoint_failed };
struct FitProgress {
  FitPhase phase = FitPhase::training;
  int64_t epoch = 0, epochs = 0, step = 0, steps = 0;  // within the epoch
  double learning_rate = 0, images_per_second = 0, seconds_left = 0;
  double loss_scale = 1;
  Metrics training, validation;    // so far in this epoch / the last evaluation
  int64_t failed_checkpoints = 0;  // so far in this fit
  std::string message;             // checkpoint_failed: why
};
// Returns false to stop as request_stop does.
using FitObserver = std::function<bool(const FitProgress&)>;

struct FitOptions {
  BatchSource* training = nullptr;
  BatchSource* validation = nullptr;   // may be nullptr
  std::string checkpoint_path;         // empty: none
  int64_t checkpoint_every_steps = 0;  // besides each epoch's end; 0: only that
  FitObserver observer;
};

// Trains, evaluates and predicts with one engine. One thread at a time, but request_stop.
class Trainer {
 public:
  Trainer(ModelState model, TrainerOptions options);
  ~Trainer();

  const Engine& engine() const { return *engine_; }
  Engine& engine() { return *engine_; }
  const Graph& graph() const { return model_.graph; }
  const TrainerOptions& options() const { return options_; }

  // One step on one batch; images NHWC of InputSpec::image_type, one label a position of the logits.
  // Waits for its result. The learning rate is the given one.
  StepResult step(const void* images, const int32_t* labels, int64_t count, double learning_rate);
  // Loss and counts without training; count <= evaluation batch.
  StepResult evaluate_batch(const void* images, const int32_t* labels, int64_t count);
  // The outputs, one vector each in NHWC order, for count <= evaluation batch images.
  std::vector<std::vector<float>> predict(const void* images, int64_t count);

  // All epochs that are left, from where the state stands (0, or a checkpoint's position).
  // Returns the last epoch's metrics; throws cancelled after request_stop, when a checkpoint path
  // is set with a checkpoint written. The checkpoint's place is tried before the first step. One that
  // can't be written later on does not end training: the observer is told, and the result counts them.
  FitProgress fit(const FitOptions& options);
  // Throws numerical, naming the first sample, when the model's output for one is not finite.
  Metrics evaluate(BatchSource& source, const FitObserver& observer = {});
  void request_stop() noexcept;  // from any thread or signal handler

  // Everything that decides how training goes on: W, M, V, E, B, scalars, position, seed.
  // Written atomically as safetensors. Loading checks that the options, the model and, where the training
  // data is given, that too are the same; all differences are listed. Without it, fit() checks the data.
  void save_checkpoint(const std::string& path) const;
  void load_checkpoint(const std::string& path, const BatchSource* training = nullptr);
  int64_t epoch() const { return position_.epoch; }
  int64_t steps_done() const { return position_.global_step; }

  std::vector<float> parameter(int32_t index, Region family = Region::W) const;
  std::vector<float> buffer(int32_t index) const;
  void set_parameter(int32_t index, const std::vector<float>& values);
  void set_buffer(int32_t index, const std::vector<float>& values);

 private:
  // The next batch to train on.
  struct Position {
    int64_t epoch = 0, batch = 0, global_step = 0;
  };
  // What one launch needs on the host until its results are in; two are in flight at most.
  struct Flight {
    std::vector<std::byte> record, results;
    std::vector<int32_t> labels;
    size_t variant = 0;
    int64_t count = 0, targets = 0, first_sample = 0;
    const void* images = nullptr;  // the source's; valid until the flight has landed
    uint64_t ticket = 0;
    bool active = false;
  };

  // An output that carries a loss; one label serves them all.
  struct ClassifyingOutput {
    std::string name;
    int64_t classes = 0;
  };

  void build_engine();
  std::vector<ClassifyingOutput> classifying_outputs() const;
  std::optional<size_t> find_step_variant(int64_t count) const;
  size_t step_variant(int64_t count) const;
  size_t variant_of(Role role) const;
  int64_t labels_per_sample(size_t variant) const;
  void launch(Flight& flight, size_t variant, const void* images, const int32_t* labels, int64_t count,
              int64_t first_sample, double learning_rate);
  StepResult land(Flight& flight);
  void drain() noexcept;  // forgets what an error left in flight
  StepResult launch_and_land(size_t variant, const void* images, const int32_t* labels, int64_t count,
                             double rate);
  void validate(const FitOptions& options, FitProgress& progress);
  void train_epoch(const FitOptions& options, const Schedule& schedule, FitProgress& progress);
  bool mixed() const { return is_mixed(options_.spec.precision); }
  static void account(const StepResult& result, Metrics& metrics);
  static Metrics finished(Metrics sums, double seconds);
  Metrics evaluate_all(BatchSource& source, const FitObserver& observer, bool finite);
  [[noreturn]] void fail_not_finite(const BatchSource& source, Flight& flight, double loss);
  void check_last_batch(const BatchSource& source) const;
  void check_source(const BatchSource& source, int64_t batch, const char* purpose) const;
  void check_finite_weights() const;
  uint64_t checkpoint_bytes() const;  // about
  void check_checkpoint_place(const std::string& path) const;
  void save_if_asked(const FitOptions& options, FitProgress& progress);
  [[noreturn]] void stop_training(const FitOptions& options, FitProgress& progress);

  ModelState model_;
  TrainerOptions options_;
  std::unique_ptr<Engine> engine_;
  ClassifyingOutput narrowest_;  // bounds the labels
  Position position_;
  Metrics epoch_so_far_;                     // sums of an epoch that is under way; kept in checkpoints
  std::map<std::string, std::string> data_;  // identity of the data that the position refers to
  Flight flights_[2];
  std::atomic<bool> stop_{false};
};

}  // namespace ren
