// SPDX-License-Identifier: Apache-2.0
// Stochastic depth as exporters write it: RandomUniformLike or Bernoulli, a comparison, a
// division by the survival rate, a product with the branch. It becomes one node that draws while
// training and passes the branch through otherwise.
#include "importer/operators.h"

namespace ren::importer {

namespace {

OnnxValue make_noise(const Dims& dims, Noise noise) {
  OnnxValue value;
  value.kind = Kind::noise;
  value.map = AxisMap::plain(dims);
  value.noise = std::make_shared<const Noise>(noise);
  return value;
}

OnnxValue changed(const OnnxValue& value, const std::function<void(Noise&)>& change) {
  Noise noise = *value.noise;
  change(noise);
  return make_noise(value.dims(), noise);
}

// The one number that a constant holds.
double number(ImportContext& context, const OnnxValue& value) {
  if (!value.known()) refuse("", "a random number is compared with an activation");
  const HostValue content = context.host(value);
  if (!content.is_uniform() || content.depends_on_batch())
    refuse("", "a random number is combined with several values");
  context.note_constant(value, "the rate of stochastic depth");
  return content.at(0);
}

void apply(const NodeView& node, const OnnxValue& x, const OnnxValue& noise) {
  ImportContext& context = node.context;
  if (noise.noise->below < 0) refuse("", "multiplies with random numbers that no comparison made 0 or 1");
  const Dims dims = x.dims(), drawn = noise.dims();
  bool one_a_sample =
      !drawn.empty() && drawn[0] == context.batch && x.map.batch_axis() == 0 && drawn.size() == dims.size();
  for (size_t a = 1; a < drawn.size(); ++a) one_a_sample = one_a_sample && drawn[a] == 1;
  if (!one_a_sample && drawn != dims)
    refuse("use StochasticDepth in mode 'row'", "draws numbers of shape {} for an activation of shape {}",
           to_text(drawn), to_text(dims));
  ImportContext::PointwiseOptions options;
  options.training_only = true;
  const Noise n = *noise.noise;
  node.give(0, context.pointwise(
                   {x},
                   [&](ExpressionBuilder& e, auto v) {
                     const ren::Value kept = e.less(e.uniform(n.stream, one_a_sample), e.constant(n.below));
                     return e.select(kept, e.mul(v[0], e.constant(n.factor)), e.constant(0));
                   },
                   options));
}

}  // namespace

void import_random_uniform_like(const NodeView& node) {
  const OnnxValue& like = node.required(0);
  if (node.real("low", 0) != 0 || node.real("high", 1) != 1)
    refuse("", "numbers other than 0 to 1 are drawn");
  Noise noise;
  noise.stream = uint32_t(node.context.random_streams++);
  node.give(0, make_noise(like.dims(), noise));
}

void import_bernoulli(const NodeView& node) {
  const OnnxValue& rate = node.required(0);
  Noise noise;
  noise.below = number(node.context, rate);
  noise.stream = uint32_t(node.context.random_streams++);
  node.give(0, make_noise(rate.dims(), noise));
}

void import_with_noise(const NodeView& node) {
  ImportContext& context = node.context;
  const std::string& op = node.proto.op_type();
  const OnnxValue& first = node.required(0);
  if (op == "Cast" || op == "CastLike" || op == "Identity") {
    if (!first.is(Kind::noise)) refuse("", "is made like random numbers");
    return node.give(0, first);
  }
  const OnnxValue& second = node.required(1);
  if (op == "Less" && first.is(Kind::noise) && first.noise->below < 0) {
    const double limit = number(context, second);
    return node.give(0, changed(first, [&](Noise& n) { n.below = limit; }));
  }
  if (op == "Div" && first.is(Kind::noise)) {
    const double rate = number(context, second);
    if (!(rate > 0)) contradict("divides by {}", rate);
    return node.give(0, changed(first, [&](Noise& n) { n.factor /= rate; }));
  }
  if (op == "Mul" && first.is(Kind::tensor)) return apply(node, first, second);
  if (op == "Mul" && second.is(Kind::tensor)) return apply(node, second, first);
  refuse("", "computes with random numbers in a way other than dropout and stochastic depth");
}

}  // namespace ren::importer
