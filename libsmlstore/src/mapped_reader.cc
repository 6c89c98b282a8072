#include "mapped_reader.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "ordered_tasks.h"
#include "record_fetch.h"

namespace sml {
namespace {

// Requests that one task serves, at first and at most; their bytes, so that whoever takes the last
// batch from a pipe is not done before the next one is there; and what it may hold in memory for
// them. How many records that is shows in the batches that come back.
constexpr std::size_t kFirstBatchRequests = 4;
constexpr std::size_t kMaxBatchRequests = 64;
constexpr std::size_t kWantedBytes = 512U << 10;
constexpr std::size_t kBatchBytes = 1U << 20;

struct Batch {
  std::vector<RecordRequest> requests;
  std::vector<FetchedRecord> records;
  std::size_t fetched = 0;  // the first `fetched` records are there
  Arena arena;
};

class MappedReader final : public ReaderState {
 public:
  MappedReader(const Dataset& dataset, const ReaderOptions& options, bool with_keys)
      : dataset_(dataset),
        options_(options),
        with_keys_(with_keys),
        workers_(options_.threads, Workers::Consumer::kHelps),
        batches_(workers_),
        pieces_(workers_) {
    std::uint64_t largest_block = 0;
    for (const auto& c : dataset_.containers()) {
      largest_block = std::max<std::uint64_t>(largest_block, c.reader->header().block_bytes);
    }
    // Half of the budget is for batches, half for pieces. A batch holds at most kBatchBytes and one
    // record more, a piece its block; both stored and decoded. Beside those ahead, the one being
    // given is held. One of each is always allowed.
    const std::uint64_t half = options_.memory_bytes / 2;
    const auto ahead = [half](std::uint64_t bytes, std::uint64_t wanted) {
      const std::uint64_t fit = half / std::max<std::uint64_t>(1, bytes);
      return std::clamp<std::uint64_t>(fit > 0 ? fit - 1 : 0, 1, wanted);
    };
    const std::uint64_t threads = workers_.inline_only() ? 0 : workers_.threads();
    batches_ahead_ =
        ahead(kBatchBytes + 2 * largest_block, std::max<std::uint64_t>(1, 4 * threads));
    pieces_ahead_ = ahead(2 * largest_block, std::max<std::uint64_t>(1, 2 * threads));
  }

  void request(RecordRequest request) override;
  bool wants_more() const noexcept override { return batches_.size() < batches_ahead_; }
  std::uint64_t pending() const noexcept override { return pending_; }
  std::size_t next(std::span<RecordPiece> pieces) override;
  ReaderStats stats() const noexcept override { return stats_; }

 private:
  void dispatch();
  bool advance();
  void fetch(Batch& batch) const;
  void learn(const Batch& batch);
  void give(RecordPiece& piece);
  void open_pieces();
  void submit_piece();
  void give_piece(RecordPiece& piece);
  void give_error(RecordPiece& piece, Error e);

  const Dataset& dataset_;
  ReaderOptions options_;
  bool with_keys_;
  std::uint64_t batches_ahead_ = 1;
  std::uint64_t pieces_ahead_ = 1;
  std::size_t batch_requests_ = kFirstBatchRequests;
  ReaderStats stats_;
  std::uint64_t pending_ = 0;

  std::unique_ptr<Batch> open_;     // collects requests
  std::unique_ptr<Batch> current_;  // being given
  std::size_t next_record_ = 0;     // of `current_`
  std::vector<std::unique_ptr<Batch>> idle_;

  // The record in pieces that is being given, if any.
  bool in_pieces_ = false;
  std::uint64_t first_piece_ = 0;
  std::uint64_t pieces_end_ = 0;
  std::uint64_t next_piece_ = 0;  // to give
  std::uint64_t submitted_ = 0;
  FetchedPiece piece_given_;
  std::optional<Error> error_;  // of what was given last

