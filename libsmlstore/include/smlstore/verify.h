// Checks every checksum of a data set.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>

#include "smlformat/error.h"
#include "smlstore/dataset.h"

namespace sml {

struct VerifyOptions {
  unsigned threads = 0;
  std::function<void(const Error&)> on_damage;               // each finding, in order of the containers and blocks
  std::function<void(std::uint64_t bytes_done, std::uint64_t bytes_total)> on_progress;
  std::stop_token stop;
};

struct VerifyReport {
  std::uint64_t containers = 0;
  std::uint64_t blocks = 0;
  std::uint64_t records = 0;
  std::uint64_t bytes = 0;     // of container read
  std::uint64_t damaged = 0;   // findings
};

// Every block against its identity and checksum; every record against its prefix, decoded to its raw size; every key of the block
// tables against the index, both ways; keys that are in two containers.
VerifyReport verify(const Dataset& dataset, const VerifyOptions& options);

}  // namespace sml
