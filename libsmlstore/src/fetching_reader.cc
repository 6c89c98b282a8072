#include "fetching_reader.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "cached_blocks.h"
#include "fetch_operation.h"
#include "ordered_tasks.h"
#include "smlformat/key.h"

namespace sml {
namespace {

// Operations under way at a time: some milliseconds each, of which most is waiting for disks, so
// that several disks are kept busy; more would only wait for one another.
constexpr std::size_t kMaxOperations = 32;
// Given together, at most, and one piece: what is given takes memory until the next call.
constexpr std::uint64_t kMostGivenBytes = 1U << 20;
// Between calls of ReaderOptions::while_waiting.
constexpr std::chrono::milliseconds kTellAgain{100};

// Of the block that a slot lies in.
std::uint64_t block_bytes(const Slot& slot) {
  const Index& index = slot.record.container->reader->index();
  const std::uint64_t block = slot.block_number();
  return index.block_offset(block + 1) - index.block_offset(block);
}

// Adds the time that it lives.
class WaitingTime {
 public:
  explicit WaitingTime(std::uint64_t& total_ns) : total_ns_(total_ns) {}
  ~WaitingTime() {
    const std::chrono::nanoseconds time = std::chrono::steady_clock::now() - begin_;
    total_ns_ += static_cast<std::uint64_t>(time.count());
  }
  WaitingTime(const WaitingTime&) = delete;
  WaitingTime& operator=(const WaitingTime&) = delete;

 private:
  std::uint64_t& total_ns_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// With a cache one thread is not enough: a consumer that takes its time must not hold up others who
// wait for a block that was claimed here.
unsigned threads_for(const Dataset& dataset, const ReaderOptions& options) {
  const bool cached =
      std::any_of(dataset.containers().begin(), dataset.containers().end(),
                  [](const auto& container) { return container.cached != nullptr; });
  return cached && Workers::wanted(options.threads) == 1 ? 2 : options.threads;
}

class FetchingReader final : public ReaderState {
 public:
  FetchingReader(const Dataset& dataset, const ReaderOptions& options, bool with_keys);
  ~FetchingReader() override;

  void request(RecordRequest request) override;
  bool wants_more() const noexcept override {
    return pending_ == 0 || (!upcoming_ && requests_.empty());
  }
  std::uint64_t pending() const noexcept override { return pending_; }
  std::size_t next(std::span<RecordPiece> pieces) override;
  ReaderStats stats() const noexcept override;

 private:
  // A record whose slots come into the window one after another.
  struct Expansion {
    LocatedRecord record;
    PieceRange wanted;
    std::uint64_t next_piece = 0;
    bool checking = false;
  };

  // The window.
  void fill();
  Slot next_slot();
  void pop_front();
  void let_go(const Slot& slot);
  void drop_rest(const Slot& failed);
  // What operations may take, and as much may be asked for: the rest of the budget is for gaps
  // between what they take.
  std::uint64_t room() const noexcept { return options_.memory_bytes - options_.memory_bytes / 8; }
  std::uint64_t free_bytes() const noexcept {
    const std::uint64_t used = overhead_bytes_ + live_bytes_;
    return room() - std::min(room(), used);
  }

  // Slots that wait to be fetched, by block.
  void link(Slot& slot);
  std::vector<Slot*> unlink_block(std::uint64_t block);
  void unlink(Slot& slot);

  // The cache.
  struct Busy {
    std::vector<Slot*> slots;
    std::chrono::steady_clock::time_point since;
  };
  CachedBlocks* cache_of(const Slot& slot) const;
  bool is_cached(const Slot& slot) const;
  void wait_again(Slot& slot);
  bool decode_cached();
  void settle();
  void look_at_busy();
  void fetch_block(std::vector<Slot*> slots, BlockClaim claim);
  void keep(const std::shared_ptr<Operation>& operation);

  // Fetching.
  bool fetch_ahead();
  bool look_ahead();
  void launch(const std::shared_ptr<Operation>& operation);
  std::vector<Slot*> affordable(std::vector<Slot*> slots);
  void start(std::vector<Slot*> slots);
  void add_tasks(Operation& operation, std::vector<Slot*> slots);
  void read(const std::shared_ptr<Operation>& operation);
  void on_read(const std::shared_ptr<Operation>& operation, std::exception_ptr failure,
               bool in_place);
  struct Work {
    std::shared_ptr<Operation> operation;
    DecodeTask* task = nullptr;  // null: a whole block is to be kept
    explicit operator bool() const noexcept { return operation != nullptr; }
  };
  Work next_work();
  void carry_out(const Work& work);
  void work_off(bool called);
  void call_workers(std::size_t tasks);
  void decode(Operation& operation, DecodeTask& task);
  bool decode(const Operation& operation, Slot& slot, Arena& arena) const;
  ReadMemory::Piece take_buffer(Operation& operation);