  Workers workers_;
  OrderedTasks<std::unique_ptr<Batch>> batches_;
  OrderedTasks<FetchedPiece> pieces_;
};

void MappedReader::fetch(Batch& batch) const {
  const auto requests = std::span(batch.requests).subspan(batch.fetched);
  const auto records = std::span(batch.records).subspan(batch.fetched);
  batch.fetched += fetch_records(dataset_, requests, with_keys_, kBatchBytes, batch.arena, records);
}

void MappedReader::request(RecordRequest request) {
  ++pending_;
  if (!open_) {
    if (idle_.empty()) {
      open_ = std::make_unique<Batch>();
    } else {
      open_ = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  open_->requests.push_back(std::move(request));
  if (open_->requests.size() >= batch_requests_) dispatch();
}

// Adapts the size of batches to that of records.
void MappedReader::learn(const Batch& batch) {
  std::uint64_t bytes = 0;
  for (const FetchedRecord& record : std::span(batch.records).first(batch.fetched))
    bytes += record.bytes.size();
  const std::size_t bytes_each = bytes / std::max<std::size_t>(1, batch.fetched);
  const std::size_t fit = std::clamp<std::size_t>(
      kWantedBytes / std::max<std::size_t>(1, bytes_each), 1, kMaxBatchRequests);
  batch_requests_ = std::min(fit, 2 * batch_requests_);
}

void MappedReader::dispatch() {
  batches_.submit([this, batch = std::move(open_)]() mutable {
    batch->records.resize(batch->requests.size());
    fetch(*batch);
    return std::move(batch);
  });
  open_.reset();
}

// Makes `current_` a batch with a record to give; false where nothing is pending_.
bool MappedReader::advance() {
  if (current_ && next_record_ < current_->requests.size()) {
    if (next_record_ == current_->fetched) {
      // The batch was larger than it may be in memory. What was fetched has been given, so its
      // memory is free.
      current_->arena.reset();
      fetch(*current_);
    }
    return true;
  }
  if (current_) {
    current_->requests.clear();
    current_->fetched = 0;
    current_->arena.reset();
    if (idle_.size() <= batches_ahead_) idle_.push_back(std::move(current_));
    current_.reset();
  }
  if (batches_.empty()) {
    if (!open_) return false;
    // Nothing is under way: the shortest way is to fetch here.
    current_ = std::move(open_);
    current_->records.resize(current_->requests.size());
    fetch(*current_);
  } else {
    current_ = batches_.take();
    // Nobody else would start on the rest.
    if (batches_.empty() && open_ && !workers_.inline_only()) dispatch();
  }
  learn(*current_);
  next_record_ = 0;
  return true;
}

void MappedReader::give(RecordPiece& piece) {
  FetchedRecord& record = current_->records[next_record_];
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
  stats_.stored_bytes += record.slot_bytes;
  stats_.bytes += record.bytes.size();
  ++stats_.records;
  --pending_;
  ++next_record_;
}

void MappedReader::give_error(RecordPiece& piece, Error e) {
  error_ = std::move(e);
  piece.error = &*error_;
  piece.last = true;
  piece.bytes = {};
  in_pieces_ = false;
  while (!pieces_.empty()) {
    try {
      pieces_.take();
    } catch (const Error&) {  // one error tells enough of a record
    }
  }
  ++stats_.failed;
  --pending_;
  ++next_record_;
}

void MappedReader::submit_piece() {
  pieces_.submit([this, number = current_->records[next_record_].number, piece = submitted_++] {
    return fetch_piece(dataset_, number, piece);
  });
}

void MappedReader::open_pieces() {
  in_pieces_ = true;
  const FetchedRecord& record = current_->records[next_record_];
  const auto& container = dataset_.containers()[dataset_.container_of_record(record.number)];
  const PieceRange wanted = wanted_pieces(current_->requests[next_record_], record.pieces,
                                          container.reader->header().piece_bytes);
  first_piece_ = next_piece_ = submitted_ = wanted.first;
  pieces_end_ = wanted.end;
}

void MappedReader::give_piece(RecordPiece& piece) {
  const FetchedRecord& record = current_->records[next_record_];
  piece.number = record.number;
  piece.key = record.key;
  piece.record_bytes = record.record_bytes;
  try {
    const auto take = [this] {
      while (submitted_ < pieces_end_ && pieces_.size() < pieces_ahead_) submit_piece();
      return pieces_.take();
    };
    if (next_piece_ == first_piece_ && options_.whole_records) {
      for (; next_piece_ < pieces_end_; ++next_piece_) take();
      next_piece_ = submitted_ = first_piece_;
    }
    piece_given_ = take();
  } catch (const Error& e) {
    return give_error(piece, record_error(dataset_, record.number, record.key, e, next_piece_));
  }
  const auto& container = dataset_.containers()[dataset_.container_of_record(record.number)];
  piece.offset = next_piece_ * container.reader->header().piece_bytes;
  piece.bytes = piece_given_.bytes;
  piece.crc32c = piece_given_.crc32c;
  piece.immutable = piece_given_.immutable;
  piece.last = ++next_piece_ == pieces_end_;
  stats_.bytes += piece.bytes.size();
  stats_.stored_bytes += piece_given_.stored_bytes;
  if (piece.last) {
    in_pieces_ = false;
    ++stats_.records;
    --pending_;
    ++next_record_;
  }
}

std::size_t MappedReader::next(std::span<RecordPiece> pieces) {
  error_.reset();
  if (in_pieces_) {
    pieces.front() = RecordPiece{};
    give_piece(pieces.front());
    return 1;
  }
  if (!advance()) return 0;
  std::size_t given = 0;
  do {
    give(pieces[given++]);
  } while (given < pieces.size() && !in_pieces_ && !error_ && next_record_ < current_->fetched &&
           current_->records[next_record_].pieces == 1);
  return given;
}

}  // namespace

std::unique_ptr<ReaderState> make_mapped_reader(const Dataset& dataset,
                                                const ReaderOptions& options, bool with_keys) {
  return std::make_unique<MappedReader>(dataset, options, with_keys);
}

}  // namespace sml
