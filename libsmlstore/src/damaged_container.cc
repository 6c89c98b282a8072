#include "damaged_container.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "smlformat/checksum.h"
#include "smlformat/codec.h"
#include "smlformat/key.h"

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

}  // namespace

DamagedContainer::DamagedContainer(std::shared_ptr<const ByteSource> source)
    : source_(std::make_shared<const SalvageSource>(std::move(source))) {
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
    guess_header();
  }
}

bool DamagedContainer::header_is_newer() const {
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
void DamagedContainer::guess_header() {
  std::uint64_t largest = 0;
  std::uint64_t piece_bytes = 0;
  bool any = false;
  const std::unique_ptr<FoundBlocks> blocks = this->blocks();
  while (const std::optional<FoundBlock> block = blocks->next()) {
    any = true;
    largest = std::max<std::uint64_t>(largest, block->header.block_bytes);
    if (block->header.kind != BlockKind::kFirstPiece) continue;
    try {
      piece_bytes = std::max(piece_bytes, stored_record(*block, block->slots[0]).raw_bytes);
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

std::unique_ptr<FoundBlocks> DamagedContainer::blocks() const {
  if (reader_) return blocks_by_index(*reader_);
  const std::uint64_t end =
      tail_ && tail_->footer_offset <= source_->size() ? tail_->footer_offset : source_->size();
  const std::uint64_t begin = header_error_ ? 0 : header_.header_bytes;
  return blocks_by_scan(*source_, begin, end, header_error_ ? kMaxBlockBytes : header_.block_bytes);
}

EncodedRecord stored_record(const FoundBlock& block, const FoundBlock::Slot& slot) {
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

}  // namespace sml
