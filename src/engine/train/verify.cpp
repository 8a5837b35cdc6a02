// SPDX-License-Identifier: Apache-2.0
#include "engine/train/verify.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "engine/base/rng.h"
#include "engine/base/status.h"

namespace ren {
namespace {

constexpr const char* kFormat = "renaissance-golden-1";
constexpr int kSteps = 3;
// An FP32 replay that misses a bound is tried again with its weights disturbed by about FP32's own rounding,
// as much as a golden's batches are chosen to bear. When such a replay holds every bound, the miss was no
// error of the engine: a ReLU's argument or two maxima of a pool lie so close that rounding decides, and then
// a whole gradient is on or off.
constexpr int kDisturbedReplays = 32;
constexpr size_t kProblemsShown = 8;
constexpr double kDisturbance = 1.5e-7;  // relative: one to two units in the last place

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ","));
}

double number_of(const SafeTensorsFile& golden, const std::string& key) {
  const std::string text = golden.metadata_or(key, "");
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    fail(StatusCode::invalid_data, "the golden file's metadata '{}' is '{}', not a number", key, text);
  return value;
}

std::vector<OutputLoss> losses_of(const SafeTensorsFile& golden) {
  const std::string text = golden.metadata_or("outputs", "");
  std::vector<OutputLoss> losses;
  for (size_t begin = 0; begin < text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, comma - begin);
    const size_t colon = item.rfind(':');
    OutputLoss loss{item.substr(0, colon), 1.0f};
    if (colon != std::string::npos) {
      const char* const last = item.data() + item.size();
      const auto [end, error] = std::from_chars(item.data() + colon + 1, last, loss.weight);
      if (error != std::errc() || end != last || !std::isfinite(loss.weight))
        fail(StatusCode::invalid_data, "the golden file's metadata 'outputs' has '{}'", item);
    }
    for (const OutputLoss& other : losses)
      if (other.output == loss.output)
        fail(StatusCode::invalid_data, "the golden file's metadata 'outputs' names '{}' twice", loss.output);
    losses.push_back(std::move(loss));
    begin = comma + 1;
  }
  if (losses.empty()) fail(StatusCode::invalid_data, "the golden file's metadata names no 'outputs'");
  return losses;
}

// [n, pixels, c] -> [n, c, pixels], and back with c and pixels swapped.
std::vector<float> transposed(const std::vector<float>& source, int64_t n, int64_t rows, int64_t columns) {
  std::vector<float> target(source.size());
  for (int64_t i = 0; i < n; ++i)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c)
        target[size_t((i * columns + c) * rows + r)] = source[size_t((i * rows + r) * columns + c)];
  return target;
}

double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double v : values) most = std::max(most, std::abs(v));
  return most;
}

struct Batch {
  std::vector<float> images;  // NHWC
  std::vector<int32_t> labels;
};

class Verifier {
 public:
  Verifier(const VerifyModel& model, const SafeTensorsFile& golden, const VerifyOptions& options)
      : model_(model),
        golden_(golden),
        options_(options),
        trains_(golden.metadata_or("content", "") == "train+eval") {
    result_.case_name = golden.metadata_or("case", "");
    result_.precision = options.precision;
    result_.peer = options.peer;
    const double standard = options.peer ? kPeerTolerance : default_tolerance(options.precision);
    result_.tolerance = options.tolerance > 0 ? options.tolerance : standard;
  }

  VerifyResult run() {
    check_golden();
    if (options_.peer) check_peer(*options_.peer, golden_, options_.precision);
    batches_.push_back(batch(0));
    for (int k = 1; trains_ && k < kSteps; ++k) batches_.push_back(batch(k));
    // FP16 gradients may overflow at the first loss scale, which would skip a step: then all is
    // done again with a smaller one. The numbers don't depend on it while nothing overflows.
    for (double scale = 1024; !attempt(scale); scale /= 32)
      if (scale <= 1)
        fail(StatusCode::numerical, "the gradients overflow in {} at every loss scale",
             name_of(options_.precision));
    if (!result_.passed()) refuse_other_weights();
    if (rounding_may_explain()) try_disturbed();
    return std::move(result_);
  }

