// What is behind a Reader: one of two ways to read, with the same results.
#pragma once

#include <cstdint>
#include <span>

#include "record_fetch.h"
#include "smlstore/reader.h"

namespace sml {

// Functions as those of Reader.
class ReaderState {
 public:
  virtual ~ReaderState() = default;
  virtual void request(RecordRequest request) = 0;
  virtual bool wants_more() const noexcept = 0;
  virtual std::uint64_t pending() const noexcept = 0;
  virtual std::size_t next(std::span<RecordPiece> pieces) = 0;
  virtual ReaderStats stats() const noexcept = 0;
};

}  // namespace sml
