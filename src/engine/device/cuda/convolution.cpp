// SPDX-License-Identifier: Apache-2.0
// The one translation unit that includes cuDNN's C++ frontend, which takes a minute to compile.
#include "engine/device/cuda/convolution.h"

#include <cudnn_frontend.h>
#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "engine/base/half.h"
#include "engine/base/rng.h"
#include "engine/device/cuda/check.h"
#include "engine/device/cuda/cuda_device.h"

namespace ren::cuda {
namespace {

namespace fe = cudnn_frontend;
using TensorPtr = std::shared_ptr<fe::graph::Tensor_attributes>;

constexpr int64_t kX = 1, kW = 2, kY = 3, kSums = 4, kSquares = 5;  // names of the tensors in a graph
constexpr int64_t kMostWorkspace = int64_t{1} << 30;
constexpr int kMostMeasured = 32;
constexpr float kHopeless = 1.5f;  // times the best so far in the first launch: not measured further

void check_cudnn(cudnnStatus_t status, const char* call) {
  if (status != CUDNN_STATUS_SUCCESS) fail(StatusCode::device, "{}: {}", call, cudnnGetErrorString(status));
}

fe::DataType_t library_type(DType type) {
  switch (type) {
    case DType::f32:
      return fe::DataType_t::FLOAT;
    case DType::f16:
      return fe::DataType_t::HALF;
    case DType::bf16:
      return fe::DataType_t::BFLOAT16;
    default:
      fail(StatusCode::internal, "no convolution of {}", name_of(type));
  }
}

// The library orders dimensions N, C, H, W; the strides say that memory is N, H, W, C.
fe::graph::Tensor_attributes tensor(int64_t uid, int64_t n, int64_t h, int64_t w, int64_t c, DType type) {
  return fe::graph::Tensor_attributes()
      .set_uid(uid)
      .set_dim({n, c, h, w})
      .set_stride({h * w * c, 1, w * c, c})
      .set_data_type(library_type(type));
}

template <typename A>
A attributes(const ConvolutionProblem& p) {
  return A()
      .set_pre_padding({p.pad_top, p.pad_left})
      .set_post_padding({p.pad_bottom, p.pad_right})
      .set_stride({p.stride_h, p.stride_w})
      .set_dilation({p.dilation_h, p.dilation_w});
}

void describe(fe::graph::Graph& graph, const ConvolutionProblem& p) {
  graph.set_io_data_type(library_type(p.x_type))
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  const auto x = tensor(kX, p.n, p.h, p.w, p.c, p.x_type);
  const auto w = tensor(kW, p.k, p.r, p.s, p.c / p.groups, p.w_type);
  const auto y = tensor(kY, p.n, p.p, p.q, p.k, p.y_type);
  const auto finish = [](const TensorPtr& out, const fe::graph::Tensor_attributes& as) {
    out->set_output(true).set_uid(as.get_uid()).set_dim(as.get_dim()).set_stride(as.get_stride());
    out->set_data_type(as.get_data_type());
  };
  switch (p.kind) {
    case ConvolutionKind::forward: {
      const TensorPtr out =
          graph.conv_fprop(graph.tensor(x), graph.tensor(w), attributes<fe::graph::Conv_fprop_attributes>(p));
      finish(out, y);
      if (!p.sums) break;
      const auto [sums, squares] = graph.genstats(out, fe::graph::Genstats_attributes());
      finish(sums, tensor(kSums, 1, 1, 1, p.k, DType::f32));
      finish(squares, tensor(kSquares, 1, 1, 1, p.k, DType::f32));
      break;
    }
    case ConvolutionKind::backward_data:
      finish(
          graph.conv_dgrad(graph.tensor(y), graph.tensor(w), attributes<fe::graph::Conv_dgrad_attributes>(p)),
          x);
      break;
    case ConvolutionKind::backward_weights:
      finish(
          graph.conv_wgrad(graph.tensor(y), graph.tensor(x), attributes<fe::graph::Conv_wgrad_attributes>(p)),
          w);
      break;
  }
}

std::vector<fe::NumericalNote_t> unwanted(const ConvolutionProblem& p) {
  using Note = fe::NumericalNote_t;
  std::vector<Note> notes{
      Note::NONDETERMINISTIC, Note::REDUCED_PRECISION_REDUCTION, Note::DOWN_CONVERT_INPUTS, Note::FFT,
      Note::WINOGRAD,         Note::WINOGRAD_TILE_13x13};
  if (p.x_type == DType::f32) notes.push_back(Note::TENSOR_CORE);  // that would be TF32
  return notes;
}

// All engines that the library proposes, in its order, without those that we don't want.
fe::error_t propose(fe::graph::Graph& graph, const ConvolutionProblem& p, cudnnHandle_t handle) {
  describe(graph, p);
  if (auto e = graph.validate(); e.is_bad()) return e;
  if (auto e = graph.build_operation_graph(handle); e.is_bad()) return e;
  if (auto e = graph.create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::B, fe::HeurMode_t::FALLBACK});
      e.is_bad())
    return e;
  graph.deselect_numeric_notes(unwanted(p)).deselect_workspace_greater_than(kMostWorkspace);
  return {};
}

