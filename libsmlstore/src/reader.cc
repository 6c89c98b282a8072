#include "smlstore/reader.h"

#include <algorithm>

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

Reader::Reader(const Dataset& dataset, const ReaderOptions& options, bool with_keys)
    : state_(make_state(dataset, options, with_keys)) {}
Reader::~Reader() = default;

void Reader::request(std::uint64_t number) { state_->request({number, {}, false}); }
void Reader::request(std::string_view key) { state_->request({kNoNumber, std::string(key), true}); }

bool Reader::wants_more() const noexcept { return state_->wants_more(); }
std::uint64_t Reader::pending() const noexcept { return state_->pending(); }
std::size_t Reader::next(std::span<RecordPiece> pieces) { return state_->next(pieces); }
ReaderStats Reader::stats() const noexcept { return state_->stats(); }

}  // namespace sml
