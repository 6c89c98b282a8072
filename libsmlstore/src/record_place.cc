#include "smlstore/record_place.h"

#include <filesystem>

#include "cached_blocks.h"
#include "smlformat/block.h"

namespace sml {

RecordPlace RecordPlace::of(const Dataset& dataset, std::uint64_t number) {
  RecordPlace out;
  out.container = dataset.container_of_record(number);
  const Dataset::Container& container = dataset.containers()[out.container];
  const Index& index = container.reader->index();
  const Place place = index.place(number - container.first_record);
  out.offset = place.offset + SlotPrefix::kBytes;
  if (container.cached) {
    out.block = place.block;
    out.offset -= index.block_offset(place.block);
  }
  return out;
}

std::string RecordPlace::path(const Dataset& dataset) const {
  const Dataset::Container& holder = dataset.containers()[container];
  return std::filesystem::absolute(block == kNoNumber ? holder.path : holder.cached->path(block))
      .string();
}

}  // namespace sml
