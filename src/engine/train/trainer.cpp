// SPDX-License-Identifier: Apache-2.0
#include "engine/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "engine/base/status.h"
#include "engine/compile/compile.h"
#include "engine/ops/cross_entropy/cross_entropy.h"

namespace ren {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

bool mixed(const TrainerOptions& options) { return options.spec.precision != Precision::fp32; }

int64_t class_count(const Graph& graph) {
  for (const Node& node : graph.nodes)
    if (node.op == Op::cross_entropy) return graph.at(node.inputs[0]).shape.c;
  return 0;
}

void check_options(const TrainerOptions& o) {
  Problems problems;
  const auto want = [&](bool good, const char* where, const char* what) {
    if (!good) problems.add(where, what);
  };
  want(o.batch >= 1, "batch", "must be at least 1");
  want(o.evaluation_batch >= 0, "evaluation batch", "must not be negative");
  want(std::isfinite(o.learning_rate) && o.learning_rate >= 0, "learning rate",
       "must be finite and not negative");
  want(o.momentum >= 0 && o.momentum < 1, "momentum", "must be in [0, 1)");
  want(std::isfinite(o.weight_decay) && o.weight_decay >= 0, "weight decay",
       "must be finite and not negative");
  want(o.spec.loss.label_smoothing >= 0 && o.spec.loss.label_smoothing < 1, "label smoothing",
       "must be in [0, 1)");
  want(!o.spec.optimizer.nesterov || o.momentum > 0, "nesterov", "needs a momentum above 0");
  want(o.epochs >= 1, "epochs", "must be at least 1");
  want(o.warmup_epochs >= 0, "warm-up", "must not be negative");
  want(!o.spec.optimizer.ema || (o.ema_decay >= 0 && o.ema_decay < 1), "EMA decay", "must be in [0, 1)");
  problems.throw_if_any(StatusCode::invalid_argument, "the training options are not usable");
}

}  // namespace

Trainer::Trainer(ModelState model, TrainerOptions options)
    : model_(std::move(model)), options_(std::move(options)) {
  check_options(options_);
  if (options_.evaluation_batch == 0) options_.evaluation_batch = options_.batch;
  options_.spec.optimizer.momentum = options_.momentum > 0;
  build_engine();
  for (size_t p = 0; p < model_.parameters.size(); ++p)
    engine_->write_parameter(Region::W, int32_t(p), model_.parameters[p]);
  for (size_t b = 0; b < model_.buffers.size(); ++b) engine_->write_buffer(int32_t(b), model_.buffers[b]);
  engine_->weights_written();
  engine_->write_scalar(Scalar::loss_scale, mixed(options_) ? options_.spec.loss_scale.initial : 1.0);
  // The engine holds the values from here on.
  model_.parameters.clear();
  model_.buffers.clear();
}

Trainer::~Trainer() = default;

void Trainer::build_engine() {
  std::vector<EngineVariant> variants;
  const auto add = [&](Role role, int64_t batch) {
    variants.push_back({fmt::format("{}@{}", name_of(role), batch), role,
                        compile_variant(model_.graph, options_.spec, {role, batch})});
  };
  if (!options_.evaluation_only) {
    add(Role::step, options_.batch);
    std::vector<int64_t> others = options_.other_batches;
    std::sort(others.begin(), others.end());
    others.erase(std::unique(others.begin(), others.end()), others.end());
    for (const int64_t batch : others)
      if (batch != options_.batch && batch > 0) add(Role::step, batch);
  }
  add(Role::evaluate, options_.evaluation_batch);
  add(Role::predict, options_.evaluation_batch);

  EngineOptions engine;
  engine.plan.compute_copies = mixed(options_);
  engine.plan.compute_type = compute_type(options_.spec.precision);
  engine.plan.first_moments = !options_.evaluation_only && options_.spec.optimizer.momentum;
  engine.plan.ema = !options_.evaluation_only && options_.spec.optimizer.ema;
  engine.memory_limit = options_.memory_limit;
  engine.profile = options_.profile;
  const Backend& backend = options_.backend != nullptr ? *options_.backend : cpu_backend();
  engine_ = std::make_unique<Engine>(backend, options_.device_index, std::move(variants), std::move(engine));
  for (Flight& flight : flights_) {
    flight.record.assign(kStepRecordBytes, std::byte{0});
    flight.results.assign(engine_->results_bytes(), std::byte{0});
  }
}

