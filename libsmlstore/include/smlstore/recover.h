// Rebuilds a container from a damaged one: from its index where that is usable, else by a forward
// scan of its blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <stop_token>

#include "smlformat/bytes.h"
#include "smlformat/container_writer.h"
#include "smlformat/error.h"

namespace sml {

struct RecoverOptions {
  unsigned threads = 0;  // 0: one per processor
  std::pmr::memory_resource* memory =
      nullptr;  // for per-record arrays; null: a SpillMemory of its own

  // Each loss, in the order of their places. From the thread that called recover(), as on_progress.
  std::function<void(const Error&)> on_loss;
  // Bytes of the damaged container; starts again from 0 where losses ask for a second pass.
  std::function<void(std::uint64_t bytes_done, std::uint64_t bytes_total)> on_progress;
  std::stop_token stop;
};

struct RecoverReport {
  ContainerSummary summary;
  bool index_used = false;         // the footer was intact
  bool identical = false;          // bit by bit what the container was
  std::uint64_t records_lost = 0;  // that are known to have been there
  bool all_known = true;           // false: there may have been more
  std::uint64_t losses = 0;        // calls of on_loss; 0: nothing is lost
};

// Writes a sealed container of all that is intact to `sink`. Where no record is lost it has the
// blocks, the order and the numbers of the damaged one; else the records that are left, in that
// order, as input order. A record is lost where its own bytes are damaged; without a usable footer
// also where the record table of its block is, or the dictionary it needs. The source is only read;
// what cannot be read counts as damaged. Throws kCorrupt where there is neither a header nor a
// block; kCancelled; kIo from the sink.
RecoverReport recover(std::shared_ptr<const ByteSource> source, ByteSink& sink,
                      const RecoverOptions& options);

}  // namespace sml
