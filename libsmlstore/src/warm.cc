#include "smlstore/warm.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>
#include <thread>

#include "cached_blocks.h"
#include "ordered_tasks.h"

namespace sml {
namespace {

// Blocks fetched at a time: each mostly waits for the store.
constexpr unsigned kFetchers = 16;

struct Block {
  const Dataset::Container* container = nullptr;
  std::uint64_t number = 0;
  std::uint64_t bytes = 0;
};

enum class Outcome : std::uint8_t { kThere, kKept, kNoRoom, kLost };

struct Result {
  Block block;
  Outcome outcome = Outcome::kLost;
  std::optional<Error> error;
};

// Waits while another process fetches the block, and not for ever.
CachedBlocks::Claim claim(const Block& block, BlockClaim& out, const std::stop_token& stop) {
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    CachedBlocks& cached = *block.container->cached;
    if (cached.has(block.number)) return CachedBlocks::Claim::kThere;
    const auto claimed = cached.claim(block.number, block.bytes, out);
    if (claimed != CachedBlocks::Claim::kBusy) return claimed;
    if (stop.stop_requested()) return claimed;
    if (std::chrono::steady_clock::now() - begin > kLongestBusy) return CachedBlocks::Claim::kMine;
    std::this_thread::sleep_for(kLookAtBusy);
  }
}

Result fetch(const Block& block, const std::stop_token& stop) {
  Result result{block, Outcome::kLost, std::nullopt};
  BlockClaim right;
  switch (claim(block, right, stop)) {
    case CachedBlocks::Claim::kThere:
    case CachedBlocks::Claim::kBusy:
      result.outcome = Outcome::kThere;
      return result;
    case CachedBlocks::Claim::kNoRoom:
      result.outcome = Outcome::kNoRoom;
      return result;
    case CachedBlocks::Claim::kMine:
      break;
  }
  const ContainerReader& reader = *block.container->reader;
  const std::string where = block.container->path + ": block " + std::to_string(block.number);
  try {
    thread_local Buffer bytes;  // used again: fresh memory is dear
    bytes.resize(block.bytes);
    reader.source().read(reader.index().block_offset(block.number), bytes);
    switch (block.container->cached->keep(right, block.number, bytes,
                                          reader.index().block(block.number).crc32c)) {
      case CachedBlocks::Kept::kKept:
        result.outcome = Outcome::kKept;
        break;
      case CachedBlocks::Kept::kNoRoom:
        result.outcome = Outcome::kNoRoom;
        break;
      case CachedBlocks::Kept::kDamaged:
        result.error = Error(ErrorCode::kCorrupt, where + ": checksum mismatch");
        break;
    }
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kUnavailable) throw;
    result.error = error.within(where);
  }
  return result;
}

}  // namespace

WarmReport warm(const Dataset& dataset, const WarmOptions& options) {
  std::uint64_t total = 0;
  WarmReport report;
  for (const Dataset::Container& container : dataset.containers()) {
    if (!container.cached) continue;
    const Index& index = container.reader->index();
    report.blocks += index.blocks();
    total += index.block_offset(index.blocks()) - index.block_offset(0);
  }
  std::uint64_t done = 0;
  const auto settle = [&](const Result& result) {
    switch (result.outcome) {
      case Outcome::kThere:
        ++report.there;
        break;
      case Outcome::kKept:
        ++report.kept;
        report.kept_bytes += result.block.bytes;
        break;
      case Outcome::kNoRoom:
        ++report.no_room;
        return;
      case Outcome::kLost:
        ++report.lost;
        if (options.on_loss) options.on_loss(*result.error);
        return;
    }
    done += result.block.bytes;
    if (options.on_progress) options.on_progress(done, total);
  };

  Workers workers(kFetchers);
  OrderedTasks<Result> tasks(workers);
  for (const Dataset::Container& container : dataset.containers()) {
    if (!container.cached) continue;
    const Index& index = container.reader->index();
    for (std::uint64_t number = 0; number < index.blocks(); ++number) {
      if (options.stop.stop_requested()) throw Error(ErrorCode::kCancelled, "interrupted");
      const Block block{&container, number,
                        index.block_offset(number + 1) - index.block_offset(number)};
      if (tasks.size() == kFetchers) settle(tasks.take());
      tasks.submit([block, stop = options.stop] { return fetch(block, stop); });
    }
  }
  while (!tasks.empty()) settle(tasks.take());
  // What was waited for may not be there then.
  if (options.stop.stop_requested()) throw Error(ErrorCode::kCancelled, "interrupted");
  return report;
}

}  // namespace sml
