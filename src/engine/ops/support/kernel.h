// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include "engine/base/memory.h"
#include "engine/base/threads.h"
#include "engine/base/vector_clones.h"
#include "engine/ops/op.h"

namespace ren {

// A kernel out of a callable, which must neither throw nor allocate.
template <typename F>
class FunctionKernel final : public Kernel {
 public:
  explicit FunctionKernel(F f) : f_(std::move(f)) {}
  void launch() noexcept override { f_(); }

 private:
  F f_;
};

template <typename F>
std::unique_ptr<Kernel> make_kernel(F f) {
  return std::make_unique<FunctionKernel<F>>(std::move(f));
}

// Pieces of a node's workspace, each on its own 256 bytes.
class WorkspaceLayout {
 public:
  uint64_t reserve(uint64_t bytes) {
    const uint64_t offset = total_;
    total_ += align_up(bytes);
    return offset;
  }
  uint64_t total() const { return total_; }

 private:
  uint64_t total_ = 0;
};

template <typename T>
T* input_as(const BindContext& context, size_t i) {
  return i < context.inputs.size() ? reinterpret_cast<T*>(context.inputs[i]) : nullptr;
}
template <typename T>
T* output_as(const BindContext& context, size_t i) {
  return i < context.outputs.size() ? reinterpret_cast<T*>(context.outputs[i]) : nullptr;
}

inline const Tensor& input_tensor(const BindContext& context, size_t i) {
  return context.graph.at(context.node.inputs[i]);
}
inline const Tensor& output_tensor(const BindContext& context, size_t i) {
  return context.graph.at(context.node.outputs[i]);
}

inline NodeChoice own_engine(uint64_t workspace_bytes = 0) { return {"own", workspace_bytes, {}}; }
inline NodeChoice prepare_own(const PrepareContext&) { return own_engine(); }

}  // namespace ren
