// What the fetching reader works on: records in its window, and the operations that bring them.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cached_blocks.h"
#include "read_memory.h"
#include "read_plan.h"
#include "record_fetch.h"
#include "smlformat/frames.h"
#include "smlformat/layout.h"

namespace sml {

// What a slot takes beside its bytes and its key: itself, and its place among those of its block.
inline constexpr std::uint64_t kSlotOverhead = 352;
// Raw bytes that one worker decodes at a time: some 0.2 ms, far more than it takes to wake it.
inline constexpr std::uint64_t kDecodeTaskBytes = 256U << 10;
// Arenas round up to it.
inline constexpr std::uint64_t kArenaAlign = 16;

struct Operation;

enum class SlotState : std::uint8_t {
  kWaiting,  // for an operation of its block
  kAwaited,  // its whole block is being fetched into the cache, here or by another process
  kCached,   // its block is in the cache, to be decoded when it is nearly needed
  kFetched,  // an operation was started for it, or none is needed
};

// A record, or one piece of a large one, in the window.
struct Slot {
  std::uint64_t request = 0;  // counts requests: pieces of one record share it
  std::uint64_t number = kNoNumber;
  std::string key;
  LocatedRecord record;
  std::uint64_t piece = 0;
  bool last = true;         // of those that its request wants
  bool check_only = false;  // a piece that is not given, only checked
  std::uint64_t block = 0;  // among those of all containers
  ByteRange stored;
  std::uint64_t raw_bytes = 0;
  std::uint64_t overhead_bytes = 0;  // beside the record's

  SlotState state = SlotState::kWaiting;
  Slot* next_waiting = nullptr;  // of its block

  // What brings it, and keeps its bytes.
  std::shared_ptr<Operation> operation;
  std::size_t task = 0;                  // of the operation
  const std::byte* stored_at = nullptr;  // its bytes, in the operation's buffer or in the cache

  // Its way through the cache.
  bool was_there = false;                   // nothing had to be fetched for it here
  const std::byte* cached_block = nullptr;  // that holds it
  unsigned damages = 0;                     // that were found in cached blocks
  bool damaged = false;                     // now

  // The outcome, once it is ready.
  ByteView bytes;
  std::uint32_t crc32c = 0;
  std::exception_ptr failure;
  bool ready = false;
  bool immutable = false;  // the bytes lie in a file of the cache

  bool in_pieces() const noexcept { return record.place.pieces > 1; }
  // What it takes when it is decoded. Compressed records are smaller than raw ones, so what is as
  // large is stored as it is and stays where it was read.
  std::uint64_t decoded_bytes() const noexcept {
    return stored.bytes >= SlotPrefix::kBytes + raw_bytes ? 0 : round_up(raw_bytes, kArenaAlign);
  }
  std::uint64_t memory_bytes() const noexcept { return stored.bytes + decoded_bytes(); }
  // Of its container.
  std::uint64_t block_number() const noexcept { return record.place.block + piece; }
  CachedBlocks* cache() const noexcept { return record.container->cached.get(); }
};
static_assert(sizeof(Slot) + 8 * sizeof(void*) <= kSlotOverhead);

inline bool is_needed_before(const Slot* a, const Slot* b) noexcept {
  return std::pair(a->request, a->piece) < std::pair(b->request, b->piece);
}

// Slots that are decoded together, into memory of their own: they are needed one soon after the
// other, and so it is free again soon.
struct DecodeTask {
  std::vector<Slot*> slots;
  std::size_t not_given = 0;
  std::uint64_t memory_bytes = 0;  // of the arena, at most
  Arena arena;
};

enum class OperationKind : std::uint8_t {
  kRanges,      // slots of one block are read together
  kWholeBlock,  // a block is fetched into the cache; its slots are decoded from there
  kCached,      // slots are decoded from the cache; nothing is read
};

struct Operation {
  OperationKind kind = OperationKind::kRanges;
  std::uint64_t sequence = 0;  // unlike that of all others
  std::uint64_t need = 0;      // request of the slot that is needed first
  const ByteSource* source = nullptr;
  std::vector<ByteRange> ranges;
  ReadMemory::Piece buffer;  // where the ranges are laid end to end
  // Whether records that are stored as they are stay in the buffer; else they are copied, so that
  // gaps take no memory for longer than they must.
  bool keep_in_place = false;
  std::size_t not_given = 0;      // slots
  std::vector<DecodeTask> tasks;  // in the order of need
  std::size_t next_task = 0;      // to begin
  std::size_t tasks_left = 0;     // to end
  bool buffer_is_used = false;    // a record lies in it
  std::exception_ptr failure;

  // kCached
  std::shared_ptr<const MappingPin> pin;
  // kWholeBlock
  std::uint64_t block = 0;  // among those of all containers
  const Slot* first = nullptr;
  BlockClaim claim;
  bool kept = false;
};

inline std::uint64_t planned_bytes(const ReadPlan& plan, const std::vector<ByteRange>& wanted) {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < plan.positions.size(); ++i) bytes += wanted[i].bytes;
  return bytes;
}

// Whether what is read for gaps is little enough to be kept with the records.
inline bool is_dense(const ReadPlan& plan, const std::vector<ByteRange>& wanted) {
  const std::uint64_t bytes = planned_bytes(plan, wanted);
  return plan.bytes <= bytes + bytes / 4;
}

// Memory that a plan takes beyond what is wanted. Unless it is dense, records are copied.
inline std::uint64_t extra_bytes(const ReadPlan& plan, const std::vector<ByteRange>& wanted) {
  if (!is_dense(plan, wanted)) return plan.bytes;
  return plan.bytes - std::min(plan.bytes, planned_bytes(plan, wanted));
}

}  // namespace sml
