#include "smlstore/epoch_reader.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "record_fetch.h"

namespace sml {
namespace {

// Batches that are ready beside the one that is used.
constexpr std::size_t kMostReady = 8;
// Taken from the reader together.
constexpr std::size_t kMostPieces = 128;

}  // namespace

struct EpochBatch::Memory {
  Arena arena;
  std::deque<std::string> keys;  // never moved
  std::deque<Error> errors;
  std::vector<std::shared_ptr<const void>> kept;  // what immutable bytes lie in
  std::uint64_t wanted = 0;                       // records
  MutableBytes left;                              // of the last record, when it is being copied
};

EpochBatch::EpochBatch() : memory_(std::make_unique<Memory>()) {}
EpochBatch::~EpochBatch() = default;

// A thread of its own asks a reader for the records of batch after batch, and puts batches together
// as they come; the consumer takes them from a queue.
class EpochReaderState {
 public:
  EpochReaderState(const Dataset& dataset, std::shared_ptr<const Order> order, const Share& share,
                   const EpochOptions& options)
      : dataset_(dataset), order_(std::move(order)), share_(share), options_(options) {
    if (options.batch == 0) throw Error(ErrorCode::kInvalidArgument, "batches of 0 samples");
    if (options.worker >= options.workers) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("worker {} of {} (workers count from 0)",
                                                           options.worker, options.workers));
    }
    ready_bytes_most_ = options_.reader.memory_bytes / 4;
    options_.reader.memory_bytes -= ready_bytes_most_;
    const std::uint64_t positions = share_.size();
    const std::uint64_t of_rank = positions / options_.batch + (positions % options_.batch != 0);
    if (of_rank > options_.worker)
      batches_ = (of_rank - options_.worker - 1) / options_.workers + 1;
  }
  ~EpochReaderState() { stop(); }

  std::uint64_t batches() const noexcept { return batches_; }
  std::unique_ptr<EpochBatch> next();
  ReaderStats stats() const {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

 private:
  void start();
  void stop();
  void produce(const std::stop_token& stop);
  std::unique_ptr<EpochBatch> plan(std::uint64_t batch, Reader& reader);
  static void take(const RecordPiece& piece, EpochBatch& batch);
  static bool is_complete(const EpochBatch& batch) noexcept;
  bool put(std::unique_ptr<EpochBatch> batch, const std::stop_token& stop);

  const Dataset& dataset_;
  const std::shared_ptr<const Order> order_;
  const Share share_;
  EpochOptions options_;
  std::uint64_t ready_bytes_most_ = 0;
  std::uint64_t batches_ = 0;
  std::uint64_t given_ = 0;  // batches

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::unique_ptr<EpochBatch>> ready_;
  std::uint64_t ready_bytes_ = 0;  // in memory of their own
  std::exception_ptr failure_;     // that ended the thread
  ReaderStats stats_;              // of readers that have ended, and of this one until lately
  std::jthread producer_;
};

void EpochReaderState::start() {
  failure_ = nullptr;
  producer_ = std::jthread([this](const std::stop_token& stop) {
    try {
      produce(stop);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
      changed_.notify_all();
    }
  });
}

void EpochReaderState::stop() {
  if (!producer_.joinable()) return;
  producer_.request_stop();
  producer_.join();
}

std::unique_ptr<EpochBatch> EpochReaderState::next() {
  if (given_ == batches_) return nullptr;
  if (!producer_.joinable()) start();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !ready_.empty() || failure_ != nullptr; });
  if (ready_.empty()) {
    const std::exception_ptr failure = failure_;
    lock.unlock();
    stop();  // the next call starts again
    std::rethrow_exception(failure);
  }
  std::unique_ptr<EpochBatch> batch = std::move(ready_.front());
  ready_.pop_front();
  ready_bytes_ -= batch->memory_->arena.used();
  ++given_;
  changed_.notify_all();
  return batch;
}

