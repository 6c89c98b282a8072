#include "salvage.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "smlformat/codec.h"
#include "smlformat/key.h"

namespace sml {
namespace {

Header salvaged_header(const Header& header) {
  Header salvaged = header;
  salvaged.order = PackOrder::kInput;
  salvaged.seed = 0;
  return salvaged;
}

// Each with the block that it came from and the records that it is made of.
std::size_t blocks_in_flight(const Header& header, const Workers& workers) {
  constexpr std::uint64_t kBytes = 128U << 20;
  return static_cast<std::size_t>(std::clamp<std::uint64_t>(
      kBytes / (3 * std::uint64_t{header.block_bytes}), 1, 2 * std::uint64_t{workers.threads()}));
}

}  // namespace

Salvage::Salvage(const DamagedContainer& container, ByteSink& sink, Workers& workers,
                 std::pmr::memory_resource* memory, RecoverProgress& progress)
    : container_(container),
      progress_(progress),
      writer_(sink, salvaged_header(container.header()), memory),
      header_(writer_.header()),
      assembler_(writer_, workers, blocks_in_flight(header_, workers), {}),
      keys_(memory),
      stems_(memory) {}

ContainerSummary Salvage::run() {
  progress_.end = header_.header_bytes;
  progress_.blocks = progress_.records = 0;
  if (const Dictionary* dictionary = container_.dictionary()) {
    const ByteView bytes = dictionary->bytes();
    assembler_.add_dictionary(Bytes(bytes.begin(), bytes.end()));
  }
  const std::unique_ptr<FoundBlocks> blocks = container_.blocks();
  while (std::optional<FoundBlock> found = blocks->next()) {
    account_for_gap(*found);
    const auto block = std::make_shared<const FoundBlock>(std::move(*found));
    add_block(block);
    const BlockHeader& h = block->header;
    progress_.blocks = h.number + 1;
    progress_.records = h.first_record;
    if (starts_records(h.kind)) progress_.records += h.slots;
    progress_.end = block->offset + h.block_bytes;
    progress_.advanced();
  }
  drop_pending();
  assembler_.finish();
  keys_.sort();
  return writer_.seal(keys_, sample_starts_);
}

// What is missing between the block before and this one.
void Salvage::account_for_gap(const FoundBlock& block) {
  const BlockHeader& h = block.header;
  if (h.kind == BlockKind::kNextPiece && pending_ && h.number == progress_.blocks) return;
  drop_pending();
  if (h.number == progress_.blocks) return;
  // A further piece tells the key of the record before it.
  const bool piece_of_lost = h.kind == BlockKind::kNextPiece && h.first_record > progress_.records;
  std::uint64_t gap = h.first_record - progress_.records;
  if (piece_of_lost) {
    lost_pieces_of_ = h.first_record - 1;
    --gap;
    progress_.lose_record(block.slots[0].key, *lost_pieces_of_, "its first piece is damaged");
  }
  const std::string which = h.number - progress_.blocks == 1
                                ? fmt::format("block {}", progress_.blocks)
                                : fmt::format("blocks {} to {}", progress_.blocks, h.number - 1);
  if (gap > 0) {
    progress_.lose(gap, Error(ErrorCode::kCorrupt,
                              fmt::format("{} (bytes {} to {}): {} {} lost with their keys", which,
                                          progress_.end, block.offset - 1, gap,
                                          gap == 1 ? "record is" : "records are")));
  } else if (progress_.blocks == 0 && h.first_record == 0 && h.kind == BlockKind::kRecords) {
    progress_.lose(0, Error(ErrorCode::kCorrupt, "block 0: the container's dictionary is lost"));
  }
}

void Salvage::add_block(const std::shared_ptr<const FoundBlock>& block) {
  const BlockHeader& h = block->header;
  if (is_piece(h.kind)) return add_piece(*block);
  if (h.kind == BlockKind::kDictionary) {
    if (container_.dictionary() == nullptr)
      progress_.lose(0, Error(ErrorCode::kCorrupt, "block 0: the container's dictionary is lost"));
    return;
  }
  for (std::size_t i = 0; i < block->slots.size(); ++i) {
    const FoundBlock::Slot& slot = block->slots[i];
    try {
      const EncodedRecord record = stored_record(*block, slot, container_.dictionary());
      if (record.raw_bytes > header_.piece_bytes ||
          record.cost(header_.align) > header_.block_bytes - block_overhead(header_.align))
        throw Error(ErrorCode::kCorrupt, "larger than a block of this container");
      bool starts_sample = true;
      if (accept(slot.key, starts_sample)) assembler_.add(record, block, starts_sample);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kCorrupt && error.code() != ErrorCode::kUnsupported) throw;
      progress_.lose_record(slot.key, h.first_record + i, error.what());
    }
  }
}

void Salvage::add_piece(const FoundBlock& block) {
  const BlockHeader& h = block.header;
  const FoundBlock::Slot& slot = block.slots[0];
  const bool first = h.kind == BlockKind::kFirstPiece;
  const std::uint64_t number = first ? h.first_record : h.first_record - 1;
  if (!first && !pending_) {
    if (lost_pieces_of_ == number) return;  // told already
    lost_pieces_of_ = number;
    return progress_.lose_record(slot.key, number, "a piece before is missing");
  }
  std::string why;
  try {
    const EncodedRecord record = stored_record(block, slot, container_.dictionary());
    if (first) pending_ = Pending{slot.key, h.record_bytes, {}};
    const std::uint64_t done = h.piece * std::uint64_t{header_.piece_bytes};
    if (h.piece != pending_->pieces.size() || h.record_bytes != pending_->record_bytes ||
        slot.key != pending_->key || done >= h.record_bytes ||
        record.raw_bytes != std::min<std::uint64_t>(header_.piece_bytes, h.record_bytes - done)) {
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
    return progress_.lose_record(slot.key, number, why);
  }
  if (pending_->pieces.size() == pieces_of(pending_->record_bytes, header_.piece_bytes))
    give_pending();
}

// A record whose remaining pieces do not come.
void Salvage::drop_pending() {
  if (!pending_) return;
  const Pending lost = std::move(*pending_);
  pending_.reset();
  lost_pieces_of_ = progress_.records - 1;
  progress_.lose_record(lost.key, *lost_pieces_of_,
                        fmt::format("piece {} of {} is missing", lost.pieces.size(),
                                    pieces_of(lost.record_bytes, header_.piece_bytes)));
}

void Salvage::give_pending() {
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
        Owner{SourceBytes(container_.source(), record.pieces[k].offset, record.pieces[k].bytes),
              record.key});
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
  assembler_.add_in_pieces(record.record_bytes, piece, true, starts_sample);
}

// Takes the key of a record that is intact. False, told as a loss, where it cannot be.
bool Salvage::accept(std::string_view key, bool& starts_sample) {
  const bool grouped = header_.grouping == Grouping::kStem;
  if (grouped) {
    const std::string_view stem = key_stem(key);
    if (stem != open_stem_) {
      if (!stems_.add(stem)) {
        progress_.lose_record(std::string(key), keys_.size(),
                              "its sample is elsewhere in the container");
        return false;
      }
      open_stem_ = stem;
      sample_open_ = false;
    }
    starts_sample = !sample_open_;
  }
  if (!keys_.add(key)) {
    progress_.lose_record(std::string(key), keys_.size(), "an earlier record has its key");
    return false;
  }
  if (grouped) sample_starts_.push_back(starts_sample);
  sample_open_ = true;
  return true;
}

}  // namespace sml
