#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "block_assembler.h"
#include "ordered_tasks.h"
#include "pack_encoding.h"
#include "pack_plan.h"
#include "pack_shared.h"
#include "quote.h"
#include "seen_keys.h"
#include "smlformat/checksum.h"
#include "smlformat/key.h"
#include "smlstore/packer.h"
#include "smlstore/spill.h"
#include "unsealed_container.h"

namespace sml {
namespace {

// A batch of records as they were read, with the keys it refers to.
struct StreamBatch {
  std::deque<std::string> keys;
  EncodingBatch records;
  std::vector<KeptSlot> slots;  // of the first records, where an interrupted pack left them
};

class StreamPacker {
 public:
  StreamPacker(RecordStream& stream, const PackOptions& options, ByteSink& sink)
      : stream_(stream),
        options_(options),
        memory_(options.memory != nullptr ? options.memory : &spill_),
        workers_(options.threads),
        sink_(sink),
        header_(header_of(options)),
        limits_(options, header_, workers_.threads()),
        keys_(memory_),
        stems_(memory_),
        trainer_(options.compression),
        batches_(workers_) {}

  ContainerSummary run();

 private:
  using BatchPointer = std::shared_ptr<StreamBatch>;

  bool accept(const RecordStream::Record& record, bool& starts_sample);
  void add(const RecordStream::Record& record, bool starts_sample);
  void add_large(const RecordStream::Record& record, ByteView front, bool starts_sample);
  void end_batch();
  void start_encoding(std::string_view large_key = {}, ByteView large_front = {});
  void submit(BatchPointer batch);
  void take_kept(StreamBatch& batch) const;
  void encode(StreamBatch& batch);
  void take_batch();
  void drain();
  void block_appended() const {
    if (options_.on_progress) options_.on_progress(progress_);
  }

  RecordStream& stream_;
  const PackOptions& options_;
  SpillMemory spill_;
  std::pmr::memory_resource* memory_;
  Workers workers_;
  ByteSink& sink_;
  Header header_;
  InFlight limits_;
  SeenKeys keys_;
  SeenKeys stems_;
  std::string open_stem_;
  std::vector<bool> sample_starts_;
  PackProgress progress_;
  Bytes buffer_;
  BatchPointer batch_ = std::make_shared<StreamBatch>();
  DictionaryTrainer trainer_;
  std::vector<BatchPointer> waiting_;  // until the dictionary is trained
  std::shared_ptr<const Dictionary> dictionary_;
  std::optional<EncoderPool> encoders_;
  std::optional<UnsealedContainer> unsealed_;
  OrderedTasks<BatchPointer> batches_;
  std::optional<ContainerWriter> writer_;  // from start_encoding() on
  std::optional<BlockAssembler> assembler_;
};

ContainerSummary StreamPacker::run() {
  RecordStream::Record record;
  while (stream_.next(record)) {
    if (options_.stop.stop_requested()) throw Error(ErrorCode::kCancelled, "interrupted");
    bool starts_sample = true;
    if (accept(record, starts_sample)) add(record, starts_sample);
  }
  end_batch();
  start_encoding();
  drain();
  assembler_->finish();
  keys_.sort();
  return writer_->seal(keys_, sample_starts_);
}

// Whether the record is packed: not where it belongs to another part or is a duplicate.
bool StreamPacker::accept(const RecordStream::Record& record, bool& starts_sample) {
  if (!in_part(record.key, options_.part, options_.parts)) return false;
  if (keys_.size() == kMaxRecords) {
    throw Error(ErrorCode::kLimit, fmt::format("a container holds at most {} records", kMaxRecords),
                "pack into several containers with --part");
  }
  if (!keys_.add(record.key)) {
    if (options_.on_duplicate == OnDuplicate::kError) {
      throw Error(ErrorCode::kAlreadyExists,
                  fmt::format("two records have the key {}: the second is {}", quote(record.key),
                              quote(record.origin)),
                  "--on-duplicate skip keeps the first");
    }
    if (options_.on_dropped) options_.on_dropped(record.origin);
    return false;
  }
  if (options_.grouping == Grouping::kStem) {
    const std::string_view stem = key_stem(record.key);
    starts_sample = sample_starts_.empty() || stem != open_stem_;
    if (starts_sample && !stems_.add(stem)) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("the records of sample {} are not adjacent in the stream: {} comes too late",
                      quote(stem), quote(record.origin)),
          "pack from files, or from an archive in a regular file, to group by stem");
    }
    open_stem_ = stem;
    sample_starts_.push_back(starts_sample);
  }
  return true;
}

