// SPDX-License-Identifier: Apache-2.0
#include "cli/output.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cli/api.h"

namespace ren::cli {
namespace {

bool is_terminal(int descriptor) {
  static const bool dumb = [] {
    const char* const term = std::getenv("TERM");
    return term != nullptr && std::strcmp(term, "dumb") == 0;
  }();
  return !dumb && isatty(descriptor) == 1;
}

size_t terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string numbers_text(const ren_progress& p) {
  const bool training = p.phase == REN_PHASE_TRAINING;
  const ren_metrics& m = training ? p.training : p.validation;
  std::string text = fmt::format("{}/{}", p.step, p.steps);
  if (m.samples > 0) text += fmt::format("  loss {:.4f}  top-1 {}", m.loss, percent_text(m.top1));
  if (p.images_per_second > 0) text += fmt::format("  {:.0f} images/s", p.images_per_second);
  if (training && p.seconds_left > 0) text += "  ETA " + duration_text(p.seconds_left);
  return text;
}

}  // namespace

std::string shown(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = uint8_t(text[i]);
    // C1 controls are C2 80 to C2 9F in UTF-8.
    const bool is_c1 =
        byte == 0xC2 && i + 1 < text.size() && uint8_t(text[i + 1]) >= 0x80 && uint8_t(text[i + 1]) < 0xA0;
    if (is_c1)
      out += fmt::format("\\x{:02x}", uint8_t(text[++i]));
    else if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F)
      out += fmt::format("\\x{:02x}", byte);
    else
      out += text[i];
  }
  return out;
}

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "-";
  const auto s = int64_t(std::llround(std::min(seconds, 1e9)));
  return s >= 3600 ? fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
                   : fmt::format("{}:{:02}", s / 60, s % 60);
}

std::string percent_text(double share) { return fmt::format("{:.2f} %", 100 * share); }

std::string bytes_text(double bytes) {
  const char* const units[] = {"B", "KB", "MB", "GB", "TB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit < 4; ++unit) bytes /= 1024;
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 1, units[unit]);
}

void Output::write(const std::string& text) {
  if (failed_) return;
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return;
  failed_ = true;
  error_ = errno;
}

void Output::finish() {
  if (!failed_ && std::fflush(stdout) != 0) {
    failed_ = true;
    error_ = errno;
  }
  if (failed_)
    throw CliError(kFailure, fmt::format("the output could not be written: {}", std::strerror(error_)));
}

void Output::event(const nlohmann::json& value) {
  if (json) write(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}
void Output::raw_json(const std::string& text) {
  if (json) write(text + "\n");
}
void Output::line(const std::string& text) {
  if (json || quiet) return;
  end_progress();
  write(shown(text) + "\n");
}
void Output::result(const std::string& text) {
  if (json) return;
  end_progress();
  write(text.empty() || text.back() == '\n' ? shown(text) : shown(text) + "\n");
}
void Output::note(const std::string& text) {
  if (!quiet) problem(text);
}
void Output::problem(const std::string& text) {
  end_progress();
  std::fprintf(stderr, "%s\n", shown(text).c_str());
}

bool Output::is_due(double seconds) {
  const auto now = Clock::now();
  if (begun_ && std::chrono::duration<double>(now - last_).count() < seconds) return false;
  const bool first = !begun_;
  begun_ = true;
  last_ = now;
  return !first;
}

void Output::progress(const std::string& what, const ren_progress& p) {
  if (json) {
    if (!is_due(1.0)) return;
    const bool training = p.phase == REN_PHASE_TRAINING;
    const ren_metrics& m = training ? p.training : p.validation;
    nlohmann::json j = {{"event", training ? "step" : "evaluating"},
                        {"step", p.step},
                        {"steps", p.steps},
                        {"images_per_second", p.images_per_second}};
    if (training)
      j.update({{"epoch", p.epoch + 1},
                {"epochs", p.epochs},
                {"learning_rate", p.learning_rate},
                {"seconds_left", p.seconds_left}});
    if (m.samples > 0) j["loss"] = m.loss;
    event(j);
    return;
  }
  bar(what, p.step, p.steps, numbers_text(p));
}

void Output::progress(const std::string& what, const ren_job_progress& p) {
  if (json) {
    if (!is_due(1.0)) return;
    return event({{"event", what},
                  {"done", p.done},
                  {"total", p.total},
                  {"pictures_per_second", p.pictures_per_second},
                  {"seconds_left", p.seconds_left}});
  }
  std::string numbers = fmt::format("{}/{}", p.done, p.total);
  if (p.pictures_per_second > 0)
    numbers +=
        fmt::format("  {:.0f} pictures/s  ETA {}", p.pictures_per_second, duration_text(p.seconds_left));
  bar(what, p.done, p.total, numbers);
}

void Output::bar(const std::string& what, int64_t done, int64_t total, const std::string& numbers) {
  if (quiet) return;
  if (!is_terminal(STDERR_FILENO)) {
    if (is_due(15.0)) write(fmt::format("{}  {}\n", what, numbers));
    return;
  }
  if (!is_due(0.1) && done != total) return;
  const size_t width = terminal_width() - 1, used = what.size() + numbers.size() + 6;
  std::string text = what + "  ";
  if (used + 10 < width) {
    const size_t cells = std::min<size_t>(30, width - used);
    const size_t full = total > 0 ? std::min(cells, size_t(double(cells) * double(done) / double(total))) : 0;
    text += "[" + std::string(full, '#') + std::string(cells - full, '.') + "]  ";
  }
  text = (text + numbers).substr(0, width);
  std::fprintf(stderr, "\r\x1b[2K%s", text.c_str());
  std::fflush(stderr);
  bar_shown_ = true;
}

void Output::end_progress() {
  if (!bar_shown_) return;
  std::fputs("\r\x1b[2K", stderr);
  std::fflush(stderr);
  bar_shown_ = false;
}

}  // namespace ren::cli
