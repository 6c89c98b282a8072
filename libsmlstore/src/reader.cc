#include "smlstore/reader.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "ordered_tasks.h"
#include "record_fetch.h"
#include "smlformat/frames.h"

namespace sml {
namespace {

// Requests that one task serves, at first and at most, and what it may hold in memory for them. How
// many records that is shows in the batches that come back.
constexpr std::size_t kFirstBatchRequests = 4;
constexpr std::size_t kMaxBatchRequests = 64;
constexpr std::size_t kBatchBytes = 1U << 20;

struct Batch {
  std::vector<RecordRequest> requests;
  std::vector<FetchedRecord> records;
  std::size_t fetched = 0;  // the first `fetched` records are there
  Arena arena;
};

}  // namespace

struct Reader::State {
  State(const Dataset& the_dataset, const ReaderOptions& the_options, bool keys)
      : dataset(the_dataset),
        options(the_options),
        with_keys(keys),
        workers(options.threads),
        batches(workers),
        pieces(workers) {
    std::uint64_t largest_block = 0;
    for (const auto& c : dataset.containers()) {
      largest_block = std::max<std::uint64_t>(largest_block, c.reader->header().block_bytes);
    }
    // Half of the budget is for batches, half for pieces. A batch holds at most kBatchBytes and one
    // record more, a piece its block; both stored and decoded. Beside those ahead, the one being
    // given is held. One of each is always allowed.
    const std::uint64_t half = options.memory_bytes / 2;
    const auto ahead = [half](std::uint64_t bytes, std::uint64_t wanted) {
      const std::uint64_t fit = half / std::max<std::uint64_t>(1, bytes);
      return std::clamp<std::uint64_t>(fit > 0 ? fit - 1 : 0, 1, wanted);
    };
    const std::uint64_t threads = workers.inline_only() ? 0 : workers.threads();
    batches_ahead = ahead(kBatchBytes + 2 * largest_block, std::max<std::uint64_t>(1, 4 * threads));
    pieces_ahead = ahead(2 * largest_block, std::max<std::uint64_t>(1, 2 * threads));
  }

  void add(RecordRequest request);
  void dispatch();
  bool advance();
  void fetch(Batch& batch) const;
  void learn(const Batch& batch);
  void give(RecordPiece& piece);
  void open_pieces();
  void submit_piece();
  void give_piece(RecordPiece& piece);
  void give_error(RecordPiece& piece, Error e);

  const Dataset& dataset;
  ReaderOptions options;
  bool with_keys;
  std::uint64_t batches_ahead = 1;
  std::uint64_t pieces_ahead = 1;
  std::size_t batch_requests = kFirstBatchRequests;
  ReaderStats stats;
  std::uint64_t pending = 0;

  std::unique_ptr<Batch> open;     // collects requests
  std::unique_ptr<Batch> current;  // being given
  std::size_t next_record = 0;     // of `current`
  std::vector<std::unique_ptr<Batch>> idle;

  // The record in pieces that is being given, if any.
  bool in_pieces = false;
  std::uint64_t piece_count = 0;
  std::uint64_t next_piece = 0;  // to give
  std::uint64_t submitted = 0;
  FetchedPiece piece_given;
  std::optional<Error> error;  // of what was given last

