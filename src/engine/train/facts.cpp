// SPDX-License-Identifier: Apache-2.0
#include "engine/train/facts.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace ren {
namespace {

constexpr size_t kNamesShown = 4, kNodesShown = 5;

std::string number(double v) { return fmt::format("{}", v); }  // shortest text that gives it back
const char* yes_no(bool v) { return v ? "yes" : "no"; }

const char* name_of_schedule(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::constant:
      return "constant";
    case ScheduleKind::step:
      return "step";
    case ScheduleKind::cosine:
      return "cosine";
  }
  return "?";
}

// In pixels of 0..1, as users give it. Seven digits are what is left of a float on the way there and back.
std::string mean_text(const InputSpec& input) {
  const double unit = input.image_type == DType::u8 ? 255.0 : 1.0;
  std::vector<double> values;
  for (const float v : input.mean) values.push_back(double(v) / unit);
  return values.empty() ? "none" : fmt::format("{:.7g}", fmt::join(values, ","));
}

std::string deviation_text(const InputSpec& input) {
  const double unit = input.image_type == DType::u8 ? 255.0 : 1.0;
  std::vector<double> values;
  for (const float v : input.scale) values.push_back(1.0 / (double(v) * unit));
  return values.empty() ? "none" : fmt::format("{:.7g}", fmt::join(values, ","));
}

std::string losses_text(const LossSpec& loss, const Graph& model) {
  if (loss.outputs.empty()) return fmt::format("{}:1", printable(model.outputs.at(0).name));
  std::vector<std::string> items;
  for (const OutputLoss& o : loss.outputs)
    items.push_back(fmt::format("{}:{}", printable(o.output), o.weight));
  return fmt::format("{}", fmt::join(items, ","));
}

std::string loss_scale_text(const TrainingSpec& spec) {
  if (!is_mixed(spec.precision)) return "none";
  const LossScaleSpec& s = spec.loss_scale;
  return fmt::format("{} (times {} each {} steps, times {} on overflow, at least {})", s.initial, s.growth,
                     s.growth_interval, s.backoff, s.floor);
}

std::string differs(const std::string& now, const std::string& then) {
  return fmt::format("is {} now, the checkpoint has {}", now, then);
}

// The tensors by their place in the graph; the batch is none of the model's facts.
std::string node_text(const Graph& graph, const Node& node) {
  std::vector<std::string> inputs, outputs;
  for (const TensorId id : node.inputs) inputs.push_back(id == kNoTensor ? "-" : fmt::format("%{}", id));
  for (const TensorId id : node.outputs) {
    if (id == kNoTensor) {
      outputs.push_back("-");
      continue;
    }
    const Tensor& t = graph.at(id);
    outputs.push_back(fmt::format("%{}:{}[{},{},{}]", id, name_of(t.dtype), t.shape.h, t.shape.w, t.shape.c));
  }
  return fmt::format("{}({}) -> {} {{{}}}", name_of(node.op), fmt::join(inputs, ","), fmt::join(outputs, ","),
                     node.attributes ? node.attributes->text() : std::string());
}

std::string some_of(const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), kNamesShown);
  std::string text = fmt::format("'{}'", fmt::join(names.begin(), names.begin() + int64_t(shown), "', '"));
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

}  // namespace

std::string printable(const std::string& name) {
  bool utf8 = true;
  try {
    (void)nlohmann::json(name).dump();
  } catch (const nlohmann::json::exception&) {
    utf8 = false;
  }
  std::string text;
  for (const char c : name) {
    const auto byte = uint8_t(c);
    text += byte < 0x20 || byte == 0x7F || (byte >= 0x80 && !utf8) ? fmt::format("\\x{:02x}", byte)
                                                                   : std::string(1, c);
  }
  return text;
}

