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
#include <utility>
#include <vector>

#include "ordered_tasks.h"
#include "read_memory.h"
#include "read_plan.h"
#include "smlformat/frames.h"
#include "smlformat/key.h"

namespace sml {
namespace {

// Operations under way at a time: some milliseconds each, of which most is waiting for disks, so
// that several disks are kept busy; more would only wait for one another.
constexpr std::size_t kMaxOperations = 32;
// What a slot takes beside its bytes and its key: itself, and its place among those of its block.
constexpr std::uint64_t kSlotOverhead = 320;
// Raw bytes that one worker decodes at a time: some 0.2 ms, far more than it takes to wake it.
constexpr std::uint64_t kDecodeTaskBytes = 256U << 10;
// Arenas round up to it.
constexpr std::uint64_t kArenaAlign = 16;

struct Operation;

// A record, or one piece of a large one, in the window.
struct Slot {
  std::uint64_t request = 0;  // counts requests: pieces of one record share it
  std::uint64_t number = kNoNumber;
  std::string key;
  LocatedRecord record;
  std::uint64_t piece = 0;
  bool check_only = false;  // a piece that is not given, only checked
  std::uint64_t block = 0;  // among those of all containers
  ByteRange stored;
  std::uint64_t raw_bytes = 0;
  std::uint64_t overhead_bytes = 0;  // beside the record's

  // Whether an operation was started for it, or none is needed; until then, the next one of its
  // block.
  bool fetched = false;
  Slot* next_unfetched = nullptr;

  // What fetches it, and keeps its bytes.
  std::shared_ptr<Operation> operation;
  std::size_t task = 0;        // of the operation
  std::uint64_t position = 0;  // in the operation's buffer

  // The outcome, once it is ready.
  ByteView bytes;
  std::uint32_t crc32c = 0;
  std::exception_ptr failure;
  bool ready = false;