 private:
  // TF32 rounds what it multiplies as FP16 does.
  bool coarse() const { return options_.precision != Precision::fp32; }
  // Rounding to 16 bits moves values across the kinks of ReLU and to other maxima of a pool, which
  // switches whole gradients on and off: PyTorch's own FP16 autocast is off by up to 0.24 max|ref| in
  // a gradient of ResNet-20, at outputs within 1e-3. FP32 goldens are chosen to stay clear of that.
  // With a peer what this costs is known for each tensor.
  double kinks() const { return coarse() && !options_.peer ? 10.0 : 1.0; }

  // ---- Is this a golden of that model? ----

  void want(Problems& problems, const std::string& name, const std::vector<int64_t>& shape,
            bool integers = false) const {
    const SafeTensor* t = golden_.find(name);
    if (t == nullptr) {
      problems.add(name, "is missing in the golden file");
    } else if (!shape.empty() && t->shape != shape) {
      problems.add(name, fmt::format("has shape {} in the golden file, {} expected", shape_text(t->shape),
                                     shape_text(shape)));
    } else if (integers != (t->dtype[0] == 'I' || t->dtype[0] == 'U')) {
      problems.add(name, fmt::format("has type {} in the golden file", t->dtype));
    }
  }

  std::string input_name(int step) const { return fmt::format("step{}/input/{}", step, model_.input); }

  void check_golden() const {
    if (golden_.metadata_or("format", "") != kFormat)
      fail(StatusCode::invalid_data, "this is no golden file: its format is '{}', not '{}'",
           golden_.metadata_or("format", ""), kFormat);
    const std::string content = golden_.metadata_or("content", "");
    Problems problems;
    if (content != "train+eval" && content != "eval")
      problems.add("content", fmt::format("is '{}'", content));
    const Graph& graph = model_.state.graph;
    const Shape in = graph.at(graph.input).shape;
    const SafeTensor* first = golden_.find(input_name(0));
    if (first == nullptr || first->shape.size() != 4 || first->shape[0] < 1) {
      problems.add(
          input_name(0),
          fmt::format("is missing or not a batch of pictures; the model's input is '{}'", model_.input));
      refuse_if_any(problems);
    }
    const int64_t n = first->shape[0];
    for (int k = 0; k < (trains_ ? kSteps : 1); ++k) {
      want(problems, input_name(k), {n, in.c, in.h, in.w});
      if (!trains_) continue;
      want(problems, fmt::format("step{}/target", k), {}, true);
      want(problems, fmt::format("step{}/loss", k), {});
    }
    for (const GraphOutput& o : graph.outputs) {
      want(problems, "eval/output/" + o.name, {});
      if (trains_) want(problems, "step0/output/" + o.name, {});
    }
    if (trains_) check_training(problems);
    refuse_if_any(problems);
  }

  // The first of them: a golden of another model has as many as the model has tensors.
  static void refuse_if_any(const Problems& problems) {
    Problems shown;
    for (const Problem& p : problems.items())
      if (shown.items().size() < kProblemsShown) shown.add(p.where, p.what, p.remedy);
    if (const size_t more = problems.items().size() - shown.items().size(); more > 0)
      shown.add("the golden file", fmt::format("differs in {} more", more));
    shown.throw_if_any(StatusCode::invalid_data, "the golden file does not belong to this model");
  }

