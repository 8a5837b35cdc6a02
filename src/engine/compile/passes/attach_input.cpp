// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "engine/base/status.h"
#include "engine/compile/passes/passes.h"
#include "engine/ops/conv/conv.h"
#include "engine/ops/load_batch/load_batch.h"

namespace ren {
namespace {

// Labels are one a row of the first output that carries a loss.
Shape label_shape(const Graph& graph, const LossSpec& loss) {
  TensorId logits = graph.outputs.empty() ? kNoTensor : graph.outputs[0].value;
  for (const GraphOutput& o : graph.outputs)
    if (!loss.outputs.empty() && o.name == loss.outputs[0].output) logits = o.value;
  require(logits != kNoTensor, "the graph has no output");
  Shape shape = graph.at(logits).shape;
  shape.c = 1;
  return shape;
}

// Targets can be mixed where a sample has one of several classes.
void check_mixable(const Graph& graph, const LossSpec& loss) {
  for (const GraphOutput& o : graph.outputs) {
    const bool first = loss.outputs.empty() && &o == &graph.outputs[0];
    const bool named = std::any_of(loss.outputs.begin(), loss.outputs.end(),
                                   [&](const OutputLoss& l) { return l.output == o.name; });
    const Shape& shape = graph.at(o.value).shape;
    if ((first || named) && (shape.h != 1 || shape.w != 1 || shape.c < 2))
      fail(StatusCode::unsupported,
           "MixUp and CutMix need one class a picture: output '{}' has {} x {} positions and {} {}", o.name,
           shape.h, shape.w, shape.c, shape.c == 1 ? "score" : "scores");
  }
}

// The channels that images get on the device: a multiple of 4 where only dense convolutions read them.
int64_t padded_channels(const Graph& graph, const PassContext& context) {
  const int64_t channels = graph.at(graph.input).shape.c;
  const bool wanted = context.spec.target.pads_images && compute_type(context.spec.precision) != DType::f32;
  if (!wanted || channels >= 4) return channels;
  for (const Tensor& t : graph.tensors)
    if (t.alias_of == graph.input) return channels;
  for (const GraphOutput& o : graph.outputs)
    if (o.value == graph.input) return channels;
  for (const Node& node : graph.nodes)
    if (std::find(node.inputs.begin(), node.inputs.end(), graph.input) != node.inputs.end() &&
        (node.op != Op::conv || node.as<ConvAttributes>().groups != 1))
      return channels;
  return 4;
}

// That the last channels of the images are padding.
void tell_convolutions(Graph& graph, int64_t padding) {
  for (Node& node : graph.nodes) {
    if (node.op != Op::conv || node.inputs[0] != graph.input) continue;
    auto attributes = std::make_shared<ConvAttributes>(node.as<ConvAttributes>());
    attributes->padding_channels = padding;
    node.attributes = std::move(attributes);
  }
}

}  // namespace

void attach_input(Graph& graph, const PassContext& context) {
  GraphBuilder builder(graph);
  builder.add_scalars();
  const bool labels = context.variant.role != Role::predict;
  const Shape images = graph.at(graph.input).shape;
  const bool mixes = context.training() && context.spec.mix.any();
  if (mixes) check_mixable(graph, context.spec.loss);
  Node node;
  node.op = Op::load_batch;
  node.name = "load_batch";
  for (int slot = 0; slot < 2; ++slot) {
    const auto input = [&](const char* what, TensorType type) {
      node.inputs.push_back(builder.tensor(fmt::format("slot{}/{}", slot, what), type, Region::I));
    };
    input("record", {{1, 1, 1, kStepRecordBytes}, DType::u8});
    if (labels) {
      input("labels", {label_shape(graph, context.spec.loss), DType::i32});
    } else {
      node.inputs.push_back(kNoTensor);
    }
    input("images", {images, context.spec.input.image_type});
  }
  node.inputs.push_back(graph.scalar(Scalar::step));
  node.outputs.push_back(graph.input);
  node.outputs.push_back(
      labels ? builder.tensor("labels", {label_shape(graph, context.spec.loss), DType::i32}) : kNoTensor);
  for (int i = 0; i < kScalarCount; ++i)
    if (kScalars[i].source == ScalarSource::record) node.outputs.push_back(graph.scalars[size_t(i)]);

  if (mixes) {
    node.outputs.push_back(builder.tensor("partners", {label_shape(graph, context.spec.loss), DType::i32}));
    node.outputs.push_back(builder.tensor("own_share", {{1, 1, 1, 1}, DType::f32}));
  }

  auto attributes = std::make_shared<LoadBatchAttributes>();
  attributes->mixes = mixes;
  attributes->mean = context.spec.input.mean;
  attributes->scale = context.spec.input.scale;
  attributes->mean.resize(size_t(images.c), 0.0f);
  attributes->scale.resize(size_t(images.c), 1.0f);
  if (const int64_t channels = padded_channels(graph, context); channels != images.c) {
    attributes->channels = graph.at(graph.input).shape.c = channels;
    tell_convolutions(graph, channels - images.c);
  }
  node.attributes = std::move(attributes);
  graph.nodes.insert(graph.nodes.begin(), std::move(node));
}

}  // namespace ren
