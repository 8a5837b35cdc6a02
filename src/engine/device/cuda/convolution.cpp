// SPDX-License-Identifier: Apache-2.0
// The one translation unit that includes cuDNN's C++ frontend, which takes a minute to compile.
#include "engine/device/cuda/convolution.h"

#include <cudnn_frontend.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
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

using Note = fe::NumericalNote_t;

// `Sums` says which engines are proposed: those that add in FP32, those that say they may not, or both.
enum class Sums { exact, reduced, any };

std::vector<Note> unwanted(const ConvolutionProblem& p, Sums which) {
  std::vector<Note> notes{Note::NONDETERMINISTIC, Note::DOWN_CONVERT_INPUTS, Note::FFT, Note::WINOGRAD,
                          Note::WINOGRAD_TILE_13x13};
  if (which == Sums::exact) notes.push_back(Note::REDUCED_PRECISION_REDUCTION);
  if (p.x_type == DType::f32 && !p.tf32) notes.push_back(Note::TENSOR_CORE);  // that would be TF32
  return notes;
}

const std::vector<fe::HeurMode_t> kAllModes{fe::HeurMode_t::A, fe::HeurMode_t::B, fe::HeurMode_t::FALLBACK};

// All engines that the library proposes in these modes, in its order, without those that we don't want.
fe::error_t propose(fe::graph::Graph& graph, const ConvolutionProblem& p, cudnnHandle_t handle, Sums which,
                    const std::vector<fe::HeurMode_t>& modes = kAllModes) {
  describe(graph, p);
  if (auto e = graph.validate(); e.is_bad()) return e;
  if (auto e = graph.build_operation_graph(handle); e.is_bad()) return e;
  if (auto e = graph.create_execution_plans(modes); e.is_bad()) return e;
  if (which == Sums::reduced) graph.select_numeric_notes({Note::REDUCED_PRECISION_REDUCTION});
  graph.deselect_numeric_notes(unwanted(p, which)).deselect_workspace_greater_than(kMostWorkspace);
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
      "{},{} groups {}{}{}",
      kinds[int(kind)], name_of(x_type), n, h, w, c, name_of(w_type), k, r, s, c / groups, name_of(y_type), n,
      p, q, k, stride_h, stride_w, pad_top, pad_left, pad_bottom, pad_right, dilation_h, dilation_w, groups,
      sums ? " sums" : "", tf32 ? " tf32" : "");
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
  std::string why;
  std::optional<ConvolutionChoice> choice =
      remembered(problem, text, why, [&] { return measure(problem, why); });
  state_->choices[text] = choice;
  state_->refusals[text] = why;
  if (refusal) *refusal = why;
  return choice;
}

// What the disk's cache has under this key, as long as the library still has it; else what `find` finds,
// which it then keeps.
std::optional<ConvolutionChoice> ConvolutionLibrary::remembered(
    const ConvolutionProblem& problem, const std::string& key, std::string& why,
    const std::function<std::optional<ConvolutionChoice>()>& find) {
  const std::string hash = text_hash(state_->identity + "\n" + key);
  std::optional<ConvolutionChoice> choice = from_cache(read_cached(state_->folder, "convolutions", hash));
  if (choice && try_plan(problem, *choice, why)) return choice;
  choice = find();
  if (choice) write_cached(state_->folder, "convolutions", hash, to_cache(*choice));
  return choice;
}

// Memory in which engines are tried, filled with random numbers.
struct ConvolutionLibrary::Trial {
  Trial(ConvolutionLibrary& owner, const ConvolutionProblem& p)
      : library(owner),
        problem(p),
        x_bytes(uint64_t(p.n * p.h * p.w * p.c) * size_of(p.x_type)),
        w_bytes(uint64_t(p.k * p.r * p.s * (p.c / p.groups)) * size_of(p.w_type)),
        y_bytes(uint64_t(p.n * p.p * p.q * p.k) * size_of(p.y_type)),
        x(x_bytes),
        w(w_bytes),
        y(y_bytes),
        sums(uint64_t(p.k) * 4),
        squares(uint64_t(p.k) * 4) {
    fill_random(owner.device_, x.data(), x_bytes, p.x_type);
    fill_random(owner.device_, w.data(), w_bytes, p.w_type);
    fill_random(owner.device_, y.data(), y_bytes, p.y_type);
  }

  cudaStream_t stream() const { return library.device_.stream(); }

