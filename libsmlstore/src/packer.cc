#include "smlstore/packer.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "block_assembler.h"
#include "ordered_tasks.h"
#include "pack_encoding.h"
#include "pack_plan.h"
#include "pack_shared.h"
#include "smlformat/key.h"
#include "smlstore/spill.h"
#include "unsealed_container.h"

namespace sml {
namespace {

// A record of the list that could not be read.
struct Unreadable {
  std::uint64_t position;
  Error error;
};

class ListPacker {
 public:
  ListPacker(const RecordList& list, const PackOptions& options)
      : list_(list),
        options_(options),
        memory_(options.memory != nullptr ? options.memory : &spill_),
        workers_(options.threads),
        header_(header_of(options)),
        limits_(options, header_, workers_.threads()) {
    plan();
  }

  ContainerSummary run(ByteSink& sink) {
    if (options_.resume != nullptr) unsealed_ = UnsealedContainer::open(*options_.resume);
    if (unsealed_ && !plan_as(unsealed_->header())) throw not_interrupted_pack();
    for (;;) {
      std::optional<ContainerSummary> summary = attempt(sink);
      if (summary) return *summary;
      // The order depends on the number of records, so without the unreadable ones everything is
      // placed anew.
      sink.restart();
      unsealed_.reset();
      plan();
    }
  }

  // Whether what is packed has this header, with or without records that cannot be read.
  bool plan_as(const Header& wanted);

 private:
  using BatchPointer = std::shared_ptr<EncodingBatch>;

  void plan();
  std::optional<ContainerSummary> attempt(ByteSink& sink);
  std::shared_ptr<const Dictionary> train(BlockAssembler& assembler);
  std::vector<KeptSlot> take_records(std::uint64_t first, std::uint64_t last);
  BatchPointer read_batch(std::uint64_t first, std::uint64_t last,
                          const std::vector<KeptSlot>& slots, EncoderPool& encoders) const;
  std::uint64_t batch_end(std::uint64_t first) const;
  bool is_large(std::uint64_t position) const {
    return list_.bytes(source(position)) > header_.piece_bytes;
  }
  std::uint32_t source(std::uint64_t position) const { return sequence_->by_number[position]; }
  bool starts_sample(std::uint64_t position) const {
    return options_.grouping == Grouping::kNone || sequence_->sample_starts[position];
  }
  bool add_large(std::uint64_t position, BlockAssembler& assembler, EncoderPool& encoders);
  void exclude(const Unreadable& unreadable);
  bool exclude_unreadable(std::uint64_t first);
  std::vector<Unreadable> find_unreadable(std::uint64_t first, std::uint64_t last) const;
  void check_stop() const {
    if (options_.stop.stop_requested()) throw Error(ErrorCode::kCancelled, "interrupted");
  }

