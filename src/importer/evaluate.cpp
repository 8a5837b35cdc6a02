// SPDX-License-Identifier: Apache-2.0
// Computes nodes whose inputs are all known: shape arithmetic, bounds, exporter-made constants.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "importer/operators.h"

namespace ren::importer {

namespace {

void check_size(const Dims& dims) {
  int64_t count = 1;
  for (const int64_t d : dims) {
    if (d < 0) contradict("a constant of shape {}", to_text(dims));
    if (d > 0 && count > kMaxHostElements / d)
      contradict("a constant of shape {} is too large", to_text(dims));
    count *= d;
  }
}

void join_sources(HostValue& result, const HostValue& other) {
  for (const int s : other.sources)
    if (std::find(result.sources.begin(), result.sources.end(), s) == result.sources.end())
      result.sources.push_back(s);
}

Dims strides_of(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  return strides;
}

// Copies elements by index: result element i is `from`'s element index(i).
template <typename Index>
HostValue take(const HostValue& from, Dims dims, Index index) {
  check_size(dims);
  HostValue result;
  result.element = from.element;
  result.dims = std::move(dims);
  result.sources = from.sources;
  const size_t count = size_t(result.elements());
  result.resize(count);
  if (!from.batch.empty()) result.batch.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const size_t k = size_t(index(int64_t(i)));
    if (from.is_real()) {
      result.reals[i] = from.reals[k];
    } else {
      result.ints[i] = from.ints[k];
    }
    if (!from.batch.empty()) result.batch[i] = from.batch[k];
  }
  return result;
}

Dims broadcast_dims(const Dims& a, const Dims& b) {
  Dims result(std::max(a.size(), b.size()), 1);
  for (size_t i = 0; i < result.size(); ++i) {
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1, y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) contradict("shapes {} and {} do not broadcast", to_text(a), to_text(b));
    result[result.size() - 1 - i] = x == 1 ? y : x;
  }
  return result;
}

HostValue expand(const HostValue& v, const Dims& dims) {
  if (v.dims == dims) return v;
  const Dims out = strides_of(dims), own = strides_of(v.dims);
  const size_t shift = dims.size() - v.dims.size();
  return take(v, dims, [&](int64_t i) {
    int64_t at = 0;
    for (size_t a = shift; a < dims.size(); ++a)
      if (v.dims[a - shift] != 1) at += i / out[a] % dims[a] * own[a - shift];
    return at;
  });
}

double as_float(double v) { return double(float(v)); }

using RealFunction = double (*)(double, double);
using IntFunction = int64_t (*)(int64_t, int64_t);

