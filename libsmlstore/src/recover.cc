#include "smlstore/recover.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "damaged_container.h"
#include "ordered_tasks.h"
#include "quote.h"
#include "recover_progress.h"
#include "salvage.h"
#include "seen_keys.h"
#include "smlformat/codec.h"
#include "smlformat/key.h"
#include "smlstore/spill.h"

namespace sml {

void RecoverProgress::advanced() const {
  if (options_.stop.stop_requested()) throw Error(ErrorCode::kCancelled, "cancelled");
  if (options_.on_progress) options_.on_progress(end, total_bytes_);
}

void RecoverProgress::lose(std::uint64_t records_lost, const Error& error) {
  ++report.losses;
  report.records_lost += records_lost;
  if (options_.on_loss) options_.on_loss(error);
}

void RecoverProgress::lose_record(const std::string& key, std::uint64_t number,
                                  const std::string& why) {
  lose(1, Error(ErrorCode::kCorrupt, key.empty() ? fmt::format("record {}: {}", number, why)
                                                 : fmt::format("record {}: {}", quote(key), why)));
}

namespace {

// The block as it was. Throws kCorrupt where a slot is damaged.
SealedBlock seal_again(const Header& header, const FoundBlock& block,
                       const Dictionary* dictionary) {
  const BlockHeader& h = block.header;
  std::vector<EncodedRecord> records;
  records.reserve(block.slots.size());
  for (const FoundBlock::Slot& slot : block.slots) {
    records.push_back(stored_record(block, slot, dictionary));
    if (h.kind != BlockKind::kDictionary && records.back().raw_bytes > header.piece_bytes)
      throw Error(ErrorCode::kCorrupt, "larger than a piece");
    const std::uint64_t done = h.piece * std::uint64_t{header.piece_bytes};
    if (is_piece(h.kind) &&
        (done >= h.record_bytes ||
         records.back().raw_bytes !=
             std::min<std::uint64_t>(header.piece_bytes, h.record_bytes - done))) {
      throw Error(ErrorCode::kCorrupt, "a piece of another size");
    }
  }
  if (!block.framed) {
    switch (h.kind) {
      case BlockKind::kRecords:
        return build_block(header, h.number, h.first_record, records);
      case BlockKind::kDictionary:
        return build_dictionary_block(header, h.number, records[0].stored);
      case BlockKind::kFirstPiece:
      case BlockKind::kNextPiece:
        return build_piece(header, h.number, h.first_record, records[0], h.record_bytes, h.piece);
    }
  }
  SealedBlock sealed;
  const ByteView bytes = **block.bytes;
  sealed.bytes.assign(bytes.begin(), bytes.end());
  sealed.header = h;
  sealed.crc32c = crc32c(bytes);
  sealed.xxh3 = xxh3_128(bytes);
  for (std::size_t i = 0; i < records.size(); ++i) {
    const EncodedRecord& record = records[i];
    SealedBlock::Slot slot;
    slot.key_hash = record.key_hash;
    slot.raw_bytes = h.kind == BlockKind::kFirstPiece  ? h.record_bytes
                     : h.kind == BlockKind::kNextPiece ? 0
                                                       : record.raw_bytes;
    slot.slot_bytes = static_cast<std::uint32_t>(block.slots[i].end - block.slots[i].begin);
    slot.stored_bytes = static_cast<std::uint32_t>(record.stored.size());
    slot.plain = h.kind == BlockKind::kRecords && record.codec == Codec::kStored &&
                 slot.slot_bytes == SlotPrefix::kBytes + slot.stored_bytes;
    sealed.slots.push_back(slot);
  }
  return sealed;
}

class Recovery {
 public:
  Recovery(std::shared_ptr<const ByteSource> source, ByteSink& sink, const RecoverOptions& options)
      : container_(std::move(source)),
        sink_(sink),
        memory_(options.memory != nullptr ? options.memory : &spill_),
        workers_(options.threads),
        progress_(options, container_.source().size()) {}

  RecoverReport run() {
    RecoverReport& report = progress_.report;
    report.index_used = container_.by_index();
    const bool whole = !container_.header_error() && copy_whole();
    if (!whole) {
      if (const std::optional<Error>& error = container_.header_error()) {
        progress_.lose(0, error->within("header").within(
                              "seed, order, grouping and part of the container are lost"));
      }
      report.summary = Salvage(container_, sink_, workers_, memory_, progress_).run();
    }
    const std::optional<Tail>& tail = container_.tail();
    report.identical = tail && report.summary.id == tail->id;
    if (!report.index_used && !report.identical) check_end();
    if (const auto foreign = container_.foreign_block(progress_.end)) {
      progress_.lose(
          0, Error(ErrorCode::kInvalidArgument,
                   fmt::format("byte {}: a block of another container, which is passed over",
                               *foreign)));
    }
    if (!whole && report.losses == 0 && container_.header().order != PackOrder::kInput) {
      progress_.lose(
          0, Error(ErrorCode::kCorrupt,
                   "the records are not in the order that the header names: the order is lost"));
    }
    return report;
  }

