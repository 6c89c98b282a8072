// Reads a container the plain way, record by record, for comparison with what went in.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "smlformat/container_reader.h"
#include "smlformat/error.h"
#include "smlformat/key.h"

namespace sml::test {

using Records = std::vector<std::pair<std::string, std::string>>;

inline std::string read_record(const ContainerReader& reader, ByteView container,
                               std::uint64_t number) {
  const Index& index = reader.index();
  std::string key;
  index.key_of(number, key);
  const Place place = index.place(number);
  Bytes raw(index.raw_bytes(number));
  if (place.pieces == 1) {
    const VerifiedSlot slot =
        verify_slot(container.subspan(place.offset, place.slot_bytes), key_hash(key));
    Decoder::local().decode(slot.codec, slot.stored, reader.dictionary(), raw);
    return std::string(as_text(raw));
  }
  for (std::uint64_t piece = 0; piece < place.pieces; ++piece) {
    const std::uint64_t begin = index.block_offset(place.block + piece);
    const ByteView block =
        container.subspan(begin, index.block_offset(place.block + piece + 1) - begin);
    const VerifiedSlot slot = verify_piece(block, place.block + piece, piece, raw.size(), key);
    const std::uint64_t offset = piece * reader.header().piece_bytes;
    const std::uint64_t bytes =
        std::min<std::uint64_t>(reader.header().piece_bytes, raw.size() - offset);
    Decoder::local().decode(slot.codec, slot.stored, reader.dictionary(),
                            MutableBytes(raw).subspan(offset, bytes));
  }
  return std::string(as_text(raw));
}

// All records by number. Throws where anything is wrong, also where a key is not found by name.
inline Records read_records(ByteView container) {
  const ContainerReader reader(std::make_shared<MemorySource>(container));
  Records records;
  for (std::uint64_t number = 0; number < reader.index().records(); ++number) {
    std::string key;
    reader.index().key_of(number, key);
    if (reader.index().find(key) != number) throw Error(ErrorCode::kCorrupt, "a key is not found");
    records.emplace_back(key, read_record(reader, container, number));
  }
  return records;
}

}  // namespace sml::test