int64_t wrap(uint64_t v) { return int64_t(v); }
int64_t int_add(int64_t a, int64_t b) { return wrap(uint64_t(a) + uint64_t(b)); }
int64_t int_sub(int64_t a, int64_t b) { return wrap(uint64_t(a) - uint64_t(b)); }
int64_t int_mul(int64_t a, int64_t b) { return wrap(uint64_t(a) * uint64_t(b)); }
int64_t int_div(int64_t a, int64_t b) {
  if (b == 0) contradict("divides by zero");
  return b == -1 ? int_sub(0, a) : a / b;
}
int64_t int_mod(int64_t a, int64_t b) {
  if (b == 0) contradict("divides by zero");
  if (b == -1) return 0;
  const int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
int64_t int_pow(int64_t a, int64_t b) {
  if (b < 0 || b > 64) contradict("exponent {}", b);
  int64_t r = 1;
  for (int64_t i = 0; i < b; ++i) r = int_mul(r, a);
  return r;
}

struct Binary {
  RealFunction real;
  IntFunction whole;
  bool boolean;
};

const std::map<std::string, Binary>& binaries() {
  static const std::map<std::string, Binary> table = {
      {"Add", {[](double a, double b) { return a + b; }, int_add, false}},
      {"Sub", {[](double a, double b) { return a - b; }, int_sub, false}},
      {"Mul", {[](double a, double b) { return a * b; }, int_mul, false}},
      {"Div", {[](double a, double b) { return a / b; }, int_div, false}},
      {"Mod", {[](double a, double b) { return std::fmod(a, b); }, int_mod, false}},
      {"Pow", {[](double a, double b) { return std::pow(a, b); }, int_pow, false}},
      {"Min",
       {[](double a, double b) { return std::min(a, b); },
        [](int64_t a, int64_t b) { return std::min(a, b); }, false}},
      {"Max",
       {[](double a, double b) { return std::max(a, b); },
        [](int64_t a, int64_t b) { return std::max(a, b); }, false}},
      {"Equal",
       {[](double a, double b) { return double(a == b); },
        [](int64_t a, int64_t b) { return int64_t(a == b); }, true}},
      {"Less",
       {[](double a, double b) { return double(a < b); }, [](int64_t a, int64_t b) { return int64_t(a < b); },
        true}},
      {"Greater",
       {[](double a, double b) { return double(a > b); }, [](int64_t a, int64_t b) { return int64_t(a > b); },
        true}},
      {"LessOrEqual",
       {[](double a, double b) { return double(a <= b); },
        [](int64_t a, int64_t b) { return int64_t(a <= b); }, true}},
      {"GreaterOrEqual",
       {[](double a, double b) { return double(a >= b); },
        [](int64_t a, int64_t b) { return int64_t(a >= b); }, true}},
      {"And",
       {[](double a, double b) { return double(a != 0 && b != 0); },
        [](int64_t a, int64_t b) { return int64_t(a && b); }, true}},
      {"Or",
       {[](double a, double b) { return double(a != 0 || b != 0); },
        [](int64_t a, int64_t b) { return int64_t(a || b); }, true}},
      {"Xor",
       {[](double a, double b) { return double((a != 0) != (b != 0)); },
        [](int64_t a, int64_t b) { return int64_t(!a != !b); }, true}},
  };
  return table;
}

using Unary = double (*)(double);
const std::map<std::string, Unary>& unaries() {
  static const std::map<std::string, Unary> table = {
      {"Sqrt", [](double v) { return std::sqrt(v); }},
      {"Neg", [](double v) { return -v; }},
      {"Abs", [](double v) { return std::fabs(v); }},
      {"Exp", [](double v) { return std::exp(v); }},
      {"Log", [](double v) { return std::log(v); }},
      {"Floor", [](double v) { return std::floor(v); }},
      {"Ceil", [](double v) { return std::ceil(v); }},
      {"Reciprocal", [](double v) { return 1 / v; }},
      {"Round", [](double v) { return std::nearbyint(v); }},
  };
  return table;
}

HostValue binary(const Binary& op, HostValue a, HostValue b) {
  const Dims dims = broadcast_dims(a.dims, b.dims);
  a = expand(a, dims);
  b = expand(b, dims);
  const bool real = a.is_real() || b.is_real();
  HostValue result;
  result.element = op.boolean ? Element::boolean : real ? Element::real : Element::integer;
  result.dims = dims;
  result.sources = a.sources;
  join_sources(result, b);
  const size_t count = size_t(result.elements());
  result.resize(count);
  if (!a.batch.empty() || !b.batch.empty()) result.batch.resize(count);
  for (size_t i = 0; i < count; ++i) {
    if (result.is_real()) {
      result.reals[i] = as_float(op.real(a.at(i), b.at(i)));
    } else {
      result.ints[i] = real ? int64_t(op.real(a.at(i), b.at(i))) : op.whole(a.ints[i], b.ints[i]);
    }
    if (!result.batch.empty()) result.batch[i] = a.depends_on_batch(i) || b.depends_on_batch(i);
  }
  return result;
}

int64_t to_whole(double v) {
  if (std::isnan(v)) return 0;
  return v >= 9.2e18 ? INT64_MAX : v <= -9.2e18 ? INT64_MIN : int64_t(v);
}

HostValue unary(Unary f, HostValue v) {
  for (double& x : v.reals) x = as_float(f(x));
  for (int64_t& x : v.ints) x = to_whole(f(double(x)));
  return v;
}

HostValue cast(const HostValue& v, Element to) {
  HostValue result = v;
  result.element = to;
  result.reals.clear();
  result.ints.clear();
  const size_t count = size_t(v.elements());
  result.resize(count);
  for (size_t i = 0; i < count; ++i) {
    if (to == Element::real) {
      result.reals[i] = as_float(v.at(i));
    } else if (to == Element::boolean) {
      result.ints[i] = v.at(i) != 0;
    } else {
      result.ints[i] = v.is_real() ? to_whole(v.reals[i]) : v.ints[i];
    }
  }
  return result;
}

HostValue where(const HostValue& c, const HostValue& a, const HostValue& b) {
  const Dims dims = broadcast_dims(broadcast_dims(c.dims, a.dims), b.dims);
  const HostValue choice = expand(c, dims), yes = expand(a, dims), no = expand(b, dims);
  HostValue result = yes;
  join_sources(result, no);
  const size_t count = size_t(result.elements());
  if (!choice.batch.empty() || !yes.batch.empty() || !no.batch.empty()) result.batch.assign(count, 0);
  for (size_t i = 0; i < count; ++i) {
    const bool first = choice.at(i) != 0;
    if (!first && result.is_real()) result.reals[i] = no.at(i);
    if (!first && !result.is_real()) result.ints[i] = no.ints.empty() ? to_whole(no.at(i)) : no.ints[i];
    if (!result.batch.empty())
      result.batch[i] = choice.depends_on_batch(i) || (first ? yes : no).depends_on_batch(i);
  }
  return result;
}

HostValue gather(const NodeView& node, const HostValue& data, const HostValue& indices) {
  const int axis = node.axis(node.integer("axis", 0), int(data.dims.size()));
  const int64_t extent = data.dims[size_t(axis)];
  Dims dims(data.dims.begin(), data.dims.begin() + axis);
  dims.insert(dims.end(), indices.dims.begin(), indices.dims.end());
  dims.insert(dims.end(), data.dims.begin() + axis + 1, data.dims.end());
  const int64_t inner = product(std::span(data.dims).subspan(size_t(axis) + 1)), count = indices.elements();
  if (indices.is_real()) contradict("the indices are no integers");
  for (const int64_t i : indices.ints)
    if (i < -extent || i >= extent) contradict("index {} of an axis with {} elements", i, extent);
  return take(data, dims, [&](int64_t i) {
    const int64_t k = indices.ints[size_t(i / inner % count)];
    return (i / inner / count * extent + (k < 0 ? k + extent : k)) * inner + i % inner;
  });
}

HostValue slice_axis(const HostValue& v, int axis, int64_t start, int64_t end, int64_t step) {
  const int64_t extent = v.dims[size_t(axis)];
  if (step == 0) contradict("a step is 0");
  const auto clamp = [&](int64_t p, int64_t low, int64_t high) {
    return std::clamp(p < 0 ? (p < -extent ? low : p + extent) : p, low, high);
  };
  const int64_t begin = step > 0 ? clamp(start, 0, extent) : clamp(start, -1, extent - 1);
  const int64_t stop = step > 0 ? clamp(end, 0, extent) : clamp(end, -1, extent - 1);
  int64_t count = 0;
  if (step > 0 && stop > begin) count = (stop - begin - 1) / step + 1;
  if (step < 0 && stop < begin) count = step == INT64_MIN ? 1 : (begin - stop - 1) / -step + 1;
  Dims dims = v.dims;
  dims[size_t(axis)] = count;
  const int64_t inner = product(std::span(v.dims).subspan(size_t(axis) + 1));
  return take(v, dims, [&](int64_t i) {
    return (i / inner / count * extent + begin + i / inner % count * step) * inner + i % inner;
  });
}

HostValue slice(const NodeView& node, HostValue v) {
  std::vector<int64_t> starts, ends, axes, steps;
  if (node.opset < 10) {
    starts = node.integers("starts");
    ends = node.integers("ends");
    axes = node.integers("axes");
  } else {
    starts = node.host_in(1).ints;
    ends = node.host_in(2).ints;
    if (node.has(3)) axes = node.host_in(3).ints;
    if (node.has(4)) steps = node.host_in(4).ints;
  }
  if (axes.empty())
    for (size_t i = 0; i < starts.size(); ++i) axes.push_back(int64_t(i));
  if (steps.empty()) steps.assign(starts.size(), 1);
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size())
    contradict("starts, ends, axes and steps have different lengths");
  for (size_t i = 0; i < starts.size(); ++i)
    v = slice_axis(v, node.axis(axes[i], int(v.dims.size())), starts[i], ends[i], steps[i]);
  return v;
}

