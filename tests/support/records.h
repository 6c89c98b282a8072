// Record lists and streams as maps of key and content, and options that collect problems.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "smlformat/bytes.h"
#include "smlstore/record_source.h"

namespace sml::test {

using Records = std::vector<std::pair<std::string, std::string>>;  // key, content

inline std::string content_of(const RecordList& list, std::uint64_t i) {
  Bytes bytes(list.bytes(i));
  list.read(i, 0, bytes);
  return std::string(as_text(bytes));
}

// In the order of the list.
inline Records records_of(const RecordList& list) {
  Records records;
  for (std::uint64_t i = 0; i < list.size(); ++i) {
    records.emplace_back(list.key(i), content_of(list, i));
  }
  return records;
}

// Read in pieces of `piece_bytes`.
inline Records records_of(RecordStream& stream, std::size_t piece_bytes = 1000) {
  Records records;
  RecordStream::Record record;
  while (stream.next(record)) {
    std::string content;
    Bytes piece(piece_bytes);
    while (const std::size_t got = stream.read(piece)) {
      content += as_text(ByteView(piece).first(got));
    }
    records.emplace_back(record.key, content);
  }
  return records;
}

inline std::vector<std::string> keys_of(const Records& records) {
  std::vector<std::string> keys;
  for (const auto& record : records) keys.push_back(record.first);
  return keys;
}

// Collects what cannot be a record instead of giving up.
struct Problems {
  std::vector<Error> found;

  SourceOptions options() {
    SourceOptions options;
    options.on_problem = [this](const Error& problem) { found.push_back(problem); };
    return options;
  }
  // Whether there is one with this code that names this.
  bool has(ErrorCode code, const std::string& part) const {
    for (const Error& problem : found) {
      if (problem.code() == code && std::string(problem.what()).find(part) != std::string::npos) {
        return true;
      }
    }
    return false;
  }
};

}  // namespace sml::test
