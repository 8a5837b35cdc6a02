// SPDX-License-Identifier: Apache-2.0
#include "engine/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/base/status.h"
#include "engine/compile/compile.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/train/mix.h"
#include "engine/train/wall_clock.h"

namespace ren {
namespace {

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
  const auto want_alpha = [&](double alpha, const char* where) {
    want(alpha == 0 || (alpha >= MixSpec::kLeastAlpha && alpha <= MixSpec::kMostAlpha), where,
         "must be in 0.001 to 1000, or 0 for none");
  };
  want_alpha(o.spec.mix.mixup, "MixUp's alpha");
  want_alpha(o.spec.mix.cutmix, "CutMix's alpha");
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
  engine_->write_scalar(Scalar::loss_scale, mixed() ? options_.spec.loss_scale.initial : 1.0);
  // The engine holds the values from here on.
  model_.parameters.clear();
  model_.buffers.clear();
}

Trainer::~Trainer() = default;

void Trainer::build_engine() {
  const Backend& backend = options_.backend != nullptr ? *options_.backend : cpu_backend();
  options_.spec.target = target_of(backend.kind);
  if (options_.spec.precision == Precision::tf32 && backend.kind == DeviceKind::cpu)
    fail(StatusCode::unsupported,
         "TF32 is arithmetic of NVIDIA's GPUs; on the CPU take fp32, or name a GPU as device");
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
  engine.plan.compute_copies = mixed();
  engine.plan.compute_type = compute_type(options_.spec.precision);
  engine.plan.first_moments = !options_.evaluation_only && options_.spec.optimizer.momentum;
  engine.plan.ema = !options_.evaluation_only && options_.spec.optimizer.ema;
  engine.memory_limit = options_.memory_limit;
  engine.deterministic = options_.deterministic;
  engine.tf32 = options_.spec.precision == Precision::tf32;
  engine.profile = options_.profile;
  engine_ = std::make_unique<Engine>(backend, options_.device_index, std::move(variants), std::move(engine));
  for (Flight& flight : flights_) {
    flight.record.assign(kStepRecordBytes, std::byte{0});
    flight.results.assign(engine_->results_bytes(), std::byte{0});
  }
  for (const ClassifyingOutput& output : classifying_outputs())
    if (narrowest_.classes == 0 || output.classes < narrowest_.classes) narrowest_ = output;
}

std::vector<Trainer::ClassifyingOutput> Trainer::classifying_outputs() const {
  const Graph& graph = engine_->variants()[0].graph;
  std::vector<ClassifyingOutput> outputs;
  for (const Node& node : graph.nodes)
    if (node.op == Op::cross_entropy)
      outputs.push_back({node.name.substr(kLossPrefix.size()), graph.at(node.inputs[0]).shape.c});
  return outputs;
}

size_t Trainer::variant_of(Role role) const {
  const auto& variants = engine_->variants();
  for (size_t i = 0; i < variants.size(); ++i)
    if (variants[i].role == role) return i;
  fail(StatusCode::invalid_state, "this trainer was made for evaluation only");
}

std::optional<size_t> Trainer::find_step_variant(int64_t count) const {
  const auto& variants = engine_->variants();
  for (size_t i = 0; i < variants.size(); ++i)
    if (variants[i].role == Role::step && variants[i].graph.batch() == count) return i;
  return {};
}

size_t Trainer::step_variant(int64_t count) const {
  variant_of(Role::step);
  if (const auto found = find_step_variant(count)) return *found;
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
  const int64_t per_sample = labels_per_sample(variant);
  const int32_t ignored = options_.spec.loss.ignore_index;
  flight.variant = variant;
  flight.count = count;
  flight.first_sample = first_sample;
  flight.images = images;
  flight.targets = 0;
  // Samples beyond `count` carry no target; only inference has such, where samples don't meet.
  flight.labels.assign(size_t(graph.batch() * per_sample), ignored);
  for (int64_t i = 0; i < count * per_sample; ++i) {
    const int32_t label = labels[i];
    if (label != ignored && (label < 0 || label >= narrowest_.classes))
      fail(StatusCode::invalid_data,
           "sample {} of the batch has label {}; the model's output '{}' has {} classes (0 to {})",
           i / per_sample, label, narrowest_.name, narrowest_.classes, narrowest_.classes - 1);
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
  if (options_.spec.mix.any() && engine_->variants()[variant].role == Role::step) {
    const Shape image = model_.graph.at(model_.graph.input).shape;
    const BatchMix mix = draw_mix(options_.spec.mix, seed, position_.global_step, image.h, image.w);
    std::memcpy(flight.record.data() + kMixOffset, &mix, sizeof mix);
  }
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
  result.skipped = trains && mixed() && number(graph.scalar(Scalar::overflow)) != 0;
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
  if (const int64_t labels = labels_per_sample(0); labels != 0 && d.labels_per_sample != labels)
    problems.add(purpose,
                 fmt::format("gives {} label{} a picture, the model's outputs take {}, one a position",
                             d.labels_per_sample, d.labels_per_sample == 1 ? "" : "s", labels));
  for (const ClassifyingOutput& output : classifying_outputs())
    if (!d.classes.empty() && int64_t(d.classes.size()) != output.classes)
      problems.add(purpose,
                   fmt::format("has {} classes, the model's output '{}' has {}", d.classes.size(),
                               output.name, output.classes),
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

// Sums become means and shares.
Metrics Trainer::finished(Metrics sums, double seconds) {
  const double n = double(std::max<int64_t>(1, sums.samples));
  sums.loss /= n;
  sums.top1 /= n;
  sums.top5 /= n;
  sums.seconds = seconds;
  return sums;
}

Metrics Trainer::evaluate(BatchSource& source, const FitObserver& observer) {
  return evaluate_all(source, observer, true);
}

Metrics Trainer::evaluate_all(BatchSource& source, const FitObserver& observer, bool finite) {
  check_source(source, options_.evaluation_batch, "the validation data");
  const size_t variant = variant_of(Role::evaluate);
  const WallClock watch;
  Metrics sums;
  FitProgress progress;
  progress.phase = FitPhase::evaluating;
  progress.steps = source.batches_per_epoch();
  const auto take = [&](Flight& flight) {
    if (!flight.active) return;
    const StepResult r = land(flight);
    if (finite && !std::isfinite(r.loss)) fail_not_finite(source, flight, r.loss);
    account(r, sums);
  };
  drain();
  source.start_epoch(0, 0);
  for (int64_t k = 0;; ++k) {
    Flight& flight = flights_[k & 1];
    take(flight);
    if (stop_.exchange(false)) fail(StatusCode::cancelled, "evaluation was stopped");
    BatchView view;
    if (!source.next(view)) break;
    launch(flight, variant, view.images, view.labels, view.count, view.first_sample, 0.0);
    progress.step = k + 1;
    progress.validation = finished(sums, watch.seconds());
    progress.images_per_second = double(sums.samples) / std::max(1e-9, progress.validation.seconds);
    if (observer && !observer(progress)) request_stop();
  }
  for (Flight& flight : flights_) take(flight);
  return finished(sums, watch.seconds());
}

// The flight has landed and its images are still there.
void Trainer::fail_not_finite(const BatchSource& source, Flight& flight, double loss) {
  const int64_t count = flight.count, first = flight.first_sample;
  const auto outputs = predict(flight.images, count);
  int64_t bad = count;
  for (const std::vector<float>& values : outputs) {
    const auto found = std::find_if(values.begin(), values.end(), [](float v) { return !std::isfinite(v); });
    if (found != values.end())
      bad = std::min(bad, (found - values.begin()) / (int64_t(values.size()) / count));
  }
  if (bad == count)
    fail(StatusCode::numerical, "the loss of samples {} to {} is {}", first, first + count - 1, loss);
  const std::string name = source.sample_name(0, first + bad);
  fail(StatusCode::numerical,
       "the model's output is not finite for sample {}{}: its weights have diverged, or the precision is too "
       "small for it",
       first + bad, name.empty() ? "" : fmt::format(", '{}'", name));
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
