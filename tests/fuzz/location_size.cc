// Text that people write: locations, numbers, sizes, parts, globs, order states, shares, keys,
// whole command lines. What is printed and parsed again is the same; globs match what their rules
// say.
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "command.h"
#include "fuzz.h"
#include "options.h"
#include "smlformat/error.h"
#include "smlformat/key.h"
#include "smlstore/glob.h"
#include "smlstore/location.h"
#include "smlstore/order.h"

namespace sml::fuzz {
namespace {

// A glob takes 48 bytes for each byte of its pattern while it is parsed, in a vector that doubles,
// and 32 as a machine (at least 2 KiB); a JSON value 16 and its place in a growing array 40.
// CLI11's options take some KiB each.
constexpr std::uint64_t kMemoryPerByte = 256;
constexpr std::uint64_t kMemory = 256U << 10;

// The parts of the text between NUL bytes.
std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  for (;;) {
    const std::size_t end = text.find('\0');
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// What `parse` gives, or nothing where it refuses the text as wrong usage.
template <class Parse>
auto parsed(Parse parse) -> std::optional<decltype(parse())> {
  try {
    return parse();
  } catch (const UsageError& error) {
    check(*error.what() != '\0', "wrong usage without a word");
    return std::nullopt;
  }
}

void locations(std::string_view text) {
  try {
    const Location location = Location::parse(text);
    check(text.starts_with(location.path), "a location's path is not the front of the text");
    check(location.is_rados() || location.path == text, "a local path is not the text");
    check(!location.is_rados() || Location::parse(location.path).container == location.container,
          "a location without its settings is another one");
    check(!text.empty() && text.find('\0') == std::string_view::npos, "a location that is none");
  } catch (const Error& error) {
    check(error.code() == ErrorCode::kInvalidArgument, "a location refused for another reason");
  }
}

void numbers(std::string_view text) {
  const auto number = parsed([&] { return parse_number(text); });
  if (number) {
    check(parse_number(std::to_string(*number)) == *number, "a number, printed, is another");
    check(parsed([&] { return parse_number(text, *number, *number); }) == number,
          "a number at its bounds is refused");
    check(*number == kMaxNumber || !parsed([&] { return parse_number(text, *number + 1); }),
          "a number below its bounds is taken");
    check(*number == 0 || !parsed([&] { return parse_number(text, 0, *number - 1); }),
          "a number above its bounds is taken");
    check(parse_size(text) == *number, "a number of bytes is another size");
  }
  if (const auto size = parsed([&] { return parse_size(text); })) {
    check(parse_size(std::to_string(*size)) == *size, "a size, printed, is another");
    check(parse_size(std::to_string(*size) + "B") == *size, "a size in bytes is another");
    const std::uint64_t kilobytes = *size >> 10;
    check(parse_size(std::to_string(kilobytes) + "KiB") == kilobytes << 10,
          "a size in KiB is another");
  }
  if (const auto part = parsed([&] { return parse_part(text, 65536); })) {
    const auto [i, n] = *part;
    check(i >= 1 && i <= n && n <= 65536, "a part out of range");
    check(parse_part(std::to_string(i) + "/" + std::to_string(n), 65536) == *part,
          "a part, printed, is another");
  }
}

// The rules of globs once more: by the text of the pattern, every pair of places visited once.
class SlowGlob {
 public:
  SlowGlob(std::string_view pattern, std::string_view key)
      : pattern_(pattern), key_(key), visited_((pattern.size() + 1) * (key.size() + 1)) {}
  bool match() { return match(0, 0, true); }

 private:
  // Whether the pattern from p on matches the key from k on. component_start follows from p.
  bool match(std::size_t p, std::size_t k, bool component_start) {
    if (visited_[p * (key_.size() + 1) + k]) return false;  // it did not, or the search is over
    visited_[p * (key_.size() + 1) + k] = true;
    if (p == pattern_.size()) return k == key_.size();
    if (pattern_[p] == '*') return match_stars(p, k, component_start);
    if (pattern_[p] == '[') {
      std::size_t end = p;
      return in_set(k < key_.size() ? key_[k] : '/', end) && match(end, k + 1, false);
    }
    if (k == key_.size()) return false;
    if (pattern_[p] == '?') return key_[k] != '/' && match(p + 1, k + 1, false);
    if (pattern_[p] == '\\') ++p;
    return key_[k] == pattern_[p] && match(p + 1, k + 1, pattern_[p] == '/');
  }
  bool match_stars(std::size_t p, std::size_t k, bool component_start) {
    const std::size_t behind = std::min(pattern_.find_first_not_of('*', p), pattern_.size());
    const bool directories = behind - p == 2 && component_start &&
                             (behind == pattern_.size() || pattern_[behind] == '/');
    if (directories && behind == pattern_.size()) return true;
    if (directories) {
      if (match(behind + 1, k, true)) return true;
      for (std::size_t i = k; i < key_.size(); ++i) {
        if (key_[i] == '/' && match(behind + 1, i + 1, true)) return true;
      }
      return false;
    }
    for (std::size_t i = k;; ++i) {
      if (match(behind, i, false)) return true;
      if (i == key_.size() || key_[i] == '/') return false;
    }
  }
  // Leaves `at` behind the set.
  bool in_set(char byte, std::size_t& at) const {
    const auto value = [](char c) { return static_cast<unsigned char>(c); };
    const auto next = [&] { return pattern_[at] == '\\' ? pattern_[at + 1] : pattern_[at]; };
    const auto step = [&] { at += pattern_[at] == '\\' ? 2 : 1; };
    ++at;
    const bool negated = pattern_[at] == '!' || pattern_[at] == '^';
    if (negated) ++at;
    bool found = false;
    for (bool first = true; first || pattern_[at] != ']'; first = false) {
      const char low = next();
      step();
      char high = low;
      if (pattern_[at] == '-' && at + 1 < pattern_.size() && pattern_[at + 1] != ']') {
        ++at;
        high = next();
        step();
      }
      found = found || (value(low) <= value(byte) && value(byte) <= value(high));
    }
    ++at;
    return byte != '/' && found != negated;
  }

  std::string_view pattern_;
  std::string_view key_;
  std::vector<bool> visited_;
};

void globs(std::string_view text) {
  constexpr std::size_t kMostPattern = 256;  // of those compared with the rules
  constexpr std::size_t kMostKey = 128;
  const std::size_t end = text.find('\0');
  const std::string_view pattern = text.substr(0, end);
  const std::string_view key =
      end == std::string_view::npos ? std::string_view() : text.substr(end + 1);

  std::string escaped;
  for (const char c : key) escaped.append({'\\', c});
  const Glob literal(escaped);
  check(literal.literal() != nullptr && *literal.literal() == key && literal.matches(key),
        "a key, escaped, does not match itself");

  const Glob glob(pattern);
  const bool matches = glob.matches(key);
  if (glob.literal() != nullptr)
    check(matches == (*glob.literal() == key), "a literal pattern matches another key");
  if (pattern.size() > kMostPattern || key.size() > kMostKey) return;
  check(matches == SlowGlob(pattern, key).match(), "a glob matches by other rules");
}

void states(std::string_view text) {
  const OrderState state = OrderState::parse(text);
  const std::string printed = state.to_json();
  const OrderState again = OrderState::parse(printed);
  state.check_same(again);
  check(again.to_json() == printed && again.position == state.position,
        "an order state, printed, is another");
}

void shares(Input input) {
  ShareOptions options;
  const auto samples = input.number<std::uint64_t>();
  options.rank = input.number<std::uint64_t>();
  options.world = input.number<std::uint64_t>();
  options.batch = input.number<std::uint64_t>();
  options.start = input.number<std::uint64_t>();
  if ((input.number<std::uint8_t>() & 1) != 0) options.count = input.number<std::uint64_t>();
  options.even = static_cast<Even>(input.number<std::uint8_t>() % 3);
  const Share share = share_of(samples, options);
  check(share.start == options.start, "a share that starts elsewhere");
  check(share.next_start <= samples, "a share that continues behind the end");
  if (share.size() == 0) return;
  check(share.size() - 1 <= kMaxNumber / options.world, "a share that is larger than the order");
  check(share.first >= share.start && share.first % options.world == options.rank,
        "a share that begins at another rank's position");
  check(share.first + (share.size() - 1) * options.world < share.end, "a share beyond its end");
  check(options.even == Even::kWrap || share.end <= samples, "a share beyond the order");
}

// Three keys: name order is by stem, then by key, as unsigned bytes.
void keys(std::string_view text) {
  const std::vector<std::string> parts = split(text);
  const auto order = [](std::string_view key) { return std::pair(key_stem(key), key); };
  for (const std::string& a : parts) {
    const std::string_view stem = key_stem(a);
    check(a.starts_with(stem), "a stem that does not begin its key");
    check(a.empty() || key_stem(stem) == stem, "a stem that is not its own stem");
    if (&a - parts.data() > 8) break;
    for (const std::string& b : parts) {
      check(compare_names(a, b) == (order(a) <=> order(b)), "name order is another");
      if (&b - parts.data() > 8) break;
    }
  }
}

enum class Choice { kOne, kTwo };

void command_lines(std::string_view text) {
  // The command line guards values by this byte, and takes one at the front of a value that is
  // attached to a short option for its own.
  if (text.find('\x01') != std::string_view::npos) return;
  std::vector<std::string> arguments = split(text);
  CommandLine line("fuzz");
  bool flag = false;
  std::optional<std::uint64_t> number;
  std::uint64_t size = 0;
  std::string given;
  std::optional<Choice> choice;
  std::vector<std::string> repeated;
  std::optional<std::string> first;
  std::vector<std::string> others;
  ReportOptions report;
  line.describe("ONE [OTHER...]", "Takes all kinds of options.");
  line.flag("-f,--flag", flag, "a flag");
  line.number("-n,--number", "N", number, "a number", 3, 1000);
  line.size("--size", size, "a size");
  line.text("-t,--text", "TEXT", given, "a text");
  line.choice(
      "--choice", choice,
      std::vector<std::pair<std::string, Choice>>{{"one", Choice::kOne}, {"two", Choice::kTwo}},
      "a choice");
  line.repeated("-r,--repeat", "TEXT", repeated, "texts");
  line.positional("ONE", first, "one");
  line.positionals("OTHER", others, "others");
  add_report_options(line, report);
  try {
    line.parse(arguments);
    check(!number || (*number >= 3 && *number <= 1000), "a number out of its range");
    check(others.empty() || first, "the second argument before the first");
    // A value comes out as it was put in. What follows flags and begins with a digit is an argument
    // with a minus for CLI11: -q7 is -q -7.
    const auto is_given = [&](std::string_view value) {
      return std::ranges::any_of(arguments, [&](const std::string& argument) {
        return argument.ends_with(value) ||
               (value.starts_with('-') && argument.ends_with(value.substr(1)));
      });
    };
    if (first) check(is_given(*first), "an argument that was not given");
    for (const auto& list : {repeated, others}) {
      for (const std::string& value : list) check(is_given(value), "a value that was not given");
    }
  } catch (const UsageError&) {
  } catch (const HelpRequested&) {
    check(!line.help().empty(), "no help");
  }
}

}  // namespace
}  // namespace sml::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sml::fuzz;
  Input input(data, size);
  const auto kind = input.number<std::uint8_t>();
  const std::string_view text = sml::as_text(input.rest());
  const MemoryLimit limit(kMemory + kMemoryPerByte * size);
  try {
    switch (kind) {
      case 'l':
        locations(text);
        break;
      case 'n':
        numbers(text);
        break;
      case 'g':
        globs(text);
        break;
      case 'o':
        states(text);
        break;
      case 's':
        shares(input);
        break;
      case 'k':
        keys(text);
        break;
      case 'c':
        command_lines(text);
        break;
      default:
        break;
    }
  } catch (const sml::Error& error) {
    check(*error.what() != '\0', "an error without a word");
  }
  return 0;
}
