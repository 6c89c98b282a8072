// Data sets and containers that the arguments name, and how their stores are reached.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "smlformat/error.h"
#include "smlstore/dataset.h"
#include "smlstore/location.h"
#include "smlstore/store.h"

namespace sml {

class CommandLine;
class Console;

// The required DATASET argument. Throws UsageError: missing, empty, no location.
Location parse_dataset(const std::optional<std::string>& argument);
Location parse_location(const std::string& text);

// --ceph-conf, --ceph-user, --ceph-timeout, --cache-dir.
struct StoreArguments {
  std::optional<std::string> ceph_conf;
  std::optional<std::string> ceph_user;
  std::optional<std::uint64_t> ceph_timeout_s;
  std::optional<std::string> cache_directory;
  std::optional<std::uint64_t> cache_bytes;
  bool far = false;
};
void add_store_options(CommandLine& line, StoreArguments& arguments);
// --cache-size and --far, for commands that read through the block cache.
void add_cache_options(CommandLine& line, StoreArguments& arguments);
std::string resolve_cache_directory(const StoreArguments& arguments);
// What was not given comes from the environment: SML_CACHE_DIR, else XDG_CACHE_HOME, else HOME.
StoreOptions resolve_store(const StoreArguments& arguments);

// Throws what Dataset::open throws. Container files that a catalog does not list are told as notes.
Dataset open_dataset(const Location& location, DatasetOptions options, Console& console);
Dataset open_dataset(const Location& location, const StoreArguments& arguments, bool partial,
                     Console& console);

// The same, reading through the block cache where the cache directory has room for blocks, or gets
// it by --cache-size or SML_CACHE_SIZE. One that cannot be used is a warning, and reading goes on
// without.
Dataset open_cached_dataset(const Location& location, const StoreArguments& arguments, bool partial,
                            Console& console);

// Throws UsageError where a container of the name cannot be at the location. `is_part`: -I-of-N
// will be put behind it.
void check_name_option(const std::string& name, const Location& location, bool is_part);

// The error with the location before its message, unless it begins with it.
Error located(const Error& error, const Location& location);

}  // namespace sml
