// A container that lies in Ceph, read.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "far_source.h"
#include "index_cache.h"
#include "rados_place.h"
#include "smlformat/bytes.h"
#include "smlformat/container_reader.h"
#include "smlformat/index.h"
#include "smlstore/catalog.h"

namespace sml {

// The bytes of a sealed container. The footer is mapped from the index cache; view() gives it.
class RadosSource final : public FarSource {
 public:
  RadosSource(RadosPlace place, const CatalogEntry& entry,
              std::shared_ptr<const KeptFooter> footer);

  // From here on blocks can be read. The index must outlive the source's use.
  void use(const Index& index) noexcept { index_.store(&index, std::memory_order_release); }

  std::uint64_t size() const override { return entry_.container_bytes; }
  void read(std::uint64_t offset, MutableBytes out) const override;
  void start_read(std::span<const ReadRange> ranges,
                  std::function<void(std::exception_ptr)> done) const override;
  ByteView view(std::uint64_t offset, std::uint64_t bytes) const override;

  std::uint64_t objects() const override { return object_count(entry_); }
  Extent object(std::uint64_t number) const override;
  std::uint64_t object_at(std::uint64_t offset) const override;
  void check_presence(std::uint64_t number) const override;
  std::uint32_t stored_crc32c(std::uint64_t number) const override;
  void read_stored(std::uint64_t offset, MutableBytes out) const override;

  // Throws kCorrupt, kTruncated where the objects behind the blocks are not what the catalog says.
  static void check_footer(const RadosPlace& place, const CatalogEntry& entry);
  // Reads the footer and what follows, in parallel.
  static void fetch_footer(const RadosPlace& place, const CatalogEntry& entry, MutableBytes out);

 private:
  const Index& index() const;

  RadosPlace place_;
  CatalogEntry entry_;
  std::uint64_t footer_offset_;
  std::shared_ptr<const KeptFooter> footer_;
  std::atomic<const Index*> index_{nullptr};
};

// The objects `first`, `first` + 1, ... of an incarnation laid end to end, whatever they are; those
// missing have no bytes. Asks for the size of each when it is made: `objects` of them, 0 as in
// delete_objects().
class ObjectsSource final : public ByteSource {
 public:
  ObjectsSource(RadosPlace place, std::uint64_t incarnation, std::uint64_t first,
                std::uint64_t objects);

  std::uint64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  void read(std::uint64_t offset, MutableBytes out) const override;

 private:
  RadosPlace place_;
  std::uint64_t incarnation_;
  std::uint64_t first_;
  std::vector<std::uint64_t> ends_;
};

}  // namespace sml
