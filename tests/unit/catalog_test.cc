#include "smlstore/catalog.h"

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "smlformat/bytes.h"
#include "smlformat/checksum.h"
#include "smlformat/error.h"
#include "support/errors.h"

namespace {

using sml::Catalog;
using sml::CatalogEntry;
using sml::ErrorCode;
using sml::test::check_error;
using sml::test::error_of;

std::string seal(const std::string& body) {
  return "SML catalog 1 " + sml::xxh3_128(sml::as_bytes(body)).hex() + "\n" + body;
}

CatalogEntry entry(const std::string& name, std::uint64_t incarnation = 0) {
  CatalogEntry out;
  out.name = name;
  out.container_bytes = 8192;
  out.header_bytes = 128;
  out.blocks = 1;
  out.blocks_end = 4096;
  out.incarnation = incarnation;
  return out;
}

TEST_CASE("what is encoded is decoded") {
  Catalog catalog;
  catalog.add(entry("b", 1));
  catalog.add(entry("a", 2));
  catalog.announce({"c", 3, 4, 5, {}, "2026-11-30T22:00:00Z"});
  catalog.removed.push_back({"d", 6, 7});
  const std::string text = catalog.encode();
  const Catalog read = Catalog::decode(text);
  CHECK(read.encode() == text);
  CHECK(read.names() == std::vector<std::string>{"a", "b"});
  CHECK(read.find("a")->since == 2);
  CHECK(read.find("a")->is_same_container(entry("a", 9)));
  CHECK(!read.find("a")->is_same_container(entry("b", 2)));
  CHECK(read.find_announced("c")->owner == 4);
}

TEST_CASE("a catalog that is too large is neither written nor read") {
  Catalog catalog;
  sml::Announcement one{"a", 1, 1, 1, {}, std::string(sml::kMaxCatalogBytes / 2, 'x')};
  catalog.announce(one);
  std::string text = catalog.encode();
  one.name = "b";
  catalog.announce(one);
  check_error(ErrorCode::kLimit, "", [&] { catalog.encode(); });
  text.resize(sml::kMaxCatalogBytes + 1, ' ');
  check_error(ErrorCode::kCorrupt, "catalog: it is too large", [&] { Catalog::decode(text); });
}

TEST_CASE("however deep it nests, it is refused and does no harm") {
  for (const std::string_view open : {"[", "{\"x\":", "[{\"x\":"}) {
    std::string body = "{\"needs\":[";
    for (int i = 0; i < 100000; ++i) body += open;
    check_error(ErrorCode::kCorrupt, "catalog: it nests more than 16 levels deep",
                [&] { Catalog::decode(seal(body)); });
  }
}

TEST_CASE("of more values than memory is to be had for none are read") {
  const char* const sanitizers = std::getenv("SML_SANITIZE");
  if (sanitizers != nullptr && *sanitizers != '\0') return;
  for (const std::string_view value : {"0", "[]", "{}", "{\"x\":[\"\"]}"}) {
    std::string body = "{\"unknown\":[0";
    // The largest catalog, nearly.
    while (body.size() + value.size() + 100 < sml::kMaxCatalogBytes) body.append(",").append(value);
    body += "]}\n";
    check_error(ErrorCode::kCorrupt, "catalog: it has more than 5000000 values",
                [&] { Catalog::decode(seal(body)); });
  }
  // What is written is read: as many values as 64 MiB can have.
  Catalog most;
  for (std::uint64_t i = 1; i <= 1100000; ++i) most.removed.push_back({"x", i, 0});
  CHECK(Catalog::decode(most.encode()).removed.size() == most.removed.size());
}

TEST_CASE("what an error quotes is short") {
  const std::string most(100000, '\n');
  for (const std::string& text :
       {"SML catalog " + std::string(100000, '2') + " ", "SML catalog 1 " + most,
        seal("{\"needs\":[\"" + std::string(100000, 'x') + "\"]}"),
        seal("{\"" + std::string(100000, 'x') + "\":0,\"" + std::string(100000, 'x') + "\":0}"),
        seal("{\"needs\":[[\"" + std::string(100000, 'x') + "\"]]}")}) {
    const auto error = error_of([&] { Catalog::decode(text); });
    REQUIRE(error.has_value());
    CHECK(std::string_view(error->what()).size() < 300);
  }
}

TEST_CASE("behind the last revision there is none") {
  Catalog catalog;
  catalog.revision = std::numeric_limits<std::uint64_t>::max() - 1;
  catalog.add(entry("a"));
  check_error(ErrorCode::kLimit, "", [&] { catalog.add(entry("b")); });
  check_error(ErrorCode::kLimit, "", [&] { catalog.remove("a"); });
  CHECK(Catalog::decode(catalog.encode()).names() == std::vector<std::string>{"a"});
}

}  // namespace
