// SPDX-License-Identifier: Apache-2.0
// Every small model of tests/fixtures/onnx against what ONNX Runtime computes for it.
#include <gtest/gtest.h>

#include "support.h"

namespace ren::importer::testing {
namespace {

const std::string kFolder = std::string(REN_FIXTURES) + "/onnx";

std::vector<std::string> fixture_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kFolder))
    if (entry.path().extension() == ".onnx") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

class Fixture : public ::testing::TestWithParam<std::string> {};

TEST_P(Fixture, GivesOnnxRuntimesOutput) {
  static const SafeTensorsFile expected = SafeTensorsFile::read(kFolder + "/expected.safetensors");
  const std::string& name = GetParam();
  const ImportedModel model = import_model(kFolder + "/" + name + ".onnx");
  const SafeTensor& x = expected.at(name + "/x");
  const auto outputs = reference_outputs(model, to_doubles(x), x.shape[0], model.input.channels_last);
  ASSERT_EQ(outputs.size(), 1u);
  // ONNX Runtime computes in FP32: sums of up to 60 products of numbers around 1 lose about 1e-6.
  EXPECT_LT(worst_error(outputs.at("y"), to_doubles(expected.at(name + "/y"))), 5e-6)
      << to_string(model.graph);
}

TEST_P(Fixture, ServesAnyBatch) {
  const ImportedModel model = import_model(kFolder + "/" + GetParam() + ".onnx");
  for (const int64_t batch : {1, 5}) {
    const Graph graph = with_batch(model.graph, batch);
    verify(graph, "with_batch");
    for (const GraphOutput& output : graph.outputs) EXPECT_EQ(graph.at(output.value).shape.n, batch);
  }
}

TEST_P(Fixture, ExportsUnchanged) {
  const ScratchFolder scratch;
  const std::string path = kFolder + "/" + GetParam() + ".onnx";
  const ImportedModel model = import_model(path);
  export_model(model, model.parameters, model.buffers, scratch / "out.onnx");
  EXPECT_EQ(parse(path).SerializeAsString(), read_file(scratch / "out.onnx"));
}

INSTANTIATE_TEST_SUITE_P(Onnx, Fixture, ::testing::ValuesIn(fixture_names()), [](const auto& info) {
  std::string name = info.param;
  for (char& c : name)
    if (!isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
});

}  // namespace
}  // namespace ren::importer::testing