  // Giving.
  bool is_wanted(const Slot& slot) const noexcept;
  void await_front();
  void give(Slot& slot, RecordPiece& piece);
  void give_error(Slot& slot, RecordPiece& piece);

  const Dataset& dataset_;
  const ReaderOptions options_;
  const bool with_keys_;
  std::vector<std::uint64_t> first_block_;  // of each container, among those of all

  std::deque<RecordRequest> requests_;  // not yet in the window, or not with all pieces
  std::uint64_t first_request_ = 0;     // number of requests_.front()
  std::optional<Expansion> expansion_;  // of requests_.front()
  std::optional<Slot> upcoming_;        // for which there is no room yet
  std::uint64_t pending_ = 0;

  std::deque<Slot> window_;  // slots stay where they are
  std::size_t given_ = 0;    // so many of the first, and still in use by the consumer
  std::size_t cursor_ = 0;   // slots of the window before it do not wait
  std::size_t near_ = 0;     // cached slots before it are fetched; at most cursor_
  std::uint64_t dropped_request_ = ~std::uint64_t{0};  // its slots are not given
  std::unordered_map<std::uint64_t, Slot*> waiting_;

  // memory_bytes() of slots: all of the window, those before the cursor.
  std::uint64_t window_bytes_ = 0;
  std::uint64_t ahead_bytes_ = 0;
  std::uint64_t near_bytes_ = 0;  // raw, of those before near_
  std::uint64_t overhead_bytes_ = 0;
  std::atomic<std::uint64_t> live_bytes_ = 0;  // of operations and their tasks
  ReadMemory memory_;

  std::vector<Busy> busy_;
  std::unordered_map<std::uint64_t, std::vector<Slot*>> awaiting_;  // by block that is fetched here
  // Blocks that could not be kept, or are damaged at their origin: they are not tried again.
  std::unordered_set<std::uint64_t> not_kept_;
  std::chrono::steady_clock::time_point looked_at_busy_;

  std::optional<Error> error_;  // of what was given last
  ReaderStats stats_;
  std::uint64_t operations_ = 0;

  // Guards what follows, Slot::ready, and the tasks of operations.
  mutable std::mutex mutex_;
  std::condition_variable progress_;
  const Slot* awaited_ = nullptr;  // by the consumer, which sleeps
  std::size_t helpers_ = 0;        // workers that were called, and have not found nothing to do
  std::size_t in_flight_ = 0;
  std::map<std::uint64_t, std::chrono::steady_clock::time_point> under_way_;  // by sequence
  std::multimap<std::uint64_t, std::shared_ptr<Operation>> arrived_;          // to decode, by need
  std::vector<std::shared_ptr<Operation>> ended_;  // of whole blocks, whose slots go on
  std::vector<Slot*> damaged_;                     // in the cache
  bool reads_in_place_ = false;  // the source is near: whoever starts a read carries it out
  bool stopping_ = false;

