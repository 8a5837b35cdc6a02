// SPDX-License-Identifier: Apache-2.0
// Elementwise expressions and reductions on the CPU, at the sizes of a ResNet's activations, beside
// a copy of as many bytes. --benchmark_format=json for machines.
#include <benchmark/benchmark.h>

#include <cstring>

#include "engine/base/memory.h"
#include "engine/base/threads.h"
#include "engine/device/cpu/cpu_device.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/pointwise/activations.h"

namespace ren {
namespace {

// One node with memory of its own, filled with numbers around 1.
class Bench {
 public:
  TensorId operand(Shape shape, DType type) { return builder_.tensor("x", {shape, type}); }
  void add(Op op, std::vector<TensorId> inputs, AttributesPtr attributes) {
    emit(builder_, op, "node", std::move(inputs), std::move(attributes));
  }

  void run(benchmark::State& state) {
    const Node& node = graph_.nodes[0];
    std::vector<std::byte*> inputs, outputs;
    int64_t bytes = 0;
    for (TensorId id : node.inputs) inputs.push_back(memory(id, bytes));
    for (TensorId id : node.outputs) outputs.push_back(memory(id, bytes));
    const OpBackend& backend = *cpu_backend().kernels(node.op);
    const NodeChoice choice = backend.prepare({graph_, node, *device_});
    const AlignedBlock workspace = allocate_aligned(choice.workspace_bytes + 1);
    const auto kernel =
        backend.bind({graph_, node, choice, *device_, inputs, outputs, workspace.get(), {}, {}});
    for (auto _ : state) kernel->launch();
    state.SetBytesProcessed(state.iterations() * bytes);
  }

 private:
  std::byte* memory(TensorId id, int64_t& bytes) {
    const Tensor& t = graph_.at(id);
    const size_t size = size_t(t.shape.elements()) * size_of(t.dtype);
    bytes += int64_t(size);
    blocks_.push_back(allocate_aligned(size));
    // 0x3F: 0.75 in f32, 1.8 in f16, 0.75 in bf16
    std::memset(blocks_.back().get(), 0x3F, size);
    return blocks_.back().get();
  }