// Asks for the records of a batch, `batch` of those that are given.
std::unique_ptr<EpochBatch> EpochReaderState::plan(std::uint64_t batch, Reader& reader) {
  auto out = std::make_unique<EpochBatch>();
  out->number = options_.worker + batch * options_.workers;
  const std::uint64_t begin = out->number * options_.batch;
  const std::uint64_t count = std::min(options_.batch, share_.size() - begin);

  Share positions = share_;
  positions.first += begin * share_.world;
  positions.end = positions.first + (count - 1) * share_.world + 1;
  std::vector<std::uint64_t> samples(count);
  Order::Cursor(*order_, positions).next(samples);

  const std::uint64_t left = share_.next_start - share_.start;
  const std::uint64_t each =
      options_.batch > kNoNumber / share_.world ? kNoNumber : options_.batch * share_.world;
  const std::uint64_t taken = out->number >= left / each ? left : (out->number + 1) * each;
  out->position = share_.start + taken;

  for (const std::uint64_t sample : samples) {
    const NumberRange range = dataset_.sample(sample);
    for (std::uint64_t number = range.first; number < range.last; ++number) reader.request(number);
    out->sample_sizes.push_back(range.size());
    out->memory_->wanted += range.size();
  }
  out->records.reserve(out->memory_->wanted);
  return out;
}

bool EpochReaderState::is_complete(const EpochBatch& batch) noexcept {
  return batch.records.size() == batch.memory_->wanted && batch.memory_->left.empty();
}

// Adds a piece to the batch that its record belongs to.
void EpochReaderState::take(const RecordPiece& piece, EpochBatch& batch) {
  EpochBatch::Memory& memory = *batch.memory_;
  if (piece.error != nullptr && piece.error->code() == ErrorCode::kUnavailable)
    throw Error(*piece.error);
  if (piece.offset == 0 || piece.error != nullptr) {
    // What was begun of a record that fails is not given.
    if (piece.offset == 0 && memory.left.empty()) batch.records.emplace_back();
    EpochRecord& record = batch.records.back();
    record.number = piece.number;
    record.key = memory.keys.emplace_back(piece.key);
    record.bytes = {};
    memory.left = {};
    if (piece.error != nullptr) {
      record.error = &memory.errors.emplace_back(*piece.error);
      return;
    }
    if (piece.immutable && piece.last) {
      record.bytes = piece.bytes;
      record.immutable = true;
      if (piece.kept && (memory.kept.empty() || memory.kept.back() != piece.kept))
        memory.kept.push_back(piece.kept);
      return;
    }
    memory.left = memory.arena.allocate(piece.record_bytes);
    record.bytes = memory.left;
  }
  if (!piece.bytes.empty()) std::memcpy(memory.left.data(), piece.bytes.data(), piece.bytes.size());
  memory.left = memory.left.subspan(piece.bytes.size());
}

// Waits until there is room. False where nobody wants it any more.
bool EpochReaderState::put(std::unique_ptr<EpochBatch> batch, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  const std::uint64_t bytes = batch->memory_->arena.used();
  const bool has_room = changed_.wait(lock, stop, [&] {
    return ready_.empty() ||
           (ready_.size() < kMostReady && ready_bytes_ + bytes <= ready_bytes_most_);
  });
  if (!has_room) return false;
  ready_bytes_ += bytes;
  ready_.push_back(std::move(batch));
  changed_.notify_all();
  return true;
}

void EpochReaderState::produce(const std::stop_token& stop) {
  Reader reader(dataset_, options_.reader, true);
  const ReaderStats before = stats();
  std::uint64_t planned = given_;
  std::deque<std::unique_ptr<EpochBatch>> begun;
  std::array<RecordPiece, kMostPieces> pieces;
  while (!stop.stop_requested()) {
    while (planned < batches_ && (begun.empty() || reader.wants_more()))
      begun.push_back(plan(planned++, reader));
    if (begun.empty()) return;
    const std::size_t count = reader.next(pieces);
    for (const RecordPiece& piece : std::span(pieces).first(count)) {
      take(piece, *begun.front());
      if (!is_complete(*begun.front())) continue;
      {
        const std::lock_guard lock(mutex_);
        stats_ = before;
        stats_ += reader.stats();
      }
      if (!put(std::move(begun.front()), stop)) return;
      begun.pop_front();
    }
  }
}

EpochReader::EpochReader(const Dataset& dataset, std::shared_ptr<const Order> order,
                         const Share& share, const EpochOptions& options)
    : state_(std::make_unique<EpochReaderState>(dataset, std::move(order), share, options)) {}
EpochReader::~EpochReader() = default;

std::uint64_t EpochReader::batches() const noexcept { return state_->batches(); }
std::unique_ptr<EpochBatch> EpochReader::next() { return state_->next(); }
ReaderStats EpochReader::stats() const { return state_->stats(); }

}  // namespace sml
