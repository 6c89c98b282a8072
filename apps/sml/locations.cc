#include "locations.h"

#include <cstdlib>

#include <fmt/format.h>

#include "command.h"
#include "interrupt.h"
#include "options.h"
#include "smlformat/error.h"
#include "terminal.h"

namespace sml {
namespace {

constexpr std::uint64_t kMaxTimeoutS = 86400;

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string default_cache_directory() {
  if (std::string own = environment("SML_CACHE_DIR"); !own.empty()) return own;
  if (std::string caches = environment("XDG_CACHE_HOME"); caches.starts_with('/'))
    return caches + "/sml";
  const std::string home = environment("HOME");
  return home.empty() ? "" : home + "/.cache/sml";
}

}  // namespace

Location parse_location(const std::string& text) {
  try {
    return Location::parse(text);
  } catch (const Error& error) {
    throw UsageError(error.what(), error.hint());
  }
}

Location parse_dataset(const std::optional<std::string>& argument) {
  if (!argument) throw UsageError("no DATASET given");
  return parse_location(*argument);
}

void add_store_options(CommandLine& line, StoreArguments& arguments) {
  line.group("Ceph");
  line.text("--ceph-conf", "FILE", arguments.ceph_conf,
            "settings of the cluster; default CEPH_CONF, else Ceph's own");
  line.text("--ceph-user", "NAME", arguments.ceph_user,
            "who connects; default CEPH_ARGS, else admin");
  line.number("--ceph-timeout", "SECONDS", arguments.ceph_timeout_s,
              "the longest wait for an answer; default 30", 1, kMaxTimeoutS);
  line.text("--cache-dir", "DIR", arguments.cache_directory,
            "where indexes are kept; default SML_CACHE_DIR, else\n~/.cache/sml");
}

void add_cache_options(CommandLine& line, StoreArguments& arguments) {
  line.size(
      "--cache-size", arguments.cache_bytes,
      "room for blocks in the cache, if it has none yet; default\nSML_CACHE_SIZE, else none; 0: "
      "do without the cache");
  line.flag("--far", arguments.far, "keep blocks of container files as well, as of Ceph's");
}

std::string resolve_cache_directory(const StoreArguments& arguments) {
  return arguments.cache_directory.value_or(default_cache_directory());
}

StoreOptions resolve_store(const StoreArguments& arguments) {
  StoreOptions options;
  options.ceph_conf = arguments.ceph_conf.value_or("");
  options.ceph_user = arguments.ceph_user.value_or("");
  if (arguments.ceph_timeout_s)
    options.ceph_timeout_s = static_cast<double>(*arguments.ceph_timeout_s);
  options.index_directory = resolve_cache_directory(arguments);
  options.mapped = !arguments.far;
  return options;
}

Dataset open_dataset(const Location& location, DatasetOptions options, Console& console) {
  set_fault_place(location.path);
  options.on_stray = [&console](const std::string& path) {
    console.note(one_line(path) + ": passed over: the data set's catalog does not list it");
  };
  return Dataset::open(location, options);
}

Dataset open_dataset(const Location& location, const StoreArguments& arguments, bool partial,
                     Console& console) {
  DatasetOptions options(resolve_store(arguments));
  options.partial = partial;
  return open_dataset(location, std::move(options), console);
}

namespace {

std::shared_ptr<BlockCache> open_block_cache(const StoreArguments& arguments, Console& console) {
  const std::string directory = resolve_cache_directory(arguments);
  std::optional<std::uint64_t> bytes = arguments.cache_bytes;
  if (const std::string text = environment("SML_CACHE_SIZE"); !bytes && !text.empty()) {
    try {
      bytes = parse_size(text);
    } catch (const UsageError& error) {
      throw UsageError(std::string("environment SML_CACHE_SIZE: ") + error.what());
    }
  }
  if (directory.empty() || bytes == std::uint64_t{0}) return nullptr;
  const auto warn = [&console](const std::string& why) { console.warn_at_once(why); };
  try {
    auto cache = BlockCache::open(directory, warn);
    if (!cache && bytes) {
      BlockCache::init(directory, *bytes, false);
      cache = BlockCache::open(directory, warn);
    } else if (cache && bytes && cache->limit_bytes() != *bytes) {
      console.note(fmt::format("{}: the cache has room for {} already; 'sml cache init' changes it",
                               one_line(directory), shown_size(cache->limit_bytes())));
    }
    return cache;
  } catch (const Error& error) {
    warn(fmt::format("{}; blocks are not kept", error.what()));
    return nullptr;
  }
}

}  // namespace

Dataset open_cached_dataset(const Location& location, const StoreArguments& arguments, bool partial,
                            Console& console) {
  DatasetOptions options(resolve_store(arguments));
  options.partial = partial;
  options.block_cache = open_block_cache(arguments, console);
  return open_dataset(location, std::move(options), console);
}

void check_name_option(const std::string& name, const Location& location, bool is_part) {
  if (!is_container_name(name)) {
    throw UsageError("option --name: '" + one_line(name) +
                     "' is no container name (1 to 200 bytes of UTF-8, no '/', no control bytes, "
                     "no dot at the front)");
  }
  if (location.is_rados() && !can_be_located(is_part ? name + "-1-of-1" : name)) {
    throw UsageError("option --name: '" + one_line(name) + "' is no name in Ceph",
                     "a location ends a name at '?', and at '@' before digits");
  }
}

Error located(const Error& error, const Location& location) {
  return error.within_once(location.path);
}

}  // namespace sml
