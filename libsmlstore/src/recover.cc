#include "smlstore/recover.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "block_assembler.h"
#include "found_blocks.h"
#include "ordered_tasks.h"
#include "quote.h"
#include "seen_keys.h"
#include "smlformat/codec.h"
#include "smlformat/container_reader.h"
#include "smlformat/key.h"
#include "smlstore/spill.h"

namespace sml {
namespace {

// A source of which some bytes cannot be read: they read as zeros, which no checksum takes for
// data.
class SalvageSource final : public ByteSource {
 public:
  explicit SalvageSource(std::shared_ptr<const ByteSource> source) : source_(std::move(source)) {}

  std::uint64_t size() const override { return source_->size(); }
  ByteView view(std::uint64_t offset, std::uint64_t bytes) const override {
    return source_->view(offset, bytes);
  }
  void read(std::uint64_t offset, MutableBytes out) const override {
    try {
      return source_->read(offset, out);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kIo || out.size() <= kSectorBytes) throw;
    }
    for (std::size_t at = 0; at < out.size(); at += kSectorBytes) {
      const MutableBytes sector = out.subspan(at, std::min(kSectorBytes, out.size() - at));
      try {
        source_->read(offset + at, sector);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kIo) throw;
        std::fill(sector.begin(), sector.end(), std::byte{0});
      }
    }
  }

 private:
  static constexpr std::size_t kSectorBytes = 512;

  std::shared_ptr<const ByteSource> source_;
};

std::uint64_t pieces_of(std::uint64_t record_bytes, std::uint32_t piece_bytes) noexcept {
  return record_bytes / piece_bytes + (record_bytes % piece_bytes != 0 ? 1 : 0);
}

bool is_piece(BlockKind kind) noexcept {
  return kind == BlockKind::kFirstPiece || kind == BlockKind::kNextPiece;
}

class Recovery {
 public:
  Recovery(const std::shared_ptr<const ByteSource>& source, ByteSink& sink,
           const RecoverOptions& options)
      : source_(std::make_shared<const SalvageSource>(source)),
        sink_(sink),
        options_(options),
        memory_(options.memory != nullptr ? options.memory : &spill_),
        workers_(options.threads) {}

  RecoverReport run() {
    open();
    if (!header_known_ || !copy_whole()) salvage();
    report_.index_used = reader_ != nullptr;
    report_.identical = tail_ && report_.summary.id == tail_->id &&
                        report_.summary.container_bytes == source_->size();
    if (!reader_ && !report_.identical) check_end();
    if (order_lost_ && report_.losses == 0) {
      lose(0, Error(ErrorCode::kCorrupt,
                    "the records are not in the order that the header names: the order is lost"));
    }
    return report_;
  }

 private:
  // A record of which all pieces up to now are intact.
  struct Pending {
    std::string key;
    std::uint64_t record_bytes = 0;
    struct Piece {
      std::uint64_t offset;  // of the slot, in the source
      std::uint64_t bytes;
    };
    std::vector<Piece> pieces;
  };

  void open();
  bool header_is_newer() const;
  void guess_header();
  std::unique_ptr<FoundBlocks> find_blocks() const;
  EncodedRecord encoded(const FoundBlock& block, const FoundBlock::Slot& slot) const;
  bool copy_whole();
  SealedBlock seal_again(const FoundBlock& block) const;
  void salvage();
  void salvage_block(const std::shared_ptr<const FoundBlock>& block);
  void salvage_piece(const FoundBlock& block);
  void account_for_gap(const FoundBlock& block);
  void drop_pending();
  void give_pending();
  bool accept(std::string_view key, bool& starts_sample);
  void check_end();
  void progress(std::uint64_t done) const;
  void lose(std::uint64_t records, const Error& error);
  void lose_record(const std::string& key, std::uint64_t number, const std::string& why);

