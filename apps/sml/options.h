// Arguments to values: the command line of one subcommand, and parsers for numbers, sizes and
// choices. CLI11 does the splitting and the help; it is seen nowhere else.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "command.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace sml {

inline constexpr std::uint64_t kMaxNumber = std::numeric_limits<std::uint64_t>::max();

// A decimal number in [least, most]. Throws UsageError.
std::uint64_t parse_number(std::string_view text, std::uint64_t least = 0,
                           std::uint64_t most = kMaxNumber);
// Bytes: a decimal number, with an optional fraction where a unit follows: K, M, G, T, P, each also
// as KB or KiB; powers of 1024. "64K", "1.5MiB", "4G". Throws UsageError for anything else,
// negative and overflowing sizes included.
std::uint64_t parse_size(std::string_view text);
// "I/N" with 1 <= I <= N <= most. Throws UsageError.
std::pair<std::uint32_t, std::uint32_t> parse_part(std::string_view text, std::uint32_t most);

// T of T and of std::optional<T>.
template <class T>
struct ValueOf {
  using Type = T;
};
template <class T>
struct ValueOf<std::optional<T>> {
  using Type = T;
};

// Thrown by CommandLine::parse for -h and --help.
struct HelpRequested {};

class CommandLine {
 public:
  explicit CommandLine(std::string_view command);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // usage: what follows the command's name, "DATASET [KEY...]". description: what it does, without
  // a last newline.
  void describe(std::string_view usage, std::string_view description);
  // Options defined from here on are listed under this heading.
  void group(std::string_view heading) { group_ = heading; }
  // Examples and what the exit codes mean here, at the end of the help.
  void epilog(std::string_view text);

  // names: "-j,--threads". An option may be given once, unless it is repeated.
  void flag(const std::string& names, bool& given, const std::string& description);
  // `assign` throws UsageError where the text has no meaning.
  void value(const std::string& names, const std::string& metavar,
             std::function<void(const std::string&)> assign, const std::string& description);
  void repeated(const std::string& names, const std::string& metavar,
                std::vector<std::string>& values, const std::string& description);
  // One argument; `name` as in the usage line.
  void positional(const std::string& name, std::optional<std::string>& value,
                  const std::string& description);
  // All arguments that are left.
  void positionals(const std::string& name, std::vector<std::string>& values,
                   const std::string& description);

  // Targets are T or std::optional<T>.
  template <class Target>
  void text(const std::string& names, const std::string& metavar, Target& target,
            const std::string& description) {
    value(
        names, metavar, [&target](const std::string& given) { target = given; }, description);
  }
  template <class Target>
  void number(const std::string& names, const std::string& metavar, Target& target,
              const std::string& description, std::uint64_t least = 0,
              std::uint64_t most = kMaxNumber) {
    value(
        names, metavar,
        [&target, least, most](const std::string& given) {
          target = static_cast<typename ValueOf<Target>::Type>(parse_number(given, least, most));
        },
        description);
  }
  template <class Target>
  void size(const std::string& names, Target& target, const std::string& description) {
    value(
        names, "SIZE", [&target](const std::string& given) { target = parse_size(given); },
        description);
  }
  template <class T, class Target>
  void choice(const std::string& names, Target& target,
              std::vector<std::pair<std::string, T>> choices, const std::string& description) {
    std::string list;
    for (const auto& [name, unused] : choices) list += (list.empty() ? "" : "|") + name;
    value(
        names, list,
        [&target, choices = std::move(choices), list](const std::string& given) {
          for (const auto& [name, meaning] : choices) {
            if (name == given) {
              target = meaning;
              return;
            }
          }
          throw UsageError("'" + given + "' is none of " + list);
        },
        description);
  }

  // Throws UsageError, HelpRequested.
  void parse(const std::vector<std::string>& arguments);
  std::string help();

 private:
  void add_help_option();

  std::string command_;
  bool help_ = false;
  std::string group_ = "Options";
  std::unique_ptr<CLI::App> app_;
  std::set<const CLI::Option*> repeated_;
};

// -q and --progress, which every command takes.
enum class ProgressMode { kAuto, kAlways, kNever };
struct ReportOptions {
  bool quiet = false;
  ProgressMode progress = ProgressMode::kAuto;
};
void add_report_options(CommandLine& line, ReportOptions& options);

// -0
void add_nul_option(CommandLine& line, bool& nul);
// --partial
void add_partial_option(CommandLine& line, bool& partial);
// -j, else SML_THREADS, else 0: one per processor. The environment is asked by the second.
void add_threads_option(CommandLine& line, std::optional<unsigned>& threads);
unsigned resolve_threads(const std::optional<unsigned>& threads);
// The flag, else SML_MEMORY, else the default.
std::uint64_t resolve_memory(const std::optional<std::uint64_t>& memory_bytes,
                             std::uint64_t otherwise);

}  // namespace sml