  const RecordList& list_;
  const PackOptions& options_;
  SpillMemory spill_;
  std::pmr::memory_resource* memory_;
  Workers workers_;
  Header header_;
  InFlight limits_;
  std::optional<PackSequence> sequence_;
  std::vector<bool> excluded_;
  PackProgress progress_;
  std::optional<UnsealedContainer> unsealed_;
};

// Order and header of the records that are not excluded.
void ListPacker::plan() {
  sequence_.emplace(plan_sequence(list_, options_, excluded_, memory_));
  progress_ = {};
  progress_.total_records = sequence_->by_number.size();
  header_.tag = 0;
  TagHash tag(header_);
  for (const std::uint32_t i : sequence_->by_number) {
    progress_.total_bytes += list_.bytes(i);
    tag.add(list_.key(i), list_.bytes(i));
  }
  header_.tag = tag.tag();
}

bool ListPacker::plan_as(const Header& wanted) {
  Header same_tag = wanted;
  same_tag.tag = header_.tag;
  if (same_tag.encode() != header_.encode()) return false;
  while (header_.tag != wanted.tag) {
    if (!options_.on_unreadable || !exclude_unreadable(0)) return false;
    plan();
  }
  return true;
}

std::uint64_t ListPacker::batch_end(std::uint64_t first) const {
  std::uint64_t bytes = 0;
  std::uint64_t position = first;
  const std::uint64_t end = sequence_->by_number.size();
  while (position < end && position - first < kMaxBatchRecords && bytes < kBatchBytes) {
    if (is_large(position)) return position == first ? first + 1 : position;
    bytes += list_.bytes(source(position));
    ++position;
  }
  return position;
}

// Where the first records of a batch lie that an interrupted pack left.
std::vector<KeptSlot> ListPacker::take_records(std::uint64_t first, std::uint64_t last) {
  std::vector<KeptSlot> slots;
  for (std::uint64_t position = first; unsealed_ && position < last; ++position) {
    const std::optional<KeptSlot> slot = unsealed_->take_record(list_.key(source(position)));
    if (!slot) break;
    slots.push_back(*slot);
  }
  return slots;
}

ListPacker::BatchPointer ListPacker::read_batch(std::uint64_t first, std::uint64_t last,
                                                const std::vector<KeptSlot>& slots,
                                                EncoderPool& encoders) const {
  auto batch = std::make_shared<EncodingBatch>();
  KeptBytes kept;
  if (!slots.empty()) kept = unsealed_->read(slots);
  std::uint64_t raw_bytes = 0;
  for (std::uint64_t position = first + slots.size(); position < last; ++position)
    raw_bytes += list_.bytes(source(position));
  batch->reserve(raw_bytes);
  for (std::uint64_t position = first; position < last; ++position) {
    const std::uint32_t i = source(position);
    if (position - first < slots.size()) {
      if (const std::optional<EncodedRecord> record =
              unsealed_->record(kept.slots[position - first], list_.key(i), list_.bytes(i))) {
        batch->add_kept(*record, starts_sample(position));
        continue;
      }
    }
    try {
      list_.read(i, 0, batch->add(list_.key(i), list_.bytes(i), starts_sample(position)));
    } catch (const Error& e) {
      throw Unreadable{position, e};
    }
  }
  batch->hold(std::move(kept.memory));
  EncoderPool::Lease encoder(encoders);
  batch->encode(*encoder);
  return batch;
}

std::shared_ptr<const Dictionary> ListPacker::train(BlockAssembler& assembler) {
  std::optional<Bytes> bytes;
  if (!unsealed_ || !unsealed_->take_dictionary(bytes)) {
    DictionaryTrainer trainer(options_.compression);
    Bytes raw;
    for (const std::uint32_t i : sequence_->by_number) {
      if (!trainer.wants_more()) break;
      check_stop();
      raw.resize(std::min<std::uint64_t>(list_.bytes(i), header_.piece_bytes));
      try {
        list_.read(i, 0, raw);
      } catch (const Error&) {
        continue;  // it is met again, and told, when it is packed
      }
      trainer.add(raw);
    }
    bytes = trainer.train(progress_.total_bytes);
  }
  if (!bytes) return nullptr;
  auto dictionary = std::make_shared<const Dictionary>(*bytes, options_.compression.level);
  assembler.add_dictionary(std::move(*bytes));
  return dictionary;
}

void ListPacker::exclude(const Unreadable& unreadable) {
  if (!options_.on_unreadable) throw unreadable.error;
  options_.on_unreadable(unreadable.error);
  excluded_.resize(list_.size());
  excluded_[source(unreadable.position)] = true;
}

// Reads the records from a position on, and excludes those that cannot be read. Whether there are
// any.
bool ListPacker::exclude_unreadable(std::uint64_t first) {
  OrderedTasks<std::vector<Unreadable>> batches(workers_);
  const std::uint64_t end = sequence_->by_number.size();
  bool found = false;
  while (first < end || !batches.empty()) {
    check_stop();
    while (first < end && batches.size() < limits_.batches) {
      const std::uint64_t last = batch_end(first);
      batches.submit([this, first, last] { return find_unreadable(first, last); });
      first = last;
    }
    for (const Unreadable& unreadable : batches.take()) {
      if (!excluded_.empty() && excluded_[source(unreadable.position)]) continue;
      exclude(unreadable);
      found = true;
    }
  }
  return found;
}

std::vector<Unreadable> ListPacker::find_unreadable(std::uint64_t first, std::uint64_t last) const {
  std::vector<Unreadable> found;
  Buffer raw;
  for (std::uint64_t position = first; position < last; ++position) {
    const std::uint32_t i = source(position);
    try {
      std::uint64_t offset = 0;
      do {
        raw.resize(std::min<std::uint64_t>(header_.piece_bytes, list_.bytes(i) - offset));
        list_.read(i, offset, raw);
        offset += raw.size();
        check_stop();
      } while (offset < list_.bytes(i));
    } catch (const Error& e) {
      if (e.code() == ErrorCode::kCancelled) throw;
      found.push_back({position, e});
    }
  }
  return found;
}

// Whether an interrupted pack left all of it.
bool ListPacker::add_large(std::uint64_t position, BlockAssembler& assembler,
                           EncoderPool& encoders) {
  const std::uint32_t i = source(position);
  const std::uint64_t pieces = pieces_of(list_.bytes(i), header_.piece_bytes);
  std::vector<KeptSlot> slots;
  while (unsealed_ && slots.size() < pieces) {
    const std::optional<KeptSlot> slot = unsealed_->take_piece(
        list_.key(i), list_.bytes(i), static_cast<std::uint32_t>(slots.size()));
    if (!slot) break;
    slots.push_back(*slot);
  }
  const bool kept_whole = slots.size() == pieces;
  const auto read_piece = [this, position, i, slots = std::move(slots),
                           &encoders](std::uint32_t k) {
    const std::uint64_t offset = std::uint64_t{k} * header_.piece_bytes;
    const std::uint64_t bytes =
        std::min<std::uint64_t>(header_.piece_bytes, list_.bytes(i) - offset);
    auto batch = std::make_shared<EncodingBatch>();
    if (k < slots.size()) {
      KeptBytes kept = unsealed_->read({&slots[k], 1});
      if (const std::optional<EncodedRecord> record =
              unsealed_->record(kept.slots[0], list_.key(i), bytes)) {
        batch->hold(std::move(kept.memory));
        return BlockAssembler::Piece{*record, batch};
      }
    }
    try {
      list_.read(i, offset, batch->add(list_.key(i), bytes, true));
    } catch (const Error& e) {
      throw Unreadable{position, e};
    }
    EncoderPool::Lease encoder(encoders);
    batch->encode(*encoder);
    return BlockAssembler::Piece{batch->items().front().encoded, batch};
  };
  assembler.add_in_pieces(list_.bytes(i), read_piece, false, starts_sample(position));
  return kept_whole;
}

// Nothing where a record could not be read: then it is excluded, and all others that cannot be.
std::optional<ContainerSummary> ListPacker::attempt(ByteSink& sink) {
  const std::uint64_t end = sequence_->by_number.size();
  ContainerWriter writer(sink, header_, memory_);
  std::optional<EncoderPool> encoders;  // outlives the tasks, which use it
  OrderedTasks<BatchPointer> batches(workers_);
  BlockAssembler assembler(writer, workers_, limits_.blocks, [&] {
    check_stop();
    if (options_.on_progress) options_.on_progress(progress_);
  });
  const auto count = [this](std::uint64_t bytes, bool kept) {
    ++progress_.records;
    progress_.bytes += bytes;
    if (!kept) return;
    ++progress_.resumed_records;
    progress_.resumed_bytes += bytes;
  };
  try {
    encoders.emplace(options_.compression, train(assembler));
    std::uint64_t next = 0;
    while (next < end || !batches.empty()) {
      check_stop();
      // Read ahead up to the next large record, which waits until all before it are placed.
      while (next < end && !is_large(next) && batches.size() < limits_.batches) {
        const std::uint64_t last = batch_end(next);
        batches.submit([this, first = next, last, slots = take_records(next, last), &encoders] {
          return read_batch(first, last, slots, *encoders);
        });
        next = last;
      }
      if (batches.empty()) {
        const bool kept = add_large(next, assembler, *encoders);
        count(list_.bytes(source(next)), kept);
        ++next;
        continue;
      }
      const BatchPointer batch = batches.take();
      for (const EncodingBatch::Item& item : batch->items()) {
        count(item.raw_bytes, item.kept);
        assembler.add(item.encoded, batch, item.starts_sample);
      }
    }
    assembler.finish();
  } catch (const Unreadable& unreadable) {
    exclude(unreadable);
    // All that is in the container was read, but for the last record: pieces of it may be missing.
    exclude_unreadable(std::max<std::uint64_t>(writer.records(), 1) - 1);
    return std::nullopt;
  }
  const PlannedNames names(list_, *sequence_, options_.order);
  return writer.seal(names, sequence_->sample_starts);
}

}  // namespace

ContainerSummary pack(const RecordList& records, const PackOptions& options, ByteSink& sink) {
  return ListPacker(records, options).run(sink);
}

bool is_pack_of(const RecordList& records, const PackOptions& options, const Header& header) {
  return ListPacker(records, options).plan_as(header);
}

std::uint32_t pack_recipe(const PackOptions& options) {
  Bytes bytes;
  const auto header = header_of(options).encode();
  bytes.assign(header.begin(), header.end());
  put_varint(bytes, static_cast<std::uint64_t>(options.compression.mode));
  put_varint(bytes, static_cast<std::uint64_t>(options.compression.level));
  put_varint(bytes, codec_version());
  return std::max(1U, static_cast<std::uint32_t>(xxh3_64(bytes)));
}

}  // namespace sml
