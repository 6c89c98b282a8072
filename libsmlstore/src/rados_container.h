// A container as objects in Ceph: which bytes are in which object, reading and writing them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "far_source.h"
#include "index_cache.h"
#include "objects.h"
#include "smlformat/bytes.h"
#include "smlformat/error.h"
#include "smlformat/index.h"
#include "smlstore/catalog.h"

namespace sml {

// The data set's objects, and how errors name them.
struct RadosPlace {
  std::shared_ptr<Objects> objects;
  std::string path;  // "rados://POOL/DATASET"
  std::string pool;
  double timeout_s = 0;

  // What a result of Objects means. `what`: what was done, and to which object; `path` is not said.
  Error error(int result, const std::string& what) const;
};

// "0123456789abcdef.00000000": header; then one object per block, then the rest in pieces.
std::string object_name(std::uint64_t incarnation, std::uint64_t number);
// Watched by whoever packs the container.
std::string watch_name(std::uint64_t incarnation);

inline constexpr std::uint64_t kFooterObjectBytes = 16U << 20;
// Writes under way at once; no gap in what a crashed packer left is longer.
inline constexpr std::size_t kMaxWrites = 32;

// How many objects a container has.
std::uint64_t object_count(const CatalogEntry& entry) noexcept;

// Deletes the objects of an incarnation from `first` on, in parallel, up to `end`; where that is 0,
// until more than kMaxWrites are missing in a row. Those missing count as deleted.
void delete_objects(const RadosPlace& place, std::uint64_t incarnation, std::uint64_t first,
                    std::uint64_t end);

// Waits for operations on objects and keeps the first error.
class Operations {
 public:
  explicit Operations(std::size_t most) : most_(most) {}
  ~Operations() { wait(); }
  Operations(const Operations&) = delete;
  Operations& operator=(const Operations&) = delete;

  // Waits until fewer than `most`, and bytes within kMostBytes, are under way.
  void begin(std::uint64_t bytes = 0);
  // Called from any thread.
  void end(int result, std::uint64_t bytes, const std::string& object);
  void wait() noexcept;
  // The first result that was none of success, and its object.
  int result(std::string& object) const;
  void reset();

 private:
  static constexpr std::uint64_t kMostBytes = 96U << 20;

  std::size_t most_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t under_way_ = 0;
  std::uint64_t bytes_ = 0;
  int result_ = 0;
  std::string object_;
};

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

// A container some of whose objects are missing, cut or unreadable: their bytes are zeros.
class MissingAsZeros final : public ByteSource {
 public:
  // `source` is that of the reader, whose index tells where the objects are.
  MissingAsZeros(std::shared_ptr<const ContainerReader> reader, const FarSource& source)
      : reader_(std::move(reader)), source_(source) {}

  std::uint64_t size() const override { return source_.size(); }
  void read(std::uint64_t offset, MutableBytes out) const override;

 private:
  std::shared_ptr<const ContainerReader> reader_;
  const FarSource& source_;
};

// The objects 0, 1, ... of an incarnation laid end to end, whatever they are; those missing have no
// bytes. Asks for the size of each when it is made: `objects` of them, 0 as in delete_objects().
class ObjectsSource final : public ByteSource {
 public:
  ObjectsSource(RadosPlace place, std::uint64_t incarnation, std::uint64_t objects);

  std::uint64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  void read(std::uint64_t offset, MutableBytes out) const override;

 private:
  RadosPlace place_;
  std::uint64_t incarnation_;
  std::vector<std::uint64_t> ends_;
};

// Writes a container's objects.
class RadosSink final : public ByteSink {
 public:
  // `resumed`: objects may be there already. Those with the bytes that are appended are kept,
  // others are replaced.
  RadosSink(RadosPlace place, std::uint64_t incarnation, bool resumed);

  void append(ByteView bytes) override;
  void begin_footer() override;
  void restart() override;
  // Everything is written when it returns: the place of a sealed container, without name. Throws
  // kInvalidArgument where what was appended does not end as a container does.
  CatalogEntry finish();

 private:
  void put(ByteView bytes);
  void put_again(const std::string& name, ByteView bytes, std::uint32_t crc);
  void forget();
  void check() const;

  RadosPlace place_;
  std::uint64_t incarnation_;
  bool resumed_;
  std::uint64_t objects_ = 0;
  CatalogEntry entry_;
  bool in_footer_ = false;
  Buffer footer_;  // of the object under way
  Bytes tail_;     // the last bytes of the footer, as many as a tail has
  Operations writes_{kMaxWrites};
};

}  // namespace sml
