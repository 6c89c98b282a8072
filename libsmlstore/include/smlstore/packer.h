// Packs records into a container: parallel, deterministic, in bounded memory.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

#include "smlformat/codec.h"
#include "smlformat/container_writer.h"
#include "smlformat/error.h"
#include "smlformat/layout.h"
#include "smlstore/record_source.h"

namespace sml {

enum class OnDuplicate : std::uint8_t { kError, kSkip, kReplace };

struct PackProgress {
  std::uint64_t records = 0;        // packed so far
  std::uint64_t total_records = 0;  // 0: unknown (stream)
  std::uint64_t bytes = 0;          // raw bytes packed so far
  std::uint64_t total_bytes = 0;    // 0: unknown
  // Of those packed so far, what was taken over from an interrupted pack.
  std::uint64_t resumed_records = 0;
  std::uint64_t resumed_bytes = 0;
};

struct PackOptions {
  // Change the container's bytes:
  PackOrder order = PackOrder::kRandom;
  std::uint64_t seed = 0;
  Grouping grouping = Grouping::kNone;
  CompressionOptions compression;
  std::uint32_t block_bytes = kDefaultBlockBytes;
  std::uint32_t align = 1;
  std::uint32_t part = 0;  // 1..parts: pack only the samples of this part
  std::uint32_t parts = 0;
  OnDuplicate on_duplicate = OnDuplicate::kError;
  // Change speed and memory only:
  unsigned threads = 0;                     // 0: one per processor
  std::uint64_t memory_bytes = 256U << 20;  // records and blocks in flight
  std::pmr::memory_resource* memory =
      nullptr;  // for per-record arrays; null: a SpillMemory of its own
  // What a pack() of the same records with the same pack_recipe() had given to its sink when it was
  // interrupted, or nothing. Records that are intact in it are not read (from a list) or encoded
  // again; all is given to the sink once more. It may lie where the sink writes. Must outlive
  // pack().
  const ByteSource* resume = nullptr;

  // A record that cannot be read: called with the error; returns to skip the record, or throws to
  // give up. Default: throws the error. Called from the packing thread only.
  std::function<void(const Error&)> on_unreadable;
  // A duplicate that is skipped or replaced: its origin. Called from the packing thread only.
  std::function<void(const std::string& origin)> on_dropped;
  // From the packing thread, after every block.
  std::function<void(const PackProgress&)> on_progress;
  std::stop_token stop;  // throws kCancelled
};

struct PackPlan {
  std::uint64_t records = 0;
  std::uint64_t samples = 0;
  std::uint64_t bytes = 0;
};

// What pack() would pack: the same list, order and checks, nothing read or written. Throws as
// pack() does for duplicates.
PackPlan plan_pack(const RecordList& records, const PackOptions& options);

// What decides the bytes besides the records: options and versions of what encodes. Never 0.
std::uint32_t pack_recipe(const PackOptions& options);

// Whether pack() would write a container with this header: packed with these options (but for the
// compression, which it does not tell) from records with these keys and sizes. Reads all records
// where that depends on which can be read. Throws as pack() does.
bool is_pack_of(const RecordList& records, const PackOptions& options, const Header& header);

// Writes a sealed container to `sink`. Two records with one key: as options.on_duplicate says;
// kError throws kAlreadyExists naming both origins. The container does not depend on
// options.threads, memory or resume. kInvalidArgument: options.resume is of other records or
// options.
ContainerSummary pack(const RecordList& records, const PackOptions& options, ByteSink& sink);

// The same from a stream: options.order must be kInput (kInvalidArgument), on_duplicate not
// kReplace; with grouping, records of a stem that are not adjacent throw kInvalidArgument.
ContainerSummary pack(RecordStream& records, const PackOptions& options, ByteSink& sink);

}  // namespace sml
