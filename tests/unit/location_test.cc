#include "smlstore/location.h"

#include <doctest/doctest.h>

#include "support/containers.h"
#include "support/errors.h"

using sml::ErrorCode;
using sml::Location;
using sml::test::check_error;

TEST_CASE("a local path is taken as it is") {
  for (const char* path :
       {"photos.sml", "photos/", "./a b", "/abs/olute", "-", "x@1", "rados:/x"}) {
    CHECK(Location::parse(path).path == path);
  }
}

TEST_CASE("empty locations, NUL bytes and rados:// are refused") {
  check_error(ErrorCode::kInvalidArgument, "empty", [] { Location::parse(""); });
  check_error(ErrorCode::kInvalidArgument, "NUL",
              [] { Location::parse(std::string_view("a\0b", 3)); });
  check_error(ErrorCode::kUnsupported, "rados://pool/set",
              [] { Location::parse("rados://pool/set"); });
}

TEST_CASE("a trailing slash or an existing directory is a directory") {
  const sml::test::TemporaryDirectory directory;
  directory.write("file.sml", {});
  CHECK(Location::parse("not/there/").is_directory());
  CHECK_FALSE(Location::parse("not/there").is_directory());
  CHECK(Location::parse(directory.path()).is_directory());
  CHECK_FALSE(Location::parse(directory.file("file.sml")).is_directory());
}
