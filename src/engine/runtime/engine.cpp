// SPDX-License-Identifier: Apache-2.0
#include "engine/runtime/engine.h"

#include <algorithm>
#include <cstring>

#include "engine/base/half.h"
#include "engine/base/memory.h"
#include "engine/base/status.h"
#include "engine/range/range.h"

namespace ren {
namespace {

// Inputs of load_batch, by slot.
constexpr size_t kRecord = 0, kLabels = 1, kImages = 2, kPerSlot = 3;

size_t bytes_of(const Tensor& t) { return size_t(bytes_of(t.dtype, uint64_t(t.shape.elements()))); }

std::vector<float> widen(const std::vector<std::byte>& raw, const Tensor& t) {
  const size_t count = size_t(t.shape.elements());
  std::vector<float> out(count);
  switch (t.dtype) {
    case DType::f32:
    case DType::f16:
    case DType::bf16:
      convert_to_f32(raw.data(), t.dtype, out.data(), count);
      break;
    case DType::i32:
      for (size_t i = 0; i < count; ++i) {
        int32_t v;
        std::memcpy(&v, raw.data() + 4 * i, 4);
        out[i] = float(v);
      }
      break;
    case DType::u8:
      for (size_t i = 0; i < count; ++i) out[i] = float(uint8_t(raw[i]));
      break;
    case DType::b1:
      for (size_t i = 0; i < count; ++i) out[i] = float(int(raw[i / 8]) >> (i % 8) & 1);
      break;
    case DType::i8:
      for (size_t i = 0; i < count; ++i) out[i] = float(int8_t(raw[i]));
      break;
  }
  return out;
}

// Measures what another kernel takes.
class TimedKernel final : public Kernel {
 public:
  TimedKernel(std::unique_ptr<Kernel> inner, Stopwatch& stopwatch)
      : inner_(std::move(inner)), stopwatch_(stopwatch) {}
  void launch() noexcept override {
    stopwatch_.start();
    inner_->launch();
    stopwatch_.stop();
  }

