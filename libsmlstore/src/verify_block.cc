#include "verify_block.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "quote.h"
#include "smlformat/block.h"
#include "smlformat/checksum.h"
#include "smlformat/key.h"

namespace sml {
namespace {

[[noreturn]] void corrupt(const std::string& what) { throw Error(ErrorCode::kCorrupt, what); }

class BlockVerifier {
 public:
  BlockVerifier(const Dataset::Container& container, const CheckedDictionary& dictionary,
                std::uint64_t number)
      : container_(container),
        index_(container.reader->index()),
        dictionary_(dictionary),
        number_(number),
        row_(index_.block(number)),
        begin_(index_.block_offset(number)) {}

  BlockReport run() {
    attempt([&] { load(); });
    if (!block_.empty()) {
      attempt([&] { check_sums(); });
      attempt([&] { table_ = BlockTable::decode(block_); });
      attempt([&] { check_table(); });
    }
    switch (row_.kind) {
      case BlockKind::kDictionary:
        check_dictionary();
        break;
      case BlockKind::kRecords:
        for (std::uint32_t slot = 0; slot < row_.slots; ++slot)
          check_record(slot, row_.first_record + slot);
        break;
      case BlockKind::kFirstPiece:
        check_record(0, row_.first_record);
        break;
      case BlockKind::kNextPiece:
        check_record(0, row_.first_record - 1);
        break;
    }
    return std::move(report_);
  }

 private:
  // Runs a check; what it throws is a finding. `context` is made only then.
  template <class Check, class Context>
  bool attempt(Check check, Context context) {
    try {
      check();
      return true;
    } catch (const Error& error) {
      const std::string where = context();
      report_.findings.push_back(
          (where.empty() ? error : error.within(where)).within(fmt::format("block {}", number_)));
      return false;
    }
  }
  template <class Check>
  bool attempt(Check check) {
    return attempt(check, [] { return std::string(); });
  }

  void load() {
    bytes_ =
        SourceBytes(container_.reader->source(), begin_, index_.block_offset(number_ + 1) - begin_);
    block_ = *bytes_;
  }

  void check_sums() const {
    const std::uint32_t crc = crc32c(block_);
    const Hash128 hash = xxh3_128(block_);
    if (crc == row_.crc32c && hash == row_.xxh3) return;
    corrupt(
        fmt::format("at offset {}: checksum mismatch (stored {:08x}, computed {:08x}; XXH3 stored "
                    "{}, computed {})",
                    begin_, row_.crc32c, crc, row_.xxh3.hex(), hash.hex()));
  }

  void check_table() {
    if (!table_) return;
    const BlockHeader& h = table_->header();
    const auto same = [](const char* what, std::uint64_t in_block, std::uint64_t in_index) {
      if (in_block != in_index)
        corrupt(fmt::format("its header gives {} {}, the index {}", what, in_block, in_index));
    };
    attempt([&] { same("block number", h.number, number_); });
    attempt([&] { same("first record", h.first_record, row_.first_record); });
    attempt([&] { same("tag", h.tag, container_.reader->header().tag); });
    attempt([&] { same("size", h.block_bytes, block_.size()); });
    attempt([&] {
      same("kind", static_cast<std::uint64_t>(h.kind), static_cast<std::uint64_t>(row_.kind));
    });
    attempt([&] { same("start of the slots", h.slots_offset, row_.slots_offset); });
    attempt([&] {
      const std::uint64_t table_end = BlockHeader::kBytes + h.table_stored_bytes;
      if (!all_zero(block_.subspan(table_end, h.slots_offset - table_end)))
        corrupt("padding before the slots is not zero");
    });
    if (!attempt([&] { same("slots", h.slots, row_.slots); }))
      table_.reset();  // its slots are not the index's records
  }

  void check_dictionary() {
    if (table_ && table_->header().kind == BlockKind::kDictionary) {
      const ByteView slot = block_.subspan(table_->slot_begin(0));
      attempt(
          [&] {
            const VerifiedSlot verified = verify_slot(slot, 0);
            check_padding(slot, verified);
            if (verified.codec != Codec::kStored) corrupt("it is not stored as it is");
            if (!std::ranges::equal(verified.stored, index_.dictionary()))
              corrupt("it is not the dictionary of the footer");
          },
          [] { return std::string("dictionary"); });
    }
    if (dictionary_.error && report_.findings.empty())
      attempt([&] { throw Error(*dictionary_.error); });
  }

  static void check_padding(ByteView slot, const VerifiedSlot& verified) {
    if (!all_zero(slot.subspan(SlotPrefix::kBytes + verified.stored.size())))
      corrupt("padding is not zero");
  }

  // A record, or the piece of one that the block holds.
  void check_record(std::uint32_t slot, std::uint64_t record) {
    const bool starts_here = row_.kind != BlockKind::kNextPiece;
    if (starts_here) ++report_.records;
    std::uint64_t raw_bytes = 0;
    const auto by_number = [&] { return fmt::format("record {}", record); };
    place_ = {};
    bool placed = attempt([&] { place_ = index_.place(record); }, by_number);
    placed = placed && attempt([&] { raw_bytes = index_.raw_bytes(record); }, by_number);
    if (!table_) {
      key_.clear();
      attempt([&] { index_.key_of(record, key_); }, by_number);
    } else {
      key_.assign(table_->key(slot));
    }
    const bool piece = is_piece(row_.kind);
    const std::uint64_t begin = table_  ? table_->slot_begin(slot)
                                : piece ? row_.slots_offset
                                        : place_.offset - begin_;
    const std::uint64_t end = table_  ? table_->slot_end(slot)
                              : piece ? index_.block_offset(number_ + 1) - begin_
                                      : begin + place_.slot_bytes;
    const auto where = [&] {
      return key_.empty() ? fmt::format("record {} at offset {}", record, begin_ + begin)
                          : fmt::format("record {} at offset {}", quote(key_), begin_ + begin);
    };
    if (table_) attempt([&] { check_key(record, slot); }, where);
    if (!placed) return;
    if (starts_here) {
      report_.raw_bytes += raw_bytes;
      attempt([&] { check_place(begin, end); }, where);
    }
    if (block_.empty()) {
      attempt([] { throw Error(ErrorCode::kIo, "lost with the block that cannot be read"); },
              where);
      return;
    }
    attempt([&] { check_slot(block_.subspan(begin, end - begin), raw_bytes); }, where);
  }

