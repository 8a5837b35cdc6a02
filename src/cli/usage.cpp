// SPDX-License-Identifier: Apache-2.0
#include "cli/usage.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace ren::cli {
namespace {

constexpr size_t kColumn = 32, kWidth = 110;

class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(kColumn); }

  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_type_size() == 0 || option->get_positional() ? "" : " " + option->get_type_name();
  }

  // Continuation lines are set into the column by CLI11.
  std::string make_option_desc(const CLI::Option* option) const override {
    std::string text = option->get_description();
    if (option->get_required() && !option->get_positional()) text += "; required";
    std::string wrapped;
    size_t line = 0;
    for (const std::string& word : CLI::detail::split(text, ' ')) {
      if (line > 0 && line + 1 + word.size() > kWidth - kColumn) {
        wrapped += '\n';
        line = 0;
      } else if (line > 0) {
        wrapped += ' ';
        ++line;
      }
      wrapped += word;
      line += word.size();
    }
    return wrapped;
  }
};

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

const CLI::App* command_named(const CLI::App& app, const std::string& name) {
  const auto found =
      app.get_subcommands([&](const CLI::App* command) { return command->get_name() == name; });
  return found.empty() ? nullptr : found.front();
}

// Edits that turn one word into the other.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row[b.size()];
}

// "; did you mean --epochs?", or nothing
std::string suggestion(const std::string& given, const std::vector<std::string>& known) {
  const std::string* best = nullptr;
  size_t least = 3;
  for (const std::string& name : known)
    if (const size_t d = distance(given, name); d < least && d < name.size()) {
      least = d;
      best = &name;
    }
  return best != nullptr ? fmt::format("; did you mean {}?", *best) : "";
}

// The innermost one that was named, and all that was typed to get there.
struct Chosen {
  const CLI::App* command;
  std::string path;
};
Chosen chosen_command(const CLI::App& app) {
  Chosen chosen{&app, app.get_name()};
  for (auto inner = app.get_subcommands(); !inner.empty(); inner = chosen.command->get_subcommands()) {
    chosen.command = inner.front();
    chosen.path += " " + chosen.command->get_name();
  }
  return chosen;
}

// The name of a word that isn't an option's, counted from 0; the last one may take several.
std::string positional_name(const CLI::App& command, size_t index) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    if (option->get_positional()) names.push_back(option->get_name());
  return names.empty() ? "an argument" : names[std::min(index, names.size() - 1)];
}

// What other trainers have as an option of its own, and `command` as part of --augment; or nothing
std::string augment_instead(const CLI::App& command, const std::string& given) {
  if (command.get_option_no_throw("--augment") == nullptr) return "";
  for (const std::string name : {"mixup", "cutmix"})
    if (given == "--" + name || given == "--" + name + "-alpha")
      return fmt::format("; it is written --augment auto,{}:0.2 (0.2: alpha)", name);
  return "";
}

std::string unexpected(const CLI::App& app) {
  const CLI::App& command = *chosen_command(app).command;
  std::vector<std::string> rest = command.remaining(), options;
  if (rest.empty()) rest = app.remaining();
  // CLI11 doesn't keep their order; a word behind an unknown option is likely its value
  const auto is_option = [](const std::string& text) { return text.size() > 1 && text[0] == '-'; };
  const auto found = std::find_if(rest.begin(), rest.end(), is_option);
  const std::string& first = found != rest.end() ? *found : rest.front();
  if (!is_option(first)) return fmt::format("one argument too many: '{}'", first);
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
  const std::string name = first.substr(0, first.find('='));
  const std::string instead = augment_instead(command, name);
  return fmt::format("there is no option {}{}", name, instead.empty() ? suggestion(name, options) : instead);
}

// CLI11's texts about the number of values, "--out: 1 required FILE missing", in other words.
std::string reworded(const std::string& text) {
  const size_t colon = text.find(": ");
  if (colon == std::string::npos) return text;
  const std::string name = text.substr(0, colon), rest = text.substr(colon + 2);
  if (rest.find("At Most 1") == 0) return name + " is given more than once";
  if (rest.find("required") != std::string::npos && rest.find("missing") != std::string::npos)
    return name + " needs a value";
  return text;
}

}  // namespace

std::shared_ptr<CLI::FormatterBase> make_help_formatter() { return std::make_shared<HelpFormatter>(); }

std::string usage_problem(const CLI::App& app, const CLI::ParseError& error) {
  const auto [command, path] = chosen_command(app);
  std::string what = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr)
    what = unexpected(app);
  else if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr)
    what = reworded(what);
  else if (const auto names = command_names(*command);
           !names.empty() && dynamic_cast<const CLI::RequiredError*>(&error) != nullptr)
    what = fmt::format("a command is missing; there are {}", fmt::join(names, ", "));
  return fmt::format("{}\n`{} --help` tells what there is", what, path);
}

std::string empty_value(const CLI::App& app, int argc, const char* const* argv) {
  const CLI::App* command = &app;
  std::string path = app.get_name();
  size_t positionals = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--") break;
    if (word.empty())
      return fmt::format("{} is empty\n`{} --help` tells what there is",
                         positional_name(*command, positionals), path);
    if (!word.starts_with("--")) {
      if (const CLI::App* const inner = command_named(*command, word)) {
        command = inner;
        path += " " + word;
      } else {
        ++positionals;
      }
      continue;
    }
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const CLI::Option* const option = command->get_option_no_throw(name);
    if (option == nullptr) continue;  // CLI11 says so
    const bool takes_next = equals == std::string::npos && option->get_type_size() != 0;
    const bool is_empty =
        equals != std::string::npos ? equals + 1 == word.size() : takes_next && i + 1 < argc && !*argv[i + 1];
    if (is_empty)
      return fmt::format("{} is given an empty value\n`{} --help` tells what there is", name, path);
    if (takes_next) ++i;
  }
  return "";
}

std::string unknown_command(const CLI::App& app, int argc, const char* const* argv) {
  const CLI::App* command = &app;
  std::string path;
  for (int i = 1; i < argc && argv[i][0] != '-'; ++i) {
    const auto names = command_names(*command);
    if (names.empty()) return "";
    path += (path.empty() ? "" : " ") + std::string(argv[i]);
    command = command_named(*command, argv[i]);
    if (command == nullptr)
      return fmt::format("there is no command '{}'; there are {}{}", path, fmt::join(names, ", "),
                         suggestion(argv[i], names));
  }
  return "";
}

}  // namespace ren::cli
