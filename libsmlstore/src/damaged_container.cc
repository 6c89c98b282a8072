#include "damaged_container.h"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

#include "missing_as_zeros.h"
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

// A source without its first bytes.
class RestOfSource final : public ByteSource {
 public:
  RestOfSource(std::shared_ptr<const ByteSource> source, std::uint64_t front)
      : source_(std::move(source)), front_(front) {}

  std::uint64_t size() const override { return source_->size() - front_; }
  ByteView view(std::uint64_t offset, std::uint64_t bytes) const override {
    return source_->view(front_ + offset, bytes);
  }
  void read(std::uint64_t offset, MutableBytes out) const override {
    source_->read(front_ + offset, out);
  }

 private:
  std::shared_ptr<const ByteSource> source_;
  std::uint64_t front_;
};

}  // namespace

DamagedContainer::DamagedContainer(std::shared_ptr<const ByteSource> source)
    : given_(std::move(source)), source_(std::make_shared<const SalvageSource>(given_)) {
  find_tail();
  open();
  if (!reader_) {
    try {
      std::byte bytes[Header::kBytes];
      source_->read(0, bytes);
      header_ = Header::decode(bytes);
    } catch (const Error& error) {
      header_error_ = error;
      guess_header();
    }
  }
  find_dictionary();
}

// A tail that fits tells where the container starts: bytes in front of it are no part of it.
void DamagedContainer::find_tail() {
  const std::uint64_t size = source_->size();
  if (size < Header::kBytes + Tail::kBytes) return;
  std::byte bytes[Tail::kBytes];
  source_->read(size - Tail::kBytes, bytes);
  try {
    const Tail tail = Tail::decode(bytes);
    if (tail.container_bytes <= size && tail.footer_offset < tail.container_bytes) tail_ = tail;
  } catch (const Error&) {
    tail_.reset();
  }
}

void DamagedContainer::open() {
  const std::uint64_t front = tail_ ? source_->size() - tail_->container_bytes : 0;
  std::shared_ptr<const ByteSource> whole = source_;
  if (front > 0) source_ = std::make_shared<const RestOfSource>(source_, front);
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
  if (reader_) header_ = reader_->header();
  if (front == 0) return;
  // Bytes in front, or bytes that were put in between? Then the index leads astray.
  if (reader_ && (reader_->index().blocks() == 0 || starts_with_block())) {
    bytes_in_front_ = front;
    before_ = whole;
    return;
  }
  blocks_moved_ = true;
  moved_by_ = front;
  source_ = std::move(whole);
}

bool DamagedContainer::starts_with_block() const {
  const auto block = BlockScan(*source_, header_.header_bytes, source_->size(), header_.tag).next();
  return block && block->offset == header_.header_bytes;
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

// What is needed to lay records out again, from the blocks themselves: those of the container that
// has most of the bytes.
void DamagedContainer::guess_header() {
  struct Tagged {
    std::uint64_t bytes = 0;
    std::uint64_t largest = 0;
    std::uint64_t piece_bytes = 0;
  };
  std::map<std::uint32_t, Tagged> tags;
  BlockScan scan(*source_, 0, source_->size(), std::nullopt);
  while (const std::optional<ScannedBlock> block = scan.next()) {
    const BlockHeader& h = block->table.header();
    Tagged& tagged = tags[h.tag];
    tagged.bytes += h.block_bytes;
    tagged.largest = std::max<std::uint64_t>(tagged.largest, h.block_bytes);
    if (h.kind != BlockKind::kFirstPiece || (*block->bytes).size() < h.block_bytes) continue;
    try {
      const VerifiedSlot slot = verify_slot((*block->bytes).subspan(block->table.slot_begin(0)));
      tagged.piece_bytes =
          std::max(tagged.piece_bytes, raw_bytes_of(slot.codec, slot.stored).value_or(0));
    } catch (const Error&) {  // the record is lost; another may tell
    }
  }
  const auto most = std::max_element(tags.begin(), tags.end(), [](const auto& a, const auto& b) {
    return a.second.bytes < b.second.bytes;
  });
  if (most == tags.end())
    throw Error(ErrorCode::kCorrupt, "there is neither a header nor a block of a container");
  const auto& [tag, found] = *most;
  header_ = {};
  const std::uint64_t needed = std::max(found.largest, found.piece_bytes + kDefaultBlockBytes -
                                                           piece_bytes_of(kDefaultBlockBytes, 1));
  header_.block_bytes = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(std::bit_ceil(needed), kDefaultBlockBytes, kMaxBlockBytes));
  header_.piece_bytes = piece_bytes_of(header_.block_bytes, 1);
  if (found.piece_bytes != 0 && found.piece_bytes < header_.piece_bytes)
    header_.piece_bytes = static_cast<std::uint32_t>(found.piece_bytes);
  header_.order = PackOrder::kInput;
  header_.tag = tag;
}