size_t Trainer::variant_of(Role role) const {
  const auto& variants = engine_->variants();
  for (size_t i = 0; i < variants.size(); ++i)
    if (variants[i].role == role) return i;
  fail(StatusCode::invalid_state, "this trainer was made for evaluation only");
}

size_t Trainer::step_variant(int64_t count) const {
  variant_of(Role::step);
  const auto& variants = engine_->variants();
  for (size_t i = 0; i < variants.size(); ++i)
    if (variants[i].role == Role::step && variants[i].graph.batch() == count) return i;
  fail(StatusCode::invalid_argument,
       "a step takes a batch of {} here, not {} (name other sizes when the trainer is made)", options_.batch,
       count);
}

int64_t Trainer::labels_per_sample(size_t variant) const {
  const Graph& graph = engine_->variants()[variant].graph;
  const TensorId labels = graph.nodes[0].inputs[1];
  return labels == kNoTensor ? 0 : graph.at(labels).shape.elements() / graph.at(labels).shape.n;
}

void Trainer::launch(Flight& flight, size_t variant, const void* images, const int32_t* labels, int64_t count,
                     int64_t first_sample, double learning_rate) {
  const Graph& graph = engine_->variants()[variant].graph;
  const int64_t per_sample = labels_per_sample(variant), classes = class_count(graph);
  const int32_t ignored = options_.spec.loss.ignore_index;
  flight.variant = variant;
  flight.count = count;
  flight.targets = 0;
  // Samples beyond `count` carry no target; only inference has such, where samples don't meet.
  flight.labels.assign(size_t(graph.batch() * per_sample), ignored);
  for (int64_t i = 0; i < count * per_sample; ++i) {
    const int32_t label = labels[i];
    if (label != ignored && (label < 0 || label >= classes))
      fail(StatusCode::invalid_data,
           "sample {} of the batch has label {}; the model has {} classes (0 to {})", i / per_sample, label,
           classes, classes - 1);
    flight.labels[size_t(i)] = label;
    flight.targets += label != ignored;
  }
  const auto put = [&](Scalar scalar, auto value, int component = 0) {
    static_assert(sizeof value == 4);
    std::memcpy(flight.record.data() + record_offset(scalar) + 4 * component, &value, 4);
  };
  put(Scalar::learning_rate, float(learning_rate));
  put(Scalar::momentum, float(options_.momentum));
  put(Scalar::weight_decay, float(options_.weight_decay));
  put(Scalar::trust_coefficient, float(options_.trust_coefficient));
  put(Scalar::ema_decay, float(options_.ema_decay));
  put(Scalar::inverse_count, flight.targets > 0 ? 1.0f / float(flight.targets) : 0.0f);
  put(Scalar::sample_count, float(count));
  const uint64_t seed = options_.seed;
  put(Scalar::random_state, uint32_t(seed), 0);
  put(Scalar::random_state, uint32_t(seed >> 32), 1);
  put(Scalar::random_state, uint32_t(position_.global_step), 2);
  put(Scalar::random_state, uint32_t(first_sample), 3);
  engine_->upload_batch(variant, flight.record.data(), flight.labels.data(), images);
  engine_->run(variant);
  flight.ticket = engine_->download_results(flight.results.data());
  flight.active = true;
}

StepResult Trainer::land(Flight& flight) {
  engine_->wait_results(flight.ticket);
  flight.active = false;
  const Graph& graph = engine_->variants()[flight.variant].graph;
  const auto number = [&](TensorId id) {
    float value;
    std::memcpy(&value, flight.results.data() + engine_->result_offset(flight.variant, id), sizeof value);
    return double(value);
  };
  StepResult result;
  result.samples = flight.targets;
  bool first = true;
  for (const Node& node : graph.nodes) {
    if (node.op != Op::cross_entropy) continue;
    result.loss += number(node.outputs[0]);
    if (first) {
      result.correct = std::llround(number(node.outputs[1]));
      result.correct5 = std::llround(number(node.outputs[2]));
      first = false;
    }
  }
  const bool trains = engine_->variants()[flight.variant].role == Role::step;
  result.skipped = trains && mixed(options_) && number(graph.scalar(Scalar::overflow)) != 0;
  return result;
}

