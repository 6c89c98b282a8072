// A data set: one or more containers under one location, seen as one list of records and samples.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "smlformat/container_reader.h"
#include "smlformat/error.h"
#include "smlstore/block_cache.h"
#include "smlstore/location.h"
#include "smlstore/store.h"

namespace sml {

struct DatasetOptions : StoreOptions {
  DatasetOptions() = default;
  explicit DatasetOptions(StoreOptions store) : StoreOptions(std::move(store)) {}

  // Called for each container of a data set that cannot be opened; it is left out, and its part,
  // if it is one, may be missing. Default: the error is thrown.
  std::function<void(const Error&)> on_unusable;
  // Called with the path of each container file beside a catalog that does not list it.
  std::function<void(const std::string&)> on_stray;
  bool partial = false;  // open although parts are missing
  // Where blocks of containers that are not mapped are kept. In use as long as the data set is
  // open.
  std::shared_ptr<BlockCache> block_cache;
};

// Immutable; const functions are safe for threads. A record's number is its number in its container
// plus the records of the containers before; a sample's likewise. Functions that look into an index
// throw kCorrupt, naming the container, where that contradicts itself.
class Dataset {
 public:
  struct Container {
    std::string name;  // "photos" of photos.sml
    std::string path;
    std::shared_ptr<const ContainerReader> reader;
    std::uint64_t first_record = 0;
    std::uint64_t first_sample = 0;
    std::shared_ptr<CachedBlocks> cached = nullptr;  // null: its blocks are not kept
  };

  // A container file; a directory of them; a data set in Ceph, or one container of it: at the
  // revision that the location names, else as it is now. A directory without catalog has the
  // containers whose files are there, at revision 0. Throws kLimit (the block cache is too small
  // for a block), kNotFound (no such path, data set, container or revision; nothing in it),
  // kInvalidArgument (containers disagree about grouping; in a data set also parts of different
  // wholes, parts that come twice, and, unless options.partial, missing ones; all named), what
  // Store::open throws, and what ContainerReader throws, naming the container.
  static Dataset open(const Location& location, const DatasetOptions& options = {});
  // The data set of containers that are open (first_record and first_sample are filled in), put
  // into the order of their names. Throws kInvalidArgument where they disagree about grouping.
  static Dataset from(std::vector<Container> containers);

  const std::vector<Container>& containers() const noexcept { return containers_; }
  std::uint64_t records() const noexcept { return records_; }
  std::uint64_t samples() const noexcept { return samples_; }
  Grouping grouping() const noexcept { return grouping_; }
  std::uint64_t revision() const noexcept { return revision_; }  // 0 without a catalog
  // XXH3-128 over the container ids in order, each as in the tail (16 bytes, little-endian): names
  // this data set's content.
  Hash128 digest() const;

  // The record's number; nothing where no container has the key. Throws kAmbiguous, naming two
  // containers, where more than one has it. Parts that the key's stem does not belong to are not
  // asked.
  std::optional<std::uint64_t> find(std::string_view key) const;

  // Index (in containers()) of the container that holds a record (number < records()) or a sample
  // (< samples()).
  std::size_t container_of_record(std::uint64_t number) const noexcept;
  std::size_t container_of_sample(std::uint64_t sample) const noexcept;

  void key_of(std::uint64_t number, std::string& key) const;
  std::uint64_t raw_bytes(std::uint64_t number) const;
  NumberRange sample(std::uint64_t sample) const noexcept;  // its record numbers
  std::uint64_t sample_of(std::uint64_t number) const noexcept;

  // All keys in name order, from the first on that is not before `from`, containers merged. A key
  // in two containers comes twice, in the order of the containers. For one thread; the data set
  // must outlive it. key(), number(), container() and advance() only while not done().
  class NameCursor {
   public:
    explicit NameCursor(const Dataset& dataset, std::string_view from = {});
    NameCursor(NameCursor&&) noexcept;
    ~NameCursor();
    bool done() const noexcept;
    std::string_view key() const noexcept;   // valid until advance()
    std::uint64_t number() const;            // computed when asked for
    std::size_t container() const noexcept;  // index in containers()
    void advance();

   private:
    struct State;
    std::unique_ptr<State> state_;
  };

 private:
  std::vector<Container> containers_;
  std::uint64_t records_ = 0;
  std::uint64_t samples_ = 0;
  Grouping grouping_ = Grouping::kNone;
  std::uint64_t revision_ = 0;
};

// Throws kAlreadyExists, naming a key and both containers, where `added` holds a key that `dataset`
// has. Takes time in the smaller of both where they differ much, else in their sum.
void check_unique_keys(const Dataset& dataset, const ContainerReader& added,
                       std::string_view added_name);

}  // namespace sml
