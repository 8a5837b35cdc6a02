// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/support/onednn_cpu.h"

#include <cstring>

#include "engine/base/half.h"
#include "engine/base/status.h"

namespace ren {
namespace {

constexpr int64_t kConvertGrain = 1 << 14;  // elements; smaller pieces cost more to hand out than to convert

void widen(const std::byte* source, DType type, float* target, int64_t count) {
  parallel_for(count, kConvertGrain, [&](int, int64_t begin, int64_t end) {
    convert_to_f32(source + begin * int64_t(size_of(type)), type, target + begin, size_t(end - begin));
  });
}

void narrow(const float* source, DType type, std::byte* target, int64_t count) {
  parallel_for(count, kConvertGrain, [&](int, int64_t begin, int64_t end) {
    convert_from_f32(source + begin, type, target + begin * int64_t(size_of(type)), size_t(end - begin));
  });
}

const char* status_text(dnnl_status_t status) {
  switch (status) {
    case dnnl_out_of_memory:
      return "out of memory";
    case dnnl_invalid_arguments:
      return "invalid arguments";
    case dnnl_unimplemented:
      return "not implemented";
    case dnnl_runtime_error:
      return "runtime error";
    default:
      return "unknown error";
  }
}

// One thing to do in a launch: a conversion, or a primitive with its arguments.
struct Step {
  enum Kind : uint8_t { to_f32, from_f32, primitive } kind = primitive;
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  DType type = DType::f32;
  int64_t count = 0;
  dnnl::primitive call;
  std::vector<dnnl::memory> memories;
  std::vector<dnnl_exec_arg_t> arguments;

  void add(int argument, dnnl::memory memory) {
    arguments.push_back({argument, memory.get()});
    memories.push_back(std::move(memory));
  }
};

class OneDnnKernel final : public Kernel {
 public:
  OneDnnKernel(CpuDevice& device, std::string name, std::vector<Step> steps)
      : device_(device), name_(std::move(name)), steps_(std::move(steps)) {}

  void launch() noexcept override {
    for (Step& step : steps_) {
      if (step.kind == Step::to_f32) {
        widen(step.source, step.type, reinterpret_cast<float*>(step.target), step.count);
      } else if (step.kind == Step::from_f32) {
        narrow(reinterpret_cast<const float*>(step.source), step.type, step.target, step.count);
      } else if (!execute(step)) {
        return;
      }
    }
  }

 private:
  // The C interface: the C++ one builds a map of arguments at each call.
  bool execute(Step& step) noexcept {
    const dnnl_status_t status = dnnl_primitive_execute(step.call.get(), device_.stream().get(),
                                                        int(step.arguments.size()), step.arguments.data());
    if (status == dnnl_success) return true;
    device_.report_failure(name_.c_str(), status_text(status));
    return false;
  }

