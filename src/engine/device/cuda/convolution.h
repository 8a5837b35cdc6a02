// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/dtype.h"

namespace ren::cuda {

class CudaDevice;

enum class ConvolutionKind : uint8_t { forward, backward_data, backward_weights };

// One convolution in the sizes of ConvAttributes; the three tensors keep their names in each kind:
// x [N,H,W,C], w [K,R,S,C/groups], y [N,P,Q,K].
struct ConvolutionProblem {
  ConvolutionKind kind = ConvolutionKind::forward;
  DType x_type = DType::f32, w_type = DType::f32, y_type = DType::f32;
  int64_t n = 1, h = 1, w = 1, c = 1, k = 1, r = 1, s = 1, p = 1, q = 1;
  int64_t stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
  int64_t pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;
  int64_t groups = 1;
  bool tf32 = false;  // FP32 operands may be rounded to 11 bits
  bool sums = false;  // forward alone: also the sum and the sum of squares of each channel of y (FP32)

  std::string text() const;  // complete: the key of cached choices
  double operations() const { return 2.0 * double(n * p * q) * double(k * r * s) * double(c / groups); }
};

// An engine of the library with its settings.
struct ConvolutionChoice {
  std::string name;  // the library's own, complete: engine and knobs
  int64_t workspace = 0;
  float microseconds = 0;  // as measured; 0: not measured
};

// cuDNN's convolutions on one device. Only deterministic engines that add in FP32 are taken, and TF32 only
// where the problem allows it. An engine of 16-bit data that declares a reduced precision of its sums is
// taken when its result on random data agrees with that of one which doesn't to the rounding of the result:
// some declare it that add in FP32 (the one for images of four channels, twice as fast as the next).
class ConvolutionLibrary {
 public:
  explicit ConvolutionLibrary(CudaDevice& device);
  ~ConvolutionLibrary();
  ConvolutionLibrary(const ConvolutionLibrary&) = delete;
  ConvolutionLibrary& operator=(const ConvolutionLibrary&) = delete;

  // The fastest engine, measured once for each problem and remembered on disk; nothing when the
  // library has none, and then `refusal` says why.
  std::optional<ConvolutionChoice> choose(const ConvolutionProblem& problem, std::string* refusal = nullptr);
  // The first engine that the library proposes and can build: its own rules, no measuring.
  std::optional<ConvolutionChoice> first(const ConvolutionProblem& problem);

  struct Plan;
  std::shared_ptr<Plan> plan(const ConvolutionProblem& problem,
                             const ConvolutionChoice& choice);  // throws device
  // Enqueues on the device's stream; throws device.
  void execute(Plan& plan, const void* x, const void* w, const void* y, void* workspace, void* sums = nullptr,
               void* squares = nullptr);

 private:
  struct State;
  struct Trial;
  std::optional<ConvolutionChoice> remembered(const ConvolutionProblem& problem, const std::string& key,
                                              std::string& why,
                                              const std::function<std::optional<ConvolutionChoice>()>& find);
  // `mode` is one of the library's ways to propose.
  std::shared_ptr<Plan> find_plan(const ConvolutionProblem& problem, const std::string& name, int mode);
  std::shared_ptr<Plan> try_plan(const ConvolutionProblem& problem, const ConvolutionChoice& choice,
                                 std::string& why);
  std::optional<ConvolutionChoice> measure(const ConvolutionProblem& problem, std::string& why);
  std::optional<ConvolutionChoice> measure_some(Trial& trial, bool reduced,
                                                std::optional<ConvolutionChoice> best, std::string& why);
  std::optional<ConvolutionChoice> first_of(const ConvolutionProblem& problem,
                                            std::optional<ConvolutionChoice> exact);

  CudaDevice& device_;
  std::unique_ptr<State> state_;
};

}  // namespace ren::cuda
