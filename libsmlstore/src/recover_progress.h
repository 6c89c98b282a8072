// What recovery has found and lost so far.
#pragma once

#include <cstdint>
#include <string>

#include "smlformat/error.h"
#include "smlstore/recover.h"

namespace sml {

class RecoverProgress {
 public:
  RecoverProgress(const RecoverOptions& options, std::uint64_t total_bytes) noexcept
      : options_(options), total_bytes_(total_bytes) {}

  // Of the blocks that were found: where they end, and what they held.
  std::uint64_t end = 0;
  std::uint64_t blocks = 0;
  std::uint64_t records = 0;

  RecoverReport report;

  // `end` has moved. Throws kCancelled.
  void advanced() const;
  void lose(std::uint64_t records_lost, const Error& error);
  // key: empty where nothing tells it.
  void lose_record(const std::string& key, std::uint64_t number, const std::string& why);

 private:
  const RecoverOptions& options_;
  std::uint64_t total_bytes_;
};

}  // namespace sml