Facts training_facts(const TrainerOptions& o, const Graph& model) {
  return {{"precision", name_of(o.spec.precision)},
          {"batch", std::to_string(o.batch)},
          {"image_type", name_of(o.spec.input.image_type)},
          {"mean", mean_text(o.spec.input)},
          {"std", deviation_text(o.spec.input)},
          {"losses", losses_text(o.spec.loss, model)},
          {"label_smoothing", fmt::format("{}", o.spec.loss.label_smoothing)},
          {"mixup", o.spec.mix.mixup > 0 ? number(o.spec.mix.mixup) : "none"},
          {"cutmix", o.spec.mix.cutmix > 0 ? number(o.spec.mix.cutmix) : "none"},
          {"ignore_index", std::to_string(o.spec.loss.ignore_index)},
          {"optimizer", o.spec.optimizer.kind == OptimizerKind::lars ? "lars" : "sgd"},
          {"nesterov", yes_no(o.spec.optimizer.nesterov)},
          {"learning_rate", number(o.learning_rate)},
          {"momentum", number(o.momentum)},
          {"weight_decay", number(o.weight_decay)},
          {"trust_coefficient", number(o.trust_coefficient)},
          {"schedule", name_of_schedule(o.schedule)},
          {"warmup_epochs", number(o.warmup_epochs)},
          {"final_learning_rate", number(o.final_rate)},
          {"step_epochs", number(o.step_epochs)},
          {"gamma", number(o.gamma)},
          {"epochs", std::to_string(o.epochs)},
          {"seed", std::to_string(o.seed)},
          {"ema_decay", o.spec.optimizer.ema ? number(o.ema_decay) : "none"},
          {"loss_scale", loss_scale_text(o.spec)}};
}

Facts parameter_facts(const Graph& model) {
  Facts facts;
  for (const Parameter& p : model.parameters)
    facts[printable(p.name)] = !p.trainable
                                   ? std::string("frozen")
                                   : fmt::format("trained ({}, weight decay times {}, rate times {}{})",
                                                 name_of(p.kind), p.weight_decay_multiplier,
                                                 p.learning_rate_multiplier, p.lars ? "" : ", plain rate");
  return facts;
}

std::vector<std::string> node_facts(const Graph& model) {
  std::vector<std::string> facts;
  for (const Node& node : model.nodes) facts.push_back(node_text(model, node));
  for (const GraphOutput& o : model.outputs)
    facts.push_back(fmt::format("output '{}' is %{}", printable(o.name), o.value));
  return facts;
}

void compare_options(const Facts& now, const Facts& then, Problems& problems) {
  for (const auto& [name, value] : now) {
    const auto found = then.find(name);
    const std::string saved = found == then.end() ? "none" : found->second;
    if (saved != value) problems.add(name, differs(value, saved));
  }
  for (const auto& [name, value] : then)
    if (!now.contains(name))
      problems.add(name, fmt::format("is {} in the checkpoint, and not known here", value),
                   "go on with the version of Renaissance that wrote it");
}

void compare_data(const Facts& now, const Facts& then, Problems& problems) {
  for (const auto& [name, value] : now) {
    const auto found = then.find(name);
    if (found != then.end() && found->second != value)
      problems.add("data: " + name, differs(value, found->second));
  }
}

void compare_parameters(const Facts& now, const Facts& then, Problems& problems) {
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> groups;
  for (const auto& [name, value] : now) {
    const auto found = then.find(name);  // one that is missing is told with its values
    if (found != then.end() && found->second != value) groups[{value, found->second}].push_back(name);
  }
  for (const auto& [values, names] : groups)
    problems.add(some_of(names), fmt::format("{} {} now, {} in the checkpoint",
                                             names.size() == 1 ? "is" : "are", values.first, values.second));
}

void compare_nodes(const Graph& model, const std::vector<std::string>& then, Problems& problems) {
  const std::vector<std::string> now = node_facts(model);
  if (now.size() != then.size())
    problems.add("the model", fmt::format("has {} operations and outputs now, {} in the checkpoint",
                                          now.size(), then.size()));
  size_t differing = 0;
  for (size_t i = 0; i < std::min(now.size(), then.size()); ++i) {
    if (now[i] == then[i] || ++differing > kNodesShown) continue;
    const bool node = i < model.nodes.size() && !model.nodes[i].name.empty();
    problems.add(node ? fmt::format("node '{}'", model.nodes[i].name) : fmt::format("operation {}", i),
                 differs(now[i], then[i]));
  }
  if (differing > kNodesShown)
    problems.add("the model", fmt::format("differs in {} more operations", differing - kNodesShown));
}

}  // namespace ren
