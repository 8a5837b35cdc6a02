// SPDX-License-Identifier: Apache-2.0
// The file of docs/checkpoints.md.
#include <charconv>
#include <cstring>

#include "engine/base/file.h"
#include "engine/base/safetensors.h"
#include "engine/base/status.h"
#include "engine/train/facts.h"
#include "engine/train/trainer.h"

namespace ren {
namespace {

constexpr std::string_view kFormat = "renaissance-checkpoint-";
constexpr int kVersion = 2;
constexpr Region kFamilies[] = {Region::W, Region::M, Region::V, Region::E};
constexpr Scalar kStateScalars[] = {Scalar::loss_scale, Scalar::growth_tracker, Scalar::skipped_steps,
                                    Scalar::skipped_in_a_row};
constexpr size_t kMissingShown = 10;

std::string number(double v) { return fmt::format("{:.17g}", v); }

std::string slot_name(Region family, size_t index, const std::string& name) {
  return fmt::format("{}/{}/{}", name_of(family), index, printable(name));
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

void put_facts(std::map<std::string, std::string>& metadata, const std::string& prefix, const Facts& facts) {
  for (const auto& [name, value] : facts) metadata[prefix + name] = value;
}

Facts facts_below(const SafeTensorsFile& file, const std::string& prefix) {
  Facts facts;
  for (const auto& [key, value] : file.metadata())
    if (key.starts_with(prefix)) facts[key.substr(prefix.size())] = value;
  return facts;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// The file's text in one line.
std::string joined(const std::vector<std::string>& lines) {
  return fmt::format("{}", fmt::join(lines, "\n"));
}

void check_format(const SafeTensorsFile& file, const std::string& path) {
  const std::string format = file.metadata_or("format", "");
  int version = 0;
  if (format.starts_with(kFormat)) {
    const char* const last = format.data() + format.size();
    const auto [end, error] = std::from_chars(format.data() + kFormat.size(), last, version);
    if (error != std::errc() || end != last) version = 0;
  }
  if (version < 1)
    fail(StatusCode::invalid_data, "'{}' is no checkpoint (format '{}')", path,
         format.empty() ? "none" : format);
  if (version != kVersion)
    fail(
        StatusCode::invalid_data,
        "'{}' is a checkpoint of format {}, this version reads format {} only: finish that training with the "
        "version that began it, or begin anew",
        path, version, kVersion);
  if (!file.metadata_or("checksum", "").starts_with("crc32:"))
    fail(StatusCode::invalid_data, "'{}' is damaged: it has lost its checksum", path);
}

}  // namespace

uint64_t Trainer::checkpoint_bytes() const {
  const Graph& graph = model_.graph;
  const Role role = engine_->variants()[0].role;
  uint64_t values = 0;
  for (const Region family : kFamilies) {
    if (engine_->plan().region(family, role).bytes == 0) continue;
    for (const Parameter& p : graph.parameters) values += uint64_t(p.shape.elements());
  }
  for (const Buffer& b : graph.buffers) values += uint64_t(graph.at(b.value).shape.elements());
  return values * sizeof(float);
}

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
  metadata["format"] = fmt::format("{}{}", kFormat, kVersion);
  put_facts(metadata, "option.", training_facts(options_, graph));
  put_facts(metadata, "parameter.", parameter_facts(graph));
  put_facts(metadata, "data.", data_);
  metadata["model"] = joined(node_facts(graph));
  metadata["epoch"] = std::to_string(position_.epoch);
  metadata["batch_in_epoch"] = std::to_string(position_.batch);
  metadata["global_step"] = std::to_string(position_.global_step);
  metadata["epoch.loss"] = number(epoch_so_far_.loss);
  metadata["epoch.top1"] = number(epoch_so_far_.top1);
  metadata["epoch.top5"] = number(epoch_so_far_.top5);
  metadata["epoch.samples"] = std::to_string(epoch_so_far_.samples);
  metadata["epoch.steps"] = std::to_string(epoch_so_far_.steps);
  metadata["epoch.skipped"] = std::to_string(epoch_so_far_.skipped);
  for (const Scalar s : kStateScalars)
    metadata[fmt::format("scalar.{}", kScalars[size_t(s)].name)] = number(engine_->read_scalar(s));
  write_safetensors(path, tensors, std::move(metadata), true);
}

void Trainer::load_checkpoint(const std::string& path, const BatchSource* training) {
  const SafeTensorsFile file = SafeTensorsFile::read(path);
  check_format(file, path);
  const Graph& graph = model_.graph;
  Problems problems;
  compare_options(training_facts(options_, graph), facts_below(file, "option."), problems);
  compare_parameters(parameter_facts(graph), facts_below(file, "parameter."), problems);
  compare_nodes(graph, lines_of(file.metadata_or("model", "")), problems);
  const Facts data = facts_below(file, "data.");
  if (training != nullptr) compare_data(training->identity(), data, problems);

  const Role role = engine_->variants()[0].role;
  struct Item {
    Region family;
    int32_t index;
    const SafeTensor* tensor;
  };
  std::vector<Item> items;
  size_t missing = 0;
  const auto want = [&](Region family, size_t index, const std::string& name, int64_t elements) {
    const SafeTensor* t = file.find(slot_name(family, index, name));
    if (t != nullptr && t->dtype == "F32" && t->elements() == elements) {
      items.push_back({family, int32_t(index), t});
    } else if (++missing > kMissingShown) {
      return;
    } else if (t == nullptr) {
      problems.add(name, fmt::format("is missing in the checkpoint ({})", content_of(family)));
    } else {
      problems.add(name, fmt::format("has {} elements of {} in the checkpoint, not {} of F32", t->elements(),
                                     t->dtype, elements));
    }
  };
  for (const Region family : kFamilies) {
    if (engine_->plan().region(family, role).bytes == 0) continue;
    for (size_t p = 0; p < graph.parameters.size(); ++p)
      want(family, p, graph.parameters[p].name, graph.parameters[p].shape.elements());
  }
  for (size_t b = 0; b < graph.buffers.size(); ++b)
    want(Region::B, b, graph.buffers[b].name, graph.at(graph.buffers[b].value).shape.elements());
  if (missing > kMissingShown)
    problems.add("the checkpoint", fmt::format("lacks {} more tensors", missing - kMissingShown));
  problems.throw_if_any(
      StatusCode::invalid_argument,
      fmt::format(
          "'{}' belongs to another training; give the model, data and options that it was written with (to "
          "train a finished one further, begin with the file that it wrote)",
          path));

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
  data_ = data;
}

}  // namespace ren
