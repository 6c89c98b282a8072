// A catalog as it is, and once more with its checksum made right: refused, or all that it says
// keeps to its bounds, and written and read again it is the same.
#include "smlstore/catalog.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "fuzz.h"
#include "smlformat/checksum.h"
#include "smlformat/error.h"
#include "smlstore/location.h"

namespace sml::fuzz {
namespace {

// An empty array or object takes some 100 bytes of memory for two or three of text.
constexpr std::uint64_t kMemoryPerByte = 128;
constexpr std::uint64_t kMemory = 256U << 10;

void entries(const Catalog& catalog) {
  std::set<std::uint64_t> incarnations;
  const auto is_new = [&](std::uint64_t incarnation) {
    check(incarnations.insert(incarnation).second, "an incarnation twice");
  };
  for (const CatalogEntry& entry : catalog.containers) {
    check(is_container_name(entry.name) && catalog.find(entry.name) == &entry, "a name lost");
    check(entry.since <= catalog.revision, "a container of a revision yet to come");
    check(entry.header_bytes <= entry.blocks_end && entry.blocks <= entry.blocks_end,
          "more blocks than bytes");
    const std::uint64_t footer = round_up(entry.blocks_end, kFooterAlign);
    check(footer >= entry.blocks_end && footer < entry.container_bytes &&
              entry.container_bytes - footer >= Tail::kBytes,
          "no room for a tail");
    if (entry.incarnation != 0) is_new(entry.incarnation);
  }
  for (const Announcement& one : catalog.announced) {
    check(is_container_name(one.name) && catalog.find_announced(one.name) == &one, "a name lost");
    check(one.since.size() <= 64, "a time that is too long");
    check(one.incarnation != 0 && one.owner != 0, "an announcement of nothing");
    is_new(one.incarnation);
  }
  for (const Removal& one : catalog.removed) {
    check(one.incarnation != 0, "a removal of nothing");
    is_new(one.incarnation);
  }
}

void decode(std::string_view text) {
  try {
    const Catalog catalog = Catalog::decode(text);
    entries(catalog);
    check(catalog.at(catalog.revision).names() == catalog.names(), "another last revision");
    const std::string written = catalog.encode();
    check(Catalog::decode(written).encode() == written, "a catalog, written, is another");
  } catch (const Error& error) {
    const std::string_view what = error.what();
    check(error.code() == ErrorCode::kCorrupt || error.code() == ErrorCode::kUnsupported,
          "a catalog refused for another reason");
    check(what.size() < 400 && what.find('\n') == what.npos, "an error that is no short line");
  }
}

}  // namespace
}  // namespace sml::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kFirstLine = 47;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const sml::fuzz::MemoryLimit limit(sml::fuzz::kMemory + sml::fuzz::kMemoryPerByte * size);
  sml::fuzz::decode(text);
  if (size < kFirstLine) return 0;
  const std::string_view body = text.substr(kFirstLine);
  sml::fuzz::decode("SML catalog 1 " + sml::xxh3_128(sml::as_bytes(body)).hex() + "\n" +
                    std::string(body));
  return 0;
}