  Workers workers;
  OrderedTasks<std::unique_ptr<Batch>> batches;
  OrderedTasks<FetchedPiece> pieces;
};

void Reader::State::fetch(Batch& batch) const {
  const auto requests = std::span(batch.requests).subspan(batch.fetched);
  const auto records = std::span(batch.records).subspan(batch.fetched);
  batch.fetched += fetch_records(dataset, requests, with_keys, kBatchBytes, batch.arena, records);
}

void Reader::State::add(RecordRequest request) {
  ++pending;
  if (!open) {
    if (idle.empty()) {
      open = std::make_unique<Batch>();
    } else {
      open = std::move(idle.back());
      idle.pop_back();
    }
  }
  open->requests.push_back(std::move(request));
  if (open->requests.size() >= batch_requests) dispatch();
}

// Adapts the size of batches to the memory that records take: what is beyond kBatchBytes would be
// fetched late, by one thread.
void Reader::State::learn(const Batch& batch) {
  const std::size_t bytes_each = batch.arena.used() / std::max<std::size_t>(1, batch.fetched);
  const std::size_t fit = std::clamp<std::size_t>(
      kBatchBytes / std::max<std::size_t>(1, bytes_each), 1, kMaxBatchRequests);
  batch_requests = std::min(fit, 2 * batch_requests);
}

void Reader::State::dispatch() {
  batches.submit([this, batch = std::move(open)]() mutable {
    batch->records.resize(batch->requests.size());
    fetch(*batch);
    return std::move(batch);
  });
  open.reset();
}

// Makes `current` a batch with a record to give; false where nothing is pending.
bool Reader::State::advance() {
  if (current && next_record < current->requests.size()) {
    if (next_record == current->fetched) {
      // The batch was larger than it may be in memory. What was fetched has been given, so its
      // memory is free.
      current->arena.reset();
      fetch(*current);
    }
    return true;
  }
  if (current) {
    current->requests.clear();
    current->fetched = 0;
    current->arena.reset();
    if (idle.size() <= batches_ahead) idle.push_back(std::move(current));
    current.reset();
  }
  if (batches.empty()) {
    if (!open) return false;
    // Nothing is under way: the shortest way is to fetch here.
    current = std::move(open);
    current->records.resize(current->requests.size());
    fetch(*current);
  } else {
    current = batches.take();
    // Nobody else would start on the rest.
    if (batches.empty() && open && !workers.inline_only()) dispatch();
  }
  learn(*current);
  next_record = 0;
  return true;
}

void Reader::State::give(RecordPiece& piece) {
  FetchedRecord& record = current->records[next_record];
  piece = RecordPiece{};
  piece.number = record.number;
  piece.key = record.key;
  piece.record_bytes = record.record_bytes;
  if (record.error) return give_error(piece, std::move(*record.error));
  if (record.pieces > 1) {
    open_pieces();
    return give_piece(piece);
  }
  piece.bytes = record.bytes;
  piece.crc32c = record.crc32c;
  piece.immutable = record.immutable;
  stats.stored_bytes += record.slot_bytes;
  stats.bytes += record.bytes.size();
  ++stats.records;
  --pending;
  ++next_record;
}

void Reader::State::give_error(RecordPiece& piece, Error e) {
  error = std::move(e);
  piece.error = &*error;
  piece.last = true;
  piece.bytes = {};
  in_pieces = false;
  while (!pieces.empty()) {
    try {
      pieces.take();
    } catch (const Error&) {  // one error tells enough of a record
    }
  }
  ++stats.failed;
  --pending;
  ++next_record;
}

void Reader::State::submit_piece() {
  pieces.submit([this, number = current->records[next_record].number, piece = submitted++] {
    return fetch_piece(dataset, number, piece);
  });
}

void Reader::State::open_pieces() {
  in_pieces = true;
  piece_count = current->records[next_record].pieces;
  next_piece = 0;
  submitted = 0;
}

void Reader::State::give_piece(RecordPiece& piece) {
  const FetchedRecord& record = current->records[next_record];
  piece.number = record.number;
  piece.key = record.key;
  piece.record_bytes = record.record_bytes;
  try {
    const auto take = [this] {
      while (submitted < piece_count && pieces.size() < pieces_ahead) submit_piece();
      return pieces.take();
    };
    if (next_piece == 0 && options.whole_records) {
      for (; next_piece < piece_count; ++next_piece) take();
      next_piece = submitted = 0;
    }
    piece_given = take();
  } catch (const Error& e) {
    return give_error(piece, record_error(dataset, record.number, record.key, e, next_piece));
  }
  const auto& container = dataset.containers()[dataset.container_of_record(record.number)];
  piece.offset = next_piece * container.reader->header().piece_bytes;
  piece.bytes = piece_given.bytes;
  piece.crc32c = piece_given.crc32c;
  piece.immutable = piece_given.immutable;
  piece.last = ++next_piece == piece_count;
  stats.bytes += piece.bytes.size();
  stats.stored_bytes += piece_given.stored_bytes;
  if (piece.last) {
    in_pieces = false;
    ++stats.records;
    --pending;
    ++next_record;
  }
}

Reader::Reader(const Dataset& dataset, const ReaderOptions& options, bool with_keys)
    : state_(std::make_unique<State>(dataset, options, with_keys)) {}
Reader::~Reader() = default;

void Reader::request(std::uint64_t number) { state_->add({number, {}, false}); }

void Reader::request(std::string_view key) { state_->add({kNoNumber, std::string(key), true}); }

bool Reader::wants_more() const noexcept { return state_->batches.size() < state_->batches_ahead; }

std::uint64_t Reader::pending() const noexcept { return state_->pending; }

bool Reader::next(RecordPiece& piece) {
  State& s = *state_;
  s.error.reset();
  if (s.in_pieces) {
    piece = RecordPiece{};
    s.give_piece(piece);
    return true;
  }
  if (!s.advance()) return false;
  s.give(piece);
  return true;
}

ReaderStats Reader::stats() const noexcept { return state_->stats; }

}  // namespace sml