HostValue concat(const NodeView& node) {
  HostValue result = node.host_in(0);
  const int axis = node.axis(node.integer("axis", 0), int(result.dims.size()));
  for (int k = 1; k < node.inputs(); ++k) {
    const HostValue next = node.host_in(k);
    Dims a = result.dims, b = next.dims;
    if (a.size() == b.size()) a[size_t(axis)] = b[size_t(axis)] = 0;
    if (a != b || result.is_real() != next.is_real())
      contradict("joins {} and {} along axis {}", to_text(result.dims), to_text(next.dims), axis);
    const int64_t inner = product(std::span(result.dims).subspan(size_t(axis) + 1));
    const int64_t n = result.dims[size_t(axis)] * inner, m = next.dims[size_t(axis)] * inner;
    HostValue both;
    both.element = result.element;
    both.dims = result.dims;
    both.dims[size_t(axis)] += next.dims[size_t(axis)];
    check_size(both.dims);
    both.sources = result.sources;
    join_sources(both, next);
    const int64_t count = both.elements();
    both.resize(size_t(count));
    const bool tainted = !result.batch.empty() || !next.batch.empty();
    if (tainted) both.batch.resize(size_t(count));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t outer = i / (n + m), in = i % (n + m);
      const HostValue& from = in < n ? result : next;
      const size_t at = size_t(in < n ? outer * n + in : outer * m + in - n);
      if (both.is_real()) {
        both.reals[size_t(i)] = from.reals[at];
      } else {
        both.ints[size_t(i)] = from.ints[at];
      }
      if (tainted) both.batch[size_t(i)] = from.depends_on_batch(at);
    }
    result = std::move(both);
  }
  return result;
}

