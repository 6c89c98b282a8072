// The footer index: names, places, sizes and samples of a container's records, used in place as it
// is stored. Encodings: format-spec/index.md.
//
// A record has a *number* (its position in pack order) and a *rank* (its position in name order); a
// sample likewise. Both count from 0 within the container.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "smlformat/bytes.h"
#include "smlformat/layout.h"

namespace sml {

inline constexpr std::uint32_t kNamePageKeys = 32;

// Where a record is. For a record cut into pieces the first piece's; the following pieces are the
// blocks block + 1,
// ..., block + pieces - 1, one each.
struct Place {
  std::uint64_t block = 0;
  std::uint64_t offset = 0;      // of the slot, in the container
  std::uint64_t slot_bytes = 0;  // prefix, stored bytes and padding (of the first piece)
  std::uint64_t pieces = 1;
};

// A half-open range of record numbers.
struct NumberRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;

  std::uint64_t size() const noexcept { return last - first; }
};

// Bytes that each part of the index takes.
struct IndexBytes {
  std::uint64_t places = 0, raw_sizes = 0, names = 0, key_table = 0, ranks = 0, samples = 0,
                blocks = 0, dictionary = 0;
  std::uint64_t total = 0;
};

// The container's header from the copy in a footer that has been checked against its checksum.
// Throws kCorrupt, kUnsupported.
Header header_in_footer(ByteView footer);

// Keys that are stored together, decoded: those of ranks page * kNamePageKeys onwards.
struct NamePage {
  std::string keys;  // end to end; bytes behind the last one have no meaning
  std::uint32_t ends[kNamePageKeys] = {};
  std::uint32_t count = 0;

  std::string_view operator[](std::uint32_t i) const noexcept {
    const std::uint32_t begin = i == 0 ? 0 : ends[i - 1];
    return std::string_view(keys).substr(begin, ends[i] - begin);
  }
};

class Index {
 public:
  // `footer` (64-byte aligned) has been checked against its checksum; `blocks_end` is where it
  // starts in the container. Throws kCorrupt where a structure contradicts itself. What would cost
  // a pass over all records is checked when it is used: then functions that are not noexcept throw
  // kCorrupt. No call reads out of bounds, whatever the bytes. `footer` must outlive the index.
  Index(ByteView footer, const Header& header, std::uint64_t footer_offset);
  ~Index();
  Index(Index&&) noexcept;

  std::uint64_t records() const noexcept { return counts_.records; }
  std::uint64_t samples() const noexcept { return counts_.samples; }
  std::uint64_t blocks() const noexcept { return counts_.blocks; }
  const FooterHeader& counts() const noexcept { return counts_; }
  IndexBytes bytes() const noexcept { return bytes_; }

  // The container's dictionary; empty where it has none.
  ByteView dictionary() const noexcept;

  // --- names

  // The key of a record, written to `key`.
  void key_at_rank(std::uint64_t rank, std::string& key) const;
  void key_of(std::uint64_t number, std::string& key) const { key_at_rank(rank_of(number), key); }

  // The number of the record with this key. Confirmed against the name page: never a false answer.
  std::optional<std::uint64_t> find(std::string_view key) const;

  // The page of ranks page * kNamePageKeys onwards; of its keys the first `wanted`.
  void read_page(std::uint64_t page, std::uint32_t wanted, NamePage& out) const;

  // First rank whose key is not before `key` in name order; records() where there is none.
  std::uint64_t lower_bound(std::string_view key) const;

  // Reads keys in name order, page after page.
  class NameCursor {
   public:
    NameCursor(const Index& index, std::uint64_t rank);
    bool done() const noexcept { return rank_ >= index_->records(); }
    std::uint64_t rank() const noexcept { return rank_; }
    // Valid until advance() or destruction.
    std::string_view key() const noexcept { return key_; }
    void advance();

   private:
    void load_page();
    const Index* index_;
    std::uint64_t rank_;
    NamePage page_;
    std::string_view key_;
  };

  // --- number <-> rank
  std::uint64_t rank_of(std::uint64_t number) const;
  std::uint64_t number_of(std::uint64_t rank) const;

  // --- samples, in pack order
  NumberRange sample(std::uint64_t sample) const noexcept;
  std::uint64_t sample_of(std::uint64_t number) const noexcept;
  // Whether a sample starts at this rank, by the bounds in name order.
  bool starts_sample(std::uint64_t rank) const noexcept;

  // --- places and sizes. A place is checked against its block, a size against the sum of all sizes
  // and the pieces: what is larger than header.piece_bytes is in as many pieces as that takes.
  Place place(std::uint64_t number) const;
  std::uint64_t raw_bytes(std::uint64_t number) const;

  // --- blocks
  std::uint64_t block_offset(
      std::uint64_t block) const noexcept;  // block == blocks(): where blocks end
  BlockRow block(std::uint64_t block) const noexcept;
  // Samples that start in a block, as a range of pack positions of samples.
  NumberRange block_samples(std::uint64_t block) const noexcept;

 private:
  struct Parts;
  void check_blocks() const;

  Header header_;
  FooterHeader counts_;
  IndexBytes bytes_;
  std::unique_ptr<Parts> parts_;
};

}  // namespace sml
