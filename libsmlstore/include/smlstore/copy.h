// Copies containers, bit by bit.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>

#include "smlformat/bytes.h"
#include "smlformat/container_reader.h"

namespace sml {

struct CopyOptions {
  std::function<void(std::uint64_t bytes_done)> on_progress;
  std::stop_token stop;
};

// Gives the container to `sink` as a writer does: header, blocks one by one, the rest. Every block
// is checked against the footer, which was checked when the container was opened, so that what
// arrives is what was packed. Reads some blocks ahead, within 64 MiB or two blocks. Throws
// kCorrupt, naming the block; what source and sink throw; kCancelled.
void copy_container(const ContainerReader& from, ByteSink& sink, const CopyOptions& options);

}  // namespace sml
