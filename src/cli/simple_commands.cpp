// SPDX-License-Identifier: Apache-2.0
// The commands that show or check something: inspect, plan, verify, doctor, export.
#include <fmt/format.h>

#include <algorithm>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/outputs.h"
#include "cli/values.h"

namespace ren::cli {
namespace {

void show(Output& output, const ReportHandle& report) {
  output.raw_json(json_of(report));
  output.result(text_of(report));
  output.finish();
}

struct Inspect {
  ModelChoice model;
  Output output;

  void run() {
    const ModelHandle loaded = model.load();
    show(output, make<ReportHandle>([&](ren_report** out) { return ren_model_report(loaded.get(), out); }));
  }
};

// What the letters and words of a plan mean, for those who don't know the source.
constexpr const char* kPlanLegend = R"(
How to read it: all memory is one block, taken once; a line `W 4096 +325632 weights` is a part of it: its
letter, where it begins, how many bytes it has and what lies there. B running statistics; W weights; E their
average (--ema); A 16-bit copies of the weights (--precision); G gradients; M, V momentum; N norms (lars);
R losses and counts; S learning rate and other scalars; I two batches of pictures. F holds activations and
their gradients, T workspaces of single operations: what isn't needed at the same time shares bytes, so
`1.87 x reused` means that they would take 1.87 times as much one by one. F and T are laid out anew for each
role (a training step, evaluation, prediction) in the same place. At last the largest pieces, and from which
to which operation of the step each is needed.
)";

struct Plan {
  ModelChoice model;
  DeviceChoice device;
  TrainingChoice training;
  std::string html;
  Output output;

  void run() {
    PlannedOutputs outputs;
    if (!html.empty()) outputs.add("--html", html, 0, {{model.path, "the model"}});
    outputs.check();
    const ModelHandle loaded = model.load();
    outputs.keep(external_files(loaded));
    outputs.check();
    ren_trainer_options options = REN_TRAINER_OPTIONS_INIT;
    training.apply(options);
    device.apply(options);
    const auto trainer = make<TrainerHandle>(
        [&](ren_trainer** out) { return ren_trainer_create(loaded.get(), &options, out); });
    const auto report =
        make<ReportHandle>([&](ren_report** out) { return ren_trainer_plan(trainer.get(), out); });
    if (!html.empty()) check(ren_report_write(report.get(), REN_REPORT_HTML, html.c_str()));
    output.raw_json(json_of(report));
    output.result(text_of(report) + kPlanLegend);
    output.finish();
  }
};

struct Verify {
  std::string model, golden, peer;
  DeviceChoice device;
  double tolerance = 0;
  Output output;

  bool run() {
    ren_trainer_options chosen = REN_TRAINER_OPTIONS_INIT;
    device.apply(chosen);
    ren_verify_options options = REN_VERIFY_OPTIONS_INIT;
    options.device = chosen.device;
    options.precision = chosen.precision;
    options.tolerance = tolerance;
    options.peer = peer.empty() ? nullptr : peer.c_str();
    const auto report = reading_input([&] {
      return make<ReportHandle>(
          [&](ren_report** out) { return ren_verify(model.c_str(), golden.c_str(), &options, out); });
    });
    show(output, report);
    int32_t passed = 0;
    check(ren_report_passed(report.get(), &passed));
    if (passed == 0 && only_later_steps_fail(nlohmann::json::parse(json_of(report)))) output.note(kRateHint);
    return passed != 0;
  }

 private:
  static constexpr const char* kRateHint =
      "The first step's outputs, loss and gradients agree; only what the steps lead to differs. Three steps "
      "at a large learning rate amplify rounding, most of all in networks of full width: a golden file "
      "recorded with a smaller one tells more (python -m renaissance golden MODEL.onnx --lr 1e-4 --out "
      "GOLDEN.safetensors).";

  static bool only_later_steps_fail(const nlohmann::json& report) {
    const auto& failures = report.at("failures");
    return !failures.empty() && std::all_of(failures.begin(), failures.end(), [](const auto& failure) {
      const auto tensor = failure.at("tensor").template get<std::string>();
      return tensor.starts_with("step1/") || tensor.starts_with("step2/");
    });
  }
};

struct Export {
  ModelChoice model;
  std::string out;
  std::vector<std::string> metadata;
  bool inference = false;
  Output output;

