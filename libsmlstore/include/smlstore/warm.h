// Fills the block cache with a data set before it is read.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>

#include "smlstore/dataset.h"

namespace sml {

struct WarmOptions {
  std::stop_token stop;  // what is there by then stays
  // Called now and then, from the thread that called: bytes of blocks that are there, of all.
  std::function<void(std::uint64_t done, std::uint64_t total)> on_progress;
  // A block that cannot be read, or is damaged.
  std::function<void(const Error&)> on_loss;
};

struct WarmReport {
  std::uint64_t blocks = 0;  // of containers whose blocks are kept
  std::uint64_t there = 0;   // were kept before, or by others meanwhile
  std::uint64_t kept = 0;
  std::uint64_t kept_bytes = 0;
  std::uint64_t no_room = 0;
  std::uint64_t lost = 0;
};

// Fetches the blocks that are not in the cache which the data set was opened with. Throws
// kCancelled, kUnavailable.
WarmReport warm(const Dataset& dataset, const WarmOptions& options);

}  // namespace sml
