#include "options.h"

#include <charconv>
#include <cmath>
#include <cstdlib>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

namespace sml {
namespace {

constexpr unsigned kMaxThreads = 1024;

// CLI11 2.1.2 takes "[a,b]" apart, ends a list at "++" and loses empty values. So whatever may be a
// value goes through it behind this byte, and unguard() is the only place that takes it off again.
constexpr char kGuard = '\x01';

std::vector<std::string> guard(const std::vector<std::string>& arguments) {
  std::vector<std::string> guarded;
  guarded.reserve(arguments.size());
  bool options = true;
  for (const std::string& argument : arguments) {
    const bool option = options && argument.size() > 1 && argument.front() == '-';
    if (!option) {
      guarded.push_back(kGuard + argument);
      continue;
    }
    options = argument != "--";
    const std::size_t equals = argument.starts_with("--") ? argument.find('=') : std::string::npos;
    guarded.push_back(equals == std::string::npos
                          ? argument
                          : argument.substr(0, equals + 1) + kGuard + argument.substr(equals + 1));
  }
  return guarded;
}

// What looked like an option may have been taken as a value: then the byte is behind its "=".
std::string unguard(std::string value) {
  const std::size_t at = value.starts_with("--") ? value.find('=') + 1 : 0;
  if (at < value.size() && value[at] == kGuard) value.erase(at, 1);
  return value;
}

std::string in_quotes(std::string_view text) { return "'" + std::string(text) + "'"; }

// An option as the user knows it: its long name.
std::string shown(const CLI::Option& option) {
  return option.get_lnames().empty() ? "-" + option.get_snames().front()
                                     : "--" + option.get_lnames().front();
}

UsageError within_option(const CLI::Option& option, const UsageError& error) {
  return UsageError("option " + shown(option) + ": " + error.what(), error.hint());
}

UsageError readable(const CLI::App& app, const CLI::ParseError& error) {
  const std::string message = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    const std::string extra = unguard(app.remaining().front());
    if (app.remaining().front().starts_with('-')) {
      return UsageError("unknown option " + in_quotes(extra.substr(0, extra.find('='))));
    }
    return UsageError("unexpected argument " + in_quotes(extra));
  }
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    std::string name = message.substr(0, message.find_first_of(": "));
    if (!name.starts_with('-')) name = (name.size() > 1 ? "--" : "-") + name;
    if (message.ends_with("missing")) return UsageError("option " + name + " needs a value");
    if (message.ends_with("override")) return UsageError("option " + name + " takes no value");
  }
  return UsageError(message);
}

std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

// Names first, then what they mean, in one column for all commands.
class HelpFormatter final : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(34); }
  std::string make_usage(const CLI::App* /*app*/, std::string name) const override {
    return "Usage: " + name + "\n";
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_option_text().empty() ? "" : " " + option->get_option_text();
  }
};

}  // namespace

std::uint64_t parse_number(std::string_view text, std::uint64_t least, std::uint64_t most) {
  std::uint64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status == std::errc::result_out_of_range && end == text.data() + text.size()) {
    throw UsageError(in_quotes(text) + " is too large");
  }
  if (status != std::errc{} || end != text.data() + text.size())
    throw UsageError(in_quotes(text) + " is not a number");
  if (value < least || value > most) {
    throw UsageError(in_quotes(text) + (value < least ? " is less than " + std::to_string(least)
                                                      : " is more than " + std::to_string(most)));
  }
  return value;
}

std::uint64_t parse_size(std::string_view text) {
  const UsageError senseless(in_quotes(text) + " is not a size such as 65536, 64K, 1.5MiB or 4G");
  const std::size_t unit_at = text.find_first_not_of("0123456789.");
  std::string_view digits = text.substr(0, unit_at);
  std::string_view unit = unit_at == std::string_view::npos ? "" : text.substr(unit_at);
  unsigned shift = 0;
  if (!unit.empty() && unit != "B") {
    const std::size_t power =
        std::string_view("KMGTP").find(static_cast<char>(unit.front() & ~0x20));
    if (power == std::string_view::npos) throw senseless;
    shift = 10 * (static_cast<unsigned>(power) + 1);
    if (unit.size() > 1 && unit.substr(1) != "B" && unit.substr(1) != "iB") throw senseless;
  }
  const std::size_t dot = digits.find('.');
  const std::string_view whole = digits.substr(0, dot);
  const std::string_view fraction = dot == std::string_view::npos ? "" : digits.substr(dot + 1);
  const bool fraction_is_fine =
      dot == std::string_view::npos ||
      (shift > 0 && !fraction.empty() && fraction.find('.') == std::string_view::npos);
  if (whole.empty() || !fraction_is_fine) throw senseless;

  const std::uint64_t units = parse_number(whole);
  if (units > kMaxNumber >> shift) throw UsageError(in_quotes(text) + " is too large");
  std::uint64_t size = units << shift;
  if (!fraction.empty()) {
    const double part = std::strtod(("0." + std::string(fraction)).c_str(), nullptr);
    const auto more =
        static_cast<std::uint64_t>(std::floor(std::ldexp(part, static_cast<int>(shift))));
    if (more > kMaxNumber - size) throw UsageError(in_quotes(text) + " is too large");
    size += more;
  }
  return size;
}