void StreamPacker::add(const RecordStream::Record& record, bool starts_sample) {
  const std::uint32_t piece_bytes = header_.piece_bytes;
  // One byte more than a piece tells a large record from one that just fits.
  buffer_.resize(std::size_t{piece_bytes} + 1);
  const std::size_t wanted =
      std::min<std::uint64_t>(buffer_.size(), record.bytes.value_or(buffer_.size() - 1) + 1);
  const std::size_t bytes = stream_.read(MutableBytes(buffer_).first(wanted));
  ++progress_.records;
  if (bytes > piece_bytes) return add_large(record, ByteView(buffer_).first(bytes), starts_sample);
  progress_.bytes += bytes;
  const ByteView raw = ByteView(buffer_).first(bytes);
  if (!encoders_) trainer_.add(raw);
  const std::string& key = batch_->keys.emplace_back(record.key);
  const MutableBytes space = batch_->records.add(key, bytes, starts_sample);
  std::copy(raw.begin(), raw.end(), space.begin());
  if (batch_->records.raw_bytes() >= kBatchBytes ||
      batch_->records.items().size() >= kMaxBatchRecords)
    end_batch();
}

void StreamPacker::end_batch() {
  if (batch_->records.items().empty()) return;
  BatchPointer batch = std::exchange(batch_, std::make_shared<StreamBatch>());
  if (encoders_) return submit(std::move(batch));
  waiting_.push_back(std::move(batch));
  if (!trainer_.wants_more()) start_encoding();
}

// `large_...`: of the record that comes next, where that is one in pieces.
void StreamPacker::start_encoding(std::string_view large_key, ByteView large_front) {
  if (encoders_) return;
  TagHash tag(header_);
  for (const BatchPointer& batch : waiting_) {
    for (const EncodingBatch::Item& item : batch->records.items())
      tag.add(item.key, batch->records.raw(item));
  }
  if (!large_key.empty()) tag.add(large_key, large_front);
  header_.tag = tag.tag();
  if (options_.resume != nullptr) unsealed_ = UnsealedContainer::open(*options_.resume);
  if (unsealed_ && unsealed_->header().encode() != header_.encode()) throw not_interrupted_pack();
  writer_.emplace(sink_, header_, memory_);
  assembler_.emplace(*writer_, workers_, limits_.blocks, [this] { block_appended(); });
  std::optional<Bytes> bytes;
  if (!unsealed_ || !unsealed_->take_dictionary(bytes)) bytes = trainer_.train(std::nullopt);
  if (bytes) {
    dictionary_ = std::make_shared<const Dictionary>(*bytes, options_.compression.level);
    assembler_->add_dictionary(std::move(*bytes));
  }
  encoders_.emplace(options_.compression, dictionary_);
  for (BatchPointer& batch : std::exchange(waiting_, {})) submit(std::move(batch));
}

void StreamPacker::submit(BatchPointer batch) {
  while (batches_.size() >= limits_.batches) take_batch();
  for (const EncodingBatch::Item& item : batch->records.items()) {
    const auto slot = unsealed_ ? unsealed_->take_record(item.key) : std::nullopt;
    if (!slot) break;
    batch->slots.push_back(*slot);
  }
  batches_.submit([this, batch = std::move(batch)] {
    encode(*batch);
    return batch;
  });
}

void StreamPacker::encode(StreamBatch& batch) {
  if (!batch.slots.empty()) take_kept(batch);
  EncoderPool::Lease encoder(*encoders_);
  batch.records.encode(*encoder);
}

