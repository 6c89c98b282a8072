// sml cache init|info|warm|trim|clear
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands/commands.h"
#include "interrupt.h"
#include "json_text.h"
#include "locations.h"
#include "options.h"
#include "output.h"
#include "progress.h"
#include "smlformat/layout.h"
#include "smlstore/block_cache.h"
#include "smlstore/warm.h"
#include "terminal.h"

namespace sml {
namespace {

enum class Action { kInit, kInfo, kWarm, kTrim, kClear };

constexpr std::pair<const char*, Action> kActions[] = {{"init", Action::kInit},
                                                       {"info", Action::kInfo},
                                                       {"warm", Action::kWarm},
                                                       {"trim", Action::kTrim},
                                                       {"clear", Action::kClear}};

// "2026-11-30 22:00:00" in UTC.
std::string shown_time(std::int64_t seconds) {
  const std::time_t time = seconds;
  std::tm utc{};
  ::gmtime_r(&time, &utc);
  char text[32];
  text[std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &utc)] = '\0';
  return text;
}

class CacheCommand final : public Command {
 public:
  void define(CommandLine& line) override {
    line.describe(
        "init|info|warm|trim|clear [DATASET]",
        "Looks after the cache directory of this machine, which keeps indexes always, and blocks "
        "where "
        "it has room for them.\n"
        "init   gives it room for blocks (--size), or another size\n"
        "info   tells what is in it\n"
        "warm   fetches the blocks of DATASET that are not there; may be interrupted and repeated\n"
        "trim   removes blocks of data sets that are not in use, until they take at most --size\n"
        "clear  removes all blocks that are not in use, and all indexes");
    line.positional("ACTION", action_text_, "what to do");
    line.positional("DATASET", dataset_, "with warm: a container, or a data set");
    line.size("--size", size_,
              "with init: room for blocks; with trim: what they may\ntake "
              "(default: the room)");
    line.flag("--group", group_,
              "with init: for all members of the directory's group.\nThey can read the blocks, "
              "whatever they may read in Ceph");
    line.flag("--json", json_, "with info: a JSON document");
    line.flag("--far", store_.far, "with warm: blocks of container files as well");
    add_partial_option(line, partial_);
    add_store_options(line, store_);
    add_report_options(line, report_);
    line.epilog(
        "Examples:\n"
        "  sml cache init --size 200G\n"
        "  sml cache warm rados://pool/photos\n"
        "\n"
        "Exit codes: 0 done; 1 failed; 2 wrong usage; 3 done, but blocks are damaged, or there was "
        "no "
        "room for some.");
  }

  void resolve() override {
    if (!action_text_) throw UsageError("no action given", "init, info, warm, trim or clear");
    for (const auto& [name, action] : kActions) {
      if (*action_text_ == name) action_ = action;
    }
    if (!action_)
      throw UsageError("'" + *action_text_ + "' is none of init, info, warm, trim, clear");
    const auto only_with = [&](bool given, const char* what, bool fits) {
      if (given && !fits) throw UsageError(fmt::format("{} is not for {}", what, *action_text_));
    };
    only_with(dataset_.has_value(), "DATASET", action_ == Action::kWarm);
    only_with(size_.has_value(), "--size", action_ == Action::kInit || action_ == Action::kTrim);
    only_with(group_, "--group", action_ == Action::kInit);
    only_with(json_, "--json", action_ == Action::kInfo);
    only_with(store_.far, "--far", action_ == Action::kWarm);
    only_with(partial_, "--partial", action_ == Action::kWarm);
    if (action_ == Action::kInit && !size_) throw UsageError("no size given", "--size 200G");
    if (action_ == Action::kInit && *size_ < kMinBlockBytes)
      throw UsageError("a cache without room for a block",
                       "--size 200G; 'sml cache clear' empties one");
    if (action_ == Action::kWarm) location_ = parse_dataset(dataset_);
    directory_ = resolve_cache_directory(store_);
    if (directory_.empty())
      throw UsageError("no cache directory", "--cache-dir DIR, or SML_CACHE_DIR");
  }

  Outcome run(Console& console) override {
    console.configure(report_);
    switch (*action_) {
      case Action::kInit:
        BlockCache::init(directory_, *size_, group_);
        if (open_with_room()->info().block_bytes > *size_)
          console.note("blocks take more than that; 'sml cache trim' removes some");
        return tell(
            fmt::format("{}: room for {} of blocks\n", one_line(directory_), shown_size(*size_)));
      case Action::kInfo:
        return info();
      case Action::kWarm:
        return warm_up(console);
      case Action::kTrim:
        return trim();
      case Action::kClear:
        break;
    }
    return clear();
  }

 private:
  static Outcome tell(const std::string& text) {
    Output out = Output::standard();
    out.write(text);
    out.finish();
    return Outcome::kDone;
  }