// A block of pseudo-random numbers in every position: zeros are measured faster than data.
void fill_random(CudaDevice& device, std::byte* target, uint64_t bytes, DType type) {
  constexpr size_t kBlock = 32768;
  std::vector<float> values(kBlock);
  RandomStream random(1, 0, 0);
  for (float& v : values) v = random.uniform(-1.0f, 1.0f);
  std::vector<std::byte> block(kBlock * size_of(type));
  convert_from_f32(values.data(), type, block.data(), kBlock);
  uint64_t done = std::min<uint64_t>(bytes, block.size());
  REN_CUDA_CHECK(cudaMemcpyAsync(target, block.data(), done, cudaMemcpyHostToDevice, device.stream()));
  REN_CUDA_CHECK(cudaStreamSynchronize(device.stream()));
  for (; done < bytes; done *= 2)
    REN_CUDA_CHECK(cudaMemcpyAsync(target + done, target, std::min(done, bytes - done),
                                   cudaMemcpyDeviceToDevice, device.stream()));
}

std::string to_cache(const ConvolutionChoice& c) {
  return fmt::format("{}\n{}\n{}\n", c.name, c.workspace, c.microseconds);
}

std::optional<ConvolutionChoice> from_cache(const std::string& text) {
  std::istringstream in(text);
  ConvolutionChoice c;
  if (!std::getline(in, c.name) || !(in >> c.workspace >> c.microseconds)) return {};
  return c;
}

}  // namespace

struct ConvolutionLibrary::State {
  cudnnHandle_t handle = nullptr;
  std::string identity, folder;
  std::map<std::string, std::optional<ConvolutionChoice>> choices;
  std::map<std::string, std::string> refusals;
  std::map<std::string, std::shared_ptr<Plan>> plans;
};

struct ConvolutionLibrary::Plan {
  fe::graph::Graph graph;
  int64_t index = 0;
};

std::string ConvolutionProblem::text() const {
  const char* kinds[] = {"forward", "backward_data", "backward_weights"};
  return fmt::format(
      "{} x {} [{},{},{},{}] w {} [{},{},{},{}] y {} [{},{},{},{}] stride {},{} pad {},{},{},{} dilation "
      "{},{} groups {}{}",
      kinds[int(kind)], name_of(x_type), n, h, w, c, name_of(w_type), k, r, s, c / groups, name_of(y_type), n,
      p, q, k, stride_h, stride_w, pad_top, pad_left, pad_bottom, pad_right, dilation_h, dilation_w, groups,
      sums ? " sums" : "");
}

ConvolutionLibrary::ConvolutionLibrary(CudaDevice& device)
    : device_(device), state_(std::make_unique<State>()) {
  check_cudnn(cudnnCreate(&state_->handle), "cudnnCreate");
  check_cudnn(cudnnSetStream(state_->handle, device.stream()), "cudnnSetStream");
  state_->identity = fmt::format("{} cudnn {}", device.identity(), cudnnGetVersion());
  state_->folder = cache_folder();
}

