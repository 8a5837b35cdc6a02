// SPDX-License-Identifier: Apache-2.0
#include "engine/base/status.h"
#include "engine/compile/passes/passes.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/load_batch/load_batch.h"

namespace ren {
namespace {

const GraphOutput& find_output(const Graph& graph, const std::string& name) {
  for (const GraphOutput& o : graph.outputs)
    if (o.name == name) return o;
  std::string names;
  for (const GraphOutput& o : graph.outputs)
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", o.name);
  fail(StatusCode::invalid_argument, "the model has no output '{}' to put a loss on; it has {}", name, names);
}

}  // namespace

void attach_loss(Graph& graph, const PassContext& context) {
  for (const GraphOutput& o : graph.outputs) graph.at(o.value).keep = true;
  if (context.variant.role == Role::predict) return;
  std::vector<OutputLoss> losses = context.spec.loss.outputs;
  if (losses.empty()) losses.push_back({graph.outputs.at(0).name, 1.0f});
  const std::vector<TensorId> loaded = graph.nodes[0].outputs;
  const TensorId labels = loaded[1];
  const bool mixes = graph.nodes[0].as<LoadBatchAttributes>().mixes;
  GraphBuilder builder(graph);
  for (const OutputLoss& loss : losses) {
    const GraphOutput& output = find_output(graph, loss.output);
    const Shape logits = graph.at(output.value).shape, targets = graph.at(labels).shape;
    if (logits.n != targets.n || logits.h != targets.h || logits.w != targets.w)
      fail(StatusCode::unsupported, "output '{}' of shape {} has other positions than the labels' {}",
           output.name, to_string(logits), to_string(targets));
    auto attributes = std::make_shared<CrossEntropyAttributes>();
    attributes->weight = loss.weight;
    // Evaluation reports the plain cross entropy, as PyTorch users do.
    attributes->label_smoothing = context.training() ? context.spec.loss.label_smoothing : 0.0f;
    attributes->ignore_index = context.spec.loss.ignore_index;
    std::vector<TensorId> inputs{output.value, labels, graph.scalar(Scalar::inverse_count)};
    if (mixes) inputs.insert(inputs.end(), loaded.end() - 2, loaded.end());  // partners' labels, own share
    const auto results = emit(builder, Op::cross_entropy, std::string(kLossPrefix) + output.name,
                              std::move(inputs), std::move(attributes));
    const char* const names[] = {"loss", "correct", "correct5"};
    for (size_t i = 0; i < results.size(); ++i) {
      Tensor& t = graph.at(results[i]);
      t.region = Region::R;
      t.keep = true;
      t.name = fmt::format("{}/{}", names[i], output.name);
    }
  }
}

}  // namespace ren