  CpuDevice& device_;
  std::string name_;
  std::vector<Step> steps_;
};

dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

dnnl::reorder::primitive_desc reorder_description(const dnnl::engine& engine, const OneDnnOperand& o) {
  const dnnl::memory::desc &from = o.output ? o.wanted : o.stored, &to = o.output ? o.stored : o.wanted;
  return {engine, from, engine, to, user_scratchpad()};
}

int64_t elements_of(const dnnl::memory::desc& desc) {
  int64_t count = 1;
  for (const auto extent : desc.get_dims()) count *= extent;
  return count;
}

DType computed_type(const dnnl::memory::desc& desc) {
  switch (desc.get_data_type()) {
    case dnnl::memory::data_type::bf16:
      return DType::bf16;
    case dnnl::memory::data_type::f16:
      return DType::f16;
    default:
      return DType::f32;
  }
}

// Where the pieces of one operand lie in the workspace.
struct Staging {
  uint64_t converted = 0, reordered = 0;
};

}  // namespace

dnnl::memory::data_type onednn_type(DType type) {
  switch (type) {
    case DType::bf16:
      return dnnl::memory::data_type::bf16;
    case DType::f16:
      return dnnl::memory::data_type::f16;
    default:
      return dnnl::memory::data_type::f32;
  }
}

bool onednn_computes(DType type) {
  const int isa = int(dnnl::get_effective_cpu_isa());
  const auto at_least = [isa](dnnl::cpu_isa wanted) { return (isa & int(wanted)) == int(wanted); };
  if (type == DType::bf16) return at_least(dnnl::cpu_isa::avx512_core_bf16);
  if (type == DType::f16) return at_least(dnnl::cpu_isa::avx512_core_fp16);
  return true;
}

bool is_reference(const char* implementation) { return std::strncmp(implementation, "ref", 3) == 0; }

void fail_slow(const std::string& what) {
  fail(StatusCode::unsupported, "oneDNN has only its reference loop for {}, which would take minutes", what);
}

bool OneDnnPlan::converts(const OneDnnOperand& o) const { return computed_type(o.stored) != o.stored_type; }

namespace {

template <typename Converts, typename Reorders>
std::vector<Staging> lay_out(const std::vector<OneDnnOperand>& operands, const Converts& converts,
                             const Reorders& reorders, WorkspaceLayout& layout) {
  std::vector<Staging> staging;
  for (const OneDnnOperand& o : operands) {
    Staging s;
    if (converts(o)) s.converted = layout.reserve(o.stored.get_size());
    if (reorders(o)) s.reordered = layout.reserve(o.wanted.get_size());
    staging.push_back(s);
  }
  return staging;
}

}  // namespace

uint64_t OneDnnPlan::scratchpad_bytes() const {
  uint64_t bytes = description.scratchpad_desc().get_size();
  for (const OneDnnOperand& o : operands)
    if (reorders(o))
      bytes =
          std::max<uint64_t>(bytes, reorder_description(device_.engine(), o).scratchpad_desc().get_size());
  return bytes;
}

NodeChoice OneDnnPlan::choice() const {
  WorkspaceLayout layout;
  lay_out(
      operands, [&](const auto& o) { return converts(o); }, [&](const auto& o) { return reorders(o); },
      layout);
  layout.reserve(scratchpad_bytes());
  return {std::string("onednn:") + description.impl_info_str(), layout.total(), {}};
}

std::unique_ptr<Kernel> OneDnnPlan::bind(std::byte* workspace) const {
  const dnnl::engine& engine = device_.engine();
  WorkspaceLayout layout;
  const std::vector<Staging> staging = lay_out(
      operands, [&](const auto& o) { return converts(o); }, [&](const auto& o) { return reorders(o); },
      layout);
  std::byte* const scratchpad = workspace + layout.reserve(scratchpad_bytes());
  std::vector<Step> before, after;
  Step main;
  for (size_t i = 0; i < operands.size(); ++i) {
    const OneDnnOperand& o = operands[i];
    std::byte* at = o.address;
    Step convert, reorder;
    if (converts(o)) {
      convert.kind = o.output ? Step::from_f32 : Step::to_f32;
      convert.type = o.stored_type;
      convert.count = elements_of(o.stored);
      std::byte* const staged = workspace + staging[i].converted;
      convert.source = o.output ? staged : at;
      convert.target = o.output ? at : staged;
      at = staged;
    }
    if (reorders(o)) {
      std::byte* const blocked = workspace + staging[i].reordered;
      const auto description = reorder_description(engine, o);
      reorder.call = dnnl::reorder(description);
      reorder.add(DNNL_ARG_FROM, {o.output ? o.wanted : o.stored, engine, o.output ? blocked : at});
      reorder.add(DNNL_ARG_TO, {o.output ? o.stored : o.wanted, engine, o.output ? at : blocked});
      reorder.add(DNNL_ARG_SCRATCHPAD, {description.scratchpad_desc(), engine, scratchpad});
      at = blocked;
    }
    main.add(o.argument, {o.wanted, engine, at});
    std::vector<Step>& side = o.output ? after : before;
    if (o.output && reorders(o)) side.push_back(std::move(reorder));
    if (converts(o)) side.push_back(std::move(convert));
    if (!o.output && reorders(o)) side.push_back(std::move(reorder));
  }
  main.call = dnnl::primitive(description);
  main.add(DNNL_ARG_SCRATCHPAD, {description.scratchpad_desc(), engine, scratchpad});
  before.push_back(std::move(main));
  for (Step& step : after) before.push_back(std::move(step));
  return std::make_unique<OneDnnKernel>(device_, name_, std::move(before));
}

}  // namespace ren