  Workers workers_;
};

FetchingReader::FetchingReader(const Dataset& dataset, const ReaderOptions& options, bool with_keys)
    : dataset_(dataset),
      options_(options),
      with_keys_(with_keys),
      memory_(options.memory_bytes),
      workers_(threads_for(dataset, options), Workers::Consumer::kHelps) {
  std::uint64_t blocks = 0;
  for (const Dataset::Container& container : dataset_.containers()) {
    first_block_.push_back(blocks);
    blocks += container.reader->index().blocks();
  }
}

FetchingReader::~FetchingReader() {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  // The store writes into memory of the operations until it calls back.
  progress_.wait(lock, [this] { return in_flight_ == 0; });
}

void FetchingReader::request(RecordRequest request) {
  ++pending_;
  requests_.push_back(std::move(request));
  fill();
}

// Takes requests into the window while their records would fit into the room, and one in any case.
// They take none before they are fetched; but what a block has is read together, and is kept until
// the last of it is given.
void FetchingReader::fill() {
  for (;;) {
    if (!upcoming_) {
      if (requests_.empty()) return;
      upcoming_ = next_slot();
    }
    const std::uint64_t memory = upcoming_->memory_bytes();
    if (!window_.empty() &&
        window_bytes_ + overhead_bytes_ + memory + upcoming_->overhead_bytes > room())
      return;
    Slot& slot = window_.emplace_back(std::move(*upcoming_));
    upcoming_.reset();
    window_bytes_ += memory;
    overhead_bytes_ += slot.overhead_bytes;
    if (slot.state == SlotState::kWaiting) link(slot);
  }
}

// The next slot of the first request, which goes away with its last slot.
Slot FetchingReader::next_slot() {
  const RecordRequest& request = requests_.front();
  Slot slot;
  slot.request = first_request_;
  slot.number = request.by_key ? kNoNumber : request.number;
  slot.key = request.key;
  slot.overhead_bytes = kSlotOverhead + request.key.size();
  bool last = true;
  try {
    if (!expansion_) {
      slot.number = find_record(dataset_, request);
      expansion_ = Expansion{locate_record(dataset_, slot.number), {}, 0, false};
      const LocatedRecord& record = expansion_->record;
      expansion_->wanted = wanted_pieces(request, record.place.pieces,
                                         record.container->reader->header().piece_bytes);
      expansion_->next_piece = expansion_->wanted.first;
      expansion_->checking = options_.whole_records && record.place.pieces > 1;
    }
    Expansion& from = *expansion_;
    const Dataset::Container& container = *from.record.container;
    slot.record = from.record;
    slot.number = container.first_record + from.record.number;
    slot.block = first_block_[static_cast<std::size_t>(&container - dataset_.containers().data())];
    if (!slot.in_pieces()) {
      slot.block += from.record.place.block;
      slot.stored = {from.record.place.offset, from.record.place.slot_bytes};
      slot.raw_bytes = from.record.record_bytes;
    } else {
      slot.piece = from.next_piece++;
      slot.check_only = from.checking;
      const PiecePlace place = place_piece(from.record, slot.piece);
      slot.block += place.block;
      slot.stored = {place.offset, place.block_bytes};
      slot.raw_bytes = place.raw_bytes;
      slot.last = from.next_piece == from.wanted.end;
      last = slot.last && !from.checking;
      if (slot.last) {
        from.next_piece = from.wanted.first;
        from.checking = false;
      }
    }
  } catch (...) {
    slot.failure = std::current_exception();
    slot.state = SlotState::kFetched;
    slot.ready = true;
  }
  if (last) {
    expansion_.reset();
    requests_.pop_front();
    ++first_request_;
  }
  return slot;
}

void FetchingReader::pop_front() {
  const Slot& slot = window_.front();
  const std::uint64_t memory = slot.memory_bytes();
  window_bytes_ -= memory;
  overhead_bytes_ -= slot.overhead_bytes;
  if (cursor_ > 0) {
    --cursor_;
    ahead_bytes_ -= memory;
  }
  if (near_ > 0) {
    --near_;
    near_bytes_ -= slot.raw_bytes;
  }
  let_go(slot);
  window_.pop_front();
}

// Of what brought the slot, and is kept for those that have not been given.
void FetchingReader::let_go(const Slot& slot) {
  if (!slot.operation) return;
  Operation& operation = *slot.operation;
  DecodeTask& task = operation.tasks[slot.task];
  if (--task.not_given == 0) {
    task.arena = Arena(0);
    live_bytes_ -= task.memory_bytes;
  }
  if (--operation.not_given == 0) take_buffer(operation);
}

// One error is enough of a record: its other pieces are not given, nor fetched any more.
void FetchingReader::drop_rest(const Slot& failed) {
  dropped_request_ = failed.request;
  if (upcoming_ && upcoming_->request == dropped_request_) upcoming_.reset();
  if (expansion_ && first_request_ == dropped_request_) {
    expansion_.reset();
    requests_.pop_front();
    ++first_request_;
  }
  for (Slot& slot : window_) {
    if (slot.request > dropped_request_) break;
    if (slot.request < dropped_request_) continue;  // given before it
    if (slot.state != SlotState::kWaiting) continue;
    unlink(slot);
    slot.state = SlotState::kFetched;
    slot.ready = true;
  }
}

void FetchingReader::link(Slot& slot) {
  Slot*& first = waiting_[slot.block];
  slot.next_waiting = std::exchange(first, &slot);
}

std::vector<Slot*> FetchingReader::unlink_block(std::uint64_t block) {
  const auto found = waiting_.find(block);
  std::vector<Slot*> slots;
  for (Slot* slot = found->second; slot != nullptr; slot = slot->next_waiting) {
    slots.push_back(slot);
  }
  waiting_.erase(found);
  return slots;
}

void FetchingReader::unlink(Slot& slot) {
  for (Slot* other : unlink_block(slot.block)) {
    if (other != &slot) link(*other);
  }
}

// Keeps operations going. Returns whether it stopped only because too many are under way.
bool FetchingReader::fetch_ahead() {
  settle();
  look_at_busy();
  for (;;) {
    const bool held_back = look_ahead();
    if (decode_cached()) return held_back;
  }
}

// Starts operations for the slots up to the horizon, each with all that the window wants of its
// block and that there is room for; for the first slot in any case. Slots whose block is in the
// cache need none, and a block that can be kept there is fetched as a whole. Returns as
// fetch_ahead().
//
// The horizon is near, so that the window behind it shows what else of a block is wanted: a seventh
// of the budget, some 50 MB, keeps a store busy.
bool FetchingReader::look_ahead() {
  const std::uint64_t horizon = options_.memory_bytes / 7;
  while (cursor_ < window_.size() && (cursor_ == 0 || ahead_bytes_ < horizon)) {
    Slot& slot = window_[cursor_];
    if (slot.state != SlotState::kWaiting) {
      ahead_bytes_ += slot.memory_bytes();
      ++cursor_;
      continue;
    }
    if (is_cached(slot)) {
      for (Slot* one : unlink_block(slot.block)) {
        one->state = SlotState::kCached;
        one->was_there = true;
      }
      continue;
    }
    if (const auto fetched_here = awaiting_.find(slot.block); fetched_here != awaiting_.end()) {
      for (Slot* one : unlink_block(slot.block)) {
        one->state = SlotState::kAwaited;
        fetched_here->second.push_back(one);
      }
      continue;
    }
    {
      const std::lock_guard lock(mutex_);
      if (in_flight_ >= kMaxOperations) return true;
      // Without workers nothing would happen meanwhile, so reading ahead is only waiting.
      if (cursor_ > 0 && workers_.inline_only() && reads_in_place_) return false;
    }
    if (CachedBlocks* const cache = cache_of(slot)) {
      const std::uint64_t bytes = block_bytes(slot);
      if (cursor_ > 0 && bytes > free_bytes()) return false;
      BlockClaim claim;
      switch (cache->claim(slot.block_number(), bytes, claim)) {
        case CachedBlocks::Claim::kMine:
          fetch_block(unlink_block(slot.block), std::move(claim));
          continue;
        case CachedBlocks::Claim::kBusy: {
          std::vector<Slot*> slots = unlink_block(slot.block);
          for (Slot* one : slots) {
            one->state = SlotState::kAwaited;
            one->was_there = true;
          }
          busy_.push_back({std::move(slots), std::chrono::steady_clock::now()});
          continue;
        }
        case CachedBlocks::Claim::kThere:
          if (is_cached(slot)) continue;
          // It has another size, or cannot be mapped: then it is read like any other.
          if (!cache->drop_misfit(slot.block_number(), bytes)) break;
          ++stats_.blocks_damaged;
          continue;
        case CachedBlocks::Claim::kNoRoom:
          break;
      }
    }
    if (cursor_ > 0 && slot.memory_bytes() > free_bytes()) return false;
    // The slot may be left out where there are many: then it starts another one.
    start(affordable(unlink_block(slot.block)));
  }
  return false;
}

// ---- the cache

// Null where its block is not to be taken from a cache.
CachedBlocks* FetchingReader::cache_of(const Slot& slot) const {
  return not_kept_.contains(slot.block) ? nullptr : slot.cache();
}

bool FetchingReader::is_cached(const Slot& slot) const {
  CachedBlocks* const cache = cache_of(slot);
  return cache != nullptr && cache->find(slot.block_number(), block_bytes(slot)) != nullptr;
}

// Starts anew with a slot that was taken care of, in vain.
void FetchingReader::wait_again(Slot& slot) {
  let_go(slot);
  slot.operation.reset();
  slot.state = SlotState::kWaiting;
  slot.was_there = false;
  link(slot);
  cursor_ = near_ = 0;
  ahead_bytes_ = near_bytes_ = 0;
}

// Decodes cached slots that are nearly needed: their bytes are touched just before they are given.
// Returns whether all is well; false: some of them wait again.
bool FetchingReader::decode_cached() {
  const std::uint64_t horizon = kMostGivenBytes + (workers_.threads() + 2) * kDecodeTaskBytes;
  // Not one by one.
  if (near_ > 0 && near_bytes_ + kDecodeTaskBytes > horizon) return true;
  std::vector<Slot*> slots;
  std::shared_ptr<const MappingPin> pin;
  bool all_well = true;
  while (all_well && near_ < cursor_ && (near_ == 0 || near_bytes_ < horizon)) {
    Slot& slot = window_[near_];
    if (slot.state == SlotState::kCached) {
      if (!pin) pin = slot.cache()->pin();
      const std::uint64_t block = slot.block_number();
      const Dataset::Container& container = *slot.record.container;
      if (const std::byte* const at = container.cached->find(block, block_bytes(slot))) {
        slot.cached_block = at;
        slot.stored_at = at + (slot.stored.offset - container.reader->index().block_offset(block));
        slots.push_back(&slot);
      } else {
        // Somebody removed it.
        all_well = false;
        wait_again(slot);
        break;
      }
    }
    near_bytes_ += slot.raw_bytes;
    ++near_;
  }
  if (slots.empty()) return all_well;
  const auto operation = std::make_shared<Operation>();
  operation->kind = OperationKind::kCached;
  operation->sequence = operations_++;
  operation->pin = std::move(pin);
  operation->keep_in_place = true;
  operation->not_given = slots.size();
  for (Slot* slot : slots) {
    slot->state = SlotState::kFetched;
    slot->operation = operation;
  }
  add_tasks(*operation, std::move(slots));
  const std::lock_guard lock(mutex_);
  arrived_.emplace(operation->need, operation);
  call_workers(operation->tasks.size());
  return all_well;
}

// Goes on with slots of whole blocks that arrived, and of those that turned out to be damaged.
void FetchingReader::settle() {
  std::vector<std::shared_ptr<Operation>> ended;
  std::vector<Slot*> damaged;
  {
    const std::lock_guard lock(mutex_);
    ended.swap(ended_);
    damaged.swap(damaged_);
  }
  for (const auto& operation : ended) {
    bool unavailable = false;
    try {
      if (operation->failure) std::rethrow_exception(operation->failure);
    } catch (const Error& error) {
      unavailable = error.code() == ErrorCode::kUnavailable;
    } catch (...) {  // told by who reads its records one by one
    }
    if (operation->kept) {
      ++stats_.blocks_kept;
    } else if (!unavailable) {
      not_kept_.insert(operation->block);
    }
    const auto awaiting = awaiting_.extract(operation->block);
    for (Slot* slot : awaiting.mapped()) {
      if (operation->kept) {
        slot->state = SlotState::kCached;
      } else if (unavailable) {
        slot->state = SlotState::kFetched;
        slot->failure = operation->failure;
        slot->ready = true;
      } else {
        wait_again(*slot);
      }
    }
    near_ = 0;
    near_bytes_ = 0;
  }
  for (Slot* slot : damaged) {
    slot->damaged = false;
    if (slot->cache()->drop(slot->block_number(), slot->cached_block)) ++stats_.blocks_damaged;
    // A block that is damaged again and again is not the cache's fault.
    if (++slot->damages > 1) not_kept_.insert(slot->block);
    wait_again(*slot);
  }
}

// Blocks that other processes fetch: whether they are there, or nobody fetches them any more, or it
// has taken too long.
void FetchingReader::look_at_busy() {
  if (busy_.empty()) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - looked_at_busy_ < kLookAtBusy) return;
  looked_at_busy_ = now;
  std::vector<Busy> busy;
  busy.swap(busy_);
  for (Busy& one : busy) {
    Slot& first = *one.slots.front();
    if (is_cached(first)) {
      for (Slot* slot : one.slots) slot->state = SlotState::kCached;
      near_ = 0;
      near_bytes_ = 0;
      continue;
    }
    CachedBlocks* const cache = cache_of(first);
    if (cache == nullptr || awaiting_.contains(first.block)) {
      for (Slot* slot : one.slots) wait_again(*slot);
      continue;
    }
    // As others, it is fetched here only while there is room; what is needed now, in any case.
    const std::uint64_t bytes = block_bytes(first);
    const bool is_front =
        std::find(one.slots.begin(), one.slots.end(), &window_.front()) != one.slots.end();
    const auto may_fetch = [&] {
      const std::lock_guard lock(mutex_);
      return is_front || (in_flight_ < kMaxOperations && bytes <= free_bytes());
    };
    if (!may_fetch()) {
      busy_.push_back(std::move(one));
      continue;
    }
    BlockClaim claim;
    const auto claimed = cache->claim(first.block_number(), bytes, claim);
    if (claimed == CachedBlocks::Claim::kBusy && now - one.since <= kLongestBusy) {
      busy_.push_back(std::move(one));
    } else if (claimed == CachedBlocks::Claim::kMine || claimed == CachedBlocks::Claim::kBusy) {
      fetch_block(std::move(one.slots), std::move(claim));
    } else {
      for (Slot* slot : one.slots) wait_again(*slot);
    }
  }
}

// Fetches the block of the slots into the cache.
void FetchingReader::fetch_block(std::vector<Slot*> slots, BlockClaim claim) {
  const Slot& first =
      **std::min_element(slots.begin(), slots.end(),
                         [](const Slot* a, const Slot* b) { return is_needed_before(a, b); });
  const Dataset::Container& container = *first.record.container;
  const auto operation = std::make_shared<Operation>();
  Operation& op = *operation;
  op.kind = OperationKind::kWholeBlock;
  op.need = first.request;
  op.block = first.block;
  op.first = &first;
  op.source = &container.reader->source();
  op.ranges = {{container.reader->index().block_offset(first.block_number()), block_bytes(first)}};
  op.buffer = memory_.take(op.ranges.front().bytes);
  op.claim = std::move(claim);
  for (Slot* slot : slots) {
    slot->state = SlotState::kAwaited;
    slot->was_there = false;
  }
  awaiting_[op.block] = std::move(slots);
  launch(operation);
}

// Keeps a whole block that has arrived, if it is what the index says.
void FetchingReader::keep(const std::shared_ptr<Operation>& operation) {
  Operation& op = *operation;
  if (!op.failure) {
    const Slot& slot = *op.first;
    const Dataset::Container& container = *slot.record.container;
    const std::uint64_t block = slot.block_number();
    const std::uint32_t expected = container.reader->index().block(block).crc32c;
    op.kept = container.cached->keep(op.claim, block, op.buffer.bytes(), expected) ==
              CachedBlocks::Kept::kKept;
  }
  op.claim = BlockClaim();
  ReadMemory::Piece unused;
  const std::lock_guard lock(mutex_);
  unused = take_buffer(op);
  ended_.push_back(operation);
  progress_.notify_one();
}

// The slots of a block that are needed first, as far as there is room, and one in any case; the
// others wait on.
std::vector<Slot*> FetchingReader::affordable(std::vector<Slot*> slots) {
  std::sort(slots.begin(), slots.end(), is_needed_before);
  const std::uint64_t room = free_bytes();
  std::uint64_t bytes = slots.front()->memory_bytes();
  std::size_t count = 1;
  while (count < slots.size() && bytes + slots[count]->memory_bytes() <= room)
    bytes += slots[count++]->memory_bytes();
  for (std::size_t i = count; i < slots.size(); ++i) link(*slots[i]);
  slots.resize(count);
  return slots;
}

// One operation for slots of one block, or for the first of them where there are too many.
void FetchingReader::start(std::vector<Slot*> slots) {
  std::sort(slots.begin(), slots.end(),
            [](const Slot* a, const Slot* b) { return a->stored.offset < b->stored.offset; });
  std::vector<ByteRange> wanted;
  wanted.reserve(slots.size());
  for (const Slot* slot : slots) wanted.push_back(slot->stored);

  ReadPlan plan = plan_read(wanted, kLargestGapBytes);
  if (planned_bytes(plan, wanted) + extra_bytes(plan, wanted) > free_bytes()) {
    plan = plan_read(wanted, 0);
  }
  const std::size_t planned = plan.positions.size();
  for (std::size_t i = planned; i < slots.size(); ++i) link(*slots[i]);
  slots.resize(planned);
  const auto operation = std::make_shared<Operation>();
  Operation& op = *operation;
  op.source = &slots.front()->record.container->reader->source();
  op.ranges = std::move(plan.ranges);
  op.keep_in_place = is_dense(plan, wanted);
  op.not_given = planned;
  for (Slot* slot : slots) {
    slot->state = SlotState::kFetched;
    slot->operation = operation;
  }
  op.buffer = memory_.take(plan.bytes);
  for (std::size_t i = 0; i < planned; ++i)
    slots[i]->stored_at = op.buffer.bytes().data() + plan.positions[i];
  add_tasks(op, std::move(slots));
  launch(operation);
}

// Reads what an operation asks for into its buffer.
void FetchingReader::launch(const std::shared_ptr<Operation>& operation) {
  Operation& op = *operation;
  op.sequence = operations_++;
  live_bytes_ += op.buffer.capacity();
  ++stats_.operations;
  stats_.ranges += op.ranges.size();
  stats_.read_bytes += op.buffer.bytes().size();

  bool in_place = false;
  {
    const std::lock_guard lock(mutex_);
    stats_.most_in_flight = std::max<std::uint64_t>(stats_.most_in_flight, ++in_flight_);
    under_way_.emplace(op.sequence, std::chrono::steady_clock::now());
    in_place = reads_in_place_;
  }
  if (in_place && !workers_.inline_only()) {
    workers_.run([this, operation] {
      read(operation);
      work_off(false);
    });
  } else {
    const WaitingTime time(stats_.waited_ns);
    read(operation);
  }
}

void FetchingReader::add_tasks(Operation& operation, std::vector<Slot*> slots) {
  std::sort(slots.begin(), slots.end(), is_needed_before);
  operation.need = slots.front()->request;
  std::uint64_t raw_bytes = kDecodeTaskBytes;
  for (Slot* slot : slots) {
    if (raw_bytes >= kDecodeTaskBytes) {
      operation.tasks.emplace_back();
      raw_bytes = 0;
    }
    raw_bytes += slot->raw_bytes;
    slot->task = operation.tasks.size() - 1;
    DecodeTask& task = operation.tasks.back();
    task.slots.push_back(slot);
    task.memory_bytes +=
        operation.keep_in_place ? slot->decoded_bytes() : round_up(slot->raw_bytes, kArenaAlign);
  }
  operation.tasks_left = operation.tasks.size();
  for (DecodeTask& task : operation.tasks) {
    task.not_given = task.slots.size();
    task.arena = Arena(task.memory_bytes);
    live_bytes_ += task.memory_bytes;
  }
}

void FetchingReader::read(const std::shared_ptr<Operation>& operation) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) {
      --in_flight_;
      under_way_.erase(operation->sequence);
      progress_.notify_one();
      return;
    }
  }
  std::vector<ReadRange> ranges;
  MutableBytes left = operation->buffer.bytes();
  for (const ByteRange& range : operation->ranges) {
    ranges.push_back({range.offset, left.first(range.bytes)});
    left = left.subspan(range.bytes);
  }
  operation->source->start_read(
      ranges, [this, operation, starter = std::this_thread::get_id()](std::exception_ptr failure) {
        on_read(operation, std::move(failure), std::this_thread::get_id() == starter);
      });
}

