#include "record_fetch.h"

#include <algorithm>

#include <fmt/format.h>

#include "quote.h"
#include "smlformat/frames.h"
#include "smlformat/key.h"

namespace sml {
namespace {

// The bytes of a range of a mapped container.
ByteView mapped_bytes(const ContainerReader& reader, std::uint64_t offset, std::uint64_t bytes) {
  return reader.source().view(offset, bytes);
}

ByteView mapped_slot(const LocatedRecord& at) {
  return mapped_bytes(*at.container->reader, at.place.offset, at.place.slot_bytes);
}

void locate(const Dataset& dataset, const RecordRequest& request, bool with_keys, LocatedRecord& at,
            FetchedRecord& record) {
  record.number = request.number;
  record.key = request.key;
  record.error.reset();
  record.pieces = 1;
  record.bytes = {};
  record.immutable = false;
  try {
    if (request.by_key) record.number = kNoNumber;
    record.number = find_record(dataset, request);
    if (with_keys && !request.by_key) dataset.key_of(record.number, record.key);
    at = locate_record(dataset, record.number);
    record.record_bytes = at.record_bytes;
    record.pieces = at.place.pieces;
    record.slot_bytes = at.place.slot_bytes;
  } catch (const Error& e) {
    record.error = record_error(dataset, record.number, record.key, e);
  }
}

void finish(const Dataset& dataset, const LocatedRecord& at, Arena& arena, FetchedRecord& record) {
  try {
    const ContainerReader& reader = *at.container->reader;
    const ByteView bytes = mapped_slot(at);
    const VerifiedSlot slot =
        record.key.empty() ? verify_slot(bytes) : verify_slot(bytes, key_hash(record.key));
    const DecodedSlot decoded = decode_slot(reader, slot, record.record_bytes, arena);
    record.bytes = decoded.bytes;
    record.crc32c = decoded.crc32c;
    record.immutable = decoded.in_place;
  } catch (const Error& e) {
    record.error = record_error(dataset, record.number, record.key, e);
  }
}

}  // namespace

MutableBytes Arena::allocate(std::size_t bytes) {
  if (chunks_.empty() || chunks_.back().size - offset_ < bytes) {
    Chunk chunk;
    chunk.size = std::max(chunk_bytes_, bytes);
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
  if (!chunks_.empty() && chunks_.front().size > chunk_bytes_) chunks_.clear();
  offset_ = 0;
  used_ = 0;
}

std::uint64_t find_record(const Dataset& dataset, std::string_view key) {
  const std::optional<std::uint64_t> number = dataset.find(key);
  if (!number) throw Error(ErrorCode::kNotFound, "there is no such key");
  return *number;
}

std::uint64_t find_record(const Dataset& dataset, std::uint64_t number) {
  if (number >= dataset.records()) {
    throw Error(ErrorCode::kNotFound, fmt::format("there are {} records", dataset.records()));
  }
  return number;
}

std::uint64_t find_record(const Dataset& dataset, const RecordRequest& request) {
  return request.by_key ? find_record(dataset, std::string_view(request.key))
                        : find_record(dataset, request.number);
}

bool is_mapped(const ContainerReader& reader) {
  return reader.source().view(0, Header::kBytes).size() == Header::kBytes;
}

std::uint64_t whole_record_bytes(const ContainerReader& reader, std::uint64_t number) {
  const std::uint64_t bytes = reader.index().raw_bytes(number);
  if (bytes > reader.header().piece_bytes)
    throw Error(ErrorCode::kCorrupt, "index: the record's size is out of range");
  return bytes;
}

LocatedRecord locate_record(const Dataset& dataset, std::uint64_t number) {
  LocatedRecord record;
  record.container = &dataset.containers()[dataset.container_of_record(number)];
  record.number = number - record.container->first_record;
  const ContainerReader& reader = *record.container->reader;
  record.place = reader.index().place(record.number);
  record.record_bytes = record.place.pieces == 1 ? whole_record_bytes(reader, record.number)
                                                 : reader.index().raw_bytes(record.number);
  return record;
}

DecodedSlot decode_slot(const ContainerReader& reader, const VerifiedSlot& slot,
                        std::uint64_t raw_bytes, Arena& arena) {
  if (slot.codec == Codec::kStored) {
    if (slot.stored.size() != raw_bytes) {
      throw Error(ErrorCode::kCorrupt, fmt::format("the stored size is {}, the index says {}",
                                                   slot.stored.size(), raw_bytes));
    }
    return {slot.stored, slot.stored_crc32c, true};
  }
  const Dictionary* dictionary =
      slot.codec == Codec::kZstdDictionary ? reader.dictionary() : nullptr;
  const MutableBytes raw = arena.allocate(raw_bytes);
  Decoder::local().decode(slot.codec, slot.stored, dictionary, raw);
  return {raw, crc32c(raw), false};
}

PieceRange wanted_pieces(const RecordRequest& request, std::uint64_t pieces,
                         std::uint64_t piece_bytes) noexcept {
  const std::uint64_t first = std::min(request.offset / piece_bytes, pieces - 1);
  if (request.bytes == 0) return {first, first + 1};
  // The last byte wanted, without an overflow.
  const std::uint64_t last = request.offset > kNoNumber - (request.bytes - 1)
                                 ? kNoNumber
                                 : request.offset + (request.bytes - 1);
  return {first, std::min(last / piece_bytes, pieces - 1) + 1};
}

PiecePlace place_piece(const LocatedRecord& record, std::uint64_t piece) {
  const ContainerReader& reader = *record.container->reader;
  const std::uint64_t piece_bytes = reader.header().piece_bytes;
  if (record.place.pieces != (record.record_bytes + piece_bytes - 1) / piece_bytes) {
    throw Error(ErrorCode::kCorrupt, fmt::format("index: {} pieces for {} bytes",
                                                 record.place.pieces, record.record_bytes));
  }
  PiecePlace out;
  out.block = record.place.block + piece;
  out.offset = reader.index().block_offset(out.block);
  out.block_bytes = reader.index().block_offset(out.block + 1) - out.offset;
  out.raw_bytes = std::min(piece_bytes, record.record_bytes - piece * piece_bytes);
  return out;
}

std::size_t fetch_records(const Dataset& dataset, std::span<const RecordRequest> requests,
                          bool with_keys, std::size_t most_bytes, Arena& arena,
                          std::span<FetchedRecord> out) {
  std::vector<LocatedRecord> located(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    locate(dataset, requests[i], with_keys, located[i], out[i]);
  }
  const auto prefetch = [&](std::size_t i) {
    if (i < requests.size() && located[i].container != nullptr)
      prefetch_slot(mapped_slot(located[i]));
  };
  for (std::size_t i = 0; i < kPrefetchRecords; ++i) prefetch(i);
  std::size_t done = 0;
  for (; done < requests.size() && (done == 0 || arena.used() <= most_bytes); ++done) {
    prefetch(done + kPrefetchRecords);
    if (!out[done].error && out[done].pieces == 1) {
      finish(dataset, located[done], arena, out[done]);
    }
  }
  return done;
}

FetchedPiece fetch_piece(const Dataset& dataset, std::uint64_t number, std::uint64_t piece) {
  const LocatedRecord record = locate_record(dataset, number);
  const ContainerReader& reader = *record.container->reader;
  const PiecePlace place = place_piece(record, piece);
  FetchedPiece out;
  out.arena = std::make_shared<Arena>();
  const ByteView block = mapped_bytes(reader, place.offset, place.block_bytes);
  std::string key;
  reader.index().key_of(record.number, key);
  const VerifiedSlot slot = verify_piece(block, place.block, piece, record.record_bytes, key);
  const DecodedSlot decoded = decode_slot(reader, slot, place.raw_bytes, *out.arena);
  out.bytes = decoded.bytes;
  out.crc32c = decoded.crc32c;
  out.immutable = decoded.in_place;
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
