// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace ren::cli {

// Options with a value, of which the help tells the range and the default, and an error the option,
// what it takes and what it was given. CLI11's own validators print the limits of the type, let
// "nan" pass every range and read "010" as eight.

// A whole number from `least` to `most`.
CLI::Option* add_whole(CLI::App& command, const char* name, int64_t& value, int64_t least, int64_t most,
                       const std::string& text);
CLI::Option* add_whole(CLI::App& command, const char* name, int& value, int least, int most,
                       const std::string& text);
CLI::Option* add_whole(CLI::App& command, const char* name, uint64_t& value, const std::string& text);

enum class Bounds { any, positive, not_negative, below };  // below: at least 0 and below `limit`

// A finite number. `tell_default` is false where another text says what happens without the option.
CLI::Option* add_number(CLI::App& command, const char* name, double& value, Bounds bounds,
                        const std::string& text, bool tell_default = true, double limit = 1);
CLI::Option* add_numbers(CLI::App& command, const char* name, std::vector<float>& values, Bounds bounds,
                         const std::string& text);

CLI::Option* add_choice(CLI::App& command, const char* name, std::string& value,
                        const std::vector<std::string>& choices, const std::string& text);

}  // namespace ren::cli
