// SPDX-License-Identifier: Apache-2.0
// `verify` itself: it passes on what PyTorch recorded, and each number that is moved makes it fail and
// name that tensor.
#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "capi/support.h"
#include "engine/base/safetensors.h"

namespace ren::test {
namespace {

using nlohmann::json;

json verify(const std::string& model, const std::string& golden,
            ren_verify_options options = REN_VERIFY_OPTIONS_INIT) {
  ren_report* report = nullptr;
  const int32_t status = ren_verify(model.c_str(), golden.c_str(), &options, &report);
  if (status != REN_OK) return {{"status", status}, {"message", ren_last_error_message()}};
  size_t needed = 0;
  EXPECT_OK(ren_report_json(report, nullptr, 0, &needed));
  std::string text(needed, '\0');
  EXPECT_OK(ren_report_json(report, text.data(), text.size(), nullptr));
  text.pop_back();
  int32_t passed = -1;
  EXPECT_OK(ren_report_passed(report, &passed));
  ren_report_destroy(report);
  json j = json::parse(text);
  EXPECT_EQ(j["passed"].get<bool>(), passed == 1);
  return j;
}

// A golden file whose content can be changed.
class Golden {
 public:
  explicit Golden(const std::string& path) : file_(SafeTensorsFile::read(path)), metadata_(file_.metadata()) {
    for (const auto& [name, tensor] : file_.tensors()) {
      bytes_[name] = std::string(tensor.data);
      tensors_[name] = tensor;
    }
    char name[] = "/tmp/ren-golden-XXXXXX";
    close(mkstemp(name));
    path_ = name;
  }
  ~Golden() { std::filesystem::remove(path_); }

  std::vector<float> get(const std::string& name) const {
    std::vector<float> values(bytes_.at(name).size() / sizeof(float));
    std::memcpy(values.data(), bytes_.at(name).data(), bytes_.at(name).size());
    return values;
  }
  void set(const std::string& name, const std::vector<float>& values) {
    bytes_[name].assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  }
  void set_class(const std::string& name, int64_t value) {
    std::memcpy(bytes_.at(name).data(), &value, sizeof value);
  }
  void restore(const std::string& name) { bytes_[name] = std::string(file_.at(name).data); }
  void remove(const std::string& name) { tensors_.erase(name); }
  void rename(const std::string& from, const std::string& to) {
    tensors_[to] = tensors_.at(from);
    bytes_[to] = bytes_.at(from);
    tensors_.erase(from);
  }
  void set_shape(const std::string& name, std::vector<int64_t> shape) {
    tensors_.at(name).shape = std::move(shape);
    bytes_.at(name).resize(size_t(tensors_.at(name).elements()) * sizeof(float));
  }
  std::map<std::string, std::string>& metadata() { return metadata_; }

  const std::string& write() {
    for (auto& [name, tensor] : tensors_) tensor.data = bytes_[name];
    write_safetensors(path_, tensors_, metadata_);
    return path_;
  }

