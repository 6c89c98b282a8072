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

TEST_CASE("empty locations and NUL bytes are refused") {
  check_error(ErrorCode::kInvalidArgument, "empty", [] { Location::parse(""); });
  check_error(ErrorCode::kInvalidArgument, "NUL",
              [] { Location::parse(std::string_view("a\0b", 3)); });
}

TEST_CASE("a location in Ceph is pool, data set, container, revision and settings") {
  const Location set = Location::parse("rados://pool/set");
  CHECK(set.is_rados());
  CHECK(set.is_dataset());
  CHECK(set.path == "rados://pool/set");
  CHECK(set.pool == "pool");
  CHECK(set.dataset == "set");
  CHECK(set.container.empty());
  CHECK_FALSE(set.revision);

  const Location all = Location::parse("rados://p/d x/c.1@12?conf=/etc/a@3.conf&user=bob");
  CHECK(all.path == "rados://p/d x/c.1");
  CHECK(all.container == "c.1");
  CHECK(all.revision == 12);
  CHECK(all.ceph_conf == "/etc/a@3.conf");
  CHECK(all.ceph_user == "bob");
  CHECK_FALSE(all.is_dataset());

  CHECK(Location::parse("rados://p/d@x").dataset == "d@x");
  CHECK(Location::parse("rados://p/d@").dataset == "d@");
  CHECK(Location::parse("rados://p/d@0").revision == 0);
  CHECK(Location::parse("rados://p/d@18446744073709551616").dataset == "d@18446744073709551616");
}

TEST_CASE("what is no location in Ceph is refused") {
  for (const char* text :
       {"rados://", "rados://p", "rados://p/", "rados:///d", "rados://p/d/", "rados://p//c",
        "rados://p/d/c/", "rados://p/d/c/x", "rados://p/@3", "rados://p/d/@3", "rados://p/d?",
        "rados://p/d?conf", "rados://p/d?conf=", "rados://p/d?x=y", "rados://p/d?user=a&user=b",
        "rados://p/d?conf=a&&user=b", "rados://p/a\nb"}) {
    CAPTURE(text);
    check_error(ErrorCode::kInvalidArgument, "", [&] { Location::parse(text); });
  }
}

TEST_CASE("a name in Ceph does not end before its end") {
  for (const char* name : {"a@", "@", "a@b", "a@3.x", "a@18446744073709551616", "part-1-of-2"})
    CHECK(sml::can_be_located(name));
  for (const char* name : {"a@3", "@0", "a@b@12", "a?b", "?"})
    CHECK_FALSE(sml::can_be_located(name));
}

TEST_CASE("a revision of a local path counts where the path does not exist as written") {
  const sml::test::TemporaryDirectory directory;
  directory.write("x@3", {});
  CHECK(Location::parse(directory.file("x@3")).settled().path == directory.file("x@3"));
  const Location other = Location::parse(directory.file("x@4")).settled();
  CHECK(other.path == directory.file("x"));
  CHECK(other.revision == 4);
  CHECK(Location::parse("@4").settled().path == "@4");
}

TEST_CASE("a trailing slash or an existing directory is a data set") {
  const sml::test::TemporaryDirectory directory;
  directory.write("file.sml", {});
  CHECK(Location::parse("not/there/").is_dataset());
  CHECK_FALSE(Location::parse("not/there").is_dataset());
  CHECK(Location::parse(directory.path()).is_dataset());
  CHECK_FALSE(Location::parse(directory.file("file.sml")).is_dataset());
}