 private:
  bool copy_whole();
  void check_end();

  DamagedContainer container_;
  ByteSink& sink_;
  SpillMemory spill_;
  std::pmr::memory_resource* memory_;
  Workers workers_;
  RecoverProgress progress_;
};

// Writes the container with the blocks, the order and the numbers that it had. False, with the sink
// as it was, where something is missing.
bool Recovery::copy_whole() {
  const Header& header = container_.header();
  const Dictionary* const dictionary = container_.dictionary();
  ContainerWriter writer(sink_, header, memory_);
  SeenKeys keys(memory_);
  std::vector<bool> sample_starts;
  std::string previous;
  std::uint64_t pieces_left = 0;
  std::uint64_t record_bytes = 0;  // of the record in pieces
  progress_.end = header.header_bytes;
  bool whole = true;
  try {
    const std::unique_ptr<FoundBlocks> blocks = container_.blocks();
    while (const std::optional<FoundBlock> block = blocks->next()) {
      const BlockHeader& h = block->header;
      const bool continues = h.kind == BlockKind::kNextPiece;
      if (h.number != writer.blocks() || h.first_record != keys.size() ||
          continues != (pieces_left > 0) ||
          (continues && (block->slots[0].key != previous || h.record_bytes != record_bytes)) ||
          (h.kind == BlockKind::kDictionary && h.number != 0)) {
        whole = false;
        break;
      }
      const SealedBlock sealed = h.kind == BlockKind::kDictionary && dictionary != nullptr
                                     ? build_dictionary_block(header, h.number, dictionary->bytes())
                                     : seal_again(header, *block, dictionary);
      if (is_piece(h.kind)) {
        record_bytes = h.record_bytes;
        const std::uint64_t pieces = pieces_of(h.record_bytes, header.piece_bytes);
        pieces_left = continues ? pieces_left - 1 : pieces - 1;
        if (h.piece + pieces_left + 1 != pieces) {
          whole = false;
          break;
        }
      }
      for (const FoundBlock::Slot& slot : block->slots) {
        if (continues || h.kind == BlockKind::kDictionary) break;
        if (header.grouping == Grouping::kStem)
          sample_starts.push_back(keys.size() == 0 || key_stem(slot.key) != key_stem(previous));
        whole = whole && keys.add(slot.key);
        previous = slot.key;
      }
      writer.append(sealed);
      progress_.end = block->offset + sealed.bytes.size();
      progress_.advanced();
    }
    whole = whole && pieces_left == 0;
    if (const Index* index = container_.index())
      whole = whole && writer.blocks() == index->blocks();
    if (whole) {
      keys.sort();
      progress_.report.summary = writer.seal(keys, sample_starts);
      progress_.blocks = writer.blocks();
      progress_.records = keys.size();
      return true;
    }
  } catch (const Error& error) {
    // Names that are not those of the header's order: blocks are missing at the end.
    if (error.code() != ErrorCode::kCorrupt && error.code() != ErrorCode::kInvalidArgument) throw;
  }
  sink_.restart();
  return false;
}

// Without an index: whether the blocks that were found are all that there were. The counts of the
// footer, damaged as it is, may say so.
void Recovery::check_end() {
  std::optional<std::uint64_t> records;
  if (const Index* index = container_.index()) {
    records = index->records();
  } else {
    const std::uint64_t footer = round_up(progress_.end, kFooterAlign);
    const ByteSource& source = container_.source();
    if (footer <= source.size() && source.size() - footer >= FooterHeader::kBytes) {
      const SourceBytes bytes(source, footer, FooterHeader::kBytes);
      const FooterHeader counts = FooterHeader::decode((*bytes).data());
      if (counts.blocks == progress_.blocks && counts.records == progress_.records)
        records = counts.records;
    }
  }
  if (!records) {
    progress_.report.all_known = false;
    progress_.lose(
        0, Error(ErrorCode::kTruncated,
                 fmt::format("byte {}: neither a block nor the footer follows; whatever records "
                             "came after the first {} are lost",
                             progress_.end, progress_.records)));
  } else if (*records > progress_.records) {
    const std::uint64_t lost = *records - progress_.records;
    progress_.lose(lost,
                   Error(ErrorCode::kCorrupt,
                         fmt::format("byte {}: the last {} are lost", progress_.end,
                                     lost == 1 ? "record" : fmt::format("{} records", lost))));
  }
}

}  // namespace

RecoverReport recover(std::shared_ptr<const ByteSource> source, ByteSink& sink,
                      const RecoverOptions& options) {
  return Recovery(std::move(source), sink, options).run();
}

}  // namespace sml