  void check_training(Problems& problems) const {
    const std::string loss = golden_.metadata_or("loss", ""),
                      optimizer = golden_.metadata_or("optimizer", "");
    if (loss != "cross_entropy" && loss != "pixel_cross_entropy")
      problems.add("loss", fmt::format("is '{}'", loss));
    if (optimizer != "sgd") problems.add("optimizer", fmt::format("is '{}'", optimizer));
    if (golden_.metadata_or("steps", "") != "3")
      problems.add("steps", fmt::format("is '{}'", golden_.metadata_or("steps", "")));
    const std::string nesterov = golden_.metadata_or("nesterov", "");
    if (nesterov != "true" && nesterov != "false")
      problems.add("nesterov", fmt::format("is '{}', not true or false", nesterov));
    const auto trained = golden_parameters(golden_);
    if (trained.empty()) problems.add("step0/grad", "has no tensor");
    const auto& parameters = model_.state.graph.parameters;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const bool golden = std::find(trained.begin(), trained.end(), model_.parameters[i]) != trained.end();
      if (golden != parameters[i].trainable)
        problems.add(model_.parameters[i], golden ? "is trained by the golden file, not by the model"
                                                  : "is trained by the model, not by the golden file");
    }
    for (const std::string& name : trained) {
      if (std::find(model_.parameters.begin(), model_.parameters.end(), name) == model_.parameters.end())
        problems.add(name, "is trained by the golden file; the model has no such parameter");
      want(problems, "step2/param/" + name, golden_.at("step0/grad/" + name).shape);
    }
    for (const auto& [name, tensor] : golden_.tensors())
      if (name.starts_with("step2/param/") && golden_.find("step0/grad/" + name.substr(12)) == nullptr)
        problems.add("step0/grad/" + name.substr(12), "is missing in the golden file");
    check_sizes(problems);
    check_targets(problems);
    for (const auto& [name, tensor] : golden_.tensors())
      if (name.starts_with("step2/buffer/") &&
          std::find(model_.buffers.begin(), model_.buffers.end(), name.substr(13)) == model_.buffers.end())
        problems.add(name.substr(13), "is a statistic of the golden file; the model has none of that name");
  }

  // As they are in the file: cut to the engine's 32 bits any number could look like a class.
  void check_targets(Problems& problems) const {
    const Graph& graph = model_.state.graph;
    const int64_t ignored = LossSpec().ignore_index;
    int64_t classes = std::numeric_limits<int64_t>::max();
    for (const OutputLoss& loss : losses_of(golden_)) {
      const auto found = std::find_if(graph.outputs.begin(), graph.outputs.end(),
                                      [&](const GraphOutput& output) { return output.name == loss.output; });
      if (found == graph.outputs.end())
        problems.add("outputs", fmt::format("names '{}'; the model has no such output", loss.output));
      else
        classes = std::min(classes, graph.at(found->value).shape.c);
    }
    for (int k = 0; k < kSteps; ++k) {
      const std::string name = fmt::format("step{}/target", k);
      const SafeTensor* const t = golden_.find(name);
      if (t == nullptr || (t->dtype[0] != 'I' && t->dtype != "U8")) continue;  // said already
      for (const int64_t label : to_int64(*t)) {
        if (label == ignored || (label >= 0 && label < classes)) continue;
        problems.add(name, fmt::format("has the class {}; the model has {} classes (0 to {})", label, classes,
                                       classes - 1));
        break;
      }
    }
  }

  void check_sizes(Problems& problems) const {
    const auto compare = [&](const std::string& name, size_t elements) {
      const SafeTensor* t = golden_.find(name);
      if (t != nullptr && size_t(t->elements()) != elements)
        problems.add(name, fmt::format("has shape {} in the golden file, the model's tensor has {} values",
                                       shape_text(t->shape), elements));
    };
    for (size_t i = 0; i < model_.parameters.size(); ++i)
      compare("step0/grad/" + model_.parameters[i],
              model_.parameter_to_file(int32_t(i), model_.state.parameters[i]).size());
    for (size_t i = 0; i < model_.buffers.size(); ++i)
      compare("step2/buffer/" + model_.buffers[i],
              model_.buffer_to_file(int32_t(i), model_.state.buffers[i]).size());
  }

  // Every number misses when the weights are not those that the golden file was recorded with; that alone is
  // worth saying then. Three steps leave a weight tensor near its beginning, while the weights of another
  // initialisation or training lie further from it than they are long.
  void refuse_other_weights() const {
    if (!trains_) return;
    size_t compared = 0;
    std::vector<std::string> far;
    for (size_t i = 0; i < model_.parameters.size(); ++i) {
      const Parameter& p = model_.state.graph.parameters[i];
      const SafeTensor* after = golden_.find("step2/param/" + model_.parameters[i]);
      if (!p.trainable || p.kind != ParameterKind::weight || after == nullptr) continue;
      const std::vector<float> here = model_.parameter_to_file(int32_t(i), model_.state.parameters[i]);
      const std::vector<double> there = to_doubles(*after);
      double length = 0, distance = 0;
      for (size_t k = 0; k < std::min(here.size(), there.size()); ++k) {
        length += double(here[k]) * double(here[k]);
        distance += (double(here[k]) - there[k]) * (double(here[k]) - there[k]);
      }
      ++compared;
      if (distance > 0.25 * length) far.push_back(model_.parameters[i]);
    }
    if (2 * far.size() > compared)
      fail(StatusCode::invalid_data,
           "the golden file was recorded with other weights than the model has: after three steps {} of its "
           "{} "
           "weight tensors lie further from the model's than half their length ('{}', for one); record it "
           "with "
           "this very file",
           far.size(), compared, far[0]);
  }

  Batch batch(int step) const {
    const SafeTensor& images = golden_.at(input_name(step));
    const std::vector<double> values = to_doubles(images);
    Batch b;
    b.images = transposed({values.begin(), values.end()}, images.shape[0], images.shape[1],
                          images.shape[2] * images.shape[3]);
    if (!trains_) return b;
    for (const int64_t label : to_int64(golden_.at(fmt::format("step{}/target", step))))
      b.labels.push_back(int32_t(label));
    return b;
  }

  // ---- The replay ----

  TrainerOptions trainer_options(double loss_scale) const {
    TrainerOptions o;
    o.spec.precision = options_.precision;
    o.spec.input.image_type = DType::f32;
    o.batch = golden_.at(input_name(0)).shape[0];
    o.evaluation_only = !trains_;
    o.backend = options_.backend;
    o.device_index = options_.device_index;
    o.spec.loss_scale.initial = float(loss_scale);
    if (!trains_) return o;
    o.spec.loss.outputs = losses_of(golden_);
    o.spec.loss.label_smoothing = float(number_of(golden_, "label_smoothing"));
    o.learning_rate = number_of(golden_, "lr");
    o.momentum = number_of(golden_, "momentum");
    o.weight_decay = number_of(golden_, "weight_decay");
    o.spec.optimizer.nesterov = golden_.metadata_or("nesterov", "") == "true";
    return o;
  }

  // The largest error as a multiple of its bound; NaN when there is one.
  static double worst_of(const VerifyResult& result) {
    double worst = 0;
    for (const Comparison& c : result.comparisons)
      if (!(c.ratio() <= worst)) worst = c.ratio();
    return worst;
  }

  bool rounding_may_explain() const {
    return !coarse() && trains_ && !result_.passed() && !std::isnan(worst_of(result_));
  }

  void try_disturbed() {
    VerifyResult first = result_;
    for (int replay = 1; replay <= kDisturbedReplays; ++replay) {
      attempt(1.0, disturbed(uint64_t(replay)));
      if (!result_.passed()) continue;
      const auto failed = std::count_if(first.comparisons.begin(), first.comparisons.end(),
                                        [](const Comparison& c) { return !c.passes(); });
      result_.notes.push_back(fmt::format(
          "rounding decides in this golden: with the weights as they are {} of {} comparisons miss their "
          "bounds (worst "
          "{:.3g}); disturbed by at most {} of their size, about FP32's own rounding, all hold (replay {} of "
          "{}). An "
          "activation lies at the kink of a ReLU, or a pool's maxima tie",
          failed, first.comparisons.size(), worst_of(first), kDisturbance, replay, kDisturbedReplays));
      return;
    }
    result_ = std::move(first);
  }

  ModelState disturbed(uint64_t seed) const {
    ModelState state = model_.state;
    for (size_t p = 0; p < state.parameters.size(); ++p) {
      RandomStream random(seed, 1, p);
      for (float& v : state.parameters[p])
        v = float(double(v) * (1.0 + kDisturbance * (2.0 * random.uniform() - 1.0)));
    }
    return state;
  }

  // False when a step was skipped.
  bool attempt(double loss_scale) { return attempt(loss_scale, model_.state); }

  bool attempt(double loss_scale, ModelState state) {
    result_.comparisons.clear();
    result_.notes.clear();
    result_.loss_scale = is_mixed(options_.precision) && trains_ ? loss_scale : 1.0;
    Trainer trainer(std::move(state), trainer_options(loss_scale));
    result_.device = trainer.engine().device().name();
    compare_evaluation(trainer);
    if (!trains_) return true;
    for (int k = 0; k < kSteps; ++k) {
      const Batch& b = batches_[size_t(k)];
      const StepResult r = trainer.step(b.images.data(), b.labels.data(), trainer.options().batch,
                                        trainer.options().learning_rate);
      if (r.skipped) return false;
      const std::string name = fmt::format("step{}/loss", k);
      compare(VerifyGroup::loss, name, {float(r.loss)}, bound_of_output(name));
      if (k == 0) {
        compare_outputs(trainer);
        compare_gradients(trainer);
      }
    }
    compare_parameters(trainer);
    compare_buffers(trainer);
    return true;
  }

  void compare_evaluation(Trainer& trainer) {
    const auto outputs = trainer.predict(batches_[0].images.data(), trainer.options().batch);
    const Graph& graph = model_.state.graph;
    for (size_t i = 0; i < graph.outputs.size(); ++i) {
      const std::string name = "eval/output/" + graph.outputs[i].name;
      compare(VerifyGroup::evaluation, name, as_file(graph.at(graph.outputs[i].value).shape, outputs[i]),
              bound_of_output(name));
    }
  }

  void compare_outputs(Trainer& trainer) {
    Engine& engine = trainer.engine();
    const Graph& graph = engine.variants()[0].graph;  // the step's
    for (const GraphOutput& o : graph.outputs) {
      const std::string name = "step0/output/" + o.name;
      compare(VerifyGroup::output, name, as_file(graph.at(o.value).shape, engine.read(0, o.value)),
              bound_of_output(name));
    }
  }

  void compare_gradients(const Trainer& trainer) {
    double most = 0;  // G of the table of bounds
    for (const std::string& name : golden_parameters(golden_))
      most = std::max(most, largest(to_doubles(golden_.at("step0/grad/" + name))));
    for_trained([&](int32_t i, const std::string& name) {
      const std::string full = "step0/grad/" + name;
      const double size = largest(to_doubles(golden_.at(full)));
      // Zero in exact arithmetic: what is left is rounding, which knows no scale but G. In 16 bits
      // it is the rounding of each summand, not of the sum.
      const double bound = size < 1e-6 * most ? (coarse() ? 1.0 : 0.1) * result_.tolerance * most
                                              : kinks() * result_.tolerance * (size + 0.01 * most);
      compare(VerifyGroup::gradient, full, model_.parameter_to_file(i, trainer.parameter(i, Region::G)),
              bound);
    });
  }

  void compare_parameters(const Trainer& trainer) {
    for_trained([&](int32_t i, const std::string& name) {
      const std::string full = "step2/param/" + name;
      const std::vector<double> ref = to_doubles(golden_.at(full));
      const std::vector<float> initial = model_.parameter_to_file(i, model_.state.parameters[size_t(i)]);
      double change = 0;
      for (size_t k = 0; k < std::min(ref.size(), initial.size()); ++k)
        change = std::max(change, std::abs(ref[k] - double(initial[k])));
      const std::vector<float> now = model_.parameter_to_file(i, trainer.parameter(i));
      compare(VerifyGroup::parameter, full, now, kinks() * result_.tolerance * (largest(ref) + 1e-3));
      // Three small steps hardly move a weight: this bound is the one that sees a wrong optimizer.
      // In 16 bits it is twice the gradients', for their errors add up over the steps.
      const double factor = (coarse() ? 2 * kinks() : 10.0) * result_.tolerance;
      compare(VerifyGroup::change, full, now, factor * (change + 3e-3 * largest(ref) + 1e-6));
    });
  }

  void compare_buffers(const Trainer& trainer) {
    for (size_t i = 0; i < model_.buffers.size(); ++i) {
      const std::string full = "step2/buffer/" + model_.buffers[i];
      if (golden_.find(full) == nullptr) {
        result_.notes.push_back(fmt::format("statistic '{}' is not in the golden file", model_.buffers[i]));
        continue;
      }
      const double bound = result_.tolerance * (largest(to_doubles(golden_.at(full))) + 1e-3);
      compare(VerifyGroup::buffer, full, model_.buffer_to_file(int32_t(i), trainer.buffer(int32_t(i))),
              bound);
    }
  }

  // ---- Comparing ----

  template <typename Body>
  void for_trained(Body&& body) {
    const auto& parameters = model_.state.graph.parameters;
    for (size_t i = 0; i < parameters.size(); ++i)
      if (parameters[i].trainable) body(int32_t(i), model_.parameters[i]);
  }

  static std::vector<float> as_file(const Shape& s, const std::vector<float>& engine) {
    const int64_t n = int64_t(engine.size()) / (s.h * s.w * s.c);
    return transposed(engine, n, s.h * s.w, s.c);
  }

  double bound_of_output(const std::string& name) const {
    return result_.tolerance * largest(to_doubles(golden_.at(name)));
  }

  void compare(VerifyGroup group, const std::string& name, const std::vector<float>& values, double bound) {
    const std::vector<double> ref = to_doubles(golden_.at(name));
    if (ref.size() != values.size())
      fail(StatusCode::invalid_data, "'{}' has {} values in the golden file, {} here", name, ref.size(),
           values.size());
    for (const double v : ref)
      if (!std::isfinite(v))
        fail(StatusCode::invalid_data, "the golden file's '{}' holds a value that is not finite", name);
    Comparison c{group, name, 0, bound, bound, {}};
    if (options_.peer) {
      c.peer_error = options_.peer->errors.at(name);
      c.bound = std::max(bound, kPeerFactor * *c.peer_error);
    }
    for (size_t i = 0; i < ref.size(); ++i) {
      const double difference = std::abs(double(values[i]) - ref[i]);
      if (!(difference <= c.error)) c.error = difference;  // NaN enters, and stays
      if (std::isnan(c.error)) break;
    }
    result_.comparisons.push_back(std::move(c));
  }

  const VerifyModel& model_;
  const SafeTensorsFile& golden_;
  const VerifyOptions& options_;
  const bool trains_;
  std::vector<Batch> batches_;
  VerifyResult result_;
};

}  // namespace

double default_tolerance(Precision precision) {
  return precision == Precision::fp32 ? 1e-4 : precision == Precision::bf16 ? 1e-1 : 3e-2;
}

std::vector<std::string> golden_parameters(const SafeTensorsFile& golden) {
  const std::string prefix = "step0/grad/";
  std::vector<std::string> names;
  for (const auto& [name, tensor] : golden.tensors())
    if (name.starts_with(prefix)) names.push_back(name.substr(prefix.size()));
  return names;
}

VerifyResult verify_golden(const VerifyModel& model, const SafeTensorsFile& golden,
                           const VerifyOptions& options) {
  return Verifier(model, golden, options).run();
}

}  // namespace ren
