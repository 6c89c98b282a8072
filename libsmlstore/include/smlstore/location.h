// Where a container or a data set is: parsing only, no I/O beyond what the name alone tells.
#pragma once

#include <string>
#include <string_view>

namespace sml {

struct Location {
  std::string path;  // of a local file or directory, as given

  // Throws kInvalidArgument (empty), kUnsupported for rados:// (this build has no Ceph).
  static Location parse(std::string_view text);
  // Whether it names a directory: a trailing slash, or an existing directory.
  bool is_directory() const;
};

}  // namespace sml