 private:
  std::unique_ptr<Kernel> inner_;
  Stopwatch& stopwatch_;
};

}  // namespace

Engine::Engine(const Backend& backend, int device_index, std::vector<EngineVariant> variants,
               EngineOptions options)
    : backend_(backend), variants_(std::move(variants)), device_(backend.open(device_index)) {
  require(!variants_.empty(), "an engine needs a variant");
  prepare(options);
  make_plan(options);
  take_arena(options.memory_limit);
  bind(options.profile);
  // State scalars begin at zero, but for a scale of 1.
  write_scalar(Scalar::loss_scale, 1.0);
}

Engine::~Engine() = default;

void Engine::prepare(const EngineOptions& options) {
  Problems problems;
  for (const EngineVariant& v : variants_) {
    Choices choices;
    for (const Node& node : v.graph.nodes) {
      choices.nodes.emplace_back();
      if (node.op == Op::view) continue;
      const OpBackend* kernels = backend_.kernels(node.op);
      if (kernels == nullptr) {
        problems.add(fmt::format("{} '{}'", name_of(node.op), node.name), "this device has no kernel for it",
                     "use another device");
        continue;
      }
      try {
        choices.nodes.back() =
            kernels->prepare({v.graph, node, *device_, options.deterministic, options.tf32});
      } catch (const Error& e) {
        if (e.code() != StatusCode::unsupported) throw;
        problems.add(fmt::format("{} '{}'", name_of(node.op), node.name), e.what());
      }
    }
    choices_.push_back(std::move(choices));
    if (!problems.empty()) break;  // the other variants have the same nodes
  }
  problems.throw_if_any(StatusCode::unsupported, fmt::format("the model cannot run on {}", device_->name()));
}

void Engine::make_plan(EngineOptions& options) {
  std::vector<Variant> variants;
  for (size_t i = 0; i < variants_.size(); ++i)
    variants.push_back({variants_[i].name, variants_[i].role, &variants_[i].graph, &choices_[i]});
  if (options.plan.slot_order.empty()) options.plan.slot_order = gradient_order(variants_[0].graph);
  if (options.plan.compute_copies) copy_type_ = options.plan.compute_type;
  plan_ = std::make_unique<MemoryPlan>(plan_memory(variants, options.plan));
  validate(*plan_, variants, options.plan);

  const Graph& graph = variants_[0].graph;
  for (const Slot& slot : plan_->slots()) {
    const Parameter& p = graph.parameters[size_t(slot.parameter)];
    Segment s;
    s.offset = slot.offset;
    s.elements = slot.elements;
    s.learning_rate = p.learning_rate_multiplier;
    s.weight_decay = p.weight_decay_multiplier;
    s.flags = (p.trainable ? 0u : uint32_t(kFrozen)) | (p.lars ? uint32_t(kLars) : 0u);
    segments_.push_back(s);
  }
}

void Engine::take_arena(uint64_t limit) {
  const uint64_t available = limit != 0 ? std::min(limit, device_->free_memory()) : device_->free_memory();
  const uint64_t needed = plan_->arena_bytes();
  if (needed > available) {
    const Role role = variants_[0].role;
    uint64_t growing = 0;  // what is proportional to the batch
    for (const Region r : {Region::I, Region::F, Region::T}) growing += plan_->region(r, role).bytes;
    const int64_t batch = variants_[0].graph.batch();
    const uint64_t fixed = needed - std::min(needed, growing);
    const int64_t fits = fixed >= available || growing == 0
                             ? 0
                             : int64_t(double(available - fixed) / double(growing) * double(batch));
    std::string text = explain_shortage(*plan_, available);
    text += fits > 0 ? fmt::format("\na batch of about {} would fit (now {})", fits, batch)
                     : std::string("\nno batch size would fit");
    throw Error(StatusCode::out_of_memory, std::move(text));
  }
  arena_ = device_->allocate(needed);
}

std::byte* Engine::address(size_t variant, TensorId tensor) const {
  if (tensor == kNoTensor) return nullptr;
  const uint64_t offset = plan_->offset(variant, tensor);
  return offset == kNone ? nullptr : arena_->base() + offset;
}

std::vector<RegionSpan> Engine::region_spans(Role role) const {
  std::vector<RegionSpan> spans;
  for (int r = 0; r < kRegions; ++r) {
    const Extent e = plan_->region(Region(r), role);
    spans.push_back({e.bytes == 0 ? nullptr : arena_->base() + e.offset, e.bytes});
  }
  return spans;
}

std::unique_ptr<Kernel> Engine::bind_node(size_t variant, size_t index) {
  const EngineVariant& v = variants_[variant];
  const Node& node = v.graph.nodes[index];
  std::vector<std::byte*> inputs, outputs;
  for (const TensorId id : node.inputs) inputs.push_back(address(variant, id));
  for (const TensorId id : node.outputs) outputs.push_back(address(variant, id));
  const uint64_t workspace = plan_->workspace(variant, index);
  const std::vector<RegionSpan> regions = region_spans(v.role);
  const BindContext context{v.graph,
                            node,
                            choices_[variant].nodes[index],
                            *device_,
                            inputs,
                            outputs,
                            workspace == kNone ? nullptr : arena_->base() + workspace,
                            regions,
                            segments_};
  return backend_.kernels(node.op)->bind(context);
}

void Engine::bind(bool profile) {
  node_times_.resize(variants_.size());
  stopwatches_.resize(variants_.size());
  for (size_t v = 0; v < variants_.size(); ++v) {
    std::vector<std::unique_ptr<Kernel>> kernels;
    const std::vector<Node>& nodes = variants_[v].graph.nodes;
    if (profile) {
      node_times_[v].resize(nodes.size());
      stopwatches_[v].resize(nodes.size());
    }
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i].op == Op::view) continue;
      kernels.push_back(bind_node(v, i));
      if (!profile) continue;
      stopwatches_[v][i] = device_->make_stopwatch();
      kernels.back() = std::make_unique<TimedKernel>(std::move(kernels.back()), *stopwatches_[v][i]);
    }
    programs_.push_back(device_->make_program(std::move(kernels)));
  }
  if (copy_type_ == DType::f32) return;
  // The 16-bit copies are made by the optimizer in passing; this one serves what the host writes.
  Node node;
  node.op = Op::range_cast;
  node.name = "cast_weights";
  node.attributes = std::make_shared<RangeAttributes>(Region::W, Region::A, copy_type_);
  const OpBackend* kernels = backend_.kernels(Op::range_cast);
  const NodeChoice choice = kernels->prepare({variants_[0].graph, node, *device_});
  require(choice.workspace_bytes == 0, "range_cast wants a workspace");
  const std::vector<RegionSpan> regions = region_spans(variants_[0].role);
  cast_weights_ =
      kernels->bind({variants_[0].graph, node, choice, *device_, {}, {}, nullptr, regions, segments_});
}

void Engine::upload_batch(size_t variant, const std::byte* record, const int32_t* labels,
                          const void* images) {
  const Graph& graph = variants_[variant].graph;
  const Node& load = graph.nodes[0];
  require(load.op == Op::load_batch, "the program does not begin with load_batch");
  const size_t slot = size_t(launches_ & 1) * kPerSlot;
  const auto put = [&](size_t which, const void* source) {
    const TensorId id = load.inputs[slot + which];
    if (id == kNoTensor || source == nullptr) return;
    device_->upload(address(variant, id), source, bytes_of(graph.at(id)));
  };
  put(kRecord, record);
  put(kLabels, labels);
  put(kImages, images);
}

void Engine::run(size_t variant) {
  programs_[variant]->run();
  ++launches_;
  if (!stopwatches_[variant].empty()) read_stopwatches(variant);
}

void Engine::read_stopwatches(size_t variant) {
  device_->synchronize();
  for (size_t i = 0; i < stopwatches_[variant].size(); ++i) {
    if (!stopwatches_[variant][i]) continue;
    node_times_[variant][i].seconds += stopwatches_[variant][i]->seconds();
    ++node_times_[variant][i].runs;
  }
}