  std::shared_ptr<const SalvageSource> source_;
  ByteSink& sink_;
  const RecoverOptions& options_;
  SpillMemory spill_;
  std::pmr::memory_resource* memory_;
  Workers workers_;
  RecoverReport report_;

  std::optional<Tail> tail_;
  std::unique_ptr<ContainerReader> reader_;  // where the footer is usable
  Header header_;
  bool header_known_ = true;
  std::optional<Error> header_error_;
  // Where the blocks that were found end, and what they held.
  std::uint64_t blocks_end_ = 0;
  std::uint64_t blocks_ = 0;
  std::uint64_t records_ = 0;

  // Of the salvage.
  bool order_lost_ = false;
  std::optional<SeenKeys> keys_;
  std::optional<SeenKeys> stems_;
  std::vector<bool> sample_starts_;
  std::string open_stem_;
  bool has_dictionary_ = false;
  BlockAssembler* assembler_ = nullptr;
  std::optional<Pending> pending_;
  std::optional<std::uint64_t>
      lost_pieces_of_;  // number of the record whose pieces are passed over
};

void Recovery::open() {
  const std::uint64_t size = source_->size();
  if (size >= Header::kBytes + Tail::kBytes) {
    std::byte bytes[Tail::kBytes];
    source_->read(size - Tail::kBytes, bytes);
    try {
      tail_ = Tail::decode(bytes);
    } catch (const Error&) {
      tail_.reset();
    }
  }
  for (const auto from :
       {ContainerReader::HeaderFrom::kFront, ContainerReader::HeaderFrom::kFooter}) {
    if (reader_) break;
    try {
      reader_ = std::make_unique<ContainerReader>(source_, from);
    } catch (const Error& error) {
      // A container of a newer kind is not a damaged one. But a version that is damaged has a wrong
      // checksum behind it.
      const bool newer =
          from == ContainerReader::HeaderFrom::kFront ? header_is_newer() : tail_.has_value();
      if (error.code() == ErrorCode::kUnsupported && newer) throw;
    }
  }
  if (reader_) {
    header_ = reader_->header();
    return;
  }
  try {
    std::byte bytes[Header::kBytes];
    source_->read(0, bytes);
    header_ = Header::decode(bytes);
  } catch (const Error& error) {
    header_error_ = error;
    header_known_ = false;
    guess_header();
  }
}

bool Recovery::header_is_newer() const {
  if (source_->size() < Header::kBytes) return false;
  std::byte bytes[Header::kBytes];
  source_->read(0, bytes);
  constexpr std::size_t kChecksumAt = Header::kBytes - sizeof(std::uint32_t);
  if (load<std::uint32_t>(bytes + kChecksumAt) != crc32c(ByteView(bytes).first(kChecksumAt)))
    return false;
  try {
    Header::decode(bytes);
  } catch (const Error& error) {
    return error.code() == ErrorCode::kUnsupported;
  }
  return false;
}

// What is needed to lay records out again, from the blocks themselves.
void Recovery::guess_header() {
  std::uint64_t largest = 0;
  std::uint64_t piece_bytes = 0;
  bool any = false;
  const std::unique_ptr<FoundBlocks> blocks = find_blocks();
  while (const std::optional<FoundBlock> block = blocks->next()) {
    any = true;
    largest = std::max<std::uint64_t>(largest, block->header.block_bytes);
    if (block->header.kind != BlockKind::kFirstPiece) continue;
    try {
      piece_bytes = std::max(piece_bytes, encoded(*block, block->slots[0]).raw_bytes);
    } catch (const Error&) {  // the record is lost; another may tell
    }
  }
  if (!any)
    throw Error(ErrorCode::kCorrupt, "there is neither a header nor a block of a container");
  header_ = {};
  const std::uint64_t needed =
      std::max(largest, piece_bytes + kDefaultBlockBytes - piece_bytes_of(kDefaultBlockBytes, 1));
  header_.block_bytes = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(std::bit_ceil(needed), kDefaultBlockBytes, kMaxBlockBytes));
  header_.piece_bytes = piece_bytes_of(header_.block_bytes, 1);
  if (piece_bytes != 0 && piece_bytes < header_.piece_bytes)
    header_.piece_bytes = static_cast<std::uint32_t>(piece_bytes);
  header_.order = PackOrder::kInput;
}