 private:
  SafeTensorsFile file_;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, std::string> bytes_;
  std::map<std::string, SafeTensor> tensors_;
  std::string path_;
};

class Verify : public testing::TestWithParam<const char*> {
 protected:
  std::string model() const { return parity_file(std::string(GetParam()) + ".onnx"); }
  std::string golden() const { return parity_file(std::string(GetParam()) + ".golden.safetensors"); }
};

TEST_P(Verify, PassesAsRecorded) {
  const json j = verify(model(), golden());
  EXPECT_TRUE(j["passed"].get<bool>()) << j.dump(1);
  // Everything in the golden file but inputs and targets is compared.
  std::set<std::string> compared;
  for (const json& c : j["comparisons"]) compared.insert(c["tensor"]);
  const SafeTensorsFile file = SafeTensorsFile::read(golden());
  for (const auto& [name, tensor] : file.tensors())
    if (name.find("/input/") == std::string::npos && name.find("/target") == std::string::npos) {
      EXPECT_TRUE(compared.count(name)) << name;
    }
}

// Each comparison in turn: one element of its tensor, the smallest, moved by 20 times the bound.
TEST_P(Verify, FindsEveryNumberThatIsMoved) {
  const json whole = verify(model(), golden());
  ASSERT_TRUE(whole["passed"].get<bool>());
  Golden changed(golden());
  std::set<std::string> groups;
  for (const json& c : whole["comparisons"]) {
    const std::string name = c["tensor"], group = c["group"];
    groups.insert(group);
    std::vector<float> values = changed.get(name);
    const auto smallest = std::min_element(values.begin(), values.end(),
                                           [](float a, float b) { return std::abs(a) < std::abs(b); });
    *smallest += float(20 * c["bound"].get<double>());
    changed.set(name, values);
    const json j = verify(model(), changed.write());
    changed.restore(name);
    EXPECT_FALSE(j["passed"].get<bool>()) << group << " " << name;
    std::set<std::string> named;
    for (const json& f : j["failures"]) named.insert(f["tensor"]);
    EXPECT_EQ(named, std::set<std::string>{name}) << group;
  }
  const std::set<std::string> all = {"evaluation", "output", "loss",     "gradient",
                                     "parameter",  "change", "statistic"};
  EXPECT_EQ(groups, all);
}

// A bound derived from such a value would be infinite and let everything pass.
TEST_P(Verify, NonFiniteGoldensAreRefused) {
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    for (const char* tensor : {"step0/loss", "eval/output/logits"}) {
      Golden changed(golden());
      if (changed.get(tensor).empty()) continue;
      std::vector<float> values = changed.get(tensor);
      values[0] = bad;
      changed.set(tensor, values);
      ren_report* report = nullptr;
      EXPECT_EQ(ren_verify(model().c_str(), changed.write().c_str(), nullptr, &report),
                REN_ERROR_INVALID_DATA);
      EXPECT_NE(std::string(ren_last_error_message()).find(tensor), std::string::npos);
      ren_report_destroy(report);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, Verify, testing::Values("fresh_bn.ts", "two_heads.ts"),
                         [](const auto& info) {
                           return std::string(info.param).substr(0, std::string(info.param).find('.'));
                         });

// The settings of the golden file matter: each one changed makes the parameters differ.
TEST(VerifySettings, AWrongOptimizerIsSeen) {
  const std::string model = parity_file("two_heads.ts.onnx"),
                    golden = parity_file("two_heads.ts.golden.safetensors");
  const std::pair<const char*, const char*> changes[] = {{"momentum", "0.0"},
                                                         {"weight_decay", "0.0"},
                                                         {"nesterov", "true"},
                                                         {"lr", "0.051"},
                                                         {"label_smoothing", "0.1"},
                                                         {"outputs", "logits:1.0"},
                                                         {"outputs", "logits:1.0,aux:0.4"}};
  for (const auto& [key, value] : changes) {
    Golden changed(golden);
    changed.metadata()[key] = value;
    const json j = verify(model, changed.write());
    ASSERT_TRUE(j.contains("passed")) << j.dump();
    EXPECT_FALSE(j["passed"].get<bool>()) << key;
  }
}

TEST(VerifySettings, TheToleranceScalesTheBounds) {
  const std::string model = parity_file("fresh_bn.ts.onnx"),
                    golden = parity_file("fresh_bn.ts.golden.safetensors");
  ren_verify_options options = REN_VERIFY_OPTIONS_INIT;
  options.tolerance = 1e-9;  // below FP32's rounding
  EXPECT_FALSE(verify(model, golden, options)["passed"].get<bool>());
  options.tolerance = -1;
  EXPECT_EQ(verify(model, golden, options)["status"], REN_ERROR_INVALID_ARGUMENT);
}

TEST(VerifySettings, SixteenBits) {
  const std::string model = parity_file("fresh_bn.ts.onnx"),
                    golden = parity_file("fresh_bn.ts.golden.safetensors");
  ren_verify_options options = REN_VERIFY_OPTIONS_INIT;
  options.precision = REN_PRECISION_FP16;
  const json j = verify(model, golden, options);
  EXPECT_TRUE(j["passed"].get<bool>()) << j["failures"].dump(1);
  // It is really done in 16 bits: the errors are far beyond FP32's.
  EXPECT_GT(j["groups"]["output"]["worst"]["error"].get<double>(), 1e-5);
}

// A peer file whose content can be changed; of a report it takes what the engine itself is off by.
class PeerFile {
 public:
  explicit PeerFile(const json& report, double share = 1) {
    content = {{"format", "renaissance-peer-1"},
               {"case", report["case"]},
               {"precision", report["precision"]},
               {"device", "a GPU"},
               {"torch", "2.11"},
               {"replays", 4},
               {"errors", json::object()}};
    for (const json& c : report["comparisons"])
      content["errors"][c["tensor"].get<std::string>()] = share * c["error"].get<double>();
  }
  const std::string& write() {
    path_ = folder_.at("peer.json");
    std::ofstream(path_) << content.dump();
    return path_;
  }
  json content;

 private:
  const Folder folder_;
  std::string path_;
};

class VerifyPeer : public testing::Test {
 protected:
  static ren_verify_options sixteen_bits(int32_t precision = REN_PRECISION_FP16) {
    ren_verify_options options = REN_VERIFY_OPTIONS_INIT;
    options.precision = precision;
    return options;
  }
  json against(PeerFile& peer, ren_verify_options options) const {
    const std::string& path = peer.write();
    options.peer = path.c_str();
    return verify(model, golden, options);
  }
  const std::string model = parity_file("two_heads.ts.onnx"),
                    golden = parity_file("two_heads.ts.golden.safetensors");
};

TEST_F(VerifyPeer, WithinTwiceItsErrorPassesAndBeyondFails) {
  const json alone = verify(model, golden, sixteen_bits());
  ASSERT_TRUE(alone["passed"].get<bool>());
  EXPECT_FALSE(alone.contains("peer"));
  PeerFile peer(alone, 0.5001);
  ren_verify_options options = sixteen_bits();
  options.tolerance = 1e-12;  // by which nothing passes
  const json j = against(peer, options);
  EXPECT_TRUE(j["passed"].get<bool>()) << j["failures"].dump(1);
  size_t needed = 0;
  for (const json& c : j["comparisons"]) {
    EXPECT_EQ(c["needs_peer"].get<bool>(), c["error"].get<double>() > c["tolerance_bound"].get<double>());
    EXPECT_EQ(c["bound"].get<double>(),
              std::max(c["tolerance_bound"].get<double>(), 2 * c["peer_error"].get<double>()));
    needed += c["needs_peer"].get<bool>();
  }
  EXPECT_EQ(j["peer"]["needed"], needed);
  EXPECT_GT(needed, j["comparisons"].size() / 2);
  EXPECT_EQ(j["peer"]["replays"], 4);
  EXPECT_EQ(j["peer"]["device"], "a GPU");

  // Each tensor in turn, a little too far off; a parameter's error counts for its change, too.
  const json errors = peer.content["errors"];
  for (const auto& [tensor, error] : errors.items()) {
    if (error == 0.0) continue;
    peer.content["errors"] = errors;
    peer.content["errors"][tensor] = 0.49 / 0.5001 * error.get<double>();
    std::set<std::string> failed;
    const json without = against(peer, options);
    for (const json& f : without["failures"]) failed.insert(f["tensor"]);
    EXPECT_EQ(failed, std::set<std::string>{tensor});
  }
}

TEST_F(VerifyPeer, TheToleranceIsNotWidenedThen) {
  for (const int32_t precision : {REN_PRECISION_FP16, REN_PRECISION_BF16}) {
    const json wide = verify(model, golden, sixteen_bits(precision));
    PeerFile peer(wide, 0);
    const json j = against(peer, sixteen_bits(precision));
    EXPECT_DOUBLE_EQ(j["tolerance"].get<double>(), 3e-2);
    const double scale = 3e-2 / wide["tolerance"].get<double>();
    ASSERT_EQ(j["comparisons"].size(), wide["comparisons"].size());
    for (size_t i = 0; i < j["comparisons"].size(); ++i) {
      const json &now = j["comparisons"][i], &then = wide["comparisons"][i];
      const std::string group = now["group"], tensor = now["tensor"];
      ASSERT_EQ(tensor, then["tensor"]);
      const double ratio = scale * then["bound"].get<double>() / now["tolerance_bound"].get<double>();
      if (group == "parameter" || group == "change")
        EXPECT_NEAR(ratio, 10, 1e-6) << tensor;
      else if (group != "gradient")
        EXPECT_NEAR(ratio, 1, 1e-6) << tensor;
      else  // of those that are zero in exact arithmetic the bound is G's
        EXPECT_TRUE(std::abs(ratio - 10) < 1e-6 || std::abs(ratio - 1) < 1e-6) << tensor << " " << ratio;
    }
  }
}

TEST_F(VerifyPeer, RefusesWhatIsNoPeerOfTheGolden) {
  const Folder folder;
  const json alone = verify(model, golden, sixteen_bits());
  const auto refused = [&](int32_t status, const char* part, auto&& change,
                           int32_t precision = REN_PRECISION_FP16) {
    PeerFile peer(alone);
    change(peer.content);
    const json j = against(peer, sixteen_bits(precision));
    EXPECT_EQ(j.value("status", 0), status) << j.dump();
    EXPECT_NE(j.value("message", "").find(part), std::string::npos) << j.dump();
  };
  const auto bad = [&](const char* part, auto&& change) { refused(REN_ERROR_INVALID_DATA, part, change); };
  const auto nothing = [](json&) {};
  bad("is no peer file", [](json& p) { p["format"] = "renaissance-golden-1"; });
  bad("is no peer file", [](json& p) { p.erase("format"); });
  bad("is no peer file", [](json& p) { p = json::array(); });
  bad("of the case 'fresh_bn.ts'", [](json& p) { p["case"] = "fresh_bn.ts"; });
  bad("the precision 'fp8'", [](json& p) { p["precision"] = "fp8"; });
  refused(REN_ERROR_INVALID_DATA, "is of fp16", nothing, REN_PRECISION_BF16);
  refused(REN_ERROR_INVALID_ARGUMENT, "fp32", nothing, REN_PRECISION_FP32);
  for (const char* tensor :
       {"eval/output/logits", "step0/output/logits", "step1/loss", "step0/grad/main.bias",
        "step2/param/main.bias", "step2/buffer/a.0.1.running_var"})
    bad(tensor, [&](json& p) { EXPECT_EQ(p["errors"].erase(tensor), 1u) << tensor; });
  for (const json& junk : {json(-1), json("0.1"), json(nullptr)})
    bad("step1/loss", [&](json& p) { p["errors"]["step1/loss"] = junk; });
  for (const char* key : {"case", "device", "torch", "precision", "replays", "errors"})
    bad(fmt::format("'{}'", key).c_str(), [&](json& p) { p.erase(key); });
  bad("no replay", [](json& p) { p["replays"] = 0; });
  ren_verify_options options = sixteen_bits();
  for (const char* twice : {R"({"case": "a", "case": "b"})", R"({"errors": {"case": 1, "case": 1}})"}) {
    const std::string path = folder.at("twice.json");
    std::ofstream(path) << twice;
    options.peer = path.c_str();
    const json j = verify(model, golden, options);
    EXPECT_EQ(j["status"], REN_ERROR_INVALID_DATA);
    EXPECT_NE(j.value("message", "").find("'case' is given more than once"), std::string::npos) << j.dump();
  }
  options.peer = "missing.json";
  EXPECT_EQ(verify(model, golden, options)["status"], REN_ERROR_NOT_FOUND);
  options.peer = golden.c_str();  // not JSON at all
  EXPECT_EQ(verify(model, golden, options)["status"], REN_ERROR_INVALID_DATA);
}

TEST(VerifyRefuses, WhatIsNoGoldenOfTheModel) {
  const std::string model = parity_file("two_heads.ts.onnx"),
                    golden = parity_file("two_heads.ts.golden.safetensors");
  const auto message = [&](auto&& change) {
    Golden changed(golden);
    change(changed);
    const json j = verify(model, changed.write());
    EXPECT_TRUE(j.contains("status")) << j.dump();
    return j.value("message", "");
  };
  const auto contains = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  contains(message([](Golden& g) { g.metadata()["format"] = "other"; }), "no golden file");
  contains(message([](Golden& g) { g.metadata()["content"] = "nothing"; }), "content");
  contains(message([](Golden& g) { g.metadata()["optimizer"] = "adam"; }), "adam");
  contains(message([](Golden& g) { g.metadata()["lr"] = "fast"; }), "fast");
  for (const char* junk : {"maybe", "", "1", "True"})
    contains(message([&](Golden& g) { g.metadata()["nesterov"] = junk; }), "nesterov");
  for (const char* key : {"lr", "momentum", "weight_decay", "label_smoothing"})
    for (const char* junk : {"nan", "inf", ""})
      contains(message([&](Golden& g) { g.metadata()[key] = junk; }), key);
  contains(message([](Golden& g) { g.remove("step0/grad/main.weight"); }),
           "step0/grad/main.weight: is missing in the golden file");
  contains(message([](Golden& g) {
             g.set_shape("step0/grad/main.weight", {1, 1});
           }),
           "step0/grad/main.weight");
  contains(message([](Golden& g) { g.remove("step1/target"); }), "step1/target");
  contains(message([](Golden& g) { g.remove("step0/input/input"); }), "step0/input/input");
  contains(message([](Golden& g) { g.rename("step0/grad/main.weight", "step0/grad/gone"); }), "gone");
  contains(message([](Golden& g) { g.metadata()["outputs"] = "logits:1,logits:1"; }), "names 'logits' twice");
  contains(message([](Golden& g) { g.metadata()["outputs"] = "gone:1"; }), "no such output");
  for (const int64_t wrong : {int64_t{1} << 32, (int64_t{1} << 32) + 1, int64_t{-1}, int64_t{1000}})
    contains(message([&](Golden& g) { g.set_class("step1/target", wrong); }),
             fmt::format("step1/target: has the class {}; the model has ", wrong).c_str());
  const std::string both = message([](Golden& g) {
    g.remove("step1/target");
    g.remove("step2/loss");
  });
  contains(both, "step1/target");
  contains(both, "step2/loss");
  const json other = verify(parity_file("fresh_bn.ts.onnx"), golden);
  EXPECT_EQ(other["status"], REN_ERROR_INVALID_DATA);
  contains(other["message"], "tensors that it trains are none of the model's");
  EXPECT_LT(other["message"].get<std::string>().size(), 400u);
  EXPECT_EQ(verify("missing.onnx", golden)["status"], REN_ERROR_NOT_FOUND);
  EXPECT_EQ(verify(model, "missing")["status"], REN_ERROR_NOT_FOUND);
  EXPECT_EQ(verify(model, model)["status"], REN_ERROR_INVALID_DATA);
}

// The same network with other weights: all numbers differ, and that says little.
TEST(VerifyRefuses, AGoldenOfOtherWeights) {
  const std::string golden = parity_file("two_heads.ts.golden.safetensors");
  const Folder folder;
  const ModelPtr model = load_model(parity_file("two_heads.ts.onnx"));
  uint32_t state = 1;
  for (int64_t i = 0; i < info_of(model).tensors; ++i) {
    ren_tensor_info info = REN_TENSOR_INFO_INIT;
    ASSERT_OK(ren_model_tensor_info(model.get(), i, &info));
    if (info.role != REN_ROLE_PARAMETER || info.rank < 2) continue;
    char name[256];
    ASSERT_OK(ren_model_tensor_name(model.get(), i, name, sizeof name, nullptr));
    std::vector<float> values(size_t(info.elements));
    for (float& v : values) v = float((state = state * 1664525u + 1013904223u) >> 8) / float(1 << 25) - 0.25f;
    ASSERT_OK(ren_model_tensor_set(model.get(), name, values.data(), values.size()));
  }
  const std::string other = folder.at("other.onnx");
  ASSERT_OK(ren_model_export(model.get(), other.c_str(), nullptr, nullptr));
  const json j = verify(other, golden);
  EXPECT_EQ(j["status"], REN_ERROR_INVALID_DATA) << j.dump();
  EXPECT_NE(j.value("message", "").find("recorded with other weights"), std::string::npos) << j.dump();
}

// Parameters of the golden file that the importer alone would not train, and the other way round.
TEST(VerifyPolicy, TrainsTheGoldensParametersAndSaysSo) {
  const std::string model = parity_file("two_heads.ts.onnx");
  Golden changed(parity_file("two_heads.ts.golden.safetensors"));
  changed.remove("step0/grad/main.bias");
  changed.remove("step2/param/main.bias");
  const json j = verify(model, changed.write());
  ASSERT_TRUE(j.contains("notes")) << j.dump();
  ASSERT_EQ(j["notes"].size(), 1u) << j["notes"].dump();
  EXPECT_NE(j["notes"][0].get<std::string>().find("main.bias"), std::string::npos);
  for (const json& c : j["comparisons"])
    EXPECT_EQ(c["tensor"].get<std::string>().find("main.bias"), std::string::npos);
}

}  // namespace
}  // namespace ren::test
