// The catalog of a data set: which containers it has, at which revision each came, what packers are
// at work on. One small document, changed as a whole. Byte by byte in format-spec/catalog.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "smlformat/bytes.h"
#include "smlformat/checksum.h"
#include "smlformat/container_reader.h"
#include "smlformat/layout.h"

namespace sml {

// In Ceph it is one write, of which an OSD takes 90 MiB unless told otherwise.
inline constexpr std::uint64_t kMaxCatalogBytes = 64U << 20;

// What the containers of a data set must agree on, and parts must not share.
struct Membership {
  Grouping grouping = Grouping::kNone;
  std::uint32_t part = 0;  // 1..parts; 0: not a part
  std::uint32_t parts = 0;

  bool operator==(const Membership&) const = default;
  static Membership of(const Header& header) noexcept {
    return {header.grouping, header.part, header.parts};
  }
  // Whether both are parts of one whole that share no stem, and so no key.
  bool is_another_part(const Membership& other) const noexcept {
    return parts != 0 && parts == other.parts && part != other.part;
  }
};

// A sealed container.
struct CatalogEntry {
  std::string name;
  Hash128 id;
  std::uint64_t since = 0;  // the revision that brought it
  Membership membership;
  std::uint64_t records = 0;
  std::uint64_t container_bytes = 0;
  // Where it is cut into objects.
  std::uint32_t header_bytes = 0;
  std::uint64_t blocks = 0;
  std::uint64_t blocks_end = 0;   // offset of the first byte behind the last block
  std::uint64_t incarnation = 0;  // part of its objects' names; 0 in directories

  // Without `since` and `incarnation`, which a container does not know.
  static CatalogEntry of(std::string name, const ContainerReader& reader);
  // The same in all that of() gives.
  bool is_same_container(const CatalogEntry& other) const noexcept;
};

// A container that is being packed, or was when its packer died.
struct Announcement {
  std::string name;
  std::uint64_t incarnation = 0;
  std::uint64_t owner = 0;   // who packs: drawn at random by each, so that a second one is noticed
  std::uint32_t recipe = 0;  // NewContainer::recipe
  Membership membership;
  std::string since;  // when it began, UTC: "2026-11-30T22:00:00Z"
};

// Objects that belong to no container any more and are being deleted.
struct Removal {
  std::string name;
  std::uint64_t incarnation = 0;
  std::uint64_t objects = 0;  // 0: unknown, of an unsealed container
};

struct Catalog {
  std::uint64_t revision = 0;  // counts changes of `containers`
  std::uint64_t oldest = 0;    // revisions before are gone: a container of theirs was removed
  std::vector<CatalogEntry> containers;  // in the byte order of their names
  std::vector<Announcement> announced;   // likewise
  std::vector<Removal> removed;

  // Throws kInvalidArgument where a name cannot stand in a catalog, kLimit where it is larger than
  // kMaxCatalogBytes.
  std::string encode() const;
  // Throws kCorrupt, kUnsupported (a newer version, or an unknown need or grouping).
  static Catalog decode(std::string_view text);

  std::vector<std::string> names() const;  // of the containers
  // Null where there is none.
  const CatalogEntry* find(std::string_view name) const noexcept;
  const Announcement* find_announced(std::string_view name) const noexcept;
  // Puts an entry in its place, instead of one of its name, as a new revision. The entry's `since`
  // becomes that revision. Throws kLimit where revisions are used up, as remove() does.
  void add(CatalogEntry entry);
  void remove(std::string_view name);        // as a new revision
  void announce(Announcement announcement);  // instead of one of its name
  // The catalog as it was: the containers that were there. Throws kNotFound: not yet, or gone.
  Catalog at(std::uint64_t wanted) const;
  // Whether a container may join, apart from its keys. `replaced`: a name that does not count.
  // Throws kInvalidArgument (grouping or number of parts differ), kAlreadyExists (the part is
  // there).
  void check_membership(const Membership& membership, std::string_view replaced) const;
};

}  // namespace sml