// In a thread of the store: hands over to workers, or to the consumer. All of it with the lock
// held: the reader may go away as soon as nothing is in flight.
void FetchingReader::on_read(const std::shared_ptr<Operation>& operation,
                             std::exception_ptr failure, bool in_place) {
  const std::lock_guard lock(mutex_);
  operation->failure = std::move(failure);
  arrived_.emplace(operation->need, operation);
  reads_in_place_ = in_place;
  --in_flight_;
  under_way_.erase(operation->sequence);
  call_workers(std::max<std::size_t>(1, operation->tasks.size()));
  progress_.notify_one();
}

// With the lock held.
void FetchingReader::call_workers(std::size_t tasks) {
  if (workers_.inline_only() || stopping_) return;
  for (; tasks > 0 && helpers_ < workers_.threads(); --tasks) {
    ++helpers_;
    workers_.run([this] { work_off(true); });
  }
}

// What is needed first of all that has arrived, if anything. With the lock held.
FetchingReader::Work FetchingReader::next_work() {
  if (stopping_ || arrived_.empty()) return {};
  const auto first = arrived_.begin();
  Work work{first->second};
  Operation& operation = *work.operation;
  if (!operation.tasks.empty()) work.task = &operation.tasks[operation.next_task++];
  if (operation.next_task == operation.tasks.size()) arrived_.erase(first);
  return work;
}

