// SPDX-License-Identifier: Apache-2.0
// The commands about data alone: pack, data inspect.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/outputs.h"
#include "cli/signals.h"
#include "cli/values.h"

namespace ren::cli {
namespace {

// A long job of the library's: its bar, its messages, and Ctrl-C.
class Job {
 public:
  explicit Job(Output& output) : output_(output) {}

  // call(fn, user) gives a status.
  template <typename Call>
  void run(Call&& call) {
    int32_t status;
    {
      const StopScope scope;
      status = call(&Job::on_progress, static_cast<void*>(this));
    }
    output_.end_progress();
    check(status);
  }

 private:
  static int32_t on_progress(void* user, const ren_job_progress* p) {
    try {
      static_cast<Job*>(user)->show(*p);
      return stop_was_requested() ? 1 : 0;
    } catch (const std::exception&) {
      return 1;  // nothing may be thrown through the library
    }
  }

  void show(const ren_job_progress& p) {
    static constexpr const char* kNames[] = {"reading", "packing", "verifying", "inspecting"};
    if (p.message != nullptr) {
      output_.event({{"event", "note"}, {"message", p.message}});
      output_.note(p.message);
    }
    output_.progress(kNames[p.phase], p);
  }

  Output& output_;
};

void warn_of(Output& output, const ren_dataset* dataset) {
  int64_t warnings = 0;
  check(ren_dataset_warning_count(dataset, &warnings));
  for (int64_t i = 0; i < warnings; ++i) {
    const std::string text =
        text_from([&](char* b, size_t c, size_t* n) { return ren_dataset_warning(dataset, i, b, c, n); });
    output.event({{"event", "warning"}, {"message", text}});
    output.note("warning: " + text);
  }
}

struct Pack {
  std::string source, validation, out, bad_files = "fail";
  int short_side = 0, quality = 90, threads = 0;
  Output output;

  void run(bool quality_given) {
    if (quality_given && short_side == 0)
      throw CliError(kRefused,
                     "--quality needs --short-side: pictures that keep their size keep their bytes");
    if (ren_check_output(out.c_str(), 0, nullptr, 0) != REN_OK)
      throw CliError(kRefused, fmt::format("--out '{}' can't be written: {}", out, ren_last_error_message()));
    const DatasetHandle dataset = open_data(source, validation);
    warn_of(output, dataset.get());
    ren_pack_options options = REN_PACK_OPTIONS_INIT;
    options.short_side = short_side;
    options.quality = quality;
    options.threads = threads;
    options.bad_files = bad_files == "skip" ? REN_BAD_FILES_SKIP : REN_BAD_FILES_FAIL;
    ReportHandle report;
    Job(output).run([&](ren_job_progress_fn fn, void* user) {
      ren_report* made = nullptr;
      const int32_t status = ren_dataset_pack(dataset.get(), out.c_str(), &options, &made, fn, user);
      report.reset(made);
      return status;
    });
    output.raw_json(json_of(report));
    output.result(text_of(report));
    output.finish();
  }
};

struct InspectData {
  std::string source, validation, sheet, augment = "auto";
  ModelChoice model;
  int size = 0, pictures = 64, threads = 0;
  uint64_t seed = 0;
  bool quick = false;
  Output output;

  bool run(bool sheet_options_given) {
    if (sheet_options_given && sheet.empty())
      throw CliError(kRefused, "--augment, --model, --size, --sheet-pictures and --seed need --sheet");
    if (size > 0 && !model.path.empty())
      throw CliError(kRefused, "--size and --model both tell the size: name one");
    if (!sheet.empty()) check_sheet(nullptr);
    ren_model_info info = REN_MODEL_INFO_INIT;
    if (!model.path.empty()) {
      const ModelHandle loaded = model.load();
      check_sheet(loaded);
      info = info_of(loaded);
    }
    const DatasetHandle dataset = open();
    warn_of(output, dataset.get());
    ReportHandle report;
    std::optional<CliError> sheet_problem;
    if (!sheet.empty()) {
      // Before the long work, so that its options are checked; the headers tell its size.
      if (model.path.empty()) report = inspect(dataset.get(), true);
      sheet_problem = write_sheet(dataset.get(), report, info);
    }
    if (report == nullptr || !quick) report = inspect(dataset.get(), quick);
    output.raw_json(json_of(report));
    output.result(text_of(report));
    if (sheet_problem) throw CliError(*sheet_problem);
    output.finish();
    int32_t passed = 0;
    check(ren_report_passed(report.get(), &passed));
    return passed != 0;
  }

