#include "smlstore/reader.h"

#include <algorithm>
#include <utility>

#include "fetching_reader.h"
#include "mapped_reader.h"
#include "smlformat/frames.h"

namespace sml {
namespace {

std::unique_ptr<ReaderState> make_state(const Dataset& dataset, const ReaderOptions& options,
                                        bool with_keys) {
  const auto& containers = dataset.containers();
  const bool all_mapped =
      std::all_of(containers.begin(), containers.end(),
                  [](const Dataset::Container& one) { return is_mapped(*one.reader); });
  return all_mapped ? make_mapped_reader(dataset, options, with_keys)
                    : make_fetching_reader(dataset, options, with_keys);
}

}  // namespace

ReaderStats& ReaderStats::operator+=(const ReaderStats& other) noexcept {
  records += other.records;
  bytes += other.bytes;
  stored_bytes += other.stored_bytes;
  failed += other.failed;
  operations += other.operations;
  ranges += other.ranges;
  read_bytes += other.read_bytes;
  most_in_flight = std::max(most_in_flight, other.most_in_flight);
  waited_ns += other.waited_ns;
  in_flight += other.in_flight;
  oldest_ns = std::max(oldest_ns, other.oldest_ns);
  cache_hits += other.cache_hits;
  cache_misses += other.cache_misses;
  cache_bytes += other.cache_bytes;
  blocks_kept += other.blocks_kept;
  blocks_damaged += other.blocks_damaged;
  return *this;
}

Reader::Reader(const Dataset& dataset, const ReaderOptions& options, bool with_keys)
    : state_(make_state(dataset, options, with_keys)) {}
Reader::~Reader() = default;

void Reader::request(std::uint64_t number) {
  RecordRequest wanted;
  wanted.number = number;
  state_->request(std::move(wanted));
}
void Reader::request(std::string_view key) {
  RecordRequest wanted;
  wanted.key = key;
  wanted.by_key = true;
  state_->request(std::move(wanted));
}
void Reader::request_range(std::uint64_t number, std::uint64_t offset, std::uint64_t bytes) {
  RecordRequest wanted;
  wanted.number = number;
  wanted.offset = offset;
  wanted.bytes = bytes;
  state_->request(std::move(wanted));
}

bool Reader::wants_more() const noexcept { return state_->wants_more(); }
std::uint64_t Reader::pending() const noexcept { return state_->pending(); }
std::size_t Reader::next(std::span<RecordPiece> pieces) { return state_->next(pieces); }
ReaderStats Reader::stats() const noexcept { return state_->stats(); }

}  // namespace sml