  void check_place(std::uint64_t begin, std::uint64_t end) const {
    if (place_.block != number_ || place_.offset != begin_ + begin ||
        place_.slot_bytes != end - begin) {
      corrupt(
          fmt::format("the index places it in block {} at offset {}, {} bytes, the block at offset "
                      "{}, {} bytes",
                      place_.block, place_.offset, place_.slot_bytes, begin_ + begin, end - begin));
    }
  }

  void check_key(std::uint64_t record, std::uint32_t slot) {
    const std::optional<std::uint64_t> found = index_.find(key_);
    if (!found) corrupt("the index does not find its key");
    if (*found != record)
      corrupt(fmt::format("the index finds its key at number {} instead of {}", *found, record));
    if (row_.kind == BlockKind::kNextPiece) return;
    const Header& header = container_.reader->header();
    const std::string_view stem = key_stem(key_);
    if (header.parts != 0 && xxh3_64(as_bytes(stem)) % header.parts != header.part - 1) {
      corrupt(fmt::format("its stem belongs to part {} of {}, not {}",
                          xxh3_64(as_bytes(stem)) % header.parts + 1, header.parts, header.part));
    }
    if (header.grouping == Grouping::kStem && record > 0) {
      if (slot > 0) {
        previous_.assign(table_->key(slot - 1));
      } else {
        index_.key_of(record - 1, previous_);
      }
      const bool same_sample = index_.sample_of(record) == index_.sample_of(record - 1);
      if (same_sample != (stem == key_stem(previous_))) {
        corrupt(fmt::format("the index puts it in {} sample as {}, its stem says otherwise",
                            same_sample ? "one" : "another", quote(previous_)));
      }
    }
  }

  // The bytes of a slot, up to the raw bytes that they decode to.
  void check_slot(ByteView slot, std::uint64_t raw_bytes) {
    const Header& header = container_.reader->header();
    std::uint64_t slot_raw_bytes = raw_bytes;
    if (is_piece(row_.kind)) {
      const std::uint64_t piece = number_ - place_.block;
      const std::uint64_t pieces = pieces_of(raw_bytes, header.piece_bytes);
      if (pieces != place_.pieces) {
        corrupt(
            fmt::format("{} bytes make {} pieces, there are {}", raw_bytes, pieces, place_.pieces));
      }
      slot_raw_bytes =
          std::min<std::uint64_t>(header.piece_bytes, raw_bytes - piece * header.piece_bytes);
      if (table_ &&
          (table_->header().piece != piece || table_->header().record_bytes != raw_bytes)) {
        corrupt(fmt::format("piece {} of {} bytes by the block header, piece {} of {} by the index",
                            table_->header().piece, table_->header().record_bytes, piece,
                            raw_bytes));
      }
    } else if (raw_bytes > header.piece_bytes) {
      corrupt(fmt::format("{} bytes by the index are more than a block holds", raw_bytes));
    }
    const VerifiedSlot verified =
        key_.empty() ? verify_slot(slot) : verify_slot(slot, key_hash(key_));
    report_.stored_bytes += verified.stored.size();
    check_padding(slot, verified);
    if (verified.codec == Codec::kStored) {
      if (verified.stored.size() != slot_raw_bytes) {
        corrupt(fmt::format("{} bytes are stored, the index says {}", verified.stored.size(),
                            slot_raw_bytes));
      }
      return;
    }
    if (verified.codec == Codec::kZstdDictionary && dictionary_.error) {
      corrupt("cannot be decoded without the container's dictionary, which is damaged");
    }
    raw_.resize(std::max<std::size_t>(raw_.size(), slot_raw_bytes));
    Decoder::local().decode(verified.codec, verified.stored, dictionary_.dictionary,
                            MutableBytes(raw_).first(slot_raw_bytes));
  }

  const Dataset::Container& container_;
  const Index& index_;
  const CheckedDictionary& dictionary_;
  std::uint64_t number_;
  BlockRow row_;
  std::uint64_t begin_;  // of the block in the container
  SourceBytes bytes_;
  ByteView block_;  // empty where it cannot be read
  Bytes raw_;
  std::optional<BlockTable> table_;  // nothing where it is damaged or contradicts the index
  Place place_;                      // of the record being checked
  std::string key_;                  // likewise; empty where nothing tells it
  std::string previous_;
  BlockReport report_;
};

}  // namespace

CheckedDictionary::CheckedDictionary(const ContainerReader& reader) {
  try {
    dictionary = reader.dictionary();
  } catch (const Error& e) {
    error = e;
  }
}

BlockReport verify_block(const Dataset::Container& container, const CheckedDictionary& dictionary,
                         std::uint64_t number) {
  return BlockVerifier(container, dictionary, number).run();
}

bool all_zero(ByteView bytes) noexcept {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](std::byte byte) { return byte == std::byte{0}; });
}

}  // namespace sml
