// Checks every checksum of a data set.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>

#include "smlformat/error.h"
#include "smlstore/dataset.h"

namespace sml {

enum class VerifyDepth : std::uint8_t {
  kAll,       // every byte is read
  kQuick,     // presence and sizes
  kChecksums  // of whole blocks, computed by the store: for containers in Ceph
};

struct VerifyOptions {
  VerifyDepth depth = VerifyDepth::kAll;
  // Of the blocks, with kAll and kChecksums: each is checked with this probability, drawn from
  // `sample_seed`.
  double sample_percent = 100;
  std::uint64_t sample_seed = 0;
  unsigned threads = 0;  // 0: one per processor
  // Each finding, in the order of the containers and, within, of the blocks. Called from the thread
  // that called verify(), as is on_progress.
  std::function<void(const Error&)> on_damage;
  std::function<void(std::uint64_t bytes_done, std::uint64_t bytes_total)> on_progress;
  std::stop_token stop;
};

struct VerifyReport {
  std::uint64_t containers = 0;
  std::uint64_t blocks = 0;
  std::uint64_t records = 0;
  std::uint64_t bytes = 0;    // of containers, checked
  std::uint64_t damaged = 0;  // findings
};

// With kAll: every block against its identity and checksum; every record against its prefix,
// decoded to its raw size; every key of the block tables against the index, both ways; sample
// bounds, parts, paddings and sums; keys that are in two containers (kAmbiguous). What cannot be
// read or decoded is a finding, after which the rest is checked all the same. A finding names the
// container and, where it has them, block, record, offset in the container and both checksums.
// Memory: a block and a record per thread (mapped blocks not counted); for containers that are not
// mapped there are at least 16. Throws kInvalidArgument for kChecksums of containers in files,
// kUnavailable where the store does not answer, kCancelled, and what the callbacks throw.
VerifyReport verify(const Dataset& dataset, const VerifyOptions& options);

}  // namespace sml