void DamagedContainer::find_dictionary() {
  Bytes bytes;
  if (reader_) {
    const ByteView footer = reader_->index().dictionary();
    bytes.assign(footer.begin(), footer.end());
  } else if (const std::optional<FoundBlock> first = blocks()->next();
             first && first->header.kind == BlockKind::kDictionary) {
    try {
      const ByteView stored = stored_record(*first, first->slots[0], nullptr).stored;
      bytes.assign(stored.begin(), stored.end());
    } catch (const Error&) {  // lost
    }
  }
  if (bytes.empty()) return;
  try {
    dictionary_ = std::make_unique<Dictionary>(std::move(bytes), 0);
  } catch (const Error&) {  // zstd does not take it: as good as lost
  }
}

std::unique_ptr<FoundBlocks> DamagedContainer::blocks() const {
  if (by_index())
    return blocks_by_index(*reader_, [this](std::uint64_t offset) {
      const auto* const objects = dynamic_cast<const MissingAsZeros*>(given_.get());
      return objects == nullptr ? std::string() : objects->why_missing(bytes_in_front_ + offset);
    });
  const std::uint64_t end = blocks_moved_ ? moved_by_ + tail_->footer_offset
                            : tail_       ? tail_->footer_offset
                                          : source_->size();
  return blocks_by_scan(*source_, header_error_ || blocks_moved_ ? 0 : header_.header_bytes, end,
                        header_.tag);
}

std::optional<std::uint64_t> DamagedContainer::foreign_block(std::uint64_t behind) const {
  if (before_) {
    if (const auto block = BlockScan(*before_, 0, bytes_in_front_, std::nullopt).next())
      return block->offset;
  }
  BlockScan scan(*source_, behind, source_->size(), std::nullopt);
  while (const auto block = scan.next()) {
    if (block->table.header().tag != header_.tag) return bytes_in_front_ + block->offset;
  }
  return std::nullopt;
}

EncodedRecord stored_record(const FoundBlock& block, const FoundBlock::Slot& slot,
                            const Dictionary* dictionary) {
  if (!block.unreadable.empty()) throw Error(ErrorCode::kCorrupt, block.unreadable);
  const bool is_dictionary = block.header.kind == BlockKind::kDictionary;
  if (slot.end == slot.begin || (!is_dictionary && slot.key.empty()))
    throw Error(ErrorCode::kCorrupt, "the index does not tell what it is and where");
  if (slot.end > (**block.bytes).size())
    throw Error(ErrorCode::kCorrupt, "it lies behind the end of the file");
  EncodedRecord record;
  record.key = slot.key;
  record.key_hash = is_dictionary ? 0 : key_hash(slot.key);
  const ByteView bytes = (**block.bytes).subspan(slot.begin, slot.end - slot.begin);
  const VerifiedSlot verified = verify_slot(bytes, record.key_hash);
  record.codec = verified.codec;
  record.stored = verified.stored;
  record.stored_crc32c = verified.stored_crc32c;
  const std::optional<std::uint64_t> raw_bytes = raw_bytes_of(record.codec, record.stored);
  if (!raw_bytes || *raw_bytes > kMaxBlockBytes)
    throw Error(ErrorCode::kCorrupt, "its stored bytes do not tell its size");
  record.raw_bytes = *raw_bytes;
  if (record.codec != Codec::kStored) {
    // Right checksums do not make a frame that decodes.
    thread_local Buffer raw;
    raw.resize(std::max<std::size_t>(raw.size(), record.raw_bytes));
    Decoder::local().decode(record.codec, record.stored, dictionary,
                            MutableBytes(raw).first(record.raw_bytes));
  }
  return record;
}

}  // namespace sml