// Records that an interrupted pack left need not be encoded where they are what the stream gave.
void StreamPacker::take_kept(StreamBatch& batch) const {
  KeptBytes kept = unsealed_->read(batch.slots);
  for (std::size_t i = 0; i < batch.slots.size(); ++i) {
    EncodingBatch::Item& item = batch.records.items()[i];
    const auto record = unsealed_->record(kept.slots[i], item.key, item.raw_bytes);
    if (!record || !decodes_to(*record, dictionary_.get(), batch.records.raw(item))) continue;
    item.encoded = *record;
    item.kept = true;
  }
  batch.records.hold(std::move(kept.memory));
}

void StreamPacker::take_batch() {
  const BatchPointer batch = batches_.take();
  for (const EncodingBatch::Item& item : batch->records.items()) {
    if (item.kept) {
      ++progress_.resumed_records;
      progress_.resumed_bytes += item.raw_bytes;
    }
    assembler_->add(item.encoded, batch, item.starts_sample);
  }
}

void StreamPacker::drain() {
  while (!batches_.empty()) take_batch();
}

void StreamPacker::add_large(const RecordStream::Record& record, ByteView front,
                             bool starts_sample) {
  const std::uint32_t piece_bytes = header_.piece_bytes;
  end_batch();
  start_encoding(record.key, front);
  drain();

  // Where the size is not known beforehand, the record is laid aside until it is.
  std::optional<SpillFile> aside;
  std::uint64_t record_bytes = record.bytes.value_or(0);
  if (!record.bytes) {
    aside.emplace();
    aside->append(front.data(), front.size());
    Bytes more(piece_bytes);
    for (;;) {
      const std::size_t bytes = stream_.read(more);
      if (bytes == 0) break;
      aside->append(more.data(), bytes);
    }
    record_bytes = aside->size();
  }
  Bytes rest(front.begin(), front.end());  // read already, not yet given
  bool all_kept = true;
  const auto piece = [&](std::uint32_t k) {
    const std::uint64_t offset = std::uint64_t{k} * piece_bytes;
    const std::size_t wanted = std::min<std::uint64_t>(piece_bytes, record_bytes - offset);
    auto batch = std::make_shared<StreamBatch>();
    const std::string& key = batch->keys.emplace_back(record.key);
    const MutableBytes raw = batch->records.add(key, wanted, true);
    if (aside) {
      aside->read(offset, raw.data(), wanted);
    } else {
      const std::size_t ready = std::min(wanted, rest.size());
      std::copy_n(rest.begin(), ready, raw.begin());
      rest.erase(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(ready));
      if (stream_.read(raw.subspan(ready)) != wanted - ready) {
        throw Error(ErrorCode::kTruncated,
                    fmt::format("{}: shorter than it says", quote(record.origin)));
      }
    }
    progress_.bytes += wanted;
    if (const auto slot = unsealed_ ? unsealed_->take_piece(key, record_bytes, k) : std::nullopt) {
      batch->slots.push_back(*slot);
    }
    encode(*batch);
    all_kept = all_kept && batch->records.items().front().kept;
    return BlockAssembler::Piece{batch->records.items().front().encoded, batch};
  };
  assembler_->add_in_pieces(record_bytes, piece, true, starts_sample);
  if (all_kept) {
    ++progress_.resumed_records;
    progress_.resumed_bytes += record_bytes;
  }
}

}  // namespace

ContainerSummary pack(RecordStream& records, const PackOptions& options, ByteSink& sink) {
  if (options.order != PackOrder::kInput) {
    throw Error(ErrorCode::kInvalidArgument, "a stream can only be packed in input order",
                "pack from a regular file for a random order");
  }
  if (options.on_duplicate == OnDuplicate::kReplace) {
    throw Error(ErrorCode::kInvalidArgument, "a stream cannot replace what it has packed");
  }
  return StreamPacker(records, options, sink).run();
}

}  // namespace sml
