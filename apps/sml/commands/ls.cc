// sml ls DATASET [GLOB...]
#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "commands/commands.h"
#include "json_text.h"
#include "lists.h"
#include "locations.h"
#include "options.h"
#include "output.h"
#include "smlformat/key.h"
#include "smlstore/selection.h"
#include "terminal.h"

namespace sml {
namespace {

enum class CountBy { kNone, kDirectory, kExtension };

struct LsArguments {
  std::optional<std::string> dataset;
  std::vector<std::string> patterns;
  bool sizes = false;
  bool ids = false;
  bool nul = false;
  bool json = false;
  bool partial = false;
  CountBy count_by = CountBy::kNone;
  StoreArguments store;
  ReportOptions report;
  // resolved
  Location location;
  std::vector<Glob> globs;
};

// The directory of a key, or what follows its stem's dot.
std::string_view counted_name(std::string_view key, CountBy by) {
  if (by == CountBy::kDirectory) {
    const std::size_t slash = key.rfind('/');
    return slash == std::string_view::npos ? "." : key.substr(0, slash);
  }
  const std::size_t stem = key_stem(key).size();
  return stem < key.size() ? key.substr(stem + 1) : "";
}

// Which patterns have matched something: ls fails for those that never do.
class Filter {
 public:
  explicit Filter(const LsArguments& arguments)
      : arguments_(arguments), matched_(arguments.globs.size()) {}

  bool selects(std::string_view key) {
    if (matched_.empty()) return true;
    bool selected = false;
    for (std::size_t i = 0; i < matched_.size(); ++i) {
      if (selected && matched_[i]) continue;
      if (arguments_.globs[i].matches(key)) selected = matched_[i] = true;
    }
    return selected;
  }

  // Throws kNotFound, naming the first pattern that matched nothing.
  void check() const {
    for (std::size_t i = 0; i < matched_.size(); ++i) {
      if (!matched_[i])
        throw Error(ErrorCode::kNotFound, "no key matches '" + arguments_.patterns[i] + "'");
    }
  }

 private:
  const LsArguments& arguments_;
  std::vector<bool> matched_;
};

class LsCommand final : public Command {
 public:
  void define(CommandLine& line) override {
    line.describe("DATASET [GLOB...]",
                  "Lists the keys of a data set, in name order: all, or those that match a glob.");
    line.positional("DATASET", args_.dataset, "a container, or a data set");
    line.positionals("GLOB", args_.patterns,
                     "* and ? do not cross '/', **/ is any directories,\n[a-z], [!x], \\x; "
                     "compared with the whole key");
    line.flag("-l,--long", args_.sizes, "record number, size in bytes and key, tab-separated");
    line.flag("--ids", args_.ids, "record numbers instead of keys");
    line.choice(
        "--count-by", args_.count_by,
        std::vector<std::pair<std::string, CountBy>>{{"dir", CountBy::kDirectory},
                                                     {"ext", CountBy::kExtension}},
        "instead of keys: records, bytes and name of each\ndirectory or extension, tab-separated");
    line.flag("--json", args_.json, "JSON Lines; a key that is not UTF-8 as key_base64");
    add_nul_option(line, args_.nul);
    add_partial_option(line, args_.partial);
    add_store_options(line, args_.store);
    add_report_options(line, args_.report);
    line.epilog(
        "Examples:\n"
        "  sml ls photos.sml 'cats/**'\n"
        "  sml ls photos/ --count-by dir\n"
        "\n"
        "Exit codes: 0 done; 1 failed, or a glob matched nothing; 2 wrong usage.");
  }

  void resolve() override {
    args_.location = parse_dataset(args_.dataset);
    const int forms = int{args_.sizes} + int{args_.ids} +
                      int{args_.json && args_.count_by == CountBy::kNone} +
                      int{args_.count_by != CountBy::kNone};
    if (forms > 1)
      throw UsageError("at most one of -l, --ids, --count-by and --json (--count-by takes --json)");
    if (args_.json && args_.nul) throw UsageError("--json and -0 exclude each other");
    for (const std::string& pattern : args_.patterns) {
      try {
        args_.globs.emplace_back(pattern);
      } catch (const Error& error) {
        throw UsageError(error.what());
      }
    }
  }

  Outcome run(Console& console) override {
    console.configure(args_.report);
    const Dataset dataset = open_dataset(args_.location, args_.store, args_.partial, console);
    Output out = Output::standard();
    try {
      args_.count_by == CountBy::kNone ? list(dataset, out) : count(dataset, out);
    } catch (const Error& error) {
      out.flush();
      throw located(error, args_.location);
    }
    out.finish();
    return Outcome::kDone;
  }

 private:
  void list(const Dataset& dataset, Output& out) const {
    Filter filter(args_);
    ListOutput keys(out, args_.nul);
    std::string json;
    for (Dataset::NameCursor at(dataset); !at.done(); at.advance()) {
      const std::string_view key = at.key();
      if (!filter.selects(key)) continue;
      if (args_.ids) {
        keys.write_number(at.number());
      } else if (args_.json) {
        json = "{";
        append_json_text(json, "key", key);
        out.write(json);
        out.write(", \"number\": ");
        put_number(out, at.number());
        out.write(", \"bytes\": ");
        put_number(out, dataset.raw_bytes(at.number()));
        out.write("}\n");
      } else {
        if (args_.sizes) {
          keys.check(key);
          put_number(out, at.number());
          out.put('\t');
          put_number(out, dataset.raw_bytes(at.number()));
          out.put('\t');
        }
        keys.write(key);
      }
    }
    filter.check();
  }

  struct Count {
    std::uint64_t records = 0;
    std::uint64_t bytes = 0;
  };

  void count(const Dataset& dataset, Output& out) const {
    Filter filter(args_);
    std::unordered_map<std::string, Count> counts;
    std::string last_name;
    Count* last = nullptr;
    for (Dataset::NameCursor at(dataset); !at.done(); at.advance()) {
      if (!filter.selects(at.key())) continue;
      const std::string_view name = counted_name(at.key(), args_.count_by);
      if (last == nullptr || name != last_name) {  // keys come mostly directory by directory
        last_name = name;
        last = &counts[last_name];
      }
      ++last->records;
      last->bytes += dataset.raw_bytes(at.number());
    }
    std::vector<std::pair<std::string, Count>> sorted(counts.begin(), counts.end());
    std::sort(sorted.begin(), sorted.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    ListOutput names(out, args_.nul);
    for (const auto& [name, count] : sorted) {
      if (args_.json) {
        std::string json = "{";
        append_json_text(json, "name", name);
        json += ", \"records\": " + std::to_string(count.records) +
                ", \"bytes\": " + std::to_string(count.bytes) + "}\n";
        out.write(json);
        continue;
      }
      names.check(name);
      put_number(out, count.records);
      out.put('\t');
      put_number(out, count.bytes);
      out.put('\t');
      names.write(name);
    }
    filter.check();
  }

  LsArguments args_;
};

}  // namespace

std::unique_ptr<Command> make_ls_command() { return std::make_unique<LsCommand>(); }

}  // namespace sml
