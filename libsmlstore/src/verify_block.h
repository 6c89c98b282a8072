// The checks of one block of a container.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <vector>

#include "smlformat/error.h"
#include "smlstore/dataset.h"

namespace sml {

struct BlockReport {
  std::vector<Error> findings;
  std::uint64_t records = 0;       // that start in the block
  std::uint64_t raw_bytes = 0;     // of those, by the index
  std::uint64_t stored_bytes = 0;  // of the block's slots whose checksums are right
};

// The dictionary of a container, or why it cannot be had.
struct CheckedDictionary {
  const Dictionary* dictionary = nullptr;
  std::optional<Error> error;

  explicit CheckedDictionary(const ContainerReader& reader);
};

// Checks block `number` of a container against its row, its table and the index. Safe for threads.
// Damage does not throw.
BlockReport verify_block(const Dataset::Container& container, const CheckedDictionary& dictionary,
                         std::uint64_t number);

// Whether all bytes are zero, as paddings and gaps must be.
bool all_zero(ByteView bytes) noexcept;

}  // namespace sml
