#include "record_fetch.h"

#include <algorithm>

#include <fmt/format.h>

#include "quote.h"
#include "smlformat/frames.h"
#include "smlformat/key.h"

namespace sml {
namespace {

constexpr std::size_t kArenaChunkBytes = 512U << 10;
constexpr std::size_t kMaxReadBytes = 1U << 20;  // of neighbours read together

// The bytes of a range of a container: mapped, or read into the arena.
ByteView bytes_at(const ByteSource& source, std::uint64_t offset, std::uint64_t bytes, Arena& arena,
                  bool& mapped) {
  if (const ByteView view = source.view(offset, bytes); view.size() == bytes && bytes != 0) {
    mapped = true;
    return view;
  }
  mapped = false;
  const MutableBytes out = arena.allocate(bytes);
  source.read(offset, out);
  return out;
}

// What decodes to `raw_bytes` bytes, where it lies if it is stored as it is, else in the arena.
ByteView decoded(const VerifiedSlot& slot, std::uint64_t raw_bytes, const Dictionary* dictionary,
                 Arena& arena, std::uint32_t& crc) {
  if (slot.codec == Codec::kStored) {
    if (slot.stored.size() != raw_bytes) {
      throw Error(ErrorCode::kCorrupt, fmt::format("the stored size is {}, the index says {}",
                                                   slot.stored.size(), raw_bytes));
    }
    crc = slot.stored_crc32c;
    return slot.stored;
  }
  const MutableBytes raw = arena.allocate(raw_bytes);
  Decoder::local().decode(slot.codec, slot.stored, dictionary, raw);
  crc = crc32c(raw);
  return raw;
}

// One run of requests whose slots lie side by side.
class Fetcher {
 public:
  Fetcher(const Dataset& dataset, std::span<const RecordRequest> requests, bool with_keys,
          Arena& arena, std::span<FetchedRecord> out)
      : dataset_(dataset), requests_(requests), with_keys_(with_keys), arena_(arena), out_(out) {}

  void locate(std::size_t i);
  std::size_t read_run(std::size_t first);
  void finish(std::size_t i, ByteView slot, bool mapped);

 private:
  const Dataset& dataset_;
  std::span<const RecordRequest> requests_;
  bool with_keys_;
  Arena& arena_;
  std::span<FetchedRecord> out_;

