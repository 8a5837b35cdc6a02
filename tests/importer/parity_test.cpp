// SPDX-License-Identifier: Apache-2.0
// The models that PyTorch's exporters wrote, where they are at hand (RENAISSANCE_PARITY).
#include <gtest/gtest.h>

#include <set>

#include "support.h"

namespace ren::importer::testing {
namespace {

std::vector<std::string> cases() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(parity_folder(), error))
    if (entry.path().extension() == ".onnx") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  if (names.empty()) names.push_back("");  // one test that says it was skipped
  return names;
}

// Operators that this importer refuses, by model. Everything else must import.
const std::map<std::string, std::set<std::string>> kRefused = {
    {"unet", {"ConvTranspose"}},
    {"upsample_zoo", {"Resize", "DepthToSpace"}},
};

std::string model_of(const std::string& name) { return name.substr(0, name.find('.')); }

class Parity : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam().empty()) GTEST_SKIP() << "no models in " << parity_folder() << "; set RENAISSANCE_PARITY";
    base_ = parity_folder() + "/" + GetParam();
  }
  bool refused() const { return kRefused.count(model_of(GetParam())) != 0; }
  std::string base_;
};

TEST_P(Parity, ImportsOrSaysWhy) {
  if (!refused()) {
    EXPECT_NO_THROW({ verify(import_model(base_ + ".onnx").graph, "import"); });
    return;
  }
  try {
    import_model(base_ + ".onnx");
    FAIL() << "was not refused; take it off the list";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), StatusCode::unsupported);
    const std::string text = e.what();
    for (const auto& op : kRefused.at(model_of(GetParam())))
      EXPECT_NE(text.find(op), std::string::npos) << text;
  }
}

TEST_P(Parity, TrainsWhatPyTorchTrains) {
  if (refused()) return;
  const SafeTensorsFile golden = SafeTensorsFile::read(base_ + ".golden.safetensors");
  std::set<std::string> wanted, chosen;
  const std::string prefix = "step0/grad/";
  for (const auto& [name, tensor] : golden.tensors())
    if (name.rfind(prefix, 0) == 0) wanted.insert(name.substr(prefix.size()));
  if (wanted.empty()) GTEST_SKIP() << "an inference export";
  const ImportedModel model = import_model(base_ + ".onnx");
  for (const Parameter& p : model.graph.parameters)
    if (p.trainable) chosen.insert(p.name);
  EXPECT_EQ(chosen, wanted);
  std::set<std::string> statistics, moved;
  for (const auto& [name, tensor] : golden.tensors())
    if (name.rfind("step2/buffer/", 0) == 0) statistics.insert(name.substr(13));
  for (const Buffer& b : model.graph.buffers) moved.insert(b.name);
  // A golden leaves out statistics that share an initializer with a parameter.
  if (GetParam() == "fresh_bn.dynopt") return;
  EXPECT_EQ(moved, statistics);
}

TEST_P(Parity, GivesPyTorchsOutputs) {
  if (refused()) return;
#ifndef NDEBUG
  // The naive reference would take an hour on all of them without optimisation.
  static const std::set<std::string> kQuick = {"flatten_linear", "fresh_bn",  "frozen_bn",
                                               "fully_conv",     "se_net",    "padding_zoo",
                                               "tied_conv",      "two_heads", "scaled_residual"};
  if (!kQuick.count(model_of(GetParam()))) GTEST_SKIP() << "too slow without optimisation";
#endif
  const SafeTensorsFile golden = SafeTensorsFile::read(base_ + ".golden.safetensors");
  const ImportedModel model = import_model(base_ + ".onnx");
  const SafeTensor& input = golden.at("step0/input/" + model.input.name);
  const auto outputs = reference_outputs(model, to_doubles(input), input.shape[0]);
  ASSERT_EQ(outputs.size(), model.graph.outputs.size());
  // Goldens are FP64 results rounded to FP32 (6e-8); folding BN rounded weights once more.
  for (const auto& [name, values] : outputs)
    EXPECT_LT(worst_error(values, to_doubles(golden.at("eval/output/" + name))), 5e-7) << name;
}

TEST_P(Parity, ServesAnyBatch) {
  if (refused()) return;
  const ImportedModel model = import_model(base_ + ".onnx");
  for (const int64_t batch : {1, 7}) {
    const Graph graph = with_batch(model.graph, batch);
    verify(graph, "with_batch");
    for (const GraphOutput& output : graph.outputs) EXPECT_EQ(graph.at(output.value).shape.n, batch);
  }
}

TEST_P(Parity, RoundTrips) {
  if (refused()) return;
  const ScratchFolder scratch;
  const ImportedModel model = import_model(base_ + ".onnx");
  const bool splits = std::any_of(model.buffer_layouts.begin(), model.buffer_layouts.end(),
                                  [](const Layout& l) { return l.added; });
  export_model(model, model.parameters, model.buffers, scratch / "out.onnx");
  if (!splits && !fs::exists(base_ + ".onnx.data")) {
    EXPECT_TRUE(parse(base_ + ".onnx").SerializeAsString() == read_file(scratch / "out.onnx"))
        << "content changed";
  }
  // Other values arrive where they belong.
  auto parameters = model.parameters, buffers = model.buffers;
  float next = 0.5f;
  for (auto* family : {&parameters, &buffers})
    for (auto& values : *family)
      for (float& v : values) v = (next += 0.001f);
  export_model(model, parameters, buffers, scratch / "changed.onnx");
  const ImportedModel again = import_model(scratch / "changed.onnx");
  EXPECT_TRUE(again.parameters == parameters);
  EXPECT_TRUE(again.buffers == buffers);
}

INSTANTIATE_TEST_SUITE_P(Models, Parity, ::testing::ValuesIn(cases()), [](const auto& info) {
  std::string name = info.param.empty() ? "none" : info.param;
  for (char& c : name)
    if (!isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
});

}  // namespace
}  // namespace ren::importer::testing
