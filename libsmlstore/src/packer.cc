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

namespace sml {
namespace {

// A record of the list that could not be read, found while its blocks were being built.
struct Unreadable {
  std::uint32_t index;
  Error error;
};

// One task's share of the records, read and encoded.
struct ListBatch {
  struct Failure {
    std::uint32_t index;
    Error error;
  };
  RecordBatch records;
  std::vector<Failure> failures;
};

class ListPacker {
 public:
  ListPacker(const RecordList& list, const PackOptions& options, ByteSink& sink)
      : list_(list),
        options_(options),
        sink_(sink),
        memory_(options.memory != nullptr ? options.memory : &spill_),
        workers_(options.threads),
        header_(header_of(options)) {}

  ContainerSummary run() {
    for (;;) {
      sequence_.emplace(plan_sequence(list_, options_, excluded_, memory_));
      std::optional<ContainerSummary> summary = attempt();
      if (summary) return *summary;
      // The order depends on the number of records, so without the unreadable ones everything is
      // placed anew.
      sink_.restart();
    }
  }

 private:
  std::optional<ContainerSummary> attempt();
  std::shared_ptr<const Dictionary> train(BlockAssembler& assembler);
  std::shared_ptr<ListBatch> read_batch(std::uint64_t first, std::uint64_t last,
                                        EncoderPool& encoders) const;
  std::uint64_t batch_end(std::uint64_t first) const;
  bool is_large(std::uint64_t position) const {
    return list_.bytes(source(position)) > header_.piece_bytes;
  }
  std::uint32_t source(std::uint64_t position) const { return sequence_->by_number[position]; }
  bool starts_sample(std::uint64_t position) const {
    return options_.grouping == Grouping::kNone || sequence_->sample_starts[position];
  }
  void add_large(std::uint64_t position, BlockAssembler& assembler, EncoderPool& encoders);
  void exclude(std::uint32_t index, const Error& error);
  void check_stop() const {
    if (options_.stop.stop_requested()) throw Error(ErrorCode::kCancelled, "interrupted");
  }

  const RecordList& list_;
  const PackOptions& options_;
  ByteSink& sink_;
  SpillMemory spill_;
  std::pmr::memory_resource* memory_;
  Workers workers_;
  Header header_;
  std::optional<PackSequence> sequence_;
  std::vector<bool> excluded_;
  std::atomic<bool> only_reading_{
      false};  // records were found unreadable: what follows is read to find them all
};

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

std::shared_ptr<ListBatch> ListPacker::read_batch(std::uint64_t first, std::uint64_t last,
                                                  EncoderPool& encoders) const {
  auto batch = std::make_shared<ListBatch>();
  std::uint64_t raw_bytes = 0;
  for (std::uint64_t position = first; position < last; ++position)
    raw_bytes += list_.bytes(source(position));
  batch->records.reserve(raw_bytes);
  for (std::uint64_t position = first; position < last; ++position) {
    const std::uint32_t i = source(position);
    const MutableBytes raw =
        batch->records.add(list_.key(i), list_.bytes(i), starts_sample(position));
    try {
      list_.read(i, 0, raw);
    } catch (const Error& e) {
      batch->records.drop_last();
      batch->failures.push_back({i, e});
    }
  }
  if (!only_reading_ && batch->failures.empty()) {
    EncoderPool::Lease encoder(encoders);
    batch->records.encode(*encoder);
  }
  return batch;
}

std::shared_ptr<const Dictionary> ListPacker::train(BlockAssembler& assembler) {
  DictionaryTrainer trainer(options_.compression);
  std::uint64_t total = 0;
  for (const std::uint32_t i : sequence_->by_number) total += list_.bytes(i);
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
  std::optional<Bytes> bytes = trainer.train(total);
  if (!bytes) return nullptr;
  auto dictionary = std::make_shared<const Dictionary>(*bytes, options_.compression.level);
  assembler.add_dictionary(std::move(*bytes));
  return dictionary;
}

void ListPacker::exclude(std::uint32_t index, const Error& error) {
  if (!options_.on_unreadable) throw error;
  options_.on_unreadable(error);
  excluded_.resize(list_.size());
  excluded_[index] = true;
  only_reading_ = true;
}

void ListPacker::add_large(std::uint64_t position, BlockAssembler& assembler,
                           EncoderPool& encoders) {
  const std::uint32_t i = source(position);
  const auto read_piece = [this, i, &encoders](std::uint32_t k) {
    const std::uint64_t offset = std::uint64_t{k} * header_.piece_bytes;
    const std::uint64_t bytes =
        std::min<std::uint64_t>(header_.piece_bytes, list_.bytes(i) - offset);
    auto batch = std::make_shared<RecordBatch>();
    try {
      list_.read(i, offset, batch->add(list_.key(i), bytes, true));
    } catch (const Error& e) {
      throw Unreadable{i, e};
    }
    EncoderPool::Lease encoder(encoders);
    batch->encode(*encoder);
    return BlockAssembler::Piece{batch->items().front().encoded, batch};
  };
  assembler.add_in_pieces(list_.bytes(i), read_piece, false, starts_sample(position));
}

std::optional<ContainerSummary> ListPacker::attempt() {
  only_reading_ = false;
  const std::uint64_t end = sequence_->by_number.size();
  PackProgress progress;
  progress.total_records = end;
  header_.tag = 0;
  TagHash tag(header_);
  for (const std::uint32_t i : sequence_->by_number) {
    progress.total_bytes += list_.bytes(i);
    tag.add(list_.key(i), list_.bytes(i));
  }
  header_.tag = tag.tag();

  ContainerWriter writer(sink_, header_, memory_);
  const InFlight limits(options_, header_, workers_.threads());
  std::optional<EncoderPool> encoders;  // outlives the tasks, which use it
  OrderedTasks<std::shared_ptr<ListBatch>> batches(workers_);
  BlockAssembler assembler(writer, workers_, limits.blocks, [&] {
    check_stop();
    if (options_.on_progress) options_.on_progress(progress);
  });
  try {
    encoders.emplace(options_.compression, train(assembler));
    std::uint64_t next = 0;
    while (next < end || !batches.empty()) {
      check_stop();
      // Read ahead up to the next large record, which waits until all before it are placed.
      while (next < end && !is_large(next) && batches.size() < limits.batches) {
        const std::uint64_t last = batch_end(next);
        batches.submit(
            [this, first = next, last, &encoders] { return read_batch(first, last, *encoders); });
        next = last;
      }
      if (batches.empty()) {
        if (!only_reading_) add_large(next, assembler, *encoders);
        progress.bytes += list_.bytes(source(next));
        ++progress.records;
        ++next;
        continue;
      }
      const std::shared_ptr<ListBatch> batch = batches.take();
      for (const ListBatch::Failure& failure : batch->failures)
        exclude(failure.index, failure.error);
      for (const RecordBatch::Item& item : batch->records.items()) {
        progress.bytes += item.raw_bytes;
        ++progress.records;
        if (!only_reading_) assembler.add(item.encoded, batch, item.starts_sample);
      }
    }
    if (only_reading_) return std::nullopt;
    assembler.finish();
  } catch (const Unreadable& unreadable) {
    exclude(unreadable.index, unreadable.error);
    return std::nullopt;
  }
  const PlannedNames names(list_, *sequence_, options_.order);
  return writer.seal(names, sequence_->sample_starts);
}

}  // namespace

ContainerSummary pack(const RecordList& records, const PackOptions& options, ByteSink& sink) {
  return ListPacker(records, options, sink).run();
}

}  // namespace sml