HostValue constant_of_shape(const NodeView& node) {
  const HostValue shape = node.host_in(0);
  HostValue result;
  const auto* attribute = node.attribute("value");
  HostValue value = HostValue::real_scalar(0);
  if (attribute) {
    const auto& tensor = attribute->t();
    const std::string& folder = node.context.file.folder;
    if (is_real_type(tensor.data_type())) {
      value.reals = decode_reals(tensor, folder);
    } else if (is_integer_type(tensor.data_type())) {
      value.element = tensor.data_type() == onnx::TensorProto::BOOL ? Element::boolean : Element::integer;
      value.reals.clear();
      value.ints = decode_integers(tensor, folder);
    } else {
      refuse("", "a constant of type {}", type_name(tensor.data_type()));
    }
    if (value.reals.size() + value.ints.size() != 1) contradict("attribute 'value' is no scalar");
  }
  return take(value, shape.ints, [](int64_t) { return 0; });
}

HostValue range(const NodeView& node) {
  const HostValue start = node.host_in(0), limit = node.host_in(1), delta = node.host_in(2);
  if (start.elements() != 1 || limit.elements() != 1 || delta.elements() != 1)
    contradict("the bounds are no scalars");
  if (start.is_real() != limit.is_real() || start.is_real() != delta.is_real())
    contradict("the bounds differ in type");
  if (delta.at(0) == 0) contradict("a step of 0");
  const double count = std::max(0.0, std::ceil((limit.at(0) - start.at(0)) / delta.at(0)));
  if (!(count <= double(kMaxHostElements))) contradict("a range of {} elements", count);
  HostValue result;
  result.element = start.element;
  result.dims = {int64_t(count)};
  result.resize(size_t(count));
  for (size_t i = 0; i < size_t(count); ++i) {
    if (result.is_real()) {
      result.reals[i] = as_float(start.reals[0] + double(i) * delta.reals[0]);
    } else {
      result.ints[i] = int_add(start.ints[0], int_mul(int64_t(i), delta.ints[0]));
    }
  }
  if (start.depends_on_batch() || delta.depends_on_batch()) result.batch.assign(size_t(count), 1);
  return result;
}

