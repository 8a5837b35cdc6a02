// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

namespace ren::cli {

// Each adds one command with its options, help and examples; the command runs when it is parsed.
// It returns normally on success, and sets the exit code where a finding is no error (verify).
void add_inspect(CLI::App& app, int& exit_code);
void add_plan(CLI::App& app, int& exit_code);
void add_train(CLI::App& app, int& exit_code);
void add_eval(CLI::App& app, int& exit_code);
void add_predict(CLI::App& app, int& exit_code);
void add_export(CLI::App& app, int& exit_code);
void add_verify(CLI::App& app, int& exit_code);
void add_bench(CLI::App& app, int& exit_code);
void add_data(CLI::App& app, int& exit_code);
void add_pack(CLI::App& app, int& exit_code);
void add_doctor(CLI::App& app, int& exit_code);

}  // namespace ren::cli