void Trainer::drain() noexcept {
  for (Flight& flight : flights_) {
    if (!flight.active) continue;
    try {
      engine_->wait_results(flight.ticket);
    } catch (const Error&) {
      // The error that left it behind has been reported.
    }
    flight.active = false;
  }
}

StepResult Trainer::launch_and_land(size_t variant, const void* images, const int32_t* labels, int64_t count,
                                    double rate) {
  drain();
  launch(flights_[0], variant, images, labels, count, 0, rate);
  return land(flights_[0]);
}

StepResult Trainer::step(const void* images, const int32_t* labels, int64_t count, double learning_rate) {
  const StepResult result = launch_and_land(step_variant(count), images, labels, count, learning_rate);
  ++position_.global_step;
  return result;
}

StepResult Trainer::evaluate_batch(const void* images, const int32_t* labels, int64_t count) {
  const size_t variant = variant_of(Role::evaluate);
  if (count < 1 || count > options_.evaluation_batch)
    fail(StatusCode::invalid_argument, "an evaluation takes 1 to {} images, not {}",
         options_.evaluation_batch, count);
  return launch_and_land(variant, images, labels, count, 0.0);
}

std::vector<std::vector<float>> Trainer::predict(const void* images, int64_t count) {
  const size_t variant = variant_of(Role::predict);
  if (count < 1 || count > options_.evaluation_batch)
    fail(StatusCode::invalid_argument, "a prediction takes 1 to {} images, not {}", options_.evaluation_batch,
         count);
  launch_and_land(variant, images, nullptr, count, 0.0);
  std::vector<std::vector<float>> outputs;
  const Graph& graph = engine_->variants()[variant].graph;
  for (const GraphOutput& o : graph.outputs) {
    outputs.push_back(engine_->read(variant, o.value));
    outputs.back().resize(outputs.back().size() / size_t(graph.batch()) * size_t(count));
  }
  return outputs;
}

void Trainer::check_source(const BatchSource& source, int64_t batch, const char* purpose) const {
  const BatchSource::Description& d = source.description();
  const Shape image = model_.graph.at(model_.graph.input).shape;
  Problems problems;
  if (d.batch != batch)
    problems.add(purpose, fmt::format("gives batches of {}, the trainer takes {}", d.batch, batch));
  if (d.height != image.h || d.width != image.w || d.channels != image.c)
    problems.add(purpose,
                 fmt::format("gives images of {}x{}x{}, the model takes {}x{}x{} (height, width, channels)",
                             d.height, d.width, d.channels, image.h, image.w, image.c));
  if (d.image_type != options_.spec.input.image_type)
    problems.add(purpose, fmt::format("gives {} images, the trainer was made for {}", name_of(d.image_type),
                                      name_of(options_.spec.input.image_type)));
  const int64_t classes = class_count(engine_->variants()[0].graph);
  if (!d.classes.empty() && int64_t(d.classes.size()) != classes)
    problems.add(purpose, fmt::format("has {} classes, the model's output has {}", d.classes.size(), classes),
                 "export the model with as many outputs as the data has classes");
  problems.throw_if_any(StatusCode::invalid_argument, "the data does not fit the model");
}

void Trainer::account(const StepResult& r, Metrics& m) {
  m.loss += r.loss * double(r.samples);
  m.top1 += double(r.correct);
  m.top5 += double(r.correct5);
  m.samples += r.samples;
  m.steps += 1;
  m.skipped += r.skipped;
}

namespace {

// Sums become means and shares.
Metrics finished(Metrics sums, double seconds) {
  const double n = double(std::max<int64_t>(1, sums.samples));
  sums.loss /= n;
  sums.top1 /= n;
  sums.top5 /= n;
  sums.seconds = seconds;
  return sums;
}

}  // namespace