  std::shared_ptr<BlockCache> open_with_room(
      std::function<void(const std::string&)> on_warning = nullptr) const {
    auto cache = BlockCache::open(directory_, std::move(on_warning));
    if (!cache) {
      throw Error(ErrorCode::kNotFound, directory_ + ": the cache has no room for blocks",
                  "'sml cache init --size SIZE' gives it room");
    }
    return cache;
  }

  Outcome info() const {
    const auto cache = BlockCache::open(directory_);
    CacheInfo info = cache ? cache->info() : CacheInfo();
    if (!cache) BlockCache::count_indexes(directory_, info);
    if (json_) {
      nlohmann::ordered_json document;
      put_json_text(document, "directory", directory_);
      document["limit_bytes"] = info.limit_bytes;
      document["block_bytes"] = info.block_bytes;
      document["blocks"] = info.blocks;
      document["group"] = info.group;
      document["indexes"] = info.indexes;
      document["index_bytes"] = info.index_bytes;
      document["containers"] = nlohmann::ordered_json::array();
      for (const CacheContainer& one : info.containers) {
        nlohmann::ordered_json container;
        container["id"] = one.id.hex();
        container["blocks"] = one.blocks;
        container["bytes"] = one.bytes;
        container["in_use"] = one.in_use;
        container["used_at"] = one.used_at;
        document["containers"].push_back(container);
      }
      return tell(document.dump(2) + "\n");
    }
    std::string text = fmt::format("{:<12}{}\n", "directory", one_line(directory_));
    text += fmt::format("{:<12}{}, {}\n", "indexes", info.indexes, shown_size(info.index_bytes));
    if (!cache) return tell(text + fmt::format("{:<12}no room\n", "blocks"));
    text +=
        fmt::format("{:<12}{}, {} of {}{}\n", "blocks", info.blocks, shown_size(info.block_bytes),
                    shown_size(info.limit_bytes), info.group ? ", of a group" : "");
    for (const CacheContainer& one : info.containers) {
      text += fmt::format("  {}  {}, {}, {}{}\n", one.id.hex(), shown_count(one.blocks, "block"),
                          shown_size(one.bytes), one.in_use ? "in use, since " : "last used ",
                          shown_time(one.used_at));
    }
    return tell(text);
  }

  Outcome warm_up(Console& console) {
    const Interrupt interrupt;
    DatasetOptions opening(resolve_store(store_));
    opening.partial = partial_;
    opening.block_cache =
        open_with_room([&console](const std::string& why) { console.warn_at_once(why); });
    const Dataset dataset = open_dataset(location_, std::move(opening), console);
    WarmOptions options;
    options.stop = interrupt.token();
    options.on_loss = [&](const Error& error) { console.error(located(error, location_)); };
    if (Progress* progress = console.progress()) {
      options.on_progress = [progress](std::uint64_t done, std::uint64_t total) {
        progress->update_bytes("warmed", done, total);
      };
    }
    const WarmReport report = warm(dataset, options);
    if (report.blocks == 0) {
      console.note(one_line(location_.path) +
                   ": is mapped from its file system, nothing of it need be kept; --far keeps it");
      return Outcome::kDone;
    }
    std::string text =
        fmt::format("fetched {}, {}; {} were there", shown_count(report.kept, "block"),
                    shown_size(report.kept_bytes), report.there);
    if (report.no_room > 0) text += fmt::format("; no room for {}", report.no_room);
    if (report.lost > 0) text += fmt::format("; {} cannot be read", report.lost);
    tell(text + "\n");
    return report.no_room + report.lost == 0 ? Outcome::kDone : Outcome::kSkipped;
  }

  static std::string shown(const BlockCache::Removed& removed) {
    std::string text = fmt::format("removed {}, {}", shown_count(removed.blocks, "block"),
                                   shown_size(removed.bytes));
    if (removed.bytes_in_use > 0)
      text += fmt::format("; {} in use stayed", shown_size(removed.bytes_in_use));
    return text;
  }

  Outcome trim() const {
    const auto cache = open_with_room();
    return tell(shown(cache->trim(size_.value_or(cache->limit_bytes()))) + "\n");
  }

  Outcome clear() const {
    const auto cache = BlockCache::open(directory_);
    std::string text = cache ? shown(cache->trim(0)) + "; " : "removed ";
    text += shown_count(BlockCache::remove_indexes(directory_), "index file");
    return tell(text + "\n");
  }

  std::optional<std::string> action_text_;
  std::optional<Action> action_;
  std::optional<std::string> dataset_;
  std::optional<std::uint64_t> size_;
  bool group_ = false;
  bool json_ = false;
  bool partial_ = false;
  StoreArguments store_;
  ReportOptions report_;
  Location location_;
  std::string directory_;
};

}  // namespace

std::unique_ptr<Command> make_cache_command() { return std::make_unique<CacheCommand>(); }

}  // namespace sml
