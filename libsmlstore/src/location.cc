#include "smlstore/location.h"

#include <sys/stat.h>

#include "smlformat/error.h"

namespace sml {

Location Location::parse(std::string_view text) {
  if (text.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "empty location");
  }
  if (text.find('\0') != std::string_view::npos) {
    throw Error(ErrorCode::kInvalidArgument, "a location cannot hold a NUL byte");
  }
  if (text.starts_with("rados://")) {
    throw Error(ErrorCode::kUnsupported,
                std::string(text) + ": this build has no support for Ceph (librados)");
  }
  return Location{std::string(text)};
}

bool Location::is_directory() const {
  if (path.ends_with('/')) {
    return true;
  }
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

}  // namespace sml