HostValue reduce(const NodeView& node, const HostValue& v) {
  const std::string& op = node.proto.op_type();
  std::vector<int64_t> listed = node.integers("axes");
  if (node.has(1)) listed = node.host_in(1).ints;
  if (listed.empty() && node.integer("noop_with_empty_axes", 0) != 0) return v;
  const int rank = int(v.dims.size());
  std::vector<bool> gone(v.dims.size(), listed.empty());
  for (const int64_t a : listed) gone[size_t(node.axis(a, rank))] = true;
  Dims kept = v.dims, shown;
  int64_t count = 1;
  for (size_t a = 0; a < kept.size(); ++a) {
    if (gone[a]) count *= kept[a], kept[a] = 1;
    if (!gone[a] || node.integer("keepdims", 1) != 0) shown.push_back(kept[a]);
  }
  HostValue result;
  result.element = v.element;
  result.dims = kept;
  result.sources = v.sources;
  result.resize(size_t(result.elements()));
  if (!v.batch.empty()) result.batch.assign(size_t(result.elements()), 0);
  const Dims from = strides_of(v.dims), to = strides_of(kept);
  std::vector<bool> started(size_t(result.elements()), false);
  for (int64_t i = 0; i < v.elements(); ++i) {
    int64_t at = 0;
    for (size_t a = 0; a < kept.size(); ++a)
      if (!gone[a]) at += i / from[a] % v.dims[a] * to[a];
    const size_t k = size_t(at);
    const auto fold = [&](auto& into, auto value) {
      if (!started[k]) {
        into = value;
      } else if (op == "ReduceProd") {
        into = into * value;
      } else if (op == "ReduceMax") {
        into = std::max(into, value);
      } else if (op == "ReduceMin") {
        into = std::min(into, value);
      } else {
        into = into + value;
      }
    };
    if (v.is_real()) {
      fold(result.reals[k], v.reals[size_t(i)]);
    } else {
      uint64_t wide = uint64_t(result.ints[k]);
      if (op == "ReduceMax" || op == "ReduceMin") {
        fold(result.ints[k], v.ints[size_t(i)]);
      } else {
        fold(wide, uint64_t(v.ints[size_t(i)]));
        result.ints[k] = int64_t(wide);
      }
    }
    if (!result.batch.empty()) result.batch[k] |= uint8_t(v.depends_on_batch(size_t(i)));
    started[k] = true;
  }
  if (op == "ReduceMean" && count > 0) {
    for (double& x : result.reals) x = as_float(x / double(count));
    for (int64_t& x : result.ints) x /= count;
  }
  result.dims = shown;
  return result;
}

HostValue tile(const NodeView& node, const HostValue& v) {
  const std::vector<int64_t> repeats = node.ints_in(1);
  if (repeats.size() != v.dims.size()) contradict("{} repeats for rank {}", repeats.size(), v.dims.size());
  Dims dims = v.dims;
  for (size_t a = 0; a < dims.size(); ++a) {
    if (repeats[a] < 0 || repeats[a] > kMaxHostElements || dims[a] > kMaxHostElements)
      contradict("repeats {}", to_text(repeats));
    dims[a] *= repeats[a];
  }
  const Dims out = strides_of(dims), own = strides_of(v.dims);
  return take(v, dims, [&](int64_t i) {
    int64_t at = 0;
    for (size_t a = 0; a < dims.size(); ++a) at += i / out[a] % dims[a] % v.dims[a] * own[a];
    return at;
  });
}

// Reshape and its kin do their work on the axis map; afterwards the content follows.
void settle(const NodeView& node) {
  const OnnxValue value = node.context.value(node.proto.output(0));
  if (!value.is(Kind::host)) return;
  const auto order = positions(value.map, value.map.in_axis_order());
  node.give(0, ImportContext::make_host(
                   take(*value.host, value.map.dims(), [&](int64_t i) { return order[size_t(i)]; })));
}

bool keeps_weights(const std::string& op) {
  static const std::set<std::string> kOps = {"Identity", "Reshape",   "Transpose",
                                             "Squeeze",  "Unsqueeze", "Flatten"};
  return kOps.count(op) != 0;
}

// A reshape of nothing: exporters pass empty shapes around.
bool reshape_empty(const NodeView& node) {
  const OnnxValue& x = node.in(0);
  if (!x.is(Kind::host) || x.host->elements() != 0 || node.proto.op_type() == "Identity") return false;
  HostValue result = *x.host;
  const std::string& op = node.proto.op_type();
  if (op == "Reshape") {
    Dims target = node.host_in(1).ints;
    for (size_t i = 0; i < target.size(); ++i)
      if (target[i] == -1 || (target[i] == 0 && i < result.dims.size()))
        target[i] = target[i] == 0 ? result.dims[i] : 0;
    if (product(target) != 0) contradict("cannot reshape {} to {}", to_text(result.dims), to_text(target));
    result.dims = target;
    check_size(result.dims);
  } else if (op == "Transpose") {
    if (result.dims.size() > 1) refuse("", "transposes an empty constant");
  } else {
    return false;
  }
  node.give(0, ImportContext::make_host(std::move(result)));
  return true;
}