 private:
  // Before anything is read, and again when the model tells its files.
  void check_sheet(const ModelHandle& loaded) const {
    PlannedOutputs outputs;
    outputs.keep({{source, "the data set"}, {validation, "the validation data"}, {model.path, "the model"}});
    if (augment.ends_with(".json")) outputs.keep({{augment, "the augmentation file"}});
    if (loaded != nullptr) outputs.keep(external_files(loaded));
    outputs.add_picture("--sheet", sheet);
    outputs.check();
    for (const char* other : {".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".pdf", ".svg"})
      if (sheet.ends_with(other))
        throw CliError(kRefused,
                       fmt::format("--sheet '{}': a sheet is a PNG file; let its name end with .png", sheet));
  }

  // What would only be in the way of training can be looked at.
  DatasetHandle open() const {
    ren_dataset_options options = REN_DATASET_OPTIONS_INIT;
    options.allow_empty_classes = 1;
    options.allow_one_class = 1;
    if (!validation.empty()) options.validation_uri = validation.c_str();
    return reading_input([&] {
      return make<DatasetHandle>(
          [&](ren_dataset** d) { return ren_dataset_open(source.c_str(), &options, d); });
    });
  }

  ReportHandle inspect(const ren_dataset* dataset, bool headers_only) {
    ren_inspect_options options = REN_INSPECT_OPTIONS_INIT;
    options.quick = headers_only ? 1 : 0;
    options.threads = threads;
    ReportHandle report;
    Job(output).run([&](ren_job_progress_fn fn, void* user) {
      ren_report* made = nullptr;
      const int32_t status = ren_dataset_inspect(dataset, &options, &made, fn, user);
      report.reset(made);
      return status;
    });
    return report;
  }

  // The model's size, or the named one, or the pictures' own where they have one, or 224.
  void choose_size(ren_loader_options& o, const ReportHandle& headers, const ren_model_info& info) const {
    if (headers == nullptr) {
      o.channels = info.channels, o.height = info.height, o.width = info.width;
      return;
    }
    const auto found = nlohmann::json::parse(json_of(headers));
    const auto &width = found.at("width"), &height = found.at("height");
    const bool have_one =
        width.at("min") == width.at("max") && height.at("min") == height.at("max") && height.at("max") > 0;
    o.channels = found.at("gray") == found.at("pictures") ? 1 : 3;
    o.height = o.width = size > 0 ? size : 224;
    if (size == 0 && have_one) o.height = height.at("max"), o.width = width.at("max");
  }

  // "train" is "all" where there are no splits.
  static const char* split_of(const ren_dataset* dataset) {
    int64_t size = 0;
    for (const char* name : {"train", "val"})
      if (ren_dataset_size(dataset, name, &size) == REN_OK) return name;
    return "test";
  }

  // That the pictures are no good for it is given back: what there is to say about them says more.
  std::optional<CliError> write_sheet(const ren_dataset* dataset, const ReportHandle& headers,
                                      const ren_model_info& info) {
    ren_loader_options o = REN_LOADER_OPTIONS_INIT;
    choose_size(o, headers, info);
    o.batch = pictures;
    o.augmentation = augment.c_str();
    o.shuffle = 1;
    o.seed = seed;
    o.bad_files = REN_BAD_FILES_SKIP;
    o.threads = threads;
    {
      const DoingScope scope("the sheet was drawn");
      const int32_t status = ren_dataset_sheet(dataset, split_of(dataset), &o, sheet.c_str());
      if (status == REN_ERROR_INVALID_DATA)
        return CliError(kRefused, fmt::format("there is no sheet: {}", ren_last_error_message()));
      check(status);
    }
    output.event({{"event", "sheet"},
                  {"file", sheet},
                  {"height", o.height},
                  {"width", o.width},
                  {"augmentation", augment}});
    output.line(fmt::format("wrote     {} ({} x {} pixels a picture, augmentation {})", sheet, o.height,
                            o.width, augment));
    return std::nullopt;
  }
};

}  // namespace

void add_data(CLI::App& app, int& exit_code) {
  CLI::App* data = app.add_subcommand("data", "Look into data sets");
  data->require_subcommand(1);
  auto state = std::make_shared<InspectData>();
  CLI::App* command = data->add_subcommand(
      "inspect", "Show the splits, classes, sizes and formats of a data set, and what is broken in it");
  command->add_option("URI", state->source, "Whatever --data of `train` takes (docs/data.md)")->required();
  command
      ->add_option("--val", state->validation,
                   "Pictures for validation, where the data has none or others are wanted")
      ->type_name("URI");
  command->add_flag("--quick", state->quick, "Read headers only: damage behind them goes unnoticed");
  command
      ->add_option("--sheet", state->sheet,
                   "PNG file to write: the first pictures of an epoch as the network will see them")
      ->type_name("FILE");
  std::vector<CLI::Option*> of_sheet;
  of_sheet.push_back(command
                         ->add_option("--augment", state->augment,
                                      "What is done to the sheet's pictures, as `train` takes it, but for "
                                      "mixup and cutmix (default: auto)")
                         ->type_name("LIST"));
  of_sheet.push_back(command
                         ->add_option("--model", state->model.path,
                                      "ONNX file whose input tells the sheet's size and channels")
                         ->type_name("FILE"));
  of_sheet.push_back(
      add_whole(*command, "--size", state->size, 0, 65535,
                "Height and width of a picture in the sheet; 0: the pictures' own where all have "
                "one size, else 224"));
  of_sheet.push_back(
      add_whole(*command, "--sheet-pictures", state->pictures, 1, 10'000, "Pictures in the sheet"));
  of_sheet.push_back(add_whole(*command, "--seed", state->seed, "Of the sheet's order and augmentation"));
  add_whole(*command, "--threads", state->threads, 0, 1024, "Threads that decode; 0: as many as processors");
  add_output(*command, state->output);
  command->footer(
      "Exit code 1 when something is broken.\n"
      "Examples:\n"
      "  renaissance data inspect pictures/\n"
      "  renaissance data inspect pictures.zip --sheet sheet.png --augment random-resized-crop,flip --model "
      "net.onnx");
  command->callback([state, of_sheet, &exit_code] {
    const bool given =
        std::any_of(of_sheet.begin(), of_sheet.end(), [](const CLI::Option* o) { return o->count() > 0; });
    if (!state->run(given)) exit_code = kFailure;
  });
}

void add_pack(CLI::App& app, int&) {
  auto state = std::make_shared<Pack>();
  CLI::App* command =
      app.add_subcommand("pack", "Put all pictures of a data set into one file, a .dts, that --data takes");
  command
      ->add_option("SOURCE", state->source,
                   "Pictures with labels: whatever --data of `train` takes (docs/data.md)")
      ->required();
  command->add_option("--out", state->out, "File to write")->required()->type_name("FILE");
  command
      ->add_option("--val", state->validation,
                   "Pictures for validation, where the data has none or others are wanted")
      ->type_name("URI");
  add_whole(
      *command, "--short-side", state->short_side, 0, 65500,
      "Resize pictures whose short side has more pixels to that many (antialiased, bilinear, as Pillow) "
      "and encode them as JPEG; 0: keep all as they are");
  CLI::Option* const quality =
      add_whole(*command, "--quality", state->quality, 1, 100, "Of the JPEG files that --short-side makes");
  add_choice(*command, "--bad-files", state->bad_files, {"fail", "skip"},
             "A picture that can't be decoded ends the command, or is left out");
  add_whole(*command, "--threads", state->threads, 0, 1024,
            "Threads that read, decode and encode; the file is the same for any number; 0: as many as "
            "processors");
  add_output(*command, state->output);
  command->footer(
      "FILE.part is what it is called until it is complete. A command that was interrupted, once more, goes "
      "on\n"
      "with it.\n"
      "Examples:\n"
      "  renaissance pack pictures/ --out pictures.dts\n"
      "  renaissance pack pictures.zip --out small.dts --short-side 32 --quality 92\n"
      "  renaissance train net.onnx --data pictures.dts --epochs 30 --out trained.onnx");
  command->callback([state, quality] { state->run(quality->count() > 0); });
}

}  // namespace ren::cli