  bool in_pieces() const noexcept { return record.place.pieces > 1; }
  // What it takes when it is decoded. Compressed records are smaller than raw ones, so what is as
  // large is stored as it is and stays where it was read.
  std::uint64_t decoded_bytes() const noexcept {
    return stored.bytes >= SlotPrefix::kBytes + raw_bytes ? 0 : round_up(raw_bytes, kArenaAlign);
  }
  std::uint64_t memory_bytes() const noexcept { return stored.bytes + decoded_bytes(); }
};
static_assert(sizeof(Slot) + 8 * sizeof(void*) <= kSlotOverhead);

bool is_needed_before(const Slot* a, const Slot* b) noexcept {
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

// Slots of one block that are read together.
struct Operation {
  std::uint64_t sequence = 0;  // in the order of need
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
};

std::uint64_t planned_bytes(const ReadPlan& plan, const std::vector<ByteRange>& wanted) {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < plan.positions.size(); ++i) bytes += wanted[i].bytes;
  return bytes;
}

// Whether what is read for gaps is little enough to be kept with the records.
bool is_dense(const ReadPlan& plan, const std::vector<ByteRange>& wanted) {
  const std::uint64_t bytes = planned_bytes(plan, wanted);
  return plan.bytes <= bytes + bytes / 4;
}

// Memory that a plan takes beyond what is wanted. Unless it is dense, records are copied.
std::uint64_t extra_bytes(const ReadPlan& plan, const std::vector<ByteRange>& wanted) {
  if (!is_dense(plan, wanted)) return plan.bytes;
  return plan.bytes - std::min(plan.bytes, planned_bytes(plan, wanted));
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

class FetchingReader final : public ReaderState {
 public:
  FetchingReader(const Dataset& dataset, const ReaderOptions& options, bool with_keys);
  ~FetchingReader() override;

  void request(RecordRequest request) override;
  bool wants_more() const noexcept override {
    return pending_ == 0 || (!upcoming_ && requests_.empty());
  }
  std::uint64_t pending() const noexcept override { return pending_; }
  bool next(RecordPiece& piece) override;
  ReaderStats stats() const noexcept override { return stats_; }

 private:
  // A record whose slots come into the window one after another.
  struct Expansion {
    LocatedRecord record;
    std::uint64_t next_piece = 0;
    bool checking = false;
  };

  // The window.
  void fill();
  Slot next_slot();
  void pop_front();
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

  // Fetching.
  bool fetch_ahead();
  std::vector<Slot*> affordable(std::vector<Slot*> slots);
  void start(std::vector<Slot*> slots);
  void add_tasks(Operation& operation, std::vector<Slot*> slots);
  void read(const std::shared_ptr<Operation>& operation);
  void on_read(const std::shared_ptr<Operation>& operation, std::exception_ptr failure,
               bool in_place);
  bool work();
  void work_off() {
    while (work()) {
    }
  }
  void decode(Operation& operation, DecodeTask& task);
  bool decode(const Operation& operation, Slot& slot, Arena& arena) const;
  ReadMemory::Piece take_buffer(Operation& operation);

  // Giving.
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
  bool given_ = false;       // the first of them, and still in use by the consumer
  std::size_t cursor_ = 0;   // slots of the window before it are fetched
  std::uint64_t dropped_request_ = ~std::uint64_t{0};  // its slots are not given
  std::unordered_map<std::uint64_t, Slot*> unfetched_;

  // memory_bytes() of slots: all of the window, those before the cursor.
  std::uint64_t window_bytes_ = 0;
  std::uint64_t ahead_bytes_ = 0;
  std::uint64_t overhead_bytes_ = 0;
  std::atomic<std::uint64_t> live_bytes_ = 0;  // of operations and their tasks
  ReadMemory memory_;

  std::optional<Error> error_;  // of what was given last
  ReaderStats stats_;
  std::uint64_t operations_ = 0;

  std::mutex mutex_;  // guards what follows, Slot::ready and the tasks of operations
  std::condition_variable progress_;
  std::size_t in_flight_ = 0;
  std::map<std::uint64_t, std::shared_ptr<Operation>> arrived_;  // to decode, by sequence
  bool reads_in_place_ = false;  // the source is near: whoever starts a read carries it out
  bool stopping_ = false;

  Workers workers_;
};

FetchingReader::FetchingReader(const Dataset& dataset, const ReaderOptions& options, bool with_keys)
    : dataset_(dataset),
      options_(options),
      with_keys_(with_keys),
      memory_(options.memory_bytes),
      workers_(options.threads) {
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
    if (!slot.fetched) link(slot);
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
      expansion_ = Expansion{locate_record(dataset_, slot.number), 0, false};
      expansion_->checking = options_.whole_records && expansion_->record.place.pieces > 1;
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
      last = from.next_piece == from.record.place.pieces && !from.checking;
      if (from.next_piece == from.record.place.pieces) {
        from.next_piece = 0;
        from.checking = false;
      }
    }
  } catch (...) {
    slot.failure = std::current_exception();
    slot.fetched = slot.ready = true;
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
  if (slot.operation) {
    DecodeTask& task = slot.operation->tasks[slot.task];
    if (--task.not_given == 0) {
      task.arena = Arena(0);
      live_bytes_ -= task.memory_bytes;
    }
    if (--slot.operation->not_given == 0) take_buffer(*slot.operation);
  }
  window_.pop_front();
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
    if (slot.request != dropped_request_) break;
    if (slot.fetched) continue;
    unlink(slot);
    slot.fetched = slot.ready = true;
  }
}

void FetchingReader::link(Slot& slot) {
  Slot*& first = unfetched_[slot.block];
  slot.next_unfetched = std::exchange(first, &slot);
}

std::vector<Slot*> FetchingReader::unlink_block(std::uint64_t block) {
  const auto found = unfetched_.find(block);
  std::vector<Slot*> slots;
  for (Slot* slot = found->second; slot != nullptr; slot = slot->next_unfetched) {
    slots.push_back(slot);
  }
  unfetched_.erase(found);
  return slots;
}

void FetchingReader::unlink(Slot& slot) {
  for (Slot* other : unlink_block(slot.block)) {
    if (other != &slot) link(*other);
  }
}

// Starts operations for the slots up to the horizon, each with all that the window wants of its
// block and that there is room for; for the first slot in any case. Returns whether it stopped only
// because too many are under way.
//
// The horizon is near, so that the window behind it shows what else of a block is wanted: a seventh
// of the budget, some 50 MB, keeps a store busy.
bool FetchingReader::fetch_ahead() {
  const std::uint64_t horizon = options_.memory_bytes / 7;
  while (cursor_ < window_.size() && (cursor_ == 0 || ahead_bytes_ < horizon)) {
    Slot& slot = window_[cursor_];
    if (!slot.fetched) {
      {
        const std::lock_guard lock(mutex_);
        if (in_flight_ == kMaxOperations) return true;
        // Without workers nothing would happen meanwhile, so reading ahead is only waiting.
        if (cursor_ > 0 && workers_.inline_only() && reads_in_place_) return false;
      }
      if (cursor_ > 0 && slot.memory_bytes() > free_bytes()) return false;
      // The slot may be left out where there are many: then it starts another one.
      start(affordable(unlink_block(slot.block)));
      continue;
    }
    ahead_bytes_ += slot.memory_bytes();
    ++cursor_;
  }
  return false;
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
  for (std::size_t i = 0; i < planned; ++i) {
    Slot& slot = *slots[i];
    slot.fetched = true;
    slot.operation = operation;
    slot.position = plan.positions[i];
  }
  op.sequence = operations_++;
  op.source = &slots.front()->record.container->reader->source();
  op.ranges = std::move(plan.ranges);
  op.buffer = memory_.take(plan.bytes);
  live_bytes_ += op.buffer.capacity();
  op.keep_in_place = is_dense(plan, wanted);
  op.not_given = planned;
  add_tasks(op, std::move(slots));
  ++stats_.operations;
  stats_.ranges += op.ranges.size();
  stats_.read_bytes += plan.bytes;

  bool in_place = false;
  {
    const std::lock_guard lock(mutex_);
    stats_.most_in_flight = std::max<std::uint64_t>(stats_.most_in_flight, ++in_flight_);
    in_place = reads_in_place_;
  }
  if (in_place && !workers_.inline_only()) {
    workers_.run([this, operation] {
      read(operation);
      work_off();
    });
  } else {
    const WaitingTime time(stats_.waited_ns);
    read(operation);
  }
}

void FetchingReader::add_tasks(Operation& operation, std::vector<Slot*> slots) {
  std::sort(slots.begin(), slots.end(), is_needed_before);
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
  arrived_.emplace(operation->sequence, operation);
  reads_in_place_ = in_place;
  --in_flight_;
  if (!workers_.inline_only() && !stopping_) {
    const std::size_t helpers = std::min<std::size_t>(operation->tasks.size(), workers_.threads());
    for (std::size_t i = 0; i < helpers; ++i) {
      workers_.run([this] { work_off(); });
    }
  }
  progress_.notify_one();
}

// Decodes what is needed first of all that has arrived; false where there is nothing to do.
bool FetchingReader::work() {
  std::shared_ptr<Operation> operation;
  DecodeTask* task = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || arrived_.empty()) return false;
    operation = arrived_.begin()->second;
    task = &operation->tasks[operation->next_task++];
    if (operation->next_task == operation->tasks.size()) arrived_.erase(arrived_.begin());
  }
  decode(*operation, *task);
  return true;
}