std::optional<HostValue> compute(const NodeView& node) {
  const std::string& op = node.proto.op_type();
  const auto two = binaries().find(op);
  if (two != binaries().end()) {
    if (node.inputs() < 1) contradict("has no inputs");
    HostValue result = node.host_in(0);
    for (int i = 1; i < node.inputs(); ++i) result = binary(two->second, std::move(result), node.host_in(i));
    return result;
  }
  const auto one = unaries().find(op);
  if (one != unaries().end()) return unary(one->second, node.host_in(0));
  if (op == "Not") {
    HostValue v = cast(node.host_in(0), Element::boolean);
    for (int64_t& x : v.ints) x = !x;
    return v;
  }
  if (op == "Cast") {
    const int to = int(node.integer("to", 0));
    if (is_real_type(to)) return cast(node.host_in(0), Element::real);
    if (!is_integer_type(to)) refuse("", "casts to {}", type_name(to));
    return cast(node.host_in(0), to == onnx::TensorProto::BOOL ? Element::boolean : Element::integer);
  }
  if (op == "Where") return where(node.host_in(0), node.host_in(1), node.host_in(2));
  if (op == "Gather") return gather(node, node.host_in(0), node.host_in(1));
  if (op == "Slice") return slice(node, node.host_in(0));
  if (op == "Concat") return concat(node);
  if (op == "ConstantOfShape") return constant_of_shape(node);
  if (op == "Range") return range(node);
  if (op == "Tile") return tile(node, node.host_in(0));
  if (op == "Expand") {
    const HostValue v = node.host_in(0);
    const Dims dims = broadcast_dims(v.dims, node.host_in(1).ints);
    check_size(dims);
    return expand(v, dims);
  }
  if (op == "Clip" && node.opset >= 11) {
    HostValue v = node.host_in(0);
    if (node.has(1)) v = binary(binaries().at("Max"), v, node.host_in(1));
    if (node.has(2)) v = binary(binaries().at("Min"), v, node.host_in(2));
    return v;
  }
  static const std::set<std::string> kReductions = {"ReduceProd", "ReduceSum", "ReduceMax", "ReduceMin",
                                                    "ReduceMean"};
  if (kReductions.count(op)) return reduce(node, node.host_in(0));
  return std::nullopt;
}

}  // namespace

bool evaluate_known(const NodeView& node) {
  const std::string& op = node.proto.op_type();
  const OnnxValue& first = node.in(0);
  if (op == "Constant" || op == "Shape" || op == "Size") return false;
  if (op == "CastLike" && first.known()) {
    const OnnxValue& like = node.required(1);
    const bool real = like.is(Kind::tensor) ? !like.boolean
                                            : like.is(Kind::weight) || like.is(Kind::noise) ||
                                                  (like.is(Kind::host) && like.host->is_real());
    if (first.is(Kind::weight) && real) {
      node.give(0, first);
    } else {
      node.give(0, ImportContext::make_host(cast(node.host_in(0), real ? Element::real : Element::integer)));
    }
    return true;
  }
  for (int i = 0; i < node.inputs(); ++i)
    if (node.has(i) && !node.in(i).known()) return false;
  if (op == "Cast" && first.is(Kind::weight) && is_real_type(int(node.integer("to", 0)))) {
    node.give(0, first);
    return true;
  }
  if (keeps_weights(op)) {
    if (reshape_empty(node)) return true;
    find_operator(op)->import(node);
    settle(node);
    return true;
  }
  if (op == "Expand" && first.is(Kind::weight)) {
    const Dims dims = first.dims();
    if (broadcast_dims(dims, node.host_in(1).ints) == dims) {
      node.give(0, first);
      return true;
    }
  }
  std::optional<HostValue> result = compute(node);
  if (!result) return false;
  node.give(0, ImportContext::make_host(std::move(*result)));
  return true;
}

}  // namespace ren::importer
