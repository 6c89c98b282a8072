// Where a container or a data set is: parsing only, no I/O beyond what the name alone tells.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace sml {

inline constexpr std::string_view kRadosScheme = "rados://";
inline constexpr std::size_t kMaxContainerName = 200;  // bytes

// What names a container in a data set: 1 to kMaxContainerName bytes of UTF-8 without '/' and
// control bytes, and without a dot at the front.
bool is_container_name(std::string_view name) noexcept;
// Whether a location in Ceph can name it: one ends a name at '?', and at '@' before digits.
bool can_be_located(std::string_view name);

// A local file or directory, or a data set or container in Ceph.
struct Location {
  std::string path;       // as messages show it: what was given, without revision and settings
  std::string pool;       // empty: local
  std::string dataset;    // with pool
  std::string container;  // with pool; empty: all of the data set
  std::optional<std::uint64_t> revision;
  std::string ceph_conf;  // a file; empty: as the surroundings say
  std::string ceph_user;

  Location() = default;
  explicit Location(std::string local_path) : path(std::move(local_path)) {}
  // PATH; rados://POOL/DATASET[/CONTAINER][@REVISION][?conf=FILE&user=NAME]. A revision of a local
  // path is part of `path` until settled(). Throws kInvalidArgument.
  static Location parse(std::string_view text);
  // A local PATH@REVISION is split, unless it exists as written.
  Location settled() const;

  bool is_rados() const noexcept { return !pool.empty(); }
  // Whether it names a data set, not one container: a trailing slash, an existing directory; in
  // Ceph, where no container is named.
  bool is_dataset() const;
};

}  // namespace sml