  void run(Plan& plan, const DeviceBuffer& workspace) {
    library.execute(plan, x.data(), w.data(), y.data(), workspace.data(),
                    problem.sums ? sums.data() : nullptr, problem.sums ? squares.data() : nullptr);
  }

  // Microseconds of one launch, the least of some windows; given up when far above `best`.
  float time(Plan& plan, const DeviceBuffer& workspace, float best) {
    run(plan, workspace);
    REN_CUDA_CHECK(cudaStreamSynchronize(stream()));
    float fastest = 1e30f;
    for (int window = 0; window < 4; ++window) {
      const int launches = window == 0 ? 1 : 4;
      REN_CUDA_CHECK(cudaEventRecord(begin.get(), stream()));
      for (int launch = 0; launch < launches; ++launch) run(plan, workspace);
      REN_CUDA_CHECK(cudaEventRecord(end.get(), stream()));
      REN_CUDA_CHECK(cudaEventSynchronize(end.get()));
      float milliseconds = 0;
      REN_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()));
      fastest = std::min(fastest, 1000 * milliseconds / float(launches));
      if (fastest > kHopeless * best) break;
    }
    return fastest;
  }

  // What a plan computes, or the beginning of it.
  std::vector<float> result(Plan& plan, const DeviceBuffer& workspace) {
    constexpr uint64_t kMostBytes = 8 << 20;
    const bool forward = problem.kind == ConvolutionKind::forward;
    const bool data = problem.kind == ConvolutionKind::backward_data;
    const DeviceBuffer& target = forward ? y : data ? x : w;
    const DType type = forward ? problem.y_type : data ? problem.x_type : problem.w_type;
    std::vector<std::byte> raw(std::min(kMostBytes, forward ? y_bytes : data ? x_bytes : w_bytes));
    run(plan, workspace);
    REN_CUDA_CHECK(cudaMemcpyAsync(raw.data(), target.data(), raw.size(), cudaMemcpyDeviceToHost, stream()));
    REN_CUDA_CHECK(cudaStreamSynchronize(stream()));
    std::vector<float> values(raw.size() / size_of(type));
    convert_to_f32(raw.data(), type, values.data(), values.size());
    return values;
  }

  // Does a plan that may add in less than FP32 agree with one that doesn't, but for the rounding of the
  // result and of a few partial sums? Sums kept in 16 bits throughout would be off by tens to thousands of
  // units.
  bool agrees(Plan& plan, const DeviceBuffer& workspace, Plan& exact, const DeviceBuffer& exact_workspace) {
    constexpr float kUnits = 8;  // of rounding the largest result: sixteen partial sums, half a unit each
    const float unit = problem.x_type == DType::bf16 ? 1.0f / 256 : 1.0f / 2048;
    const std::vector<float> wanted = result(exact, exact_workspace), got = result(plan, workspace);
    float largest = 0, error = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (!std::isfinite(got[i])) return false;
      largest = std::max(largest, std::abs(wanted[i]));
      error = std::max(error, std::abs(wanted[i] - got[i]));
    }
    return error <= kUnits * unit * largest;
  }

  ConvolutionLibrary& library;
  const ConvolutionProblem& problem;
  uint64_t x_bytes, w_bytes, y_bytes;
  DeviceBuffer x, w, y, sums, squares;
  Event begin = make_event(cudaEventDefault), end = make_event(cudaEventDefault);
};

// The fastest of the proposals, in less than best's time when there is a best; of those that may add in less
// than FP32, the fastest that agrees with `best`.
std::optional<ConvolutionChoice> ConvolutionLibrary::measure_some(Trial& trial, bool reduced,
                                                                  std::optional<ConvolutionChoice> best,
                                                                  std::string& why) {
  Plan plan;
  const auto bad = [&why](fe::error_t e) {
    if (e.is_bad()) why = e.get_message();
    return e.is_bad();
  };
  const ConvolutionProblem& p = trial.problem;
  if (bad(propose(plan.graph, p, state_->handle, reduced ? Sums::reduced : Sums::exact))) return best;
  std::shared_ptr<Plan> exact = reduced ? try_plan(p, *best, why) : nullptr;
  if (reduced && !exact) return best;
  const DeviceBuffer exact_workspace(reduced ? uint64_t(best->workspace) : 0);
  int measured = 0;
  for (plan.index = 0; plan.index < plan.graph.get_execution_plan_count() && measured < kMostMeasured;
       ++plan.index) {
    if (bad(plan.graph.build_plan_at_index(plan.index))) continue;
    ConvolutionChoice choice;
    choice.workspace = plan.graph.get_workspace_size_plan_at_index(plan.index);
    if (choice.workspace > kMostWorkspace) continue;
    try {
      const DeviceBuffer workspace{uint64_t(choice.workspace)};
      choice.microseconds = trial.time(plan, workspace, best ? best->microseconds : 1e30f);
      ++measured;
      if (best && best->microseconds <= choice.microseconds) continue;
      if (bad(plan.graph.get_plan_name_at_index(plan.index, choice.name))) continue;
      if (reduced && !trial.agrees(plan, workspace, *exact, exact_workspace)) continue;
    } catch (const Error& e) {
      why = e.what();
      continue;
    }
    best = choice;
  }
  return best;
}