void FetchingReader::carry_out(const Work& work) {
  if (work.task == nullptr) {
    keep(work.operation);
  } else {
    decode(*work.operation, *work.task);
  }
}

// `called`: by call_workers().
void FetchingReader::work_off(bool called) {
  for (;;) {
    Work work;
    {
      const std::lock_guard lock(mutex_);
      work = next_work();
      if (!work) {
        if (called) --helpers_;
        return;
      }
    }
    carry_out(work);
  }
}

ReadMemory::Piece FetchingReader::take_buffer(Operation& operation) {
  live_bytes_ -= operation.buffer.capacity();
  return std::move(operation.buffer);
}

void FetchingReader::decode(Operation& operation, DecodeTask& task) {
  bool buffer_is_used = false;
  for (std::size_t i = 0; i < task.slots.size(); ++i) {
    if (i + kPrefetchRecords < task.slots.size()) {
      const Slot& soon = *task.slots[i + kPrefetchRecords];
      prefetch_slot({soon.stored_at, soon.stored.bytes});
    }
    buffer_is_used |= decode(operation, *task.slots[i], task.arena);
  }

  ReadMemory::Piece unused;
  {
    const std::lock_guard lock(mutex_);
    operation.buffer_is_used |= buffer_is_used;
    if (--operation.tasks_left == 0 && !operation.buffer_is_used) unused = take_buffer(operation);
    for (Slot* slot : task.slots) {
      if (operation.kind == OperationKind::kCached && slot->damaged) {
        slot->failure = nullptr;
        damaged_.push_back(slot);
      } else {
        slot->ready = true;
      }
    }
    if (awaited_ != nullptr && (awaited_->ready || !damaged_.empty())) progress_.notify_one();
  }
}

