// SPDX-License-Identifier: Apache-2.0
// What importers commonly get wrong: roles, ties, copies, markings, data types.
#include <gtest/gtest.h>

#include "engine/ops/batch_norm/batch_norm.h"
#include "engine/ops/pointwise/pointwise.h"
#include "support.h"

namespace ren::importer::testing {
namespace {

class Semantics : public ::testing::Test {
 protected:
  ImportedModel import(const ModelMaker& maker, const ImportOptions& options = {}) {
    return import_model(maker.save(scratch_ / "model.onnx"), options);
  }
  std::vector<const BatchNormAttributes*> norms(const ImportedModel& m) {
    std::vector<const BatchNormAttributes*> list;
    for (const Node& node : m.graph.nodes)
      if (node.op == Op::batch_norm) list.push_back(&node.as<BatchNormAttributes>());
    return list;
  }
  const Parameter* parameter(const ImportedModel& m, const std::string& name) {
    for (const Parameter& p : m.graph.parameters)
      if (p.name == name) return &p;
    return nullptr;
  }
  bool says(const std::vector<std::string>& lines, const std::string& part) {
    return std::any_of(lines.begin(), lines.end(),
                       [&](const auto& l) { return l.find(part) != std::string::npos; });
  }
  ScratchFolder scratch_;
};

// Two normalisations in a row; `marks` as training_mode, -1: absent.
ModelMaker two_norms(int first, int second, int64_t opset = 17) {
  ModelMaker m(opset);
  m.tensor("conv.weight", {4, 3, 3, 3});
  m.node("Conv", {"x", "conv.weight"}, {"c"});
  std::string value = "c";
  for (int i = 0; i < 2; ++i) {
    const std::string stem = "bn" + std::to_string(i);
    std::vector<std::string> inputs{value};
    for (const char* part : {".weight", ".bias", ".running_mean", ".running_var"}) {
      m.tensor(stem + part, {4}, 0.5f + float(i));
      inputs.push_back(stem + part);
    }
    auto& node = m.node("BatchNormalization", inputs, {stem});
    const int mark = i == 0 ? first : second;
    if (opset >= 14 && mark >= 0) set_int(node, "training_mode", mark);
    if (opset < 14 && mark == 1)
      for (const char* extra : {"_m", "_v", "_sm", "_sv"}) node.add_output(stem + extra);
    set_float(node, "momentum", 0.75f);
    value = stem;
  }
  m.node("GlobalAveragePool", {value}, {"pooled"});
  set_int(m.node("Flatten", {"pooled"}, {"logits"}), "axis", 1);
  m.add_output("logits", {-1, 4});
  return m;
}

TEST_F(Semantics, MarkedNormalisationsFreezeTheOthers) {
  auto model = import(two_norms(1, 0));
  EXPECT_TRUE(norms(model)[0]->training);
  EXPECT_FALSE(norms(model)[1]->training);
  EXPECT_EQ(norms(model)[0]->keep, 0.75f);
  model = import(two_norms(-1, -1));
  EXPECT_TRUE(norms(model)[0]->training && norms(model)[1]->training);
  model = import(two_norms(1, 0, 13));
  EXPECT_TRUE(norms(model)[0]->training);
  EXPECT_FALSE(norms(model)[1]->training);
}

TEST_F(Semantics, TheUserDecidesOverNormalisations) {
  ImportOptions options;
  options.freeze_norms = {"*_bn0"};
  options.train_norms = {"*_bn1"};
  const auto model = import(two_norms(1, 0), options);
  EXPECT_FALSE(norms(model)[0]->training);
  EXPECT_TRUE(norms(model)[1]->training);
}

TEST_F(Semantics, MomentumOneIsReplacedWithAWarning) {
  ModelMaker m = small_model();
  set_float(*m.graph().mutable_node(1), "momentum", 1.0f);
  const auto model = import(m);
  EXPECT_EQ(norms(model)[0]->keep, 0.9f);
  EXPECT_TRUE(says(model.warnings, "momentum 1"));
}

TEST_F(Semantics, AnInitializerUsedTwiceIsTied) {
  ModelMaker m(17, {-1, 4, 8, 8});
  m.tensor("conv.weight", {4, 4, 1, 1});
  m.node("Conv", {"x", "conv.weight"}, {"a"});
  m.node("Conv", {"a", "conv.weight"}, {"y"});
  m.add_output("y", {-1, 4, 8, 8});
  const auto model = import(m);
  EXPECT_EQ(model.graph.parameters.size(), 1u);
  EXPECT_EQ(model.graph.nodes[0].inputs[1], model.graph.nodes[1].inputs[1]);
}

TEST_F(Semantics, IdentityOfAnInitializerIsACopy) {
  ModelMaker m(17, {-1, 4, 8, 8});
  m.tensor("a.weight", {4, 4, 1, 1});
  m.tensor("a.bias", {4});
  m.tensor("b.weight", {4, 4, 1, 1}, 0.5f);
  m.node("Identity", {"a.bias"}, {"b.bias"});
  m.node("Conv", {"x", "a.weight", "a.bias"}, {"a"});
  m.node("Conv", {"a", "b.weight", "b.bias"}, {"y"});
  m.add_output("y", {-1, 4, 8, 8});
  const auto model = import(m);
  ASSERT_EQ(model.graph.parameters.size(), 4u);
  ASSERT_NE(parameter(model, "a.bias"), nullptr);
  ASSERT_NE(parameter(model, "b.bias"), nullptr);
  auto values = model.parameters;
  for (size_t i = 0; i < values.size(); ++i)
    if (model.graph.parameters[i].name == "b.bias") values[i] = {9, 8, 7, 6};
  export_model(model, values, model.buffers, scratch_ / "out.onnx");
  const auto again = import_model(scratch_ / "out.onnx");
  for (size_t i = 0; i < again.parameters.size(); ++i)
    EXPECT_EQ(again.graph.parameters[i].name == "b.bias",
              again.parameters[i] == (std::vector<float>{9, 8, 7, 6}));
}

TEST_F(Semantics, IdentityAcrossRolesKeepsThemApart) {
  ModelMaker m = small_model();
  // running_var = Identity(weight), as exporters merge tensors of equal value.
  auto& graph = m.graph();
  auto* norm = graph.mutable_node(1);
  norm->set_input(4, "bn.running_var_alias");
  auto& alias = *graph.add_node();
  alias.set_op_type("Identity");
  alias.add_input("bn.weight");
  alias.add_output("bn.running_var_alias");
  graph.mutable_node()->SwapElements(0, graph.node_size() - 1);
  for (int i = graph.node_size() - 1; i > 1; --i) graph.mutable_node()->SwapElements(i, i - 1);
  const auto model = import(m);
  ASSERT_NE(parameter(model, "bn.weight"), nullptr);
  auto buffers = model.buffers;
  for (auto& values : buffers) std::fill(values.begin(), values.end(), 3.0f);
  export_model(model, model.parameters, buffers, scratch_ / "out.onnx");
  const auto again = import_model(scratch_ / "out.onnx");
  EXPECT_EQ(again.buffers, buffers);
  EXPECT_EQ(again.parameters, model.parameters);
}

TEST_F(Semantics, TwoLayersNeverShareStatisticsByValue) {
  ModelMaker m = two_norms(1, 1);
  m.graph().mutable_node(2)->set_input(3, "bn0.running_mean");
  m.graph().mutable_node(2)->set_input(4, "bn0.running_var");
  const auto model = import(m);
  ASSERT_EQ(model.buffers.size(), 4u);
  auto buffers = model.buffers;
  for (size_t i = 0; i < 4; ++i) std::fill(buffers[i].begin(), buffers[i].end(), float(i + 1));
  const auto notes = export_model(model, model.parameters, buffers, scratch_ / "out.onnx");
  EXPECT_TRUE(says(notes, "was added"));
  auto written = import_model(scratch_ / "out.onnx");
  EXPECT_EQ(written.buffers.size(), 4u);
  std::set<float> seen;
  for (const auto& values : written.buffers) seen.insert(values[0]);
  EXPECT_EQ(seen.size(), 4u);
}

TEST_F(Semantics, AModuleUsedTwiceSharesItsStatistics) {
  ModelMaker m = two_norms(1, 1);
  const char* const parts[] = {".weight", ".bias", ".running_mean", ".running_var"};
  for (int i = 0; i < 4; ++i) m.graph().mutable_node(2)->set_input(i + 1, std::string("bn0") + parts[i]);
  const auto model = import(m);
  EXPECT_EQ(model.buffers.size(), 2u);
  EXPECT_EQ(model.graph.parameters.size(), 3u);
}

TEST_F(Semantics, TrainAndFreezeGlobs) {
  ImportOptions options;
  options.freeze = {"conv.*"};
  const auto model = import(small_model(), options);
  EXPECT_FALSE(parameter(model, "conv.weight")->trainable);
  EXPECT_TRUE(parameter(model, "fc.weight")->trainable);
  EXPECT_NE(parameter(model, "conv.weight")->reason.find("conv.*"), std::string::npos);
  options.freeze = {"nothing*"};
  EXPECT_THROW(import(small_model(), options), Error);
  options.freeze = {};
  options.train = {"bn.running_mean"};
  EXPECT_THROW(import(small_model(), options), Error);
}

TEST_F(Semantics, MetadataListsWhatIsTrained) {
  ModelMaker m = small_model();
  auto& entry = *m.model.add_metadata_props();
  entry.set_key("renaissance.trainable");
  entry.set_value(R"(["fc.weight", "gone.weight"])");
  const auto model = import(m);
  for (const Parameter& p : model.graph.parameters) EXPECT_EQ(p.trainable, p.name == "fc.weight") << p.name;
  EXPECT_TRUE(says(model.warnings, "gone.weight"));
}

// A file in inference form: without a word all normalisations train, and that is said; a helper that vouches
// for the marks freezes them.
TEST_F(Semantics, NormalisationsOfWhichNoneIsMarked) {
  const auto training_norms = [](const ImportedModel& model) {
    int64_t count = 0;
    for (const Node& node : model.graph.nodes)
      count += node.op == Op::batch_norm && node.as<BatchNormAttributes>().training;
    return count;
  };
  ModelMaker m = small_model();
  for (auto& node : *m.graph().mutable_node())
    if (node.op_type() == "BatchNormalization") {
      node.clear_attribute();
      while (node.output_size() > 1) node.mutable_output()->RemoveLast();
    }
  const auto silent = import(m);
  EXPECT_EQ(training_norms(silent), 1);
  EXPECT_TRUE(says(silent.warnings, "none of the 1 BatchNormalization nodes is marked"));
  auto& entry = *m.model.add_metadata_props();
  entry.set_key("renaissance.batch_norm");
  entry.set_value("as_marked");
  const auto vouched = import(m);
  EXPECT_EQ(training_norms(vouched), 0);
  EXPECT_TRUE(says(vouched.warnings, "frozen"));
  entry.set_value("perhaps");
  EXPECT_THROW(import(m), Error);
}

TEST_F(Semantics, SignatureNamesParametersAndBuffers) {
  ModelMaker m = small_model();
  auto& entry = *m.graph().add_metadata_props();
  entry.set_key("pkg.torch.export.ExportedProgram.graph_signature");
  entry.set_value(
      "\n# inputs\np_a: PARAMETER target='fc.weight'\nb_c: BUFFER target='conv.weight' persistent=True\n"
      "p_l: PARAMETER target='lost.weight'\n\n# outputs\nq: USER_OUTPUT\n");
  const auto model = import(m);
  EXPECT_FALSE(parameter(model, "conv.weight")->trainable);
  EXPECT_TRUE(parameter(model, "fc.weight")->trainable);
  EXPECT_TRUE(says(model.warnings, "lost.weight"));
}

// Two LayerNorms that read the same tensors, as PyTorch's default exporter leaves fresh ones.
ModelMaker merged_norms(const std::string& second_module) {
  ModelMaker m(20, {-1, 3, 4, 8});
  m.tensor("norm1.weight", {8}, 1.0f, 0.0f);
  m.tensor("norm1.bias", {8}, 0.0f, 0.0f);
  std::string value = "x";
  for (const std::string& module : {std::string("norm1"), second_module}) {
    auto& node = m.node("LayerNormalization", {value, "norm1.weight", "norm1.bias"}, {value + "n"});
    auto& entry = *node.add_metadata_props();
    entry.set_key("pkg.torch.onnx.name_scopes");
    entry.set_value("['', '" + module + "', 'layer_norm']");
    value += "n";
  }
  m.add_output(value, {-1, 3, 4, 8});
  std::string signature = "\n# inputs\n";
  for (const std::string& module : {std::string("norm1"), second_module})
    for (const char* leaf : {"weight", "bias"})
      signature += "p: PARAMETER target='" + module + "." + leaf + "'\n";
  auto& entry = *m.graph().add_metadata_props();
  entry.set_key("pkg.torch.export.ExportedProgram.graph_signature");
  entry.set_value(signature + "\n# outputs\n");
  return m;
}

TEST_F(Semantics, ParametersMergedByTheExporterAreKeptApart) {
  const auto model = import(merged_norms("norm2"));
  ASSERT_EQ(model.graph.parameters.size(), 4u);
  ASSERT_NE(parameter(model, "norm2.weight"), nullptr);
  EXPECT_TRUE(parameter(model, "norm2.weight")->trainable);
  auto values = model.parameters;
  for (size_t i = 0; i < values.size(); ++i) std::fill(values[i].begin(), values[i].end(), float(i + 2));
  export_model(model, values, {}, scratch_ / "out.onnx");
  const auto again = import_model(scratch_ / "out.onnx");
  ASSERT_EQ(again.graph.parameters.size(), 4u);
  for (size_t i = 0; i < 4; ++i)
    for (size_t k = 0; k < 4; ++k)
      if (again.graph.parameters[i].name == model.graph.parameters[k].name) {
        EXPECT_EQ(again.parameters[i], values[k]);
      }
  // The same module twice is meant.
  EXPECT_EQ(import(merged_norms("norm1")).graph.parameters.size(), 2u);
}

TEST_F(Semantics, ExporterScalarsAreNoParameters) {
  ModelMaker m(17, {-1, 3, 4, 4});
  m.tensor("block.gamma", {1}, 0.5f);
  m.tensor("val_7", {1}, 0.25f);
  m.tensor("val_8", {3, 1, 1}, 0.25f);
  m.node("Mul", {"x", "block.gamma"}, {"a"});
  m.node("Mul", {"a", "val_7"}, {"b"});
  m.node("Mul", {"b", "val_8"}, {"y"});
  m.add_output("y", {-1, 3, 4, 4});
  const auto model = import(m);
  EXPECT_TRUE(parameter(model, "block.gamma")->trainable);
  EXPECT_EQ(parameter(model, "val_7"), nullptr);
  EXPECT_TRUE(parameter(model, "val_8")->trainable);
  EXPECT_EQ(model.tensors.size(), 3u);  // all are reported, whatever their role
  EXPECT_EQ(model.tensors[1].role, TensorRole::constant);
}

TEST_F(Semantics, ZeroBiasOfTheExporterIsAbsent) {
  ModelMaker m(17, {-1, 3, 4, 4});
  m.tensor("conv.weight", {2, 3, 1, 1});
  m.tensor("val_3", {2}, 0.0f, 0.0f);
  m.node("Conv", {"x", "conv.weight", "val_3"}, {"y"});
  m.add_output("y", {-1, 2, 4, 4});
  EXPECT_EQ(import(m).graph.parameters.size(), 1u);
  m.graph().mutable_initializer(1)->set_name("conv.bias");
  m.graph().mutable_node(0)->set_input(2, "conv.bias");
  EXPECT_EQ(import(m).graph.parameters.size(), 2u);
}

TEST_F(Semantics, DropoutDrawsOnlyWhileTraining) {
  ModelMaker m(13, {-1, 3, 4, 4});
  auto& ratio = m.tensor("ratio", {}, 0.25f);
  (void)ratio;
  m.node("Dropout", {"x", "ratio"}, {"d"});
  m.node("Relu", {"d"}, {"y"});
  m.add_output("y", {-1, 3, 4, 4});
  const auto model = import(m);
  ASSERT_EQ(model.graph.nodes[0].op, Op::pointwise);
  const auto& dropout = model.graph.nodes[0].as<PointwiseAttributes>();
  EXPECT_TRUE(dropout.training_only);
  EXPECT_TRUE(dropout.expression.uses_random());
}

TEST_F(Semantics, StochasticDepthDrawsOncePerSample) {
  ModelMaker m(17, {-1, 3, 4, 4});
  m.integers("ones", {1, 1, 1});
  m.tensor("rate", {}, 0.75f);
  set_int(m.node("Shape", {"x"}, {"n"}), "end", 1);
  set_int(m.node("Concat", {"n", "ones"}, {"shape"}), "axis", 0);
  m.node("ConstantOfShape", {"shape"}, {"zeros"});
  m.node("RandomUniformLike", {"zeros"}, {"u"});
  m.node("Less", {"u", "rate"}, {"kept"});
  set_int(m.node("Cast", {"kept"}, {"mask"}), "to", 1);
  m.node("Div", {"mask", "rate"}, {"scaled"});
  m.node("Relu", {"x"}, {"branch"});
  m.node("Mul", {"branch", "scaled"}, {"y"});
  m.add_output("y", {-1, 3, 4, 4});
  const auto model = import(m);
  ASSERT_EQ(model.graph.nodes.size(), 2u);
  const auto& depth = model.graph.nodes[1].as<PointwiseAttributes>();
  EXPECT_TRUE(depth.training_only);
  EXPECT_TRUE(depth.expression.uses_random());
  const auto uniform = std::find_if(depth.expression.nodes.begin(), depth.expression.nodes.end(),
                                    [](const ExprNode& n) { return n.prim == Prim::uniform; });
  EXPECT_NE(uniform->value, 0);  // one number a sample
  // Kept three times in four, then times 4/3.
  double out = 0;
  const double in = 3;
  int kept = 0;
  for (uint64_t sample = 0; sample < 4000; ++sample) {
    RandomPoint point;
    point.sample = sample;
    evaluate(depth.expression, std::span(&in, 1), point, std::span(&out, 1));
    EXPECT_TRUE(out == 0 || std::fabs(out - 4) < 1e-6);
    kept += out != 0;
  }
  EXPECT_NEAR(kept / 4000.0, 0.75, 0.03);  // more than four standard deviations
}

TEST_F(Semantics, AFixedFilterIsPointedOut) {
  ModelMaker m(17, {-1, 3, 8, 8});
  m.tensor("blur.filt", {3, 1, 3, 3}, 0.125f, 0.0f);
  set_int(m.node("Conv", {"x", "blur.filt"}, {"y"}), "group", 3);
  m.add_output("y", {-1, 3, 6, 6});
  EXPECT_TRUE(says(import(m).warnings, "blur.filt"));
}

TEST_F(Semantics, OtherFloatTypesAreReadAndKept) {
  for (const int type :
       {onnx::TensorProto::FLOAT16, onnx::TensorProto::BFLOAT16, onnx::TensorProto::DOUBLE}) {
    ModelMaker m(17, {-1, 2, 1, 1});
    auto& w = m.tensor("w.weight", {2, 2, 1, 1}, 0, 0);
    w.set_data_type(type);
    w.clear_raw_data();
    if (type == onnx::TensorProto::DOUBLE) {
      for (const double v : {1.0, -2.0, 0.5, 1.0 / 3}) w.add_double_data(v);
    } else {
      const bool half = type == onnx::TensorProto::FLOAT16;
      for (const int v :
           {half ? 0x3C00 : 0x3F80, half ? 0xC000 : 0xC000, half ? 0x3800 : 0x3F00, half ? 0x3555 : 0x3EAB})
        w.add_int32_data(v);
    }
    m.node("Conv", {"x", "w.weight"}, {"y"});
    m.add_output("y", {-1, 2, 1, 1});
    const auto model = import(m);
    EXPECT_EQ(model.parameters[0][0], 1.0f);
    EXPECT_EQ(model.parameters[0][1], -2.0f);
    EXPECT_EQ(model.parameters[0][2], 0.5f);
    EXPECT_NEAR(model.parameters[0][3], 1.0f / 3,
                type == onnx::TensorProto::BFLOAT16 ? 1e-3 : 1e-4);  // 8 and 11 bits
    export_model(model, model.parameters, {}, scratch_ / "same.onnx");
    EXPECT_EQ(m.model.SerializeAsString(), read_file(scratch_ / "same.onnx"));
    const std::vector<std::vector<float>> changed{{2, 3, 4, 5}};
    export_model(model, changed, {}, scratch_ / "out.onnx");
    EXPECT_EQ(parse(scratch_ / "out.onnx").graph().initializer(0).data_type(), type);
    EXPECT_EQ(import_model(scratch_ / "out.onnx").parameters, changed);
  }
}

TEST_F(Semantics, ExternalDataIsReadFromAnywhereAndRewritten) {
  ModelMaker m = small_model();
  std::string data(12, '\0');
  for (auto& tensor : *m.graph().mutable_initializer()) {
    if (tensor.name() != "fc.weight" && tensor.name() != "conv.weight") continue;
    const auto set = [&](const char* key, const std::string& value) {
      auto& e = *tensor.add_external_data();
      e.set_key(key);
      e.set_value(value);
    };
    set("location", "weights.bin");
    set("offset", std::to_string(data.size()));
    if (tensor.name() == "conv.weight") set("length", std::to_string(tensor.raw_data().size()));
    data += tensor.raw_data();
    tensor.clear_raw_data();
    tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  }
  write_file(scratch_ / "weights.bin", data);
  const auto model = import(m);
  auto parameters = model.parameters;
  for (auto& values : parameters)
    for (float& v : values) v += 1;
  fs::create_directory(scratch_.path() / "out");
  export_model(model, parameters, model.buffers, scratch_ / "out/model.onnx");
  EXPECT_EQ(import_model(scratch_ / "out/model.onnx").parameters, parameters);
  // In the folder of the original its own data stay.
  export_model(model, parameters, model.buffers, scratch_ / "model.onnx");
  EXPECT_EQ(read_file(scratch_ / "weights.bin"), data);
  EXPECT_EQ(import_model(scratch_ / "model.onnx").parameters, parameters);
}

TEST_F(Semantics, InferenceFormHasNeitherTrainingNormsNorDropout) {
  ModelMaker m = small_model();
  m.graph().mutable_node(3)->set_input(0, "r_dropped");
  auto& drop = *m.graph().add_node();
  drop.set_op_type("Dropout");
  drop.add_input("r");
  drop.add_input("ratio");
  drop.add_output("r_dropped");
  for (int i = m.graph().node_size() - 1; i > 3; --i) m.graph().mutable_node()->SwapElements(i, i - 1);
  auto& ratio = *m.graph().add_node();
  ratio.set_op_type("Constant");
  ratio.add_output("ratio");
  auto& value = *ratio.add_attribute();
  value.set_name("value_float");
  value.set_type(onnx::AttributeProto::FLOAT);
  value.set_f(0.5f);
  for (int i = m.graph().node_size() - 1; i > 0; --i) m.graph().mutable_node()->SwapElements(i, i - 1);
  const auto model = import(m);
  ExportOptions options;
  options.inference_form = true;
  export_model(model, model.parameters, model.buffers, scratch_ / "out.onnx", options);
  const auto written = parse(scratch_ / "out.onnx");
  for (const auto& node : written.graph().node()) {
    EXPECT_NE(node.op_type(), "Dropout");
    EXPECT_NE(node.op_type(), "Constant");
    if (node.op_type() == "BatchNormalization") {
      EXPECT_EQ(node.output_size(), 1);
      EXPECT_EQ(node.attribute(0).i(), 0);
    }
  }
  EXPECT_EQ(import_model(scratch_ / "out.onnx").parameters, model.parameters);
}

TEST_F(Semantics, UnknownFieldsAndMetadataSurvive) {
  ModelMaker m = small_model();
  m.model.set_producer_name("someone");
  m.model.set_doc_string("about");
  auto& entry = *m.model.add_metadata_props();
  entry.set_key("author");
  entry.set_value("me");
  std::string bytes = m.model.SerializeAsString();
  bytes += "\xC2\x3E\x03xyz";  // field 1000 of ModelProto, which nobody knows
  write_file(scratch_ / "odd.onnx", bytes);
  const auto model = import_model(scratch_ / "odd.onnx");
  export_model(model, model.parameters, model.buffers, scratch_ / "out.onnx");
  EXPECT_EQ(read_file(scratch_ / "out.onnx"), bytes);
}

TEST_F(Semantics, ParametersComeInTheFilesOrderAndLayout) {
  ModelMaker m(17, {-1, 2, 2, 3});
  m.tensor("fc.weight", {1, 12}, 0, 1);
  m.node("Flatten", {"x"}, {"f"});
  set_int(m.node("Gemm", {"f", "fc.weight"}, {"y"}), "transB", 1);
  m.add_output("y", {-1, 1});
  const auto model = import(m);
  // Columns come as C,H,W and lie in memory as H,W,C.
  EXPECT_EQ(model.parameters[0], (std::vector<float>{0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11}));
  EXPECT_EQ(model.graph.parameters[0].shape, (Shape{1, 1, 1, 12}));
  std::vector<float> file(12);
  for (size_t i = 0; i < 12; ++i) file[i] = float(i);
  EXPECT_EQ(model.to_onnx(0, model.parameters[0]), file);
  EXPECT_EQ(model.from_onnx(0, file), model.parameters[0]);
}

TEST_F(Semantics, ABatchOfOneIsStillABatch) {
  ModelMaker m(11, {1, 3, 4, 5});
  m.node("GlobalAveragePool", {"x"}, {"p"});
  set_ints(m.node("Squeeze", {"p"}, {"s"}), "axes", {2, 3});
  m.integers("flat", {1, 60});
  m.node("Reshape", {"x", "flat"}, {"f"});
  m.tensor("a.weight", {60, 3});
  m.node("MatMul", {"f", "a.weight"}, {"q"});
  m.node("Add", {"s", "q"}, {"y"});
  m.add_output("y", {1, 3});
  const auto model = import(m);
  EXPECT_EQ(model.static_batch, 1);
  EXPECT_FALSE(model.dynamic_batch);
  const Graph graph = with_batch(model.graph, 8);
  EXPECT_EQ(graph.at(graph.outputs[0].value).shape, (Shape{8, 1, 1, 3}));
}

TEST_F(Semantics, OneDataInputThoughInitializersAreListed) {
  ModelMaker m = small_model();
  m.model.set_ir_version(3);
  for (const auto& tensor : m.model.graph().initializer())
    m.add_input(tensor.name(), {tensor.dims().begin(), tensor.dims().end()});
  EXPECT_EQ(import(m).input.name, "x");
}

TEST_F(Semantics, NewerVersionsWarnAndNameBothNumbers) {
  ModelMaker m = small_model();
  m.model.set_ir_version(99);
  const auto model = import(m);
  EXPECT_TRUE(says(model.warnings, "99"));
  EXPECT_TRUE(says(model.warnings, "14"));
}

TEST_F(Semantics, FoldedNormalisationIsRecognised) {
  ModelMaker m(17, {-1, 3, 4, 4});
  m.tensor("onnx::Conv_11", {2, 3, 1, 1});
  m.tensor("onnx::Conv_12", {2});
  m.node("Conv", {"x", "onnx::Conv_11", "onnx::Conv_12"}, {"y"});
  m.add_output("y", {-1, 2, 4, 4});
  const auto model = import(m);
  EXPECT_TRUE(says(model.warnings, "renaissance.export"));
  EXPECT_TRUE(says(model.warnings, "TrainingMode.TRAINING"));
  EXPECT_TRUE(parameter(model, "onnx::Conv_11")->trainable);
  // Zeros are what folding a fresh normalisation gives.
  m.graph().mutable_initializer(1)->set_raw_data(std::string(8, '\0'));
  const auto fresh = import(m);
  EXPECT_TRUE(says(fresh.warnings, "TrainingMode.TRAINING"));
  ASSERT_NE(parameter(fresh, "onnx::Conv_12"), nullptr);
  EXPECT_TRUE(parameter(fresh, "onnx::Conv_12")->trainable);
}

TEST_F(Semantics, DanglingStatisticsOutputsAreTolerated) {
  ModelMaker m = small_model();
  m.add_output("bn.running_mean", {4});
  const auto model = import(m);
  EXPECT_EQ(model.graph.outputs.size(), 1u);
  EXPECT_TRUE(says(model.warnings, "bn.running_mean"));
}

}  // namespace
}  // namespace ren::importer::testing