 public:
  struct Located {
    const ContainerReader* reader = nullptr;
    std::uint64_t number = 0;  // in the container
    Place place;
  };
  std::vector<Located> located;
};

void Fetcher::locate(std::size_t i) {
  const RecordRequest& request = requests_[i];
  FetchedRecord& record = out_[i];
  Located& at = located[i];
  record.number = request.number;
  record.key = request.key;
  record.error.reset();
  record.pieces = 1;
  record.bytes = {};
  record.immutable = false;
  try {
    if (request.by_key) {
      record.number = kNoNumber;
      const std::optional<std::uint64_t> number = dataset_.find(request.key);
      if (!number) throw Error(ErrorCode::kNotFound, "there is no such key");
      record.number = *number;
    } else if (request.number >= dataset_.records()) {
      throw Error(ErrorCode::kNotFound, fmt::format("there are {} records", dataset_.records()));
    } else if (with_keys_) {
      dataset_.key_of(request.number, record.key);
    }
    const Dataset::Container& container =
        dataset_.containers()[dataset_.container_of_record(record.number)];
    at.reader = container.reader.get();
    at.number = record.number - container.first_record;
    at.place = at.reader->index().place(at.number);
    record.record_bytes = at.reader->index().raw_bytes(at.number);
    record.pieces = at.place.pieces;
    record.slot_bytes = at.place.slot_bytes;
    if (record.pieces == 1 && record.record_bytes > at.reader->header().piece_bytes) {
      throw Error(ErrorCode::kCorrupt, "index: the record's size is out of range");
    }
  } catch (const Error& e) {
    record.error = record_error(dataset_, record.number, record.key, e);
  }
}

// Reads the slots of a run of neighbours from `first` on; returns how many.
std::size_t Fetcher::read_run(std::size_t first) {
  if (out_[first].error || out_[first].pieces > 1) return 1;
  const Located& begin = located[first];
  const std::uint64_t offset = begin.place.offset;
  std::uint64_t end = offset + begin.place.slot_bytes;
  std::size_t last = first + 1;
  const ByteSource& source = begin.reader->source();
  // Where the container is mapped there is nothing to gain from reading together.
  if (source.view(offset, begin.place.slot_bytes).empty()) {
    while (last < out_.size() && !out_[last].error && out_[last].pieces == 1 &&
           located[last].reader == begin.reader && located[last].place.offset == end &&
           end + located[last].place.slot_bytes - offset <= kMaxReadBytes) {
      end += located[last].place.slot_bytes;
      ++last;
    }
  }
  ByteView slots;
  bool mapped = false;
  try {
    slots = bytes_at(source, offset, end - offset, arena_, mapped);
  } catch (const Error& e) {
    for (std::size_t i = first; i < last; ++i) {
      out_[i].error = record_error(dataset_, out_[i].number, out_[i].key, e);
    }
    return last - first;
  }
  for (std::size_t i = first; i < last; ++i) {
    finish(i, slots.subspan(located[i].place.offset - offset, located[i].place.slot_bytes), mapped);
  }
  return last - first;
}

void Fetcher::finish(std::size_t i, ByteView bytes, bool mapped) {
  FetchedRecord& record = out_[i];
  const Located& at = located[i];
  try {
    const VerifiedSlot slot =
        record.key.empty() ? verify_slot(bytes) : verify_slot(bytes, key_hash(record.key));
    const Dictionary* dictionary =
        slot.codec == Codec::kZstdDictionary ? at.reader->dictionary() : nullptr;
    record.bytes = decoded(slot, record.record_bytes, dictionary, arena_, record.crc32c);
    record.immutable = mapped && slot.codec == Codec::kStored;
  } catch (const Error& e) {
    record.error = record_error(dataset_, record.number, record.key, e);
  }
}

}  // namespace

MutableBytes Arena::allocate(std::size_t bytes) {
  if (chunks_.empty() || chunks_.back().size - offset_ < bytes) {
    Chunk chunk;
    chunk.size = std::max(kArenaChunkBytes, bytes);
    chunk.bytes = std::make_unique_for_overwrite<std::byte[]>(chunk.size);
    chunks_.push_back(std::move(chunk));
    offset_ = 0;
  }
  const MutableBytes out(chunks_.back().bytes.get() + offset_, bytes);
  // Stored records may be handed on in place: keep what follows aligned.
  offset_ = std::min<std::size_t>(round_up(offset_ + bytes, 16), chunks_.back().size);
  used_ += bytes;
  return out;
}

void Arena::reset() noexcept {
  // The first chunk is enough for most; larger ones are given back.
  if (chunks_.size() > 1) chunks_.resize(1);
  if (!chunks_.empty() && chunks_.front().size > kArenaChunkBytes) chunks_.clear();
  offset_ = 0;
  used_ = 0;
}

std::size_t fetch_records(const Dataset& dataset, std::span<const RecordRequest> requests,
                          bool with_keys, std::size_t most_bytes, Arena& arena,
                          std::span<FetchedRecord> out) {
  Fetcher fetcher(dataset, requests, with_keys, arena, out);
  fetcher.located.resize(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) fetcher.locate(i);
  std::size_t done = 0;
  while (done < requests.size() && (done == 0 || arena.used() <= most_bytes))
    done += fetcher.read_run(done);
  return done;
}

FetchedPiece fetch_piece(const Dataset& dataset, std::uint64_t number, std::uint64_t piece) {
  const Dataset::Container& container = dataset.containers()[dataset.container_of_record(number)];
  const ContainerReader& reader = *container.reader;
  const Index& index = reader.index();
  const std::uint64_t local = number - container.first_record;
  const std::uint64_t record_bytes = index.raw_bytes(local);
  const std::uint64_t piece_bytes = reader.header().piece_bytes;
  const Place place = index.place(local);
  const std::uint64_t offset = piece * piece_bytes;
  if (place.pieces != (record_bytes + piece_bytes - 1) / piece_bytes) {
    throw Error(ErrorCode::kCorrupt,
                fmt::format("index: {} pieces for {} bytes", place.pieces, record_bytes));
  }
  FetchedPiece out;
  out.arena = std::make_shared<Arena>();
  const std::uint64_t number_of_block = place.block + piece;
  const std::uint64_t begin = index.block_offset(number_of_block);
  bool mapped = false;
  const ByteView block = bytes_at(
      reader.source(), begin, index.block_offset(number_of_block + 1) - begin, *out.arena, mapped);
  std::string key;
  index.key_of(local, key);
  const VerifiedSlot slot = verify_piece(block, number_of_block, piece, record_bytes, key);
  const Dictionary* dictionary =
      slot.codec == Codec::kZstdDictionary ? reader.dictionary() : nullptr;
  out.bytes = decoded(slot, std::min(piece_bytes, record_bytes - offset), dictionary, *out.arena,
                      out.crc32c);
  out.immutable = mapped && slot.codec == Codec::kStored;
  out.stored_bytes = block.size();
  return out;
}

Error record_error(const Dataset& dataset, std::uint64_t number, std::string_view key,
                   const Error& error, std::uint64_t piece) {
  std::string name(key);
  std::string where;
  if (number < dataset.records()) {
    const Dataset::Container& container = dataset.containers()[dataset.container_of_record(number)];
    const std::uint64_t local = number - container.first_record;
    try {
      if (name.empty()) dataset.key_of(number, name);
      const Index& index = container.reader->index();
      const Place place = index.place(local);
      const std::uint64_t block = place.block + std::min(piece, place.pieces - 1);
      where = fmt::format(" in block {} at offset {} of {}", block,
                          piece == 0 ? place.offset : index.block_offset(block), container.name);
    } catch (const Error&) {  // the index is damaged as well: what is known is told
    }
  }
  const bool by_number = name.empty() && number != kNoNumber;
  const std::string record = by_number ? fmt::format("record {}", number) : "record " + quote(name);
  return Error(error.code(), fmt::format("{}: {}{}", record, error.what(), where), error.hint());
}

}  // namespace sml
