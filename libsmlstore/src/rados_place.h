// A data set's objects in Ceph: their names, what their errors mean, many operations at once.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "objects.h"
#include "smlformat/error.h"
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
  // The same, with `path` before it.
  Error located_error(int result, const std::string& what) const {
    return error(result, what).within(path);
  }
};

inline const std::string kCatalogObject = "catalog";
// "0123456789abcdef.00000000": header; then one object per block, then the rest in pieces.
std::string object_name(std::uint64_t incarnation, std::uint64_t number);
// Watched by whoever packs the container.
std::string watch_name(std::uint64_t incarnation);

inline constexpr std::uint64_t kFooterObjectBytes = 16U << 20;
// Writes under way at once; no gap in what a crashed packer left is longer.
inline constexpr std::size_t kMaxWrites = 32;
// Where the catalog tells how many objects there are, more than so many in a row are not missing:
// they never were.
inline constexpr std::uint64_t kMostMissing = 1U << 16;

// How many objects a container has.
std::uint64_t object_count(const CatalogEntry& entry) noexcept;

// The sizes of an incarnation's objects from number `first` on, asked for in parallel; nothing for
// those that are missing. Of `count` of them, or until more than kMostMissing are missing in a row;
// where that is 0, until more than kMaxWrites are missing in a row, and the last one is there.
std::vector<std::optional<std::uint64_t>> object_sizes(const RadosPlace& place,
                                                       std::uint64_t incarnation,
                                                       std::uint64_t first, std::uint64_t count);

// Deletes the objects of an incarnation from `first` on, in parallel, up to `end`; where that is 0,
// those that object_sizes() finds, from the last one down: if it is cut off, they can be found
// again. Those missing count as deleted.
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
  // Whether one timed out: it may be made all the same.
  bool unanswered() const;
  // What the first result means that was none of success, "WHAT OBJECT: ..."; else nothing.
  std::optional<Error> failure(const RadosPlace& place, const std::string& what) const;

 private:
  static constexpr std::uint64_t kMostBytes = 64U << 20;

  std::size_t most_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t under_way_ = 0;
  std::uint64_t bytes_ = 0;
  int result_ = 0;
  bool unanswered_ = false;
  std::string object_;
};

}  // namespace sml
