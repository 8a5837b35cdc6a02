// SPDX-License-Identifier: Apache-2.0
// The commands about data alone: pack.
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/options.h"
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

}  // namespace

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
