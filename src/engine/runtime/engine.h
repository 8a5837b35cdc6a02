// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/ops/op.h"
#include "engine/plan/memory_plan.h"

namespace ren {

// What the engine is built from: compiled graphs, one a variant, the step's first.
struct EngineVariant {
  std::string name;
  Role role = Role::step;
  Graph graph;
};

struct EngineOptions {
  PlanOptions plan;            // slot_order and A's type are filled in here when empty
  uint64_t memory_limit = 0;   // bytes; 0: what the device has free
  bool deterministic = false;  // nothing is chosen by measuring, which may come out otherwise elsewhere
  bool tf32 = false;           // products of FP32 may round their operands to 11 bits
  bool profile = false;        // measure each node; run() then waits for its end
};

// Time a node took, summed over the runs since the engine was made.
struct NodeTime {
  double seconds = 0;
  int64_t runs = 0;
};

// One device running one plan: prepare -> plan -> arena -> bind -> programs, all in the
// constructor; after it nothing is allocated. Used by one thread.
class Engine {
 public:
  // Throws unsupported (ops without a kernel, all listed), out_of_memory (the largest consumers
  // and the largest batch that would fit), device.
  Engine(const Backend& backend, int device_index, std::vector<EngineVariant> variants,
         EngineOptions options);
  ~Engine();

  const std::vector<EngineVariant>& variants() const { return variants_; }
  const std::vector<Choices>& choices() const { return choices_; }
  const MemoryPlan& plan() const { return *plan_; }
  // By node of a variant; empty without EngineOptions::profile.
  const std::vector<NodeTime>& node_times(size_t variant) const { return node_times_[variant]; }
  Device& device() { return *device_; }

  // Brings a batch into the input slot that the next run() reads. `labels` and `images` have the
  // variant's sizes; labels are ignored when the variant takes none. The host memory must stay
  // until the second next upload.
  void upload_batch(size_t variant, const std::byte* record, const int32_t* labels, const void* images);
  void run(size_t variant);  // enqueues
  int64_t launches() const { return launches_; }
  void set_launches(int64_t count);  // also the device's counter; for resuming

  // Reads and writes a tensor's logical content as FP32 in NHWC order (integers converted).
  // Both wait for everything launched before.
  std::vector<float> read(size_t variant, TensorId tensor);
  void write(size_t variant, TensorId tensor, const std::vector<float>& values);
  // One component of a device scalar, exact for integers.
  double read_scalar(Scalar scalar, int component = 0);
  void write_scalar(Scalar scalar, double value, int component = 0);

  // A parameter family's slot, or running statistics, by index. `family` is W, G, M, V or E.
  std::vector<float> read_parameter(Region family, int32_t parameter);
  void write_parameter(Region family, int32_t parameter, const std::vector<float>& values);
  std::vector<float> read_buffer(int32_t buffer);
  void write_buffer(int32_t buffer, const std::vector<float>& values);
  // After writing to W: makes the 16-bit copies (nothing in FP32 mode) and sets E = W when there is E.
  void weights_written();

  // Begins to read the R region and the state scalars of S into the caller's memory;
  // results_bytes() of it. Complete when `results_ready` or after wait_results.
  uint64_t results_bytes() const;
  uint64_t download_results(std::byte* host);
  void wait_results(uint64_t ticket);
  // Where a tensor of R or S lies in that memory.
  uint64_t result_offset(size_t variant, TensorId tensor) const;

 private:
  void prepare(const EngineOptions& options);
  void make_plan(EngineOptions& options);
  void take_arena(uint64_t limit);
  void bind(bool profile);
  void read_stopwatches(size_t variant);
  std::unique_ptr<Kernel> bind_node(size_t variant, size_t node);
  std::byte* address(size_t variant, TensorId tensor) const;
  std::vector<RegionSpan> region_spans(Role role) const;

  const Backend& backend_;
  std::vector<EngineVariant> variants_;
  std::vector<Choices> choices_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<MemoryPlan> plan_;
  std::unique_ptr<DeviceBlock> arena_;
  std::vector<Segment> segments_;
  std::vector<std::vector<NodeTime>> node_times_;
  std::vector<std::vector<std::unique_ptr<Stopwatch>>> stopwatches_;  // by variant and node, when profiling
  std::vector<std::unique_ptr<Program>> programs_;
  std::unique_ptr<Kernel> cast_weights_;
  DType copy_type_ = DType::f32;
  int64_t launches_ = 0;
};

}  // namespace ren
