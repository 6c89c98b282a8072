// Records to read, and what readers give of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "smlformat/checksum.h"
#include "smlformat/error.h"
#include "smlstore/reader.h"
#include "support/containers.h"

namespace sml::test {

// What a reader gave of one request.
struct Given {
  std::uint64_t number = 0;
  std::string key;
  std::string content;
  std::size_t pieces = 0;
  bool immutable = false;
  std::optional<ErrorCode> error;
  std::string message;
};

// Takes one record, checking what holds for every piece.
inline bool take(Reader& reader, Given& given) {
  given = Given{};
  RecordPiece piece;
  const std::uint64_t pending = reader.pending();
  if (!reader.next(piece)) {
    CHECK(pending == 0);
    return false;
  }
  for (;;) {
    given.number = piece.number;
    given.key = piece.key;
    if (piece.error != nullptr) {
      CHECK(piece.last);
      CHECK(piece.bytes.empty());
      given.error = piece.error->code();
      given.message = piece.error->what();
      CHECK(given.message.find('\n') == std::string::npos);
    } else {
      CHECK(piece.offset == given.content.size());
      CHECK(piece.crc32c == crc32c(piece.bytes));
      given.content += as_text(piece.bytes);
      given.immutable = piece.immutable;
      ++given.pieces;
      CHECK(piece.last == (given.content.size() == piece.record_bytes));
    }
    if (piece.last) break;
    CHECK(reader.pending() == pending);
    REQUIRE(reader.next(piece));
  }
  CHECK(reader.pending() == pending - 1);
  return true;
}

inline std::string content_of(std::size_t i, std::size_t bytes) {
  std::mt19937_64 random(i);
  std::string out;
  while (out.size() < bytes) out += "record " + std::to_string(random() % 10'000) + "; ";
  out.resize(bytes);
  return out;
}

inline std::vector<Record> some_records(std::size_t count, std::size_t bytes) {
  std::vector<Record> records;
  for (std::size_t i = 0; i < count; ++i) {
    records.push_back({"dir/k" + std::to_string(i), content_of(i, (i * 131) % (2 * bytes + 1))});
  }
  return records;
}

inline ContainerOptions compressed() {
  ContainerOptions options;
  options.compress = CompressionOptions::Mode::kAuto;
  return options;
}

// Requests as far as the reader wants, takes one, and so on.
template <class Request, class Check>
void read_all(Reader& reader, std::size_t count, Request request, Check check) {
  std::size_t requested = 0;
  Given given;
  for (std::size_t taken = 0; taken < count; ++taken) {
    while (requested < count && reader.wants_more()) request(requested++);
    REQUIRE(take(reader, given));
    check(taken, given);
  }
  CHECK_FALSE(take(reader, given));
  CHECK(reader.pending() == 0);
}

}  // namespace sml::test
