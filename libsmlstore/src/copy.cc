#include "smlstore/copy.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "ordered_tasks.h"
#include "smlformat/checksum.h"
#include "smlformat/error.h"

namespace sml {
namespace {

constexpr std::uint64_t kAheadBytes = 64U << 20;
constexpr std::uint64_t kMaxAhead = 16;

SourceBytes checked_block(const ContainerReader& from, std::uint64_t number) {
  const Index& index = from.index();
  const std::uint64_t begin = index.block_offset(number);
  SourceBytes block(from.source(), begin, index.block_offset(number + 1) - begin);
  const BlockRow row = index.block(number);
  const std::uint32_t crc = crc32c(*block);
  if (crc != row.crc32c || xxh3_128(*block) != row.xxh3) {
    throw Error(ErrorCode::kCorrupt,
                fmt::format("block {} at offset {}: checksum mismatch (stored {:08x}, computed "
                            "{:08x})",
                            number, begin, row.crc32c, crc));
  }
  return block;
}

}  // namespace

void copy_container(const ContainerReader& from, ByteSink& sink, const CopyOptions& options) {
  const Header& header = from.header();
  const Index& index = from.index();
  std::uint64_t done = 0;
  const auto append = [&](ByteView bytes, std::optional<std::uint32_t> crc32c_of_block) {
    if (options.stop.stop_requested()) throw Error(ErrorCode::kCancelled, "cancelled");
    if (crc32c_of_block) {
      sink.append_block(bytes, *crc32c_of_block);
    } else {
      sink.append(bytes);
    }
    done += bytes.size();
    if (options.on_progress) options.on_progress(done);
  };
  Bytes front(header.header_bytes);
  const auto encoded = header.encode();
  std::copy(encoded.begin(), encoded.end(), front.begin());
  append(front, {});

  const auto ahead = static_cast<std::size_t>(
      std::clamp<std::uint64_t>(kAheadBytes / header.block_bytes, 2, kMaxAhead));
  Workers workers(static_cast<unsigned>(ahead));  // they mostly wait
  OrderedTasks<SourceBytes> blocks(workers);
  std::uint64_t next = 0;
  std::uint64_t appended = 0;
  while (next < index.blocks() || !blocks.empty()) {
    while (next < index.blocks() && blocks.size() < ahead)
      blocks.submit([&from, number = next++] { return checked_block(from, number); });
    append(*blocks.take(), index.block(appended++).crc32c);
  }

  sink.begin_footer();
  const Tail& tail = from.tail();
  append(Bytes(tail.footer_offset - index.block_offset(index.blocks())), {});
  append(*SourceBytes(from.source(), tail.footer_offset, tail.footer_bytes), {});
  append(tail.encode(), {});
}

}  // namespace sml