  Graph graph_;
  GraphBuilder builder_{graph_};
  std::unique_ptr<Device> device_ = open_cpu_device();
  std::vector<AlignedBlock> blocks_;
};

Shape shape_of(const benchmark::State& state) {
  return {state.range(0), state.range(1), state.range(1), state.range(2)};
}
DType type_of(const benchmark::State& state) { return state.range(3) == 0 ? DType::f32 : DType::bf16; }

void pointwise(benchmark::State& state, Expression e, const std::vector<Shape>& shapes) {
  Bench bench;
  std::vector<TensorId> inputs;
  const Shape full = shape_of(state);
  const DType type = type_of(state);
  for (const Shape& s : shapes) inputs.push_back(bench.operand(s, s == full ? type : DType::f32));
  bench.add(Op::pointwise, inputs,
            std::make_shared<PointwiseAttributes>(std::move(e), std::vector<DType>{type}));
  bench.run(state);
}

void copy(benchmark::State& state) {
  const size_t bytes = size_t(shape_of(state).elements()) * size_of(type_of(state));
  const AlignedBlock from = allocate_aligned(bytes), to = allocate_aligned(bytes);
  for (auto _ : state)
    parallel_for(int64_t(bytes), 1 << 17, [&](int, int64_t begin, int64_t end) {
      std::memcpy(to.get() + begin, from.get() + begin, size_t(end - begin));
    });
  state.SetBytesProcessed(state.iterations() * int64_t(2 * bytes));
}

void relu(benchmark::State& state) { pointwise(state, activation("Relu"), {shape_of(state)}); }
void gelu(benchmark::State& state) { pointwise(state, activation("Gelu"), {shape_of(state)}); }
void swish(benchmark::State& state) { pointwise(state, activation("Swish"), {shape_of(state)}); }

// max((x - mean) * inverse_std * scale + bias, 0)
void batch_norm_relu(benchmark::State& state) {
  ExpressionBuilder e;
  const Value centred = e.mul(e.sub(e.input(0), e.input(1)), e.input(2));
  const Value y = e.add(e.mul(centred, e.input(3)), e.input(4));
  const Shape channels{1, 1, 1, state.range(2)};
  pointwise(state, e.finish({e.maximum(y, e.constant(0))}, 5),
            {shape_of(state), channels, channels, channels, channels});
}

void add_relu(benchmark::State& state) {
  ExpressionBuilder e;
  pointwise(state, e.finish({e.maximum(e.add(e.input(0), e.input(1)), e.constant(0))}, 2),
            {shape_of(state), shape_of(state)});
}

void gate(benchmark::State& state) {
  ExpressionBuilder e;
  pointwise(state, e.finish({e.mul(e.input(0), e.input(1))}, 2),
            {shape_of(state), {state.range(0), 1, 1, state.range(2)}});
}

void dropout(benchmark::State& state) {
  ExpressionBuilder e;
  const Value kept = e.less(e.uniform(1, false), e.constant(0.5));
  Bench bench;
  const TensorId x = bench.operand(shape_of(state), type_of(state));
  const TensorId random = bench.operand({1, 1, 1, 4}, DType::i32);
  bench.add(Op::pointwise, {x, random},
            std::make_shared<PointwiseAttributes>(
                e.finish({e.select(kept, e.mul(e.input(0), e.constant(2)), e.constant(0))}, 1),
                std::vector<DType>{type_of(state)}));
  bench.run(state);
}

// The backward of batch normalisation and ReLU: dy where y > 0, its sum and its sum with x^.
Value masked(ExpressionBuilder& e) {
  return e.select(e.less(e.constant(0), e.input(0)), e.input(1), e.constant(0));
}
Value normalised(ExpressionBuilder& e) { return e.mul(e.sub(e.input(2), e.input(3)), e.input(4)); }

void batch_norm_relu_sums(benchmark::State& state) {
  ExpressionBuilder e;
  const Value dy = masked(e);
  Bench bench;
  const Shape full = shape_of(state), channels{1, 1, 1, full.c};
  std::vector<TensorId> inputs;
  for (const Shape& s : {full, full, full, channels, channels})
    inputs.push_back(bench.operand(s, s == full ? type_of(state) : DType::f32));
  bench.add(Op::reduce, inputs,
            std::make_shared<ReduceAttributes>(e.finish({dy, e.mul(dy, normalised(e))}, 5), ReduceKind::sum,
                                               false, false, false, true));
  bench.run(state);
}

// dx = (dy - mean_dy - x^ * mean_dy_x^) * (scale * inverse_std)
void batch_norm_relu_dx(benchmark::State& state) {
  ExpressionBuilder e;
  const Value centred = e.sub(e.sub(masked(e), e.input(5)), e.mul(normalised(e), e.input(6)));
  const Shape full = shape_of(state), channels{1, 1, 1, full.c};
  pointwise(state, e.finish({e.mul(centred, e.mul(e.input(7), e.input(4)))}, 8),
            {full, full, full, channels, channels, channels, channels, channels});
}

void bias_gradient(benchmark::State& state) {
  ExpressionBuilder e;
  Bench bench;
  bench.add(Op::reduce, {bench.operand(shape_of(state), type_of(state))},
            std::make_shared<ReduceAttributes>(e.finish({e.input(0)}, 1), ReduceKind::sum, false, false,
                                               false, true));
  bench.run(state);
}

void row_sums(benchmark::State& state) {
  ExpressionBuilder e;
  Bench bench;
  bench.add(Op::reduce, {bench.operand(shape_of(state), type_of(state))},
            std::make_shared<ReduceAttributes>(e.finish({e.mul(e.input(0), e.input(0))}, 1), ReduceKind::sum,
                                               true, true, true, false));
  bench.run(state);
}

// batch, height = width, channels, 0 for f32 or 1 for bf16
void sizes(benchmark::internal::Benchmark* b) {
  b->Unit(benchmark::kMicrosecond);
  if (compute_threads() > 1) b->UseRealTime();  // one thread's own time is what others don't disturb
  b->ArgNames({"n", "hw", "c", "bf16"});
  b->Args({16, 56, 256, 0})->Args({16, 14, 1024, 0})->Args({32, 32, 16, 0})->Args({16, 56, 256, 1});
}

BENCHMARK(copy)->Apply(sizes);
BENCHMARK(relu)->Apply(sizes);
BENCHMARK(add_relu)->Apply(sizes);
BENCHMARK(batch_norm_relu)->Apply(sizes);
BENCHMARK(batch_norm_relu_sums)->Apply(sizes);
BENCHMARK(batch_norm_relu_dx)->Apply(sizes);
BENCHMARK(bias_gradient)->Apply(sizes);
BENCHMARK(row_sums)->Apply(sizes);
BENCHMARK(gate)->Apply(sizes);
BENCHMARK(gelu)->Apply(sizes);
BENCHMARK(swish)->Apply(sizes);
BENCHMARK(dropout)->Apply(sizes);

}  // namespace
}  // namespace ren

BENCHMARK_MAIN();