  void run() {
    PlannedOutputs places;
    places.add("--out", out, file_bytes(model.path));
    places.check();
    const ModelHandle loaded = model.load();
    PlannedOutputs outputs;
    outputs.add("--out", out, model_bytes(model.path, loaded));
    outputs.keep(external_files(loaded));
    outputs.check();
    std::vector<std::string> texts;
    for (const std::string& item : metadata) {
      const size_t equals = item.find('=');
      if (equals == 0 || equals == std::string::npos)
        throw CliError(kRefused, fmt::format("--metadata '{}' is not KEY=VALUE", item));
      texts.push_back(item.substr(0, equals));
      texts.push_back(item.substr(equals + 1));
    }
    std::vector<const char*> pointers;
    for (const std::string& t : texts) pointers.push_back(t.c_str());
    ren_export_options options = REN_EXPORT_OPTIONS_INIT;
    options.inference_form = inference ? 1 : 0;
    options.metadata = pointers.data();
    options.metadata_count = pointers.size();
    const auto notes = make<ReportHandle>(
        [&](ren_report** r) { return ren_model_export(loaded.get(), out.c_str(), &options, r); });
    output.event({{"event", "export"}, {"out", out}, {"notes", nlohmann::json::parse(json_of(notes))}});
    output.line(fmt::format("wrote {}", out));
    if (const std::string said = text_of(notes); !said.empty()) output.line(said.substr(0, said.size() - 1));
    output.finish();
  }
};

struct Doctor {
  Output output;

  bool run() {
    const auto report = make<ReportHandle>([&](ren_report** out) { return ren_doctor(out); });
    show(output, report);
    int32_t passed = 0;
    check(ren_report_passed(report.get(), &passed));
    return passed != 0;
  }
};

}  // namespace

void add_inspect(CLI::App& app, int&) {
  auto state = std::make_shared<Inspect>();
  CLI::App* command =
      app.add_subcommand("inspect", "Show a model: inputs, outputs, operations, and what is trained and why");
  state->model.add_path(*command);
  state->model.add_globs(*command);
  add_output(*command, state->output, false);
  command->footer(
      "Examples:\n  renaissance inspect net.onnx\n  renaissance inspect net.onnx --freeze 'blocks.*' --json");
  command->callback([state] { state->run(); });
}

void add_plan(CLI::App& app, int&) {
  auto state = std::make_shared<Plan>();
  CLI::App* command = app.add_subcommand(
      "plan", "Show the memory that training takes: regions, sizes, reuse, largest tensors");
  state->model.add_path(*command);
  state->model.add_globs(*command);
  state->training.add_memory(*command);
  state->device.add(*command);
  command->add_option("--html", state->html, "Also write the plan as a web page with a picture of it")
      ->type_name("FILE");
  add_output(*command, state->output, false);
  command->footer(
      "Examples:\n  renaissance plan net.onnx --batch 128\n  renaissance plan net.onnx --device cuda "
      "--precision fp16 --html plan.html");
  command->callback([state] { state->run(); });
}

void add_verify(CLI::App& app, int& exit_code) {
  auto state = std::make_shared<Verify>();
  CLI::App* command =
      app.add_subcommand("verify", "Replay what PyTorch recorded for a model and compare every number");
  command->add_option("MODEL", state->model, "ONNX file")->required();
  command
      ->add_option("GOLDEN", state->golden,
                   "What PyTorch got: a .golden.safetensors file of the Python helper")
      ->required();
  state->device.add(*command);
  add_number(
      *command, "--tolerance", state->tolerance, Bounds::positive,
      "Scales the bounds; default: 1e-4 in fp32, 3e-2 in fp16 and tf32, 1e-1 in bf16 (3e-2 with --peer)",
      false);
  command
      ->add_option(
          "--peer", state->peer,
          "PyTorch's own errors in 16 bits or TF32, a file of `python -m renaissance autocast`: a number "
          "passes within the tolerance (gradients get no more then) or within twice PyTorch's error")
      ->type_name("FILE");
  add_output(*command, state->output, false);
  command->footer(
      "Exit codes: 0 all within bounds, 1 a number differs, 2 refused (with all reasons).\n"
      "Examples:\n  renaissance verify net.onnx net.golden.safetensors\n"
      "  renaissance verify net.onnx net.golden.safetensors --device cuda --precision fp16");
  command->callback([state, &exit_code] { exit_code = state->run() ? kOk : kFailure; });
}

void add_export(CLI::App& app, int&) {
  auto state = std::make_shared<Export>();
  CLI::App* command = app.add_subcommand("export", "Write a model again: in inference form, with metadata");
  state->model.add_path(*command);
  command->add_option("--out", state->out, "File to write")->required()->type_name("FILE");
  command->add_flag("--inference", state->inference,
                    "BatchNormalization and Dropout in their inference form");
  command
      ->add_option("--metadata", state->metadata,
                   "Add to the file's metadata, in place of an entry of that KEY; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  add_output(*command, state->output);
  command->footer("Examples:\n  renaissance export trained.onnx --inference --out deploy.onnx");
  command->callback([state] { state->run(); });
}

void add_doctor(CLI::App& app, int& exit_code) {
  auto state = std::make_shared<Doctor>();
  CLI::App* command = app.add_subcommand("doctor", "Tell what was found on this machine and what is missing");
  add_output(*command, state->output, false);
  command->footer("Examples:\n  renaissance doctor\n  renaissance doctor --json");
  command->callback([state, &exit_code] { exit_code = state->run() ? kOk : kFailure; });
}

}  // namespace ren::cli