std::pair<std::uint32_t, std::uint32_t> parse_part(std::string_view text, std::uint32_t most) {
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos)
    throw UsageError(in_quotes(text) + " is not I/N, such as 1/8");
  const std::uint64_t parts = parse_number(text.substr(slash + 1), 1, most);
  const std::uint64_t part = parse_number(text.substr(0, slash), 1, parts);
  return {static_cast<std::uint32_t>(part), static_cast<std::uint32_t>(parts)};
}

CommandLine::CommandLine(std::string_view command)
    : command_(command), app_(std::make_unique<CLI::App>("", std::string(command))) {
  app_->set_help_flag("");
  app_->formatter(std::make_shared<HelpFormatter>());
}

CommandLine::~CommandLine() = default;

void CommandLine::describe(std::string_view usage, std::string_view description) {
  app_->name(command_ + " " + std::string(usage));
  app_->description(std::string(description) + "\n");
}

void CommandLine::epilog(std::string_view text) { app_->footer(std::string(text)); }

void CommandLine::flag(const std::string& names, bool& given, const std::string& description) {
  app_->add_flag(names, given, description)->disable_flag_override()->group(group_);
}

void CommandLine::value(const std::string& names, const std::string& metavar,
                        std::function<void(const std::string&)> assign,
                        const std::string& description) {
  auto holder = std::make_shared<CLI::Option*>(nullptr);
  CLI::Option* option = app_->add_option(
      names,
      [assign = std::move(assign), holder](const CLI::results_t& given) {
        try {
          assign(unguard(given.back()));
        } catch (const UsageError& error) {
          throw within_option(**holder, error);
        }
        return true;
      },
      description);
  // A second value is refused by parse(), in words of our own.
  option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->option_text(metavar)
      ->group(group_);
  *holder = option;
}

void CommandLine::repeated(const std::string& names, const std::string& metavar,
                           std::vector<std::string>& values, const std::string& description) {
  CLI::Option* option = app_->add_option(
      names,
      [&values](const CLI::results_t& given) {
        for (const std::string& text : given) values.push_back(unguard(text));
        return true;
      },
      description);
  option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->option_text(metavar)->group(group_);
  repeated_.insert(option);
}

void CommandLine::positional(const std::string& name, std::optional<std::string>& value,
                             const std::string& description) {
  app_->add_option(
      name,
      [&value](const CLI::results_t& given) {
        value = unguard(given.back());
        return true;
      },
      description);
}

void CommandLine::positionals(const std::string& name, std::vector<std::string>& values,
                              const std::string& description) {
  CLI::Option* option = app_->add_option(
      name,
      [&values](const CLI::results_t& given) {
        for (const std::string& text : given) values.push_back(unguard(text));
        return true;
      },
      description);
  option->expected(-1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  repeated_.insert(option);
}

void CommandLine::add_help_option() {
  if (app_->get_option_no_throw("--help") != nullptr) return;
  group("General options");
  flag("-h,--help", help_, "print this help");
}

void CommandLine::parse(const std::vector<std::string>& arguments) {
  add_help_option();
  for (const std::string& argument : arguments) {
    if (argument == "--") break;
    if (argument == "-h" || argument == "--help") throw HelpRequested{};
  }
  std::vector<std::string> guarded = guard(arguments);
  std::reverse(guarded.begin(), guarded.end());
  try {
    app_->parse(std::move(guarded));
  } catch (const CLI::ParseError& error) {
    throw readable(*app_, error);
  }
  for (const CLI::Option* option : app_->get_options()) {
    if (option->count() > 1 && !repeated_.contains(option)) {
      throw UsageError("option " + shown(*option) + " is given more than once");
    }
  }
}

std::string CommandLine::help() {
  add_help_option();
  return app_->help("sml");
}

void add_report_options(CommandLine& line, ReportOptions& options) {
  line.group("General options");
  line.flag("-q,--quiet", options.quiet, "no progress and no notes; errors are always told");
  line.choice("--progress", options.progress,
              std::vector<std::pair<std::string, ProgressMode>>{{"auto", ProgressMode::kAuto},
                                                                {"always", ProgressMode::kAlways},
                                                                {"never", ProgressMode::kNever}},
              "progress on standard error; auto (default): on a\nterminal, unless standard output "
              "is a pipe");
}

void add_nul_option(CommandLine& line, bool& nul) {
  line.flag("-0,--null", nul, "lists are separated by NUL, in and out");
}

void add_partial_option(CommandLine& line, bool& partial) {
  line.flag("--partial", partial, "open a data set although parts of it are missing");
}

void add_threads_option(CommandLine& line, std::optional<unsigned>& threads) {
  line.number("-j,--threads", "N", threads, "threads; default SML_THREADS, else one per processor",
              1, kMaxThreads);
}

unsigned resolve_threads(const std::optional<unsigned>& threads) {
  if (threads) return *threads;
  const auto text = environment("SML_THREADS");
  if (!text) return 0;
  try {
    return static_cast<unsigned>(parse_number(*text, 1, kMaxThreads));
  } catch (const UsageError& error) {
    throw UsageError(std::string("environment SML_THREADS: ") + error.what());
  }
}

std::uint64_t resolve_memory(const std::optional<std::uint64_t>& memory_bytes,
                             std::uint64_t otherwise) {
  if (memory_bytes) return *memory_bytes;
  const auto text = environment("SML_MEMORY");
  if (!text) return otherwise;
  try {
    return parse_size(*text);
  } catch (const UsageError& error) {
    throw UsageError(std::string("environment SML_MEMORY: ") + error.what());
  }
}

}  // namespace sml
