// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <cstring>

#include "engine/base/safetensors.h"
#include "engine/base/status.h"
#include "engine/train/trainer.h"

namespace ren {
namespace {

constexpr const char* kFormat = "renaissance-checkpoint-1";
constexpr Region kFamilies[] = {Region::W, Region::M, Region::V, Region::E};
constexpr Scalar kStateScalars[] = {Scalar::loss_scale, Scalar::growth_tracker, Scalar::skipped_steps,
                                    Scalar::skipped_in_a_row};

std::string number(double v) { return fmt::format("{:.17g}", v); }

// What must be the same for a training to go on as if it had not stopped.
std::map<std::string, std::string> settings(const TrainerOptions& o) {
  std::map<std::string, std::string> s = {
      {"precision", name_of(o.spec.precision)},
      {"batch", std::to_string(o.batch)},
      {"optimizer", o.spec.optimizer.kind == OptimizerKind::lars ? "lars" : "sgd"},
      {"nesterov", o.spec.optimizer.nesterov ? "true" : "false"},
      {"learning_rate", number(o.learning_rate)},
      {"momentum", number(o.momentum)},
      {"weight_decay", number(o.weight_decay)},
      {"label_smoothing", number(o.spec.loss.label_smoothing)},
      {"schedule", std::to_string(int(o.schedule))},
      {"warmup_epochs", number(o.warmup_epochs)},
      {"final_rate", number(o.final_rate)},
      {"step_epochs", number(o.step_epochs)},
      {"gamma", number(o.gamma)},
      {"epochs", std::to_string(o.epochs)},
      {"seed", std::to_string(o.seed)},
      {"ema", o.spec.optimizer.ema ? number(o.ema_decay) : "none"}};
  return s;
}

std::string slot_name(Region family, size_t index, const std::string& name) {
  return fmt::format("{}/{}/{}", name_of(family), index, name);
}

template <typename T>
T parse(const SafeTensorsFile& file, const std::string& path, const std::string& key) {
  const std::string text = file.metadata_or(key, "");
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    fail(StatusCode::invalid_data, "'{}' is no usable checkpoint: its entry '{}' reads '{}'", path, key,
         text);
  return value;
}

}  // namespace

void Trainer::save_checkpoint(const std::string& path) const {
  std::map<std::string, std::vector<float>> values;
  std::map<std::string, std::vector<int64_t>> shapes;
  const Graph& graph = model_.graph;
  const auto put = [&](const std::string& name, std::vector<float> content) {
    shapes[name] = {int64_t(content.size())};
    values[name] = std::move(content);
  };
  const Role role = engine_->variants()[0].role;
  for (const Region family : kFamilies) {
    if (engine_->plan().region(family, role).bytes == 0) continue;
    for (size_t p = 0; p < graph.parameters.size(); ++p)
      put(slot_name(family, p, graph.parameters[p].name), engine_->read_parameter(family, int32_t(p)));
  }
  for (size_t b = 0; b < graph.buffers.size(); ++b)
    put(slot_name(Region::B, b, graph.buffers[b].name), engine_->read_buffer(int32_t(b)));

  std::map<std::string, SafeTensor> tensors;
  for (const auto& [name, content] : values)
    tensors[name] = {
        "F32", shapes[name],
        std::string_view(reinterpret_cast<const char*>(content.data()), content.size() * sizeof(float))};
  std::map<std::string, std::string> metadata;
  metadata["format"] = kFormat;
  for (const auto& [key, value] : settings(options_)) metadata["setting." + key] = value;
  metadata["epoch"] = std::to_string(position_.epoch);
  metadata["batch_in_epoch"] = std::to_string(position_.batch);
  metadata["global_step"] = std::to_string(position_.global_step);
  metadata["data"] = data_fingerprint_;
  metadata["epoch.loss"] = number(epoch_so_far_.loss);
  metadata["epoch.top1"] = number(epoch_so_far_.top1);
  metadata["epoch.top5"] = number(epoch_so_far_.top5);
  metadata["epoch.samples"] = std::to_string(epoch_so_far_.samples);
  metadata["epoch.steps"] = std::to_string(epoch_so_far_.steps);
  metadata["epoch.skipped"] = std::to_string(epoch_so_far_.skipped);
  for (const Scalar s : kStateScalars)
    metadata[fmt::format("scalar.{}", kScalars[size_t(s)].name)] = number(engine_->read_scalar(s));
  write_safetensors(path, tensors, metadata);
}

void Trainer::load_checkpoint(const std::string& path) {
  const SafeTensorsFile file = SafeTensorsFile::read(path);
  if (file.metadata_or("format", "") != kFormat)
    fail(StatusCode::invalid_data, "'{}' is not a checkpoint of this engine (format '{}')", path,
         file.metadata_or("format", "none"));
  Problems problems;
  for (const auto& [key, value] : settings(options_)) {
    const std::string saved = file.metadata_or("setting." + key, "");
    if (saved != value) problems.add(key, fmt::format("is {} now, the checkpoint has {}", value, saved));
  }
  const Graph& graph = model_.graph;
  const Role role = engine_->variants()[0].role;
  struct Item {
    Region family;
    int32_t index;
    const SafeTensor* tensor;
  };
  std::vector<Item> items;
  const auto want = [&](Region family, size_t index, const std::string& name, int64_t elements) {
    const SafeTensor* t = file.find(slot_name(family, index, name));
    if (t == nullptr) {
      problems.add(name, fmt::format("is missing in the checkpoint ({})", content_of(family)));
    } else if (t->dtype != "F32" || t->elements() != elements) {
      problems.add(name, fmt::format("has {} elements of {} in the checkpoint, not {} of F32", t->elements(),
                                     t->dtype, elements));
    } else {
      items.push_back({family, int32_t(index), t});
    }
  };
  for (const Region family : kFamilies) {
    if (engine_->plan().region(family, role).bytes == 0) continue;
    for (size_t p = 0; p < graph.parameters.size(); ++p)
      want(family, p, graph.parameters[p].name, graph.parameters[p].shape.elements());
  }
  for (size_t b = 0; b < graph.buffers.size(); ++b)
    want(Region::B, b, graph.buffers[b].name, graph.at(graph.buffers[b].value).shape.elements());
  problems.throw_if_any(StatusCode::invalid_argument, fmt::format("'{}' belongs to another training", path));

  Position position;
  position.epoch = parse<int64_t>(file, path, "epoch");
  position.batch = parse<int64_t>(file, path, "batch_in_epoch");
  position.global_step = parse<int64_t>(file, path, "global_step");
  Metrics sums;
  sums.loss = parse<double>(file, path, "epoch.loss");
  sums.top1 = parse<double>(file, path, "epoch.top1");
  sums.top5 = parse<double>(file, path, "epoch.top5");
  sums.samples = parse<int64_t>(file, path, "epoch.samples");
  sums.steps = parse<int64_t>(file, path, "epoch.steps");
  sums.skipped = parse<int64_t>(file, path, "epoch.skipped");
  std::vector<double> scalars;
  for (const Scalar s : kStateScalars)
    scalars.push_back(parse<double>(file, path, fmt::format("scalar.{}", kScalars[size_t(s)].name)));

  // Nothing fails from here on, so a refused checkpoint leaves the trainer as it was.
  for (const Item& item : items) {
    std::vector<float> content(size_t(item.tensor->elements()));
    std::memcpy(content.data(), item.tensor->data.data(), item.tensor->data.size());
    if (item.family == Region::B) {
      engine_->write_buffer(item.index, content);
    } else if (item.family == Region::W) {
      engine_->write_parameter(Region::W, item.index, content);
    }
  }
  engine_->weights_written();  // E = W, before the saved E is put in its place
  for (const Item& item : items) {
    if (item.family == Region::B || item.family == Region::W) continue;
    std::vector<float> content(size_t(item.tensor->elements()));
    std::memcpy(content.data(), item.tensor->data.data(), item.tensor->data.size());
    engine_->write_parameter(item.family, item.index, content);
  }
  for (size_t i = 0; i < scalars.size(); ++i) engine_->write_scalar(kStateScalars[i], scalars[i]);
  position_ = position;
  epoch_so_far_ = sums;
  data_fingerprint_ = file.metadata_or("data", "");
}

}  // namespace ren