ReadMemory::Piece FetchingReader::take_buffer(Operation& operation) {
  live_bytes_ -= operation.buffer.capacity();
  return std::move(operation.buffer);
}

void FetchingReader::decode(Operation& operation, DecodeTask& task) {
  bool buffer_is_used = false;
  for (Slot* slot : task.slots) buffer_is_used |= decode(operation, *slot, task.arena);

  ReadMemory::Piece unused;
  {
    const std::lock_guard lock(mutex_);
    operation.buffer_is_used |= buffer_is_used;
    if (--operation.tasks_left == 0 && !operation.buffer_is_used) unused = take_buffer(operation);
    for (Slot* slot : task.slots) slot->ready = true;
    progress_.notify_one();
  }
}

// Returns whether the record lies in the operation's buffer.
bool FetchingReader::decode(const Operation& operation, Slot& slot, Arena& arena) const {
  try {
    if (operation.failure) std::rethrow_exception(operation.failure);
    const ContainerReader& reader = *slot.record.container->reader;
    const ByteView bytes =
        ByteView(operation.buffer.bytes()).subspan(slot.position, slot.stored.bytes);
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
    if (with_keys_) slot.key = std::move(key);
    return decoded.in_place && operation.keep_in_place;
  } catch (...) {
    slot.failure = std::current_exception();
    return false;
  }
}

// Waits until the first slot of the window is ready, and keeps operations going meanwhile.
void FetchingReader::await_front() {
  for (;;) {
    const bool held_back = fetch_ahead();
    std::unique_lock lock(mutex_);
    const Slot& front = window_.front();
    if (front.ready) return;
    // Without workers the consumer decodes.
    const auto can_work = [&] { return workers_.inline_only() && !arrived_.empty(); };
    if (!can_work()) {
      const WaitingTime time(stats_.waited_ns);
      progress_.wait(lock, [&] {
        return front.ready || can_work() || (held_back && in_flight_ < kMaxOperations);
      });
    }
    lock.unlock();
    if (workers_.inline_only()) work();
  }
}

bool FetchingReader::next(RecordPiece& piece) {
  error_.reset();
  if (std::exchange(given_, false)) pop_front();
  for (;;) {
    fill();
    if (window_.empty()) return false;
    await_front();
    Slot& slot = window_.front();
    const bool passed = slot.check_only && !slot.failure;
    if (!passed && slot.request != dropped_request_) {
      give(slot, piece);
      return true;
    }
    pop_front();
  }
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
    piece.last = slot.piece + 1 == slot.record.place.pieces;
    stats_.bytes += slot.bytes.size();
    stats_.stored_bytes += slot.stored.bytes;
    if (piece.last) ++stats_.records;
  }
  piece.key = slot.key;
  if (piece.last) --pending_;
  given_ = true;
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