std::unique_ptr<FoundBlocks> Recovery::find_blocks() const {
  if (reader_) return blocks_by_index(*reader_);
  const std::uint64_t end =
      tail_ && tail_->footer_offset <= source_->size() ? tail_->footer_offset : source_->size();
  const std::uint64_t begin = header_known_ ? header_.header_bytes : 0;
  return blocks_by_scan(*source_, begin, end, header_known_ ? header_.block_bytes : kMaxBlockBytes);
}

// A slot, verified. Throws kCorrupt.
EncodedRecord Recovery::encoded(const FoundBlock& block, const FoundBlock::Slot& slot) const {
  const bool dictionary = block.header.kind == BlockKind::kDictionary;
  if (slot.end == slot.begin || (!dictionary && slot.key.empty()))
    throw Error(ErrorCode::kCorrupt, "the index does not tell what it is and where");
  EncodedRecord record;
  record.key = slot.key;
  record.key_hash = dictionary ? 0 : key_hash(slot.key);
  const ByteView bytes = (**block.bytes).subspan(slot.begin, slot.end - slot.begin);
  const VerifiedSlot verified = verify_slot(bytes, record.key_hash);
  record.codec = verified.codec;
  record.stored = verified.stored;
  record.stored_crc32c = verified.stored_crc32c;
  const std::optional<std::uint64_t> raw_bytes = raw_bytes_of(record.codec, record.stored);
  if (!raw_bytes) throw Error(ErrorCode::kCorrupt, "its stored bytes do not tell its size");
  record.raw_bytes = *raw_bytes;
  return record;
}

