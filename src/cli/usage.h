// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

namespace ren::cli {

// Option, what it takes, and its text in a column of its own, wrapped.
std::shared_ptr<CLI::FormatterBase> make_help_formatter();

// Why the command line isn't one, as one message; the last line says where the help is.
std::string usage_problem(const CLI::App& app, const CLI::ParseError& error);

// The message for the first option that is given with an empty value, `--name=` or `--name ''`: an empty path
// would count as none, and CLI11 takes the next word for the former's value. Empty when there is none.
std::string empty_value(const CLI::App& app, int argc, const char* const* argv);

// The message for a first argument that is no command, else nothing.
std::string unknown_command(const CLI::App& app, int argc, const char* const* argv);

}  // namespace ren::cli