ConvolutionLibrary::~ConvolutionLibrary() {
  state_->plans.clear();  // before the handle
  if (state_->handle) cudnnDestroy(state_->handle);
}

std::optional<ConvolutionChoice> ConvolutionLibrary::choose(const ConvolutionProblem& problem,
                                                            std::string* refusal) {
  const std::string text = problem.text();
  if (const auto known = state_->choices.find(text); known != state_->choices.end()) {
    if (refusal) *refusal = state_->refusals[text];
    return known->second;
  }
  const std::string key = text_hash(state_->identity + "\n" + text);
  std::string why;
  std::optional<ConvolutionChoice> choice = from_cache(read_cached(state_->folder, "convolutions", key));
  if (choice && !try_plan(problem, *choice, why)) choice.reset();
  if (!choice) {
    choice = measure(problem, why);
    if (choice) write_cached(state_->folder, "convolutions", key, to_cache(*choice));
  }
  state_->choices[text] = choice;
  state_->refusals[text] = why;
  if (refusal) *refusal = why;
  return choice;
}

std::optional<ConvolutionChoice> ConvolutionLibrary::measure(const ConvolutionProblem& p, std::string& why) {
  Plan candidates;
  const auto bad = [&why](fe::error_t e) {
    if (e.is_bad()) why = e.get_message();
    return e.is_bad();
  };
  if (bad(propose(candidates.graph, p, state_->handle))) return {};
  const uint64_t x_bytes = uint64_t(p.n * p.h * p.w * p.c) * size_of(p.x_type);
  const uint64_t w_bytes = uint64_t(p.k * p.r * p.s * (p.c / p.groups)) * size_of(p.w_type);
  const uint64_t y_bytes = uint64_t(p.n * p.p * p.q * p.k) * size_of(p.y_type);
  const DeviceBuffer x(x_bytes), w(w_bytes), y(y_bytes), sums(uint64_t(p.k) * 4), squares(uint64_t(p.k) * 4);
  fill_random(device_, x.data(), x_bytes, p.x_type);
  fill_random(device_, w.data(), w_bytes, p.w_type);
  fill_random(device_, y.data(), y_bytes, p.y_type);

  std::optional<ConvolutionChoice> best;
  const Event begin = make_event(cudaEventDefault), end = make_event(cudaEventDefault);
  int measured = 0;
  for (int64_t i = 0; i < candidates.graph.get_execution_plan_count() && measured < kMostMeasured; ++i) {
    if (bad(candidates.graph.build_plan_at_index(i))) continue;
    const int64_t room = candidates.graph.get_workspace_size_plan_at_index(i);
    if (room > kMostWorkspace) continue;
    const DeviceBuffer workspace{uint64_t(room)};
    candidates.index = i;
    float fastest = 1e30f;
    try {
      execute(candidates, x.data(), w.data(), y.data(), workspace.data(), p.sums ? sums.data() : nullptr,
              p.sums ? squares.data() : nullptr);
      REN_CUDA_CHECK(cudaStreamSynchronize(device_.stream()));
      for (int window = 0; window < 4; ++window) {
        const int launches = window == 0 ? 1 : 4;
        REN_CUDA_CHECK(cudaEventRecord(begin.get(), device_.stream()));
        for (int launch = 0; launch < launches; ++launch)
          execute(candidates, x.data(), w.data(), y.data(), workspace.data(), p.sums ? sums.data() : nullptr,
                  p.sums ? squares.data() : nullptr);
        REN_CUDA_CHECK(cudaEventRecord(end.get(), device_.stream()));
        REN_CUDA_CHECK(cudaEventSynchronize(end.get()));
        float milliseconds = 0;
        REN_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()));
        fastest = std::min(fastest, 1000 * milliseconds / float(launches));
        if (best && fastest > kHopeless * best->microseconds) break;
      }
    } catch (const Error& e) {
      why = e.what();
      continue;
    }
    ++measured;
    if (best && best->microseconds <= fastest) continue;
    ConvolutionChoice choice;
    if (bad(candidates.graph.get_plan_name_at_index(i, choice.name))) continue;
    choice.workspace = room;
    choice.microseconds = fastest;
    best = choice;
  }
  return best;
}

