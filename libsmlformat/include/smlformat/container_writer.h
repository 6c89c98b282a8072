// Writes a container: header, blocks in order, footer, tail; one pass, append only.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <string_view>
#include <vector>

#include "smlformat/block.h"
#include "smlformat/bytes.h"
#include "smlformat/layout.h"

namespace sml {

// The keys of a finished container in name order, given when it is sealed.
class NameList {
 public:
  virtual ~NameList() = default;
  virtual std::uint64_t size() const = 0;
  // Valid until the next call. Ranks are asked for in ascending order, possibly several times over.
  virtual std::string_view key(std::uint64_t rank) const = 0;
  // Number of the record at this rank. Asked for in input order only; other orders compute it.
  virtual std::uint64_t number(std::uint64_t rank) const = 0;
};

struct ContainerSummary {
  Hash128 id;
  FooterHeader counts;
  std::uint64_t container_bytes = 0;
};

// For one thread. Nothing is visible to readers until seal() has returned; a writer that is
// destroyed before leaves an unsealed byte string behind, which its owner discards.
class ContainerWriter {
 public:
  // Writes the header. `memory` serves the per-record arrays (8 to 24 bytes a record). Throws
  // kInvalidArgument, kIo.
  ContainerWriter(ByteSink& sink, const Header& header,
                  std::pmr::memory_resource* memory = std::pmr::get_default_resource());

  const Header& header() const noexcept { return header_; }
  std::uint64_t blocks() const noexcept { return rows_.size(); }
  std::uint64_t records() const noexcept { return hashes_.size(); }  // that start in those blocks
  std::uint64_t bytes() const noexcept { return offset_; }

  // `block` must carry the next block number and first record. Throws kLimit above kMaxRecords,
  // kIo.
  void append(const SealedBlock& block);

  // `sample_starts`: with grouping, for each record by number whether a sample starts there; empty
  // without. Builds the index, writes footer and tail. Throws kInvalidArgument where names are
  // unsorted, double, or not those of the records.
  ContainerSummary seal(const NameList& names, const std::vector<bool>& sample_starts = {});

 private:
  void put(ByteView bytes);

  ByteSink& sink_;
  Header header_;
  std::uint64_t offset_ = 0;
  std::uint64_t stored_bytes_ = 0;
  bool all_plain_ = true;
  Bytes dictionary_;
  bool sealed_ = false;
  std::vector<BlockRow> rows_;
  std::vector<std::uint64_t> block_offsets_;
  std::pmr::vector<std::uint64_t> hashes_;    // by number
  std::pmr::vector<std::uint64_t> places_;    // by number
  std::pmr::vector<std::uint64_t> raw_sums_;  // by number, running sum
};

}  // namespace sml