Metrics Trainer::evaluate(BatchSource& source, const FitObserver& observer) {
  check_source(source, options_.evaluation_batch, "the validation data");
  const size_t variant = variant_of(Role::evaluate);
  const auto start = Clock::now();
  Metrics sums;
  FitProgress progress;
  progress.phase = FitPhase::evaluating;
  progress.steps = source.batches_per_epoch();
  drain();
  source.start_epoch(0, 0);
  for (int64_t k = 0;; ++k) {
    Flight& flight = flights_[k & 1];
    if (flight.active) account(land(flight), sums);
    if (stop_.exchange(false)) fail(StatusCode::cancelled, "evaluation was stopped");
    BatchView view;
    if (!source.next(view)) break;
    launch(flight, variant, view.images, view.labels, view.count, view.first_sample, 0.0);
    progress.step = k + 1;
    progress.validation = finished(sums, seconds_since(start));
    progress.images_per_second = double(sums.samples) / std::max(1e-9, progress.validation.seconds);
    if (observer && !observer(progress)) request_stop();
  }
  for (Flight& flight : flights_)
    if (flight.active) account(land(flight), sums);
  return finished(sums, seconds_since(start));
}

void Trainer::train_epoch(const FitOptions& options, const Schedule& schedule, FitProgress& progress) {
  BatchSource& source = *options.training;
  const auto start = Clock::now();
  int64_t images = 0;
  drain();
  source.start_epoch(position_.epoch, position_.batch);
  const auto take = [&](Flight& flight) {
    if (!flight.active) return;
    const StepResult r = land(flight);
    account(r, epoch_so_far_);
    if (!mixed(options_) && !std::isfinite(r.loss))
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
      if (!options.checkpoint_path.empty()) save_if_asked(options, progress);
      fail(StatusCode::cancelled, "training was stopped in epoch {} after step {}{}", position_.epoch + 1,
           position_.batch,
           options.checkpoint_path.empty()
               ? ""
               : "; a checkpoint was written to '" + options.checkpoint_path + "'");
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
    progress.images_per_second = double(images) / std::max(1e-9, seconds_since(start));
    const int64_t left = (options_.epochs - position_.epoch) * progress.steps - position_.batch;
    progress.seconds_left = seconds_since(start) / double(k + 1) * double(left);
    progress.training = finished(epoch_so_far_, seconds_since(start));
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
  progress.training = finished(epoch_so_far_, seconds_since(start));
}

void Trainer::save_if_asked(const FitOptions& options, FitProgress& progress) {
  if (options.checkpoint_path.empty()) return;
  save_checkpoint(options.checkpoint_path);
  progress.phase = FitPhase::checkpoint_written;
  if (options.observer && !options.observer(progress)) request_stop();
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

FitProgress Trainer::fit(const FitOptions& options) {
  if (options.training == nullptr) fail(StatusCode::invalid_argument, "there is no training data");
  check_source(*options.training, options_.batch, "the training data");
  if (options.validation != nullptr)
    check_source(*options.validation, options_.evaluation_batch, "the validation data");
  const std::string& fingerprint = options.training->description().fingerprint;
  if (!data_fingerprint_.empty() && data_fingerprint_ != fingerprint)
    fail(StatusCode::invalid_argument,
         "the checkpoint was made with other data, augmentation or seed; resume with the same");
  data_fingerprint_ = fingerprint;
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

  while (position_.epoch < options_.epochs) {
    train_epoch(options, schedule, progress);
    if (options.validation != nullptr) {
      const int64_t steps = progress.steps;
      try {
        progress.validation = evaluate(*options.validation, options.observer);
      } catch (const Error& e) {
        // Resuming goes on with this evaluation: the epoch's batches are all done.
        if (e.code() == StatusCode::cancelled) save_if_asked(options, progress);
        throw;
      }
      progress.steps = steps;
    }
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
  if (options.validation != nullptr && !std::isfinite(progress.validation.loss))
    fail(StatusCode::numerical,
         "the validation loss is {} after the last epoch: the trained network gives no finite outputs{}; "
         "lower the "
         "learning rate, or train longer so that running statistics settle",
         progress.validation.loss, mixed(options_) ? " in this precision" : "");
  return progress;
}

void Trainer::request_stop() noexcept { stop_ = true; }

std::vector<float> Trainer::parameter(int32_t index, Region family) const {
  return engine_->read_parameter(family, index);
}
std::vector<float> Trainer::buffer(int32_t index) const { return engine_->read_buffer(index); }
void Trainer::set_parameter(int32_t index, const std::vector<float>& values) {
  engine_->write_parameter(Region::W, index, values);
  engine_->weights_written();
}
void Trainer::set_buffer(int32_t index, const std::vector<float>& values) {
  engine_->write_buffer(index, values);
}

}  // namespace ren
