#include "smlformat/container_reader.h"

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>

#include <fmt/format.h>

#include "smlformat/block.h"
#include "smlformat/error.h"
#include "smlformat/key.h"

namespace sml {

// The footer, mapped where the source is, else read into aligned memory.
struct ContainerReader::FooterBytes {
  FooterBytes(const ByteSource& source, std::uint64_t offset, std::uint64_t bytes)
      : view(source.view(offset, bytes)) {
    constexpr auto kAlign = std::align_val_t{kSectionAlign};
    if (view.size() == bytes && reinterpret_cast<std::uintptr_t>(view.data()) % kSectionAlign == 0)
      return;
    owned.reset(static_cast<std::byte*>(::operator new(bytes, kAlign)));
    source.read(offset, {owned.get(), bytes});
    view = {owned.get(), bytes};
  }

  struct Free {
    void operator()(std::byte* p) const noexcept {
      ::operator delete (p, std::align_val_t{kSectionAlign});
    }
  };
  ByteView view;
  std::unique_ptr<std::byte, Free> owned;
};

// Loaded once. (std::call_once would be shorter, but a call that throws leaves others waiting for
// ever under ThreadSanitizer.)
struct ContainerReader::LazyDictionary {
  std::atomic<const Dictionary*> ready{nullptr};
  std::mutex mutex;
  std::unique_ptr<Dictionary> dictionary;
};

ContainerReader::~ContainerReader() = default;

ContainerReader::ContainerReader(std::shared_ptr<const ByteSource> source, HeaderFrom header_from)
    : source_(std::move(source)), dictionary_(std::make_unique<LazyDictionary>()) {
  const std::uint64_t size = source_->size();
  if (size < Header::kBytes) {
    throw Error(ErrorCode::kCorrupt, fmt::format("not a container: only {} bytes long", size));
  }
  if (header_from == HeaderFrom::kFront) {
    std::byte header[Header::kBytes];
    source_->read(0, header);
    header_ = Header::decode(header);
  }
  if (size < Header::kBytes + Tail::kBytes) {
    throw Error(ErrorCode::kTruncated,
                fmt::format("the container was cut short ({} bytes are left)", size));
  }
  std::byte tail[Tail::kBytes];
  source_->read(size - Tail::kBytes, tail);
  tail_ = Tail::decode(tail);
  const std::uint64_t footer_end = size - Tail::kBytes;
  if (tail_.container_bytes != size) {
    throw Error(ErrorCode::kCorrupt, fmt::format("the container has {} bytes, its tail says {}",
                                                 size, tail_.container_bytes));
  }
  if (tail_.version != header_.version)
    throw Error(ErrorCode::kCorrupt, "header and tail differ in version");
  if (tail_.footer_offset % kFooterAlign != 0 || tail_.footer_bytes % kSectionAlign != 0 ||
      tail_.footer_offset > footer_end || tail_.footer_bytes != footer_end - tail_.footer_offset ||
      tail_.footer_offset < Header::kBytes) {
    throw Error(ErrorCode::kCorrupt, "the tail gives a footer out of bounds");
  }
  footer_ = std::make_shared<FooterBytes>(*source_, tail_.footer_offset, tail_.footer_bytes);
  if (const Hash128 id = xxh3_128(footer_->view); id != tail_.id) {
    throw Error(ErrorCode::kCorrupt,
                fmt::format("footer: checksum mismatch (stored {}, computed {})", tail_.id.hex(),
                            id.hex()));
  }
  if (header_from == HeaderFrom::kFooter) header_ = header_in_footer(footer_->view);
  index_ = std::make_unique<Index>(footer_->view, header_, tail_.footer_offset);
}

const Dictionary* ContainerReader::dictionary() const {
  const ByteView bytes = index_->dictionary();
  if (bytes.empty()) return nullptr;
  LazyDictionary& lazy = *dictionary_;
  if (const Dictionary* ready = lazy.ready.load(std::memory_order_acquire)) return ready;
  const std::lock_guard lock(lazy.mutex);
  if (!lazy.dictionary) {
    try {
      lazy.dictionary = std::make_unique<Dictionary>(Bytes(bytes.begin(), bytes.end()), 0);
    } catch (const Error& e) {
      throw e.within("dictionary");
    }
    lazy.ready.store(lazy.dictionary.get(), std::memory_order_release);
  }
  return lazy.dictionary.get();
}

VerifiedSlot verify_slot(ByteView slot) {
  if (slot.size() < SlotPrefix::kBytes) throw Error(ErrorCode::kCorrupt, "the slot is too short");
  const SlotPrefix prefix = SlotPrefix::decode(slot.data());
  const std::size_t behind = slot.size() - SlotPrefix::kBytes;
  // A damaged padding length shows in the checksum as any other byte does.
  const std::size_t pad_bytes = std::min<std::size_t>(prefix.pad_bytes, behind);
  VerifiedSlot out;
  out.codec = prefix.codec;
  out.stored = slot.subspan(SlotPrefix::kBytes, behind - pad_bytes);
  out.stored_crc32c = crc32c(out.stored);
  const std::uint32_t computed = crc32c(slot.subspan(4, SlotPrefix::kBytes - 4), out.stored_crc32c);
  if (computed != prefix.crc32c) {
    throw Error(
        ErrorCode::kCorrupt,
        fmt::format("checksum mismatch (stored {:08x}, computed {:08x})", prefix.crc32c, computed));
  }
  if (slot[5] != std::byte{0})
    throw Error(ErrorCode::kCorrupt, "reserved byte of the record prefix is not zero");
  if (prefix.pad_bytes > behind)
    throw Error(ErrorCode::kCorrupt, "the padding is longer than the slot");
  return out;
}

VerifiedSlot verify_slot(ByteView slot, std::uint64_t expected_key_hash) {
  const VerifiedSlot out = verify_slot(slot);
  if (const std::uint64_t hash = SlotPrefix::decode(slot.data()).key_hash;
      hash != expected_key_hash) {
    throw Error(ErrorCode::kCorrupt,
                fmt::format("another record is stored here (key hash {:016x}, expected {:016x})",
                            hash, expected_key_hash));
  }
  return out;
}

VerifiedSlot verify_piece(ByteView block, std::uint64_t block_number, std::uint64_t piece,
                          std::uint64_t record_bytes, std::string_view key) {
  const BlockTable table = BlockTable::decode(block);
  const BlockHeader& h = table.header();
  const BlockKind kind = piece == 0 ? BlockKind::kFirstPiece : BlockKind::kNextPiece;
  if (h.kind != kind || h.number != block_number || h.piece != piece ||
      h.record_bytes != record_bytes) {
    throw Error(ErrorCode::kCorrupt,
                fmt::format("block {} is not piece {} of the record", block_number, piece));
  }
  return verify_slot(block.subspan(table.slot_begin(0), table.slot_end(0) - table.slot_begin(0)),
                     key_hash(key));
}

}  // namespace sml
