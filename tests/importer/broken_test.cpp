// SPDX-License-Identifier: Apache-2.0
// Damaged, contradictory and unsupported models: each gives one Error that names the place.
#include <gtest/gtest.h>

#include <unistd.h>

#include <fstream>

#include "support.h"

namespace ren::importer::testing {
namespace {

struct Broken {
  const char* name;
  std::function<void(ModelMaker&)> damage;
  StatusCode code;
  std::vector<std::string> mentions;
};

onnx::TensorProto& initializer(ModelMaker& m, const std::string& name) {
  for (auto& t : *m.graph().mutable_initializer())
    if (t.name() == name) return t;
  throw std::logic_error(name);
}
onnx::NodeProto& node(ModelMaker& m, const std::string& op) {
  for (auto& n : *m.graph().mutable_node())
    if (n.op_type() == op) return n;
  throw std::logic_error(op);
}
void make_external(onnx::TensorProto& t, const std::string& location, const std::string& offset,
                   const std::string& length) {
  t.clear_raw_data();
  t.set_data_location(onnx::TensorProto::EXTERNAL);
  for (const auto& [key, value] : {std::pair{"location", location}, {"offset", offset}, {"length", length}}) {
    if (value.empty()) continue;
    auto& e = *t.add_external_data();
    e.set_key(key);
    e.set_value(value);
  }
}
onnx::TensorShapeProto_Dimension& input_dim(ModelMaker& m, int axis) {
  return *m.graph().mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(
      axis);
}

const StatusCode kInvalid = StatusCode::invalid_model, kUnsupported = StatusCode::unsupported;

const std::vector<Broken>& broken_models() {
  static const std::vector<Broken> list = {
      // The file as such
      {"no_graph", [](auto& m) { m.model.clear_graph(); }, kInvalid, {"no graph"}},
      {"no_ir_version", [](auto& m) { m.model.clear_ir_version(); }, kInvalid, {"ir_version"}},
      {"no_opset", [](auto& m) { m.model.clear_opset_import(); }, kInvalid, {"operator set"}},
      {"opset_twice", [](auto& m) { m.model.add_opset_import()->set_version(16); }, kInvalid, {"twice"}},
      {"opset_6", [](auto& m) { m.model.mutable_opset_import(0)->set_version(6); }, kUnsupported, {"6", "7"}},
      {"opset_negative",
       [](auto& m) { m.model.mutable_opset_import(0)->set_version(-5); },
       kUnsupported,
       {"-5"}},
      {"no_outputs", [](auto& m) { m.graph().clear_output(); }, kInvalid, {"no outputs"}},
      {"sparse", [](auto& m) { m.graph().add_sparse_initializer(); }, kUnsupported, {"sparse"}},
      // Initializers
      {"duplicate_initializer", [](auto& m) { m.tensor("fc.bias", {5}); }, kInvalid, {"fc.bias", "twice"}},
      {"unnamed_initializer", [](auto& m) { m.tensor("", {5}); }, kInvalid, {"no name"}},
      {"short_data",
       [](auto& m) { initializer(m, "fc.bias").mutable_raw_data()->pop_back(); },
       kInvalid,
       {"fc.bias", "20 bytes", "19"}},
      {"long_data",
       [](auto& m) { initializer(m, "fc.bias").mutable_raw_data()->append("abcd"); },
       kInvalid,
       {"fc.bias", "24"}},
      {"no_data", [](auto& m) { initializer(m, "fc.bias").clear_raw_data(); }, kInvalid, {"fc.bias", "0"}},
      {"wrong_field",
       [](auto& m) {
         auto& t = initializer(m, "fc.bias");
         t.clear_raw_data();
         t.add_int64_data(1);
       },
       kInvalid,
       {"fc.bias"}},
      {"negative_dim",
       [](auto& m) { initializer(m, "fc.bias").set_dims(0, -5); },
       kInvalid,
       {"fc.bias", "-5"}},
      {"huge_dim",
       [](auto& m) { initializer(m, "fc.bias").set_dims(0, INT64_MAX); },
       kInvalid,
       {"fc.bias", "too large"}},
      {"overflowing_dims",
       [](auto& m) {
         auto& t = initializer(m, "fc.bias");
         t.set_dims(0, int64_t{1} << 33);
         t.add_dims(int64_t{1} << 33);
       },
       kInvalid,
       {"fc.bias", "too large"}},
      {"zero_size_weight",
       [](auto& m) {
         auto& t = initializer(m, "conv.weight");
         t.set_dims(0, 0);
         t.clear_raw_data();
         t.set_raw_data("");
       },
       kInvalid,
       {"Conv", "no elements"}},
      {"segment",
       [](auto& m) { initializer(m, "fc.bias").mutable_segment()->set_begin(0); },
       kInvalid,
       {"segments"}},
      {"string_weight",
       [](auto& m) { initializer(m, "conv.weight").set_data_type(onnx::TensorProto::STRING); },
       kUnsupported,
       {"Conv", "conv.weight", "string"}},
      {"int_weight",
       [](auto& m) {
         auto& t = initializer(m, "conv.weight");
         t.set_data_type(onnx::TensorProto::INT32);
       },
       kInvalid,
       {"Conv", "whole numbers"}},
      // External data
      {"external_missing",
       [](auto& m) { make_external(initializer(m, "fc.bias"), "gone.bin", "", ""); },
       StatusCode::not_found,
       {"fc.bias", "gone.bin"}},
      {"external_parent",
       [](auto& m) { make_external(initializer(m, "fc.bias"), "../x.bin", "", ""); },
       kInvalid,
       {"fc.bias", "leaves"}},
      {"external_hidden_parent",
       [](auto& m) { make_external(initializer(m, "fc.bias"), "a/../../x.bin", "", ""); },
       kInvalid,
       {"leaves"}},
      {"external_absolute",
       [](auto& m) { make_external(initializer(m, "fc.bias"), "/etc/passwd", "", ""); },
       kInvalid,
       {"leaves"}},
      {"external_symlink",
       [](auto& m) { make_external(initializer(m, "fc.bias"), "link.bin", "", ""); },
       kInvalid,
       {"leads out"}},
      {"external_folder",
       [](auto& m) { make_external(initializer(m, "fc.bias"), "folder", "", ""); },
       kInvalid,
       {"no regular file"}},
      {"external_no_location",
       [](auto& m) { make_external(initializer(m, "fc.bias"), "", "0", "20"); },
       kInvalid,
       {"without a location"}},
      {"external_beyond_end",
       [](auto& m) { make_external(initializer(m, "fc.bias"), "data.bin", "90", "20"); },
       kInvalid,
       {"beyond the end"}},
      {"external_offset_overflow",
       [](auto& m) { make_external(initializer(m, "fc.bias"), "data.bin", "18446744073709551615", "20"); },
       kInvalid,
       {"beyond the end"}},
      {"external_negative_offset",
       [](auto& m) { make_external(initializer(m, "fc.bias"), "data.bin", "-4", "20"); },
       kInvalid,
       {"-4"}},
      {"external_words",
       [](auto& m) { make_external(initializer(m, "fc.bias"), "data.bin", "0", "many"); },
       kInvalid,
       {"many"}},
      {"external_too_short",
       [](auto& m) { make_external(initializer(m, "fc.bias"), "data.bin", "0", "16"); },
       kInvalid,
       {"20", "16"}},
      // Dataflow
      {"undefined_input",
       [](auto& m) { node(m, "Relu").set_input(0, "nowhere"); },
       kInvalid,
       {"Relu", "nowhere"}},
      {"missing_initializer",
       [](auto& m) { m.graph().mutable_initializer()->RemoveLast(); },
       kInvalid,
       {"Gemm", "fc.bias"}},
      {"cycle", [](auto& m) { node(m, "Conv").set_input(0, "r"); }, kInvalid, {"Conv", "cycle"}},
      {"self_loop", [](auto& m) { node(m, "Relu").set_input(0, "r"); }, kInvalid, {"Relu", "cycle"}},
      {"unsorted", [](auto& m) { m.graph().mutable_node()->SwapElements(2, 3); }, kInvalid, {"not sorted"}},
      {"value_given_twice",
       [](auto& m) { m.node("Relu", {"c"}, {"r"}); },
       kInvalid,
       {"'r'", "exists already"}},
      {"initializer_overwritten", [](auto& m) { m.node("Relu", {"c"}, {"fc.bias"}); }, kInvalid, {"fc.bias"}},
      {"undefined_output",
       [](auto& m) { m.graph().mutable_output(0)->set_name("nothing"); },
       kInvalid,
       {"nothing"}},
      // Inputs
      {"two_inputs",
       [](auto& m) {
         m.add_input("z", {-1, 3, 8, 8});
       },
       kUnsupported,
       {"'z'", "exactly one"}},
      {"weight_as_input",
       [](auto& m) {
         m.graph().mutable_initializer()->RemoveLast();
         m.add_input("fc.bias", {5});
       },
       kUnsupported,
       {"fc.bias", "without a value"}},
      {"dynamic_height",
       [](auto& m) { input_dim(m, 2).set_dim_param("height"); },
       kUnsupported,
       {"height", "batch"}},
      {"zero_channels", [](auto& m) { input_dim(m, 1).set_dim_value(0); }, kUnsupported, {"extent 0"}},
      {"huge_image", [](auto& m) { input_dim(m, 2).set_dim_value(INT64_MAX); }, kUnsupported, {"extent"}},
      {"batch_zero", [](auto& m) { input_dim(m, 0).set_dim_value(0); }, kUnsupported, {"axis 0"}},
      {"rank_5",
       [](auto& m) {
         m.graph()
             .mutable_input(0)
             ->mutable_type()
             ->mutable_tensor_type()
             ->mutable_shape()
             ->add_dim()
             ->set_dim_value(2);
       },
       kUnsupported,
       {"rank 5"}},
      {"int_input",
       [](auto& m) { m.graph().mutable_input(0)->mutable_type()->mutable_tensor_type()->set_elem_type(7); },
       kUnsupported,
       {"int64"}},
      {"shapeless_input",
       [](auto& m) { m.graph().mutable_input(0)->mutable_type()->mutable_tensor_type()->clear_shape(); },
       kUnsupported,
       {"'x'"}},
      // Operators
      {"unknown_operator",
       [](auto& m) { node(m, "Relu").set_op_type("Frobnicate"); },
       kUnsupported,
       {"Frobnicate", "opset 17"}},
      {"two_unknown_operators",
       [](auto& m) {
         node(m, "Relu").set_op_type("Frobnicate");
         node(m, "Flatten").set_op_type("Grok");
       },
       kUnsupported,
       {"Frobnicate", "Grok", "2 problems"}},
      {"contrib_operator",
       [](auto& m) {
         auto& n = node(m, "Relu");
         n.set_op_type("FusedConv");
         n.set_domain("com.microsoft");
       },
       kUnsupported,
       {"com.microsoft", "without graph optimisation"}},
      {"local_function",
       [](auto& m) {
         auto& n = node(m, "Relu");
         n.set_op_type("MyRelu");
         n.set_domain("my");
         auto& f = *m.model.add_functions();
         f.set_name("MyRelu");
         f.set_domain("my");
       },
       kUnsupported,
       {"domain 'my'", "inline"}},
      {"conv_bias_length",
       [](auto& m) {
         m.tensor("conv.bias", {3});
         node(m, "Conv").add_input("conv.bias");
       },
       kInvalid,
       {"Conv", "[4]", "[3]"}},
      {"conv_channels",
       [](auto& m) {
         initializer(m, "conv.weight").set_dims(1, 9);
         initializer(m, "conv.weight").set_dims(2, 1);
       },
       kInvalid,
       {"3 input channels", "9"}},
      {"conv_group", [](auto& m) { set_int(node(m, "Conv"), "group", 3); }, kInvalid, {"group 3"}},
      {"conv_group_zero", [](auto& m) { set_int(node(m, "Conv"), "group", 0); }, kInvalid, {"group"}},
      {"conv_kernel_shape",
       [](auto& m) {
         set_ints(node(m, "Conv"), "kernel_shape", {5, 5});
       },
       kInvalid,
       {"kernel_shape"}},
      {"conv_strides",
       [](auto& m) {
         set_ints(node(m, "Conv"), "strides", {0, 1});
       },
       kInvalid,
       {"strides"}},
      {"conv_pads_count",
       [](auto& m) {
         node(m, "Conv").clear_attribute();
         set_ints(node(m, "Conv"), "pads", {1, 1});
       },
       kInvalid,
       {"pads"}},
      {"conv_huge_pads",
       [](auto& m) {
         node(m, "Conv").clear_attribute();
         set_ints(node(m, "Conv"), "pads", {1, 1, INT64_MAX, 1});
       },
       kInvalid,
       {"pads"}},
      {"conv_kernel_too_large",
       [](auto& m) {
         node(m, "Conv").clear_attribute();
         set_ints(node(m, "Conv"), "dilations", {9, 9});
       },
       kInvalid,
       {"larger than"}},
      {"conv_attribute_type",
       [](auto& m) { set_float(node(m, "Conv"), "strides", 1); },
       kInvalid,
       {"strides", "type"}},
      {"conv_no_weight",
       [](auto& m) { node(m, "Conv").mutable_input()->RemoveLast(); },
       kInvalid,
       {"input 1"}},
      {"bn_empty_mean",
       [](auto& m) { node(m, "BatchNormalization").set_input(3, ""); },
       kUnsupported,
       {"BatchNormalization", "track_running_stats"}},
      {"bn_scalar_variance",
       [](auto& m) {
         auto& t = initializer(m, "bn.running_var");
         t.clear_dims();
         t.mutable_raw_data()->resize(4);
       },
       kInvalid,
       {"variance", "[4]", "[]"}},
      {"bn_wrong_channels",
       [](auto& m) {
         auto& t = initializer(m, "bn.bias");
         t.set_dims(0, 3);
         t.mutable_raw_data()->resize(12);
       },
       kInvalid,
       {"bias", "[3]"}},
      {"bn_momentum",
       [](auto& m) { set_float(node(m, "BatchNormalization"), "momentum", -3); },
       kInvalid,
       {"momentum"}},
      {"gemm_features",
       [](auto& m) {
         initializer(m, "fc.weight").set_dims(1, 32);
         initializer(m, "fc.weight").set_dims(0, 10);
       },
       kInvalid,
       {"64", "32"}},
      {"gemm_bias",
       [](auto& m) {
         auto& t = initializer(m, "fc.bias");
         t.set_dims(0, 4);
         t.mutable_raw_data()->resize(16);
       },
       kInvalid,
       {"Gemm", "[4]"}},
      {"flatten_axis",
       [](auto& m) { node(m, "Flatten").mutable_attribute(0)->set_i(9); },
       kInvalid,
       {"axis 9"}},
      {"flatten_mixes_samples",
       [](auto& m) { node(m, "Flatten").mutable_attribute(0)->set_i(0); },
       kUnsupported,
       {"batch"}},
      {"pool_without_kernel",
       [](auto& m) { node(m, "MaxPool").clear_attribute(); },
       kInvalid,
       {"kernel_shape"}},
      {"reshape_baked_batch",
       [](auto& m) {
         m.integers("shape", {4, 64});
         auto& n = node(m, "Flatten");
         n.set_op_type("Reshape");
         n.clear_attribute();
         n.add_input("shape");
       },
       kUnsupported,
       {"fixes the batch size"}},
      {"reshape_two_open",
       [](auto& m) {
         m.integers("shape", {-1, -1});
         auto& n = node(m, "Flatten");
         n.set_op_type("Reshape");
         n.clear_attribute();
         n.add_input("shape");
       },
       kInvalid,
       {"two axes open"}},
      {"reshape_overflow",
       [](auto& m) {
         m.integers("shape", {INT64_MAX, INT64_MAX});
         auto& n = node(m, "Flatten");
         n.set_op_type("Reshape");
         n.clear_attribute();
         n.add_input("shape");
       },
       kInvalid,
       {"Reshape"}},
      {"transpose_perm",
       [](auto& m) {
         auto& n = node(m, "Flatten");
         n.set_op_type("Transpose");
         n.clear_attribute();
         set_ints(n, "perm", {0, 1, 1, 2});
       },
       kInvalid,
       {"perm"}},
      {"add_shapes",
       [](auto& m) {
         m.tensor("addend", {7});
         auto& n = node(m, "Relu");
         n.set_op_type("Add");
         n.add_input("addend");
       },
       kInvalid,
       {"broadcast"}},
      {"weight_norm",
       [](auto& m) {
         m.tensor("conv.g", {4, 1, 1, 1});
         m.node("Mul", {"conv.weight", "conv.g"}, {"w"});
         auto& g = m.graph();
         for (int i = g.node_size() - 1; i > 0; --i) g.mutable_node()->SwapElements(i, i - 1);
         node(m, "Conv").set_input(1, "w");
       },
       kUnsupported,
       {"conv.weight", "computed"}},
      {"quantised_weight",
       [](auto& m) {
         m.node("DequantizeLinear", {"conv.weight"}, {"w"});
         auto& g = m.graph();
         for (int i = g.node_size() - 1; i > 0; --i) g.mutable_node()->SwapElements(i, i - 1);
         node(m, "Conv").set_input(1, "w");
       },
       kUnsupported,
       {"DequantizeLinear"}},
      {"range_without_end",
       [](auto& m) {
         m.integers("big", {int64_t{1} << 40});
         m.node("ConstantOfShape", {"big"}, {"zeros"});
         m.node("Add", {"logits", "zeros"}, {"more"});
         m.add_output("more", {-1, 5});
       },
       kInvalid,
       {"too large"}},
      {"divide_by_zero",
       [](auto& m) {
         m.integers("i0", {0});
         m.integers("i1", {1});
         m.node("Div", {"i1", "i0"}, {"q"});
         m.node("Reshape", {"logits", "q"}, {"more"});
         m.add_output("more", {-1, 5});
       },
       kInvalid,
       {"divides by zero"}},
      {"constant_without_value", [](auto& m) { m.node("Constant", {}, {"k"}); }, kInvalid, {"Constant"}},
      {"deep_rank",
       [](auto& m) {
         std::vector<int64_t> axes;
         for (int64_t i = 0; i < 40; ++i) axes.push_back(i);
         m.integers("axes", axes);
         m.node("Unsqueeze", {"logits", "axes"}, {"more"});
         m.add_output("more", {-1});
       },
       kInvalid,
       {"rank 42"}},
      {"output_without_batch",
       [](auto& m) {
         node(m, "Flatten").mutable_attribute(0)->set_i(1);
         m.node("Transpose", {"logits"}, {"t"});
         m.add_output("t", {5, -1});
       },
       kUnsupported,
       {"batch first"}},
  };
  return list;
}

void PrintTo(const Broken& broken, std::ostream* out) { *out << broken.name; }

class BrokenModel : public ::testing::TestWithParam<Broken> {};

TEST_P(BrokenModel, GivesOneClearError) {
  const ScratchFolder scratch;
  write_file(scratch / "data.bin", std::string(100, '\0'));
  fs::create_directory(scratch.path() / "folder");
  fs::create_symlink("/etc/passwd", scratch.path() / "link.bin");
  ModelMaker m = small_model();
  GetParam().damage(m);
  try {
    import_model(m.save(scratch / "model.onnx"));
    FAIL() << "was accepted";
  } catch (const Error& e) {
    const std::string text = e.what();
    EXPECT_EQ(e.code(), GetParam().code) << text;
    for (const auto& part : GetParam().mentions)
      EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
    EXPECT_NE(text.find("model.onnx"), std::string::npos) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Importer, BrokenModel, ::testing::ValuesIn(broken_models()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(BrokenFile, MissingEmptyAndForeignFiles) {
  const ScratchFolder scratch;
  const auto code_of = [](const std::string& path) {
    try {
      import_model(path);
    } catch (const Error& e) {
      return e.code();
    }
    return StatusCode::ok;
  };
  EXPECT_EQ(code_of(scratch / "none.onnx"), StatusCode::not_found);
  write_file(scratch / "empty.onnx", "");
  EXPECT_EQ(code_of(scratch / "empty.onnx"), StatusCode::invalid_model);
  write_file(scratch / "text.onnx", "<html>Not found</html>");
  EXPECT_EQ(code_of(scratch / "text.onnx"), StatusCode::invalid_model);
  EXPECT_EQ(code_of(scratch.path().string()), StatusCode::io);
}

TEST(BrokenFile, LargerThanTwoGigabytes) {
  const ScratchFolder scratch;
  const std::string path = scratch / "large.onnx";
  write_file(path, small_model().model.SerializeAsString());
  if (truncate(path.c_str(), off_t(2254857830)) != 0) GTEST_SKIP() << "no sparse files here";
  try {
    import_model(path);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), StatusCode::invalid_model);
    EXPECT_NE(std::string(e.what()).find("2 GB"), std::string::npos);
  }
}

// Unlike write_file it doesn't wait for the disk.
void put(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

// Whatever is read, the answer is a model or an Error.
bool survives(const std::string& path) {
  try {
    verify(import_model(path).graph, "import");
  } catch (const Error& e) {
    EXPECT_NE(e.code(), StatusCode::internal) << e.what();
  }
  return true;
}

TEST(BrokenFile, TruncatedAnywhere) {
  const ScratchFolder scratch;
  const std::string whole = small_model().model.SerializeAsString();
  for (size_t length = 0; length < whole.size(); length += 7) {
    put(scratch / "cut.onnx", whole.substr(0, length));
    EXPECT_TRUE(survives(scratch / "cut.onnx"));
  }
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(parity_folder(), error)) {
    if (entry.path().extension() != ".onnx" || fs::file_size(entry.path()) > 16000) continue;
    const std::string content = read_file(entry.path().string());
    for (size_t length = 0; length < content.size(); length += 97) {
      put(scratch / "cut.onnx", content.substr(0, length));
      EXPECT_TRUE(survives(scratch / "cut.onnx"));
    }
  }
}

TEST(BrokenFile, AnyByteChanged) {
  const ScratchFolder scratch;
  ModelMaker m = small_model();
  m.integers("shape", {0, -1});
  auto& flatten = node(m, "Flatten");
  flatten.set_op_type("Reshape");
  flatten.clear_attribute();
  flatten.add_input("shape");
  const std::string whole = m.model.SerializeAsString();
  for (size_t at = 0; at < whole.size(); ++at) {
#ifndef NDEBUG
    if (at % 3 != 0) continue;  // sanitizers are slow
#endif
    for (const unsigned char change : {0x01, 0xFF}) {
      std::string changed = whole;
      changed[at] = char(static_cast<unsigned char>(changed[at]) ^ change);
      put(scratch / "changed.onnx", changed);
      EXPECT_TRUE(survives(scratch / "changed.onnx")) << at;
    }
  }
}

}  // namespace
}  // namespace ren::importer::testing
