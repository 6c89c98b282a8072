#include "terminal.h"

#include <array>
#include <cstdio>

#include <sys/stat.h>
#include <unistd.h>

#include "progress.h"

namespace sml {
namespace {

// Errors on standard error itself have nowhere to go.
void put(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace

std::string one_line(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string line;
  line.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      line += "\\n";
    } else if (c == '\t') {
      line += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      line += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      line += c;
    }
  }
  return line;
}

std::string shown_size(std::uint64_t bytes) {
  if (bytes < 1024) return shown_count(bytes, "byte");
  static constexpr std::array<const char*, 6> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (value >= 1023.95 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f %s", value, kUnits[unit]);
  return text.data();
}

std::string shown_count(std::uint64_t count, std::string_view what) {
  std::string text = std::to_string(count) + " " + std::string(what);
  if (count != 1) text += "s";
  return text;
}

bool is_terminal(int fd) { return ::isatty(fd) == 1; }

bool is_pipe(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode);
}

void refuse_binary_terminal() {
  if (!is_terminal(STDOUT_FILENO)) return;
  throw UsageError("records are not written to a terminal",
                   "redirect standard output, pipe it (| cat), or write files with -C DIR");
}

void refuse_input_terminal(std::string_view what) {
  if (!is_terminal(STDIN_FILENO)) return;
  throw UsageError(std::string(what) + " are not read from a terminal",
                   "redirect standard input or pipe into it; --help shows how");
}

Console::Console(std::string command) : command_(std::move(command)) {}
Console::~Console() = default;

void Console::configure(const ReportOptions& options) {
  quiet_ = options.quiet;
  const bool watched = is_terminal(STDERR_FILENO) && !is_pipe(STDOUT_FILENO);
  if (!quiet_ && (options.progress == ProgressMode::kAlways ||
                  (options.progress == ProgressMode::kAuto && watched))) {
    progress_ = std::make_unique<Progress>(STDERR_FILENO);
  }
}

void Console::error(std::string_view message, std::string_view hint) {
  std::string text = command_.empty() ? "sml: " : "sml " + command_ + ": ";
  text += one_line(message) + "\n";
  if (!hint.empty()) text += "hint: " + one_line(hint) + "\n";
  print(text);
}

void Console::note(std::string_view message) {
  if (!quiet_) error(message);
}

void Console::warn_at_once(std::string_view message) const {
  if (quiet_) return;
  // One write, beside whatever progress is drawn meanwhile.
  put("sml " + command_ + ": warning: " + one_line(message) + "\n");
}

void Console::print(std::string_view text) {
  if (progress_) progress_->clear();
  put(text);
}

}  // namespace sml