// Returns whether the record lies in the operation's buffer.
bool FetchingReader::decode(const Operation& operation, Slot& slot, Arena& arena) const {
  try {
    if (operation.failure) std::rethrow_exception(operation.failure);
    const ContainerReader& reader = *slot.record.container->reader;
    const ByteView bytes(slot.stored_at, slot.stored.bytes);
    std::string key = slot.key;
    if (key.empty() && (with_keys_ || slot.in_pieces())) dataset_.key_of(slot.number, key);
    VerifiedSlot verified;
    if (slot.in_pieces()) {
      verified = verify_piece(bytes, slot.record.place.block + slot.piece, slot.piece,
                              slot.record.record_bytes, key);
    } else {
      verified = key.empty() ? verify_slot(bytes) : verify_slot(bytes, key_hash(key));
    }
    const DecodedSlot decoded = decode_slot(reader, verified, slot.raw_bytes, arena);
    slot.bytes = decoded.bytes;
    slot.crc32c = decoded.crc32c;
    if (decoded.in_place && !operation.keep_in_place) {
      const MutableBytes copy = arena.allocate(decoded.bytes.size());
      std::copy(decoded.bytes.begin(), decoded.bytes.end(), copy.begin());
      slot.bytes = copy;
    }
    slot.immutable = decoded.in_place && operation.kind == OperationKind::kCached;
    if (with_keys_) slot.key = std::move(key);
    return decoded.in_place && operation.keep_in_place;
  } catch (const Error& error) {
    slot.damaged = error.code() == ErrorCode::kCorrupt || error.code() == ErrorCode::kTruncated;
    slot.failure = std::current_exception();
  } catch (...) {
    slot.failure = std::current_exception();
  }
  return false;
}

