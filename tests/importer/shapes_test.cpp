// SPDX-License-Identifier: Apache-2.0
// The shapes that users read are the file's: its order and number of axes, the batch by name.
#include <gtest/gtest.h>

#include "importer/message_text.h"
#include "support.h"

namespace ren::importer::testing {
namespace {

// Conv, GlobalAveragePool and a head on the 1x1 map; then `last` makes the output.
ModelMaker head_on_a_point(const std::function<void(ModelMaker&)>& last, std::vector<int64_t> output) {
  ModelMaker m;
  m.tensor("conv.weight", {16, 3, 3, 3});
  m.tensor("head.weight", {16, 16, 1, 1});
  m.node("Conv", {"x", "conv.weight"}, {"c"});
  m.node("GlobalAveragePool", {"c"}, {"p"});
  m.node("Conv", {"p", "head.weight"}, {"h"});
  last(m);
  m.add_output("y", output);
  return m;
}

TEST(Shapes, OutputsAreAsInTheFile) {
  const ScratchFolder scratch;
  const auto shape_after = [&](const std::function<void(ModelMaker&)>& last) {
    const auto model = import_model(head_on_a_point(last, {-1, 16}).save(scratch / "m.onnx"));
    std::vector<int64_t> shape = model.output_shapes.at(0);
    shape[0] = -1;
    return shape;
  };
  using Dims = std::vector<int64_t>;
  EXPECT_EQ(shape_after([](ModelMaker& m) { m.node("Identity", {"h"}, {"y"}); }), (Dims{-1, 16, 1, 1}));
  EXPECT_EQ(shape_after([](ModelMaker& m) { m.node("Flatten", {"h"}, {"y"}); }), (Dims{-1, 16}));
  EXPECT_EQ(shape_after([](ModelMaker& m) {
              m.integers("to", {-1, 2, 8});
              m.node("Reshape", {"h", "to"}, {"y"});
            }),
            (Dims{-1, 2, 8}));
}

TEST(Shapes, InputIsAsInTheFile) {
  const ScratchFolder scratch;
  ModelMaker m(17, {-1, 12});
  m.tensor("weight", {5, 12});
  set_int(m.node("Gemm", {"x", "weight"}, {"y"}), "transB", 1);
  m.add_output("y", {-1, 5});
  const auto model = import_model(m.save(scratch / "m.onnx"));
  EXPECT_EQ(model.input.onnx_shape.size(), 2u);
  EXPECT_EQ(model.input.onnx_shape.at(1), 12);
}

TEST(Shapes, RefusalsNameTheBatch) {
  const ScratchFolder scratch;
  const auto m = head_on_a_point(
      [](ModelMaker& maker) {
        set_ints(maker.node("Transpose", {"h"}, {"y"}), "perm", {1, 0, 2, 3});
      },
      {16, -1, 1, 1});
  try {
    import_model(m.save(scratch / "m.onnx"));
    FAIL() << "imported";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("[16,N,1,1]"), std::string::npos) << error.what();
  }
}

TEST(Shapes, InMessages) {
  EXPECT_EQ(onnx_shapes("has shape [1009,1,1,16]", 1009, true), "has shape [N,16,1,1]");
  EXPECT_EQ(onnx_shapes("has shape [1009,16,1,1]", 1009, false), "has shape [N,16,1,1]");
  EXPECT_EQ(onnx_shapes("[2018,3] and [3,1009] of [1008]", 1009, true), "[2N,3] and [3,N] of [1008]");
  EXPECT_EQ(onnx_shapes("a batch of 4: [4,1,1,16]", 0, true), "a batch of 4: [4,16,1,1]");
  EXPECT_EQ(onnx_shapes("names[1009] '/layer_1009' [a,1009] [] [", 1009, true),
            "names[N] '/layer_1009' [a,1009] [] [");
}

}  // namespace
}  // namespace ren::importer::testing
