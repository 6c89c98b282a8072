// Builds the footer of a container from what its writer kept.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "smlformat/bytes.h"
#include "smlformat/container_writer.h"
#include "smlformat/layout.h"

namespace sml {

struct IndexInput {
  const Header& header;
  std::span<const BlockRow> rows;
  std::span<const std::uint64_t> block_offsets;  // one more than rows
  std::span<const std::uint64_t> hashes;         // of the keys, by number
  std::span<const std::uint64_t> places;         // by number
  std::span<const std::uint64_t> raw_sums;       // running sums of raw sizes, by number
  bool raw_sizes_follow;                         // from the slots: the section is left out
  std::uint64_t stored_bytes;
  ByteView dictionary;  // of the container; empty where it has none
  const NameList& names;
  const std::vector<bool>& sample_starts;  // by number; used with grouping
};

// `counts` is filled in. Throws kInvalidArgument where the names are unsorted, double, or not those
// of the records.
Bytes build_footer(const IndexInput& input, FooterHeader& counts);

}  // namespace sml