// Waits until the first slot of the window is ready, and keeps operations going meanwhile. Rather
// than sleep, the consumer decodes as well.
void FetchingReader::await_front() {
  for (;;) {
    const bool held_back = fetch_ahead();
    std::unique_lock lock(mutex_);
    const Slot& front = window_.front();
    if (front.ready) return;
    Work work;
    // To keep blocks is left to workers, if there are any: it takes long.
    const bool can_work =
        !arrived_.empty() && (workers_.inline_only() || !arrived_.begin()->second->tasks.empty());
    if (can_work) {
      work = next_work();
    } else {
      const auto can_go_on = [&] {
        return front.ready || (workers_.inline_only() && !arrived_.empty()) || !ended_.empty() ||
               !damaged_.empty() || (held_back && in_flight_ < kMaxOperations);
      };
      const WaitingTime time(stats_.waited_ns);
      awaited_ = &front;
      if (busy_.empty() && !options_.while_waiting) {
        progress_.wait(lock, can_go_on);
      } else {
        progress_.wait_for(lock, busy_.empty() ? kTellAgain : kLookAtBusy, can_go_on);
      }
      awaited_ = nullptr;
    }
    lock.unlock();
    if (work) carry_out(work);
    if (options_.while_waiting) options_.while_waiting();
  }
}