void Engine::set_launches(int64_t count) {
  launches_ = count;
  write_scalar(Scalar::step, double(count));
}

std::vector<float> Engine::read(size_t variant, TensorId tensor) {
  const Tensor& t = variants_[variant].graph.at(tensor);
  const std::byte* source = address(variant, tensor);
  require(source != nullptr, "tensor '{}' has no memory", t.name);
  std::vector<std::byte> raw(bytes_of(t));
  device_->wait(device_->download(raw.data(), source, raw.size()));
  return widen(raw, t);
}

void Engine::write(size_t variant, TensorId tensor, const std::vector<float>& values) {
  const Tensor& t = variants_[variant].graph.at(tensor);
  require(size_t(t.shape.elements()) == values.size(), "tensor '{}' holds {} elements, not {}", t.name,
          t.shape.elements(), values.size());
  require(t.dtype != DType::i32 && t.dtype != DType::u8 && t.dtype != DType::i8,
          "tensor '{}' is not floating point", t.name);
  std::vector<std::byte> raw(bytes_of(t));
  convert_from_f32(values.data(), t.dtype, raw.data(), values.size());
  device_->synchronize();  // what was launched before reads the old values
  device_->upload(address(variant, tensor), raw.data(), raw.size());
  device_->synchronize();
}

double Engine::read_scalar(Scalar scalar, int component) {
  const std::byte* source = address(0, variants_[0].graph.scalar(scalar));
  std::byte raw[4];
  device_->wait(device_->download(raw, source + 4 * component, 4));
  if (kScalars[size_t(scalar)].type == DType::i32) {
    int32_t v;
    std::memcpy(&v, raw, 4);
    return v;
  }
  float v;
  std::memcpy(&v, raw, 4);
  return double(v);
}

void Engine::write_scalar(Scalar scalar, double value, int component) {
  std::byte raw[4];
  device_->synchronize();  // what was launched before reads the old value
  if (kScalars[size_t(scalar)].type == DType::i32) {
    const int32_t v = int32_t(value);
    std::memcpy(raw, &v, 4);
  } else {
    const float v = float(value);
    std::memcpy(raw, &v, 4);
  }
  device_->upload(address(0, variants_[0].graph.scalar(scalar)) + 4 * component, raw, 4);
  device_->synchronize();
}

std::vector<float> Engine::read_parameter(Region family, int32_t parameter) {
  const Extent region = plan_->region(family, variants_[0].role);
  if (region.bytes == 0)
    fail(StatusCode::not_found, "this training has no {} ({})", name_of(family), content_of(family));
  std::vector<float> out(size_t(variants_[0].graph.parameters[size_t(parameter)].shape.elements()));
  const std::byte* source = arena_->base() + region.offset + plan_->slot_offset(family, parameter);
  device_->wait(device_->download(out.data(), source, out.size() * sizeof(float)));
  return out;
}

void Engine::write_parameter(Region family, int32_t parameter, const std::vector<float>& values) {
  const Extent region = plan_->region(family, variants_[0].role);
  if (region.bytes == 0)
    fail(StatusCode::not_found, "this training has no {} ({})", name_of(family), content_of(family));
  const Parameter& p = variants_[0].graph.parameters[size_t(parameter)];
  require(size_t(p.shape.elements()) == values.size(), "parameter '{}' holds {} elements, not {}", p.name,
          p.shape.elements(), values.size());
  std::byte* target = arena_->base() + region.offset + plan_->slot_offset(family, parameter);
  device_->synchronize();  // what was launched before reads the old values
  device_->upload(target, values.data(), values.size() * sizeof(float));
  device_->synchronize();
}

std::vector<float> Engine::read_buffer(int32_t buffer) {
  return read(0, variants_[0].graph.buffers[size_t(buffer)].value);
}

void Engine::write_buffer(int32_t buffer, const std::vector<float>& values) {
  write(0, variants_[0].graph.buffers[size_t(buffer)].value, values);
}

void Engine::weights_written() {
  const Extent w = plan_->region(Region::W, variants_[0].role),
               e = plan_->region(Region::E, variants_[0].role);
  if (e.bytes != 0)
    for (size_t p = 0; p < variants_[0].graph.parameters.size(); ++p)
      write_parameter(Region::E, int32_t(p), read_parameter(Region::W, int32_t(p)));
  if (cast_weights_ && w.bytes != 0) cast_weights_->launch();
  device_->synchronize();
}

uint64_t Engine::results_bytes() const {
  const Role role = variants_[0].role;
  return plan_->region(Region::S, role).end() - plan_->region(Region::R, role).offset;
}

uint64_t Engine::download_results(std::byte* host) {
  const Extent r = plan_->region(Region::R, variants_[0].role);
  return device_->download(host, arena_->base() + r.offset, results_bytes());
}

void Engine::wait_results(uint64_t ticket) { device_->wait(ticket); }

uint64_t Engine::result_offset(size_t variant, TensorId tensor) const {
  return plan_->offset(variant, tensor) - plan_->region(Region::R, variants_[0].role).offset;
}

}  // namespace ren