// The block as it was. Throws kCorrupt where a slot is damaged.
SealedBlock Recovery::seal_again(const FoundBlock& block) const {
  const BlockHeader& h = block.header;
  std::vector<EncodedRecord> records;
  records.reserve(block.slots.size());
  for (const FoundBlock::Slot& slot : block.slots) {
    records.push_back(encoded(block, slot));
    if (h.kind != BlockKind::kDictionary && records.back().raw_bytes > header_.piece_bytes)
      throw Error(ErrorCode::kCorrupt, "larger than a piece");
  }
  if (!block.framed) {
    switch (h.kind) {
      case BlockKind::kRecords:
        return build_block(header_, h.number, h.first_record, records);
      case BlockKind::kDictionary:
        return build_dictionary_block(header_, h.number, records[0].stored);
      case BlockKind::kFirstPiece:
      case BlockKind::kNextPiece:
        return build_piece(header_, h.number, h.first_record, records[0], h.record_bytes, h.piece);
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

// Writes the container with the blocks, the order and the numbers that it had. False, with the sink
// as it was, where something is missing.
bool Recovery::copy_whole() {
  ContainerWriter writer(sink_, header_, memory_);
  SeenKeys keys(memory_);
  std::vector<bool> sample_starts;
  std::string previous;
  std::uint64_t pieces_left = 0;
  blocks_end_ = header_.header_bytes;
  bool whole = true;
  try {
    const std::unique_ptr<FoundBlocks> blocks = find_blocks();
    while (const std::optional<FoundBlock> block = blocks->next()) {
      const BlockHeader& h = block->header;
      const bool continues = h.kind == BlockKind::kNextPiece;
      if (h.number != writer.blocks() || h.first_record != keys.size() ||
          continues != (pieces_left > 0) || (h.kind == BlockKind::kDictionary && h.number != 0)) {
        whole = false;
        break;
      }
      const SealedBlock sealed =
          h.kind == BlockKind::kDictionary && reader_
              ? build_dictionary_block(header_, h.number, reader_->index().dictionary())
              : seal_again(*block);
      if (is_piece(h.kind)) {
        const std::uint64_t pieces = pieces_of(h.record_bytes, header_.piece_bytes);
        pieces_left = continues ? pieces_left - 1 : pieces - 1;
        if (h.piece + pieces_left + 1 != pieces) {
          whole = false;
          break;
        }
      }
      for (const FoundBlock::Slot& slot : block->slots) {
        if (continues || h.kind == BlockKind::kDictionary) break;
        if (header_.grouping == Grouping::kStem)
          sample_starts.push_back(keys.size() == 0 || key_stem(slot.key) != key_stem(previous));
        whole = whole && keys.add(slot.key);
        previous = slot.key;
      }
      writer.append(sealed);
      blocks_end_ = block->offset + sealed.bytes.size();
      progress(blocks_end_);
    }
    whole = whole && pieces_left == 0;
    if (reader_) whole = whole && writer.blocks() == reader_->index().blocks();
    if (whole) {
      keys.sort();
      report_.summary = writer.seal(keys, sample_starts);
      blocks_ = writer.blocks();
      records_ = keys.size();
      return true;
    }
  } catch (const Error& error) {
    // Names that are not those of the header's order: blocks are missing at the end.
    if (error.code() != ErrorCode::kCorrupt && error.code() != ErrorCode::kInvalidArgument) throw;
  }
  sink_.restart();
  return false;
}

void Recovery::salvage() {
  if (header_error_) {
    lose(0, header_error_->within("header").within(
                "seed, order, grouping and part of the container are lost"));
  }
  order_lost_ = header_.order != PackOrder::kInput;
  header_.order = PackOrder::kInput;
  header_.seed = 0;
  ContainerWriter writer(sink_, header_, memory_);
  const std::uint64_t in_flight =
      std::clamp<std::uint64_t>(options_.memory_bytes / (3 * std::uint64_t{header_.block_bytes}), 1,
                                2 * std::uint64_t{workers_.threads()});
  BlockAssembler assembler(writer, workers_, in_flight, {});
  assembler_ = &assembler;
  keys_.emplace(memory_);
  stems_.emplace(memory_);
  blocks_end_ = header_.header_bytes;

  if (reader_ && !reader_->index().dictionary().empty()) {
    const ByteView dictionary = reader_->index().dictionary();
    assembler.add_dictionary(Bytes(dictionary.begin(), dictionary.end()));
    has_dictionary_ = true;
  }
  const std::unique_ptr<FoundBlocks> blocks = find_blocks();
  while (std::optional<FoundBlock> block = blocks->next()) {
    account_for_gap(*block);
    const auto shared = std::make_shared<const FoundBlock>(std::move(*block));
    salvage_block(shared);
    const BlockHeader& h = shared->header;
    blocks_ = h.number + 1;
    records_ = h.first_record;
    if (h.kind == BlockKind::kRecords || h.kind == BlockKind::kFirstPiece) records_ += h.slots;
    blocks_end_ = shared->offset + h.block_bytes;
    progress(blocks_end_);
  }
  drop_pending();
  assembler.finish();
  assembler_ = nullptr;
  keys_->sort();
  report_.summary = writer.seal(*keys_, sample_starts_);
}

// What is missing between the block before and this one.
void Recovery::account_for_gap(const FoundBlock& block) {
  const BlockHeader& h = block.header;
  if (h.kind == BlockKind::kNextPiece && pending_ && h.number == blocks_) return;
  drop_pending();
  if (h.number == blocks_) return;
  // A further piece tells the key of the record before it.
  const bool piece_of_lost = h.kind == BlockKind::kNextPiece && h.first_record > records_;
  std::uint64_t gap = h.first_record - records_;
  if (piece_of_lost) {
    lost_pieces_of_ = h.first_record - 1;
    --gap;
    lose_record(block.slots[0].key, *lost_pieces_of_, "its first piece is damaged");
  }
  const std::string which = h.number - blocks_ == 1
                                ? fmt::format("block {}", blocks_)
                                : fmt::format("blocks {} to {}", blocks_, h.number - 1);
  if (gap > 0) {
    lose(gap,
         Error(ErrorCode::kCorrupt,
               fmt::format("{} (bytes {} to {}): {} {} lost with their keys", which, blocks_end_,
                           block.offset - 1, gap, gap == 1 ? "record is" : "records are")));
  } else if (blocks_ == 0 && h.first_record == 0 && h.kind == BlockKind::kRecords) {
    lose(0, Error(ErrorCode::kCorrupt, "block 0: the container's dictionary is lost"));
  }
}

void Recovery::salvage_block(const std::shared_ptr<const FoundBlock>& block) {
  const BlockHeader& h = block->header;
  if (is_piece(h.kind)) return salvage_piece(*block);
  if (h.kind == BlockKind::kDictionary) {
    if (has_dictionary_) return;
    try {
      const EncodedRecord dictionary = encoded(*block, block->slots[0]);
      assembler_->add_dictionary(Bytes(dictionary.stored.begin(), dictionary.stored.end()));
      has_dictionary_ = true;
    } catch (const Error& error) {
      lose(0, error.within("block 0: the container's dictionary is lost"));
    }
    return;
  }
  for (std::size_t i = 0; i < block->slots.size(); ++i) {
    const FoundBlock::Slot& slot = block->slots[i];
    try {
      const EncodedRecord record = encoded(*block, slot);
      if (record.codec == Codec::kZstdDictionary && !has_dictionary_)
        throw Error(ErrorCode::kCorrupt, "it needs the container's dictionary");
      if (record.raw_bytes > header_.piece_bytes ||
          record.cost(header_.align) > header_.block_bytes - block_overhead(header_.align))
        throw Error(ErrorCode::kCorrupt, "larger than a block of this container");
      bool starts_sample = true;
      if (accept(slot.key, starts_sample)) assembler_->add(record, block, starts_sample);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kCorrupt && error.code() != ErrorCode::kUnsupported) throw;
      lose_record(slot.key, h.first_record + i, error.what());
    }
  }
}

void Recovery::salvage_piece(const FoundBlock& block) {
  const BlockHeader& h = block.header;
  const FoundBlock::Slot& slot = block.slots[0];
  const bool first = h.kind == BlockKind::kFirstPiece;
  const std::uint64_t number = first ? h.first_record : h.first_record - 1;
  if (!first && !pending_) {
    if (lost_pieces_of_ == number) return;  // told already
    lost_pieces_of_ = number;
    return lose_record(slot.key, number, "a piece before is missing");
  }
  std::string why;
  try {
    const EncodedRecord record = encoded(block, slot);
    if (first) pending_ = Pending{slot.key, h.record_bytes, {}};
    const std::uint64_t done = h.piece * std::uint64_t{header_.piece_bytes};
    if (record.codec == Codec::kZstdDictionary && !has_dictionary_) {
      why = "it needs the container's dictionary";
    } else if (h.piece != pending_->pieces.size() || h.record_bytes != pending_->record_bytes ||
               slot.key != pending_->key || done >= h.record_bytes ||
               record.raw_bytes !=
                   std::min<std::uint64_t>(header_.piece_bytes, h.record_bytes - done)) {
      why = fmt::format("piece {} does not belong to it", h.piece);
    } else {
      pending_->pieces.push_back({block.offset + slot.begin, slot.end - slot.begin});
    }
  } catch (const Error& error) {
    why = fmt::format("piece {}: {}", h.piece, error.what());
  }
  if (!why.empty()) {
    pending_.reset();
    lost_pieces_of_ = number;
    return lose_record(slot.key, number, why);
  }
  if (pending_->pieces.size() == pieces_of(pending_->record_bytes, header_.piece_bytes))
    give_pending();
}

// A record whose remaining pieces do not come.
void Recovery::drop_pending() {
  if (!pending_) return;
  const Pending lost = std::move(*pending_);
  pending_.reset();
  lost_pieces_of_ = records_ - 1;
  lose_record(lost.key, *lost_pieces_of_,
              fmt::format("piece {} of {} is missing", lost.pieces.size(),
                          pieces_of(lost.record_bytes, header_.piece_bytes)));
}

void Recovery::give_pending() {
  const Pending record = std::move(*pending_);
  pending_.reset();
  bool starts_sample = true;
  if (!accept(record.key, starts_sample)) return;
  const auto piece = [&](std::uint32_t k) {
    struct Owner {
      SourceBytes bytes;
      std::string key;
    };
    const auto owner = std::make_shared<const Owner>(
        Owner{SourceBytes(*source_, record.pieces[k].offset, record.pieces[k].bytes), record.key});
    EncodedRecord encoded;
    encoded.key = owner->key;
    encoded.key_hash = key_hash(owner->key);
    const VerifiedSlot slot = verify_slot(*owner->bytes, encoded.key_hash);
    encoded.codec = slot.codec;
    encoded.stored = slot.stored;
    encoded.stored_crc32c = slot.stored_crc32c;
    encoded.raw_bytes = raw_bytes_of(slot.codec, slot.stored).value_or(0);
    return BlockAssembler::Piece{encoded, owner};
  };
  assembler_->add_in_pieces(record.record_bytes, piece, true, starts_sample);
}

// Takes the key of a record that is intact. False, told as a loss, where it cannot be.
bool Recovery::accept(std::string_view key, bool& starts_sample) {
  const bool grouped = header_.grouping == Grouping::kStem;
  const std::string_view stem = key_stem(key);
  if (grouped) {
    starts_sample = sample_starts_.empty() || stem != open_stem_;
    if (starts_sample && !stems_->add(stem)) {
      lose_record(std::string(key), keys_->size(), "its sample is elsewhere in the container");
      return false;
    }
    open_stem_ = stem;
  }
  if (!keys_->add(key)) {
    lose_record(std::string(key), keys_->size(), "an earlier record has its key");
    return false;
  }
  if (grouped) sample_starts_.push_back(starts_sample);
  return true;
}

// Without an index: whether the blocks that were found are all that there were. The counts of the
// footer, damaged as it is, may say so.
void Recovery::check_end() {
  const std::uint64_t footer = round_up(blocks_end_, kFooterAlign);
  std::optional<FooterHeader> counts;
  if (footer <= source_->size() && source_->size() - footer >= FooterHeader::kBytes) {
    const SourceBytes bytes(*source_, footer, FooterHeader::kBytes);
    counts = FooterHeader::decode((*bytes).data());
  }
  if (counts && counts->blocks == blocks_ && counts->records == records_) return;
  lose(0,
       Error(ErrorCode::kTruncated,
             fmt::format("byte {}: neither a block nor the footer follows; whatever records came "
                         "after the first {} are lost",
                         blocks_end_, records_)));
}

void Recovery::progress(std::uint64_t done) const {
  if (options_.stop.stop_requested()) throw Error(ErrorCode::kCancelled, "cancelled");
  if (options_.on_progress) options_.on_progress(done, source_->size());
}

void Recovery::lose(std::uint64_t records, const Error& error) {
  ++report_.losses;
  report_.records_lost += records;
  if (options_.on_loss) options_.on_loss(error);
}

void Recovery::lose_record(const std::string& key, std::uint64_t number, const std::string& why) {
  lose(1, Error(ErrorCode::kCorrupt, key.empty() ? fmt::format("record {}: {}", number, why)
                                                 : fmt::format("record {}: {}", quote(key), why)));
}

}  // namespace

RecoverReport recover(std::shared_ptr<const ByteSource> source, ByteSink& sink,
                      const RecoverOptions& options) {
  return Recovery(source, sink, options).run();
}

}  // namespace sml