// Whether it is there for the consumer: not only to be checked, nor of a record that has failed.
bool FetchingReader::is_wanted(const Slot& slot) const noexcept {
  return (!slot.check_only || slot.failure) && slot.request != dropped_request_;
}

std::size_t FetchingReader::next(std::span<RecordPiece> pieces) {
  error_.reset();
  for (; given_ > 0; --given_) pop_front();
  for (;;) {
    fill();
    if (window_.empty()) return 0;
    await_front();
    if (is_wanted(window_.front())) break;
    pop_front();
  }
  std::size_t ready = 0;
  {
    const std::lock_guard lock(mutex_);
    const std::size_t most = std::min(pieces.size(), window_.size());
    for (std::uint64_t bytes = 0; ready < most && bytes < kMostGivenBytes; ++ready) {
      if (!window_[ready].ready) break;
      bytes += window_[ready].raw_bytes;
    }
  }
  while (given_ < ready && is_wanted(window_[given_])) {
    RecordPiece& piece = pieces[given_];
    give(window_[given_++], piece);
    if (piece.error != nullptr) break;
  }
  return given_;
}

ReaderStats FetchingReader::stats() const noexcept {
  ReaderStats stats = stats_;
  const std::lock_guard lock(mutex_);
  stats.in_flight = in_flight_;
  if (!under_way_.empty()) {
    // Numbered as they started.
    const std::chrono::nanoseconds age =
        std::chrono::steady_clock::now() - under_way_.begin()->second;
    stats.oldest_ns = static_cast<std::uint64_t>(age.count());
  }
  return stats;
}

void FetchingReader::give(Slot& slot, RecordPiece& piece) {
  piece = RecordPiece{};
  piece.number = slot.number;
  piece.record_bytes = slot.record.record_bytes;
  if (slot.failure) {
    give_error(slot, piece);
  } else {
    piece.offset =
        slot.in_pieces() ? slot.piece * slot.record.container->reader->header().piece_bytes : 0;
    piece.bytes = slot.bytes;
    piece.crc32c = slot.crc32c;
    piece.last = slot.last;
    piece.immutable = slot.immutable;
    if (slot.immutable) piece.kept = slot.operation->pin;
    if (slot.record.container->cached) ++(slot.was_there ? stats_.cache_hits : stats_.cache_misses);
    if (slot.operation->kind == OperationKind::kCached) stats_.cache_bytes += slot.stored.bytes;
    stats_.bytes += slot.bytes.size();
    stats_.stored_bytes += slot.stored.bytes;
    if (piece.last) ++stats_.records;
  }
  piece.key = slot.key;
  if (piece.last) --pending_;
}

void FetchingReader::give_error(Slot& slot, RecordPiece& piece) {
  try {
    std::rethrow_exception(slot.failure);
  } catch (const Error& e) {
    try {
      if (with_keys_ && slot.key.empty() && slot.number < dataset_.records()) {
        dataset_.key_of(slot.number, slot.key);
      }
    } catch (const Error&) {  // the index is damaged as well
    }
    error_ = record_error(dataset_, slot.number, slot.key, e, slot.piece);
  }
  piece.error = &*error_;
  ++stats_.failed;
  if (slot.in_pieces()) drop_rest(slot);
}

}  // namespace

std::unique_ptr<ReaderState> make_fetching_reader(const Dataset& dataset,
                                                  const ReaderOptions& options, bool with_keys) {
  return std::make_unique<FetchingReader>(dataset, options, with_keys);
}

}  // namespace sml
