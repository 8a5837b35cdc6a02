// SPDX-License-Identifier: Apache-2.0
// The program `renaissance`.
#include <fmt/format.h>

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>

#include "cli/api.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "cli/stack.h"
#include "cli/usage.h"

namespace {

constexpr const char* kExamples = R"(Examples:
  renaissance inspect net.onnx
  renaissance train net.onnx --data pictures/ --epochs 30 --batch 64 --lr 0.05 \
      --schedule cosine --augment random-resized-crop,flip --out trained.onnx
  renaissance eval trained.onnx --data pictures/
  renaissance predict trained.onnx cat.jpg more-pictures/

renaissance COMMAND --help tells more.
Exit codes: 0 done, 1 failed or numbers differ, 2 bad usage or refused input, 3 done, but
  checkpoints were not written, 130 interrupted.)";

// Between parallel loops libgomp's threads spin for about a millisecond by default. Where other
// processes want the processors too, they then wait for each other most of the time (a training was
// seen 20 times slower); some tens of microseconds cost nothing where they don't. libgomp reads this
// when it is loaded, so the program starts itself anew, once; what a user has set stays.
void limit_spinning(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  if (setenv("GOMP_SPINCOUNT", "10000", 0) == 0) execv("/proc/self/exe", argv);
}

int fail_with(int exit_code, const std::string& message) {
  std::fprintf(stderr, "error: %s\n", ren::cli::shown(message).c_str());
  return exit_code;
}

int run(int argc, char** argv) {
  CLI::App app("Trains CNNs exported from PyTorch as ONNX files, and writes the weights back into the file.",
               "renaissance");
  app.set_version_flag("--version", fmt::format("renaissance {}", ren_version()));
  app.require_subcommand(1);
  app.footer(kExamples);
  app.formatter(ren::cli::make_help_formatter());
  int exit_code = ren::cli::kOk;
  ren::cli::add_inspect(app, exit_code);
  ren::cli::add_plan(app, exit_code);
  ren::cli::add_train(app, exit_code);
  ren::cli::add_eval(app, exit_code);
  ren::cli::add_predict(app, exit_code);
  ren::cli::add_export(app, exit_code);
  ren::cli::add_verify(app, exit_code);
  ren::cli::add_bench(app, exit_code);
  ren::cli::add_data(app, exit_code);
  ren::cli::add_pack(app, exit_code);
  ren::cli::add_doctor(app, exit_code);
  if (const std::string problem = ren::cli::unknown_command(app, argc, argv); !problem.empty())
    return fail_with(ren::cli::kRefused, problem);
  if (const std::string problem = ren::cli::empty_value(app, argc, argv); !problem.empty())
    return fail_with(ren::cli::kRefused, problem);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    // --help and --version come this way, too
    if (e.get_exit_code() == 0) return app.exit(e);
    return fail_with(ren::cli::kRefused, ren::cli::usage_problem(app, e));
  }
  return exit_code;
}

int run_and_tell(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const ren::cli::CliError& e) {
    return fail_with(e.exit_code(), e.what());
  } catch (const std::bad_alloc&) {
    return fail_with(ren::cli::kFailure, "the process is out of memory");
  } catch (const std::exception& e) {
    return fail_with(ren::cli::kFailure, e.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  limit_spinning(argv);
  if ((ren_abi_version() >> 16) != (REN_ABI_VERSION >> 16) || ren_abi_version() < REN_ABI_VERSION)
    return fail_with(ren::cli::kFailure, fmt::format("librenaissance.so has ABI {}, this program needs {}",
                                                     ren_abi_version(), REN_ABI_VERSION));
  ren::cli::install_signal_handlers();
  return ren::cli::with_enough_stack([&] { return run_and_tell(argc, argv); });
}