std::optional<ConvolutionChoice> ConvolutionLibrary::first(const ConvolutionProblem& problem) {
  const std::string key = problem.text() + "\nfirst";
  if (const auto known = state_->choices.find(key); known != state_->choices.end()) return known->second;
  std::optional<ConvolutionChoice>& choice = state_->choices[key];
  auto plan = std::make_shared<Plan>();
  fe::graph::Graph& graph = plan->graph;
  if (propose(graph, problem, state_->handle).is_bad()) return choice;
  for (int64_t& i = plan->index; i < graph.get_execution_plan_count(); ++i) {
    ConvolutionChoice found;
    if (graph.build_plan_at_index(i).is_bad() || graph.get_plan_name_at_index(i, found.name).is_bad())
      continue;
    found.workspace = graph.get_workspace_size_plan_at_index(i);
    if (found.workspace > kMostWorkspace) continue;
    state_->plans[problem.text() + "\n" + found.name] = plan;
    choice = found;
    break;
  }
  return choice;
}

std::shared_ptr<ConvolutionLibrary::Plan> ConvolutionLibrary::try_plan(const ConvolutionProblem& problem,
                                                                       const ConvolutionChoice& choice,
                                                                       std::string& why) {
  const std::string key = problem.text() + "\n" + choice.name;
  if (const auto known = state_->plans.find(key); known != state_->plans.end()) return known->second;
  const auto bad = [&why](fe::error_t e) {
    if (e.is_bad()) why = e.get_message();
    return e.is_bad();
  };
  auto plan = std::make_shared<Plan>();
  if (bad(propose(plan->graph, problem, state_->handle))) return nullptr;
  // Found by its name among the proposals: the frontend does not know all knobs, so an engine can't
  // be made from them.
  const int64_t count = plan->graph.get_execution_plan_count();
  std::string name;
  for (plan->index = 0; plan->index < count; ++plan->index)
    if (plan->graph.get_plan_name_at_index(plan->index, name).is_good() && name == choice.name) break;
  if (plan->index == count) {
    why = "the library no longer proposes it";
    return nullptr;
  }
  if (bad(plan->graph.build_plan_at_index(plan->index))) return nullptr;
  const int64_t room = plan->graph.get_workspace_size_plan_at_index(plan->index);
  if (room > choice.workspace) {
    why = fmt::format("it now needs {} bytes of workspace instead of {}", room, choice.workspace);
    return nullptr;
  }
  state_->plans[key] = plan;
  return plan;
}

std::shared_ptr<ConvolutionLibrary::Plan> ConvolutionLibrary::plan(const ConvolutionProblem& problem,
                                                                   const ConvolutionChoice& choice) {
  std::string why;
  auto result = try_plan(problem, choice, why);
  if (!result)
    fail(StatusCode::device, "cuDNN cannot repeat {} for {}: {}", choice.name, problem.text(), why);
  return result;
}

void ConvolutionLibrary::execute(Plan& plan, const void* x, const void* w, const void* y, void* workspace,
                                 void* sums, void* squares) {
  std::unordered_map<int64_t, void*> pack{
      {kX, const_cast<void*>(x)}, {kW, const_cast<void*>(w)}, {kY, const_cast<void*>(y)}};
  if (sums) pack[kSums] = sums, pack[kSquares] = squares;
  fe::error_t status = plan.graph.execute_plan_at_index(state_->handle, pack, workspace, plan.index);
  if (status.is_bad()) fail(StatusCode::device, "cuDNN convolution: {}", status.get_message());
}

}  // namespace ren::cuda