std::optional<ConvolutionChoice> ConvolutionLibrary::measure(const ConvolutionProblem& p, std::string& why) {
  Trial trial(*this, p);
  const std::optional<ConvolutionChoice> best = measure_some(trial, false, {}, why);
  return best && is_16bit(p.x_type) ? measure_some(trial, true, best, why) : best;
}

// The first proposal that can be built; with Sums::any, the first that is `exact` or agrees with it.
std::optional<ConvolutionChoice> ConvolutionLibrary::first_of(const ConvolutionProblem& problem,
                                                              std::optional<ConvolutionChoice> exact) {
  Plan plan;
  if (propose(plan.graph, problem, state_->handle, exact ? Sums::any : Sums::exact).is_bad()) return exact;
  std::optional<Trial> trial;
  std::string why;
  for (plan.index = 0; plan.index < plan.graph.get_execution_plan_count(); ++plan.index) {
    ConvolutionChoice choice;
    if (plan.graph.get_plan_name_at_index(plan.index, choice.name).is_bad()) continue;
    if (exact && choice.name == exact->name) return exact;
    if (plan.graph.build_plan_at_index(plan.index).is_bad()) continue;
    choice.workspace = plan.graph.get_workspace_size_plan_at_index(plan.index);
    if (choice.workspace > kMostWorkspace) continue;
    if (!exact) return choice;
    const std::shared_ptr<Plan> reference = try_plan(problem, *exact, why);
    if (!reference) return exact;
    if (!trial) trial.emplace(*this, problem);
    const DeviceBuffer workspace{uint64_t(choice.workspace)}, reference_workspace{uint64_t(exact->workspace)};
    if (trial->agrees(plan, workspace, *reference, reference_workspace)) return choice;
  }
  return exact;
}

std::optional<ConvolutionChoice> ConvolutionLibrary::first(const ConvolutionProblem& problem) {
  const std::string key = problem.text() + "\nfirst";
  if (const auto known = state_->choices.find(key); known != state_->choices.end()) return known->second;
  std::string why;
  return state_->choices[key] = remembered(problem, key, why, [&] {
           std::optional<ConvolutionChoice> choice = first_of(problem, {});
           return choice && is_16bit(problem.x_type) ? first_of(problem, choice) : choice;
         });
}

// The proposal with that name, not built; nullptr: none of the mode's has it.
std::shared_ptr<ConvolutionLibrary::Plan> ConvolutionLibrary::find_plan(const ConvolutionProblem& problem,
                                                                        const std::string& name, int mode) {
  auto plan = std::make_shared<Plan>();
  if (propose(plan->graph, problem, state_->handle, Sums::any, {kAllModes[size_t(mode)]}).is_bad())
    return nullptr;
  const int64_t count = plan->graph.get_execution_plan_count();
  std::string found;
  for (plan->index = 0; plan->index < count; ++plan->index)
    if (plan->graph.get_plan_name_at_index(plan->index, found).is_good() && found == name) return plan;
  return nullptr;
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
  // Found by its name among the proposals: the frontend does not know all knobs, so an engine can't
  // be made from them. Most are among those of the first mode, which saves asking in the others.
  std::shared_ptr<Plan> plan;
  why = "the library no longer proposes it";
  for (size_t mode = 0; mode < kAllModes.size() && !plan; ++mode)
    plan = find_plan(problem, choice.name, int(mode));
  if (!plan || bad(plan->graph.build_plan_at_index(plan->index))) return nullptr;
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
