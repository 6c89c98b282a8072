#include "rados_source.h"

#include <algorithm>
#include <cerrno>
#include <future>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "smlformat/error.h"
#include "smlformat/layout.h"

namespace sml {
namespace {

// What an operation gave, waited for.
template <class Value>
struct Answer {
  int result = 0;
  Value value{};
};

Answer<std::uint64_t> size_of(const RadosPlace& place, const std::string& name) {
  std::promise<Answer<std::uint64_t>> answer;
  place.objects->stat(name, [&](int result, std::uint64_t bytes, std::optional<std::uint32_t>) {
    answer.set_value({result, bytes});
  });
  return answer.get_future().get();
}

void check_range(const ByteSource& source, std::uint64_t offset, std::uint64_t bytes) {
  if (offset > source.size() || bytes > source.size() - offset)
    throw Error(ErrorCode::kTruncated, "the container ends before");
}

// Reads a range from the objects that it lies in, in parallel. object_at(offset): number and extent
// of the object that holds a byte.
template <class ObjectAt>
void read_objects(const RadosPlace& place, std::uint64_t incarnation, std::uint64_t offset,
                  MutableBytes out, const ObjectAt& object_at) {
  Operations reads(kMaxWrites);
  while (!out.empty()) {
    const std::pair<std::uint64_t, FarSource::Extent> object = object_at(offset);
    const MutableBytes part = out.first(std::min(out.size(), object.second.end - offset));
    const ReadRange range{offset - object.second.begin, part};
    const std::string name = object_name(incarnation, object.first);
    reads.begin();
    place.objects->read(name, {&range, 1},
                        [&reads, name](int result) { reads.end(result, 0, name); });
    out = out.subspan(part.size());
    offset += part.size();
  }
  reads.wait();
  if (const auto failure = reads.failure(place, "reading object")) throw Error(*failure);
}

}  // namespace

// --- RadosSource

RadosSource::RadosSource(RadosPlace place, const CatalogEntry& entry,
                         std::shared_ptr<const KeptFooter> footer)
    : place_(std::move(place)),
      entry_(entry),
      footer_offset_(round_up(entry.blocks_end, kFooterAlign)),
      footer_(std::move(footer)) {}

const Index& RadosSource::index() const {
  const Index* const index = index_.load(std::memory_order_acquire);
  if (index == nullptr)
    throw Error(ErrorCode::kCorrupt, "its footer does not begin where the catalog says");
  return *index;
}

std::uint64_t RadosSource::object_at(std::uint64_t offset) const {
  if (offset < entry_.header_bytes) return 0;
  if (offset >= entry_.blocks_end)
    return 1 + entry_.blocks + (offset - entry_.blocks_end) / kFooterObjectBytes;
  const Index& blocks = index();
  std::uint64_t low = 0;
  std::uint64_t high = blocks.blocks();
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    (blocks.block_offset(middle) <= offset ? low : high) = middle;
  }
  return 1 + low;
}

FarSource::Extent RadosSource::object(std::uint64_t number) const {
  if (number == 0) return {0, entry_.header_bytes};
  if (number <= entry_.blocks)
    return {index().block_offset(number - 1), index().block_offset(number)};
  const std::uint64_t begin = entry_.blocks_end + (number - 1 - entry_.blocks) * kFooterObjectBytes;
  return {begin, std::min(begin + kFooterObjectBytes, entry_.container_bytes)};
}

void RadosSource::check_presence(std::uint64_t number) const {
  const std::string name = object_name(entry_.incarnation, number);
  const Extent extent = object(number);
  const Answer<std::uint64_t> bytes = size_of(place_, name);
  if (bytes.result < 0) throw place_.error(bytes.result, "object " + name);
  if (bytes.value != extent.end - extent.begin) {
    throw Error(ErrorCode::kTruncated, fmt::format("object {} has {} bytes instead of {}", name,
                                                   bytes.value, extent.end - extent.begin));
  }
}

std::uint32_t RadosSource::stored_crc32c(std::uint64_t number) const {
  const std::string name = object_name(entry_.incarnation, number);
  const Extent extent = object(number);
  std::promise<Answer<std::uint32_t>> answer;
  place_.objects->checksum(name, extent.end - extent.begin, [&](int result, std::uint32_t crc) {
    answer.set_value({result, crc});
  });
  const Answer<std::uint32_t> crc = answer.get_future().get();
  if (crc.result < 0) throw place_.error(crc.result, "checking object " + name);
  return crc.value;
}

void RadosSource::read(std::uint64_t offset, MutableBytes out) const {
  check_range(*this, offset, out.size());
  if (const ByteView there = view(offset, out.size()); !there.empty()) {
    std::copy(there.begin(), there.end(), out.begin());
  } else {
    read_stored(offset, out);
  }
}

void RadosSource::read_stored(std::uint64_t offset, MutableBytes out) const {
  read_objects(place_, entry_.incarnation, offset, out, [this](std::uint64_t at) {
    const std::uint64_t number = object_at(at);
    return std::pair(number, object(number));
  });
}

void RadosSource::start_read(std::span<const ReadRange> ranges,
                             std::function<void(std::exception_ptr)> done) const {
  if (ranges.empty()) return done(nullptr);
  const std::uint64_t number = object_at(ranges.front().offset);
  const Extent object = this->object(number);
  std::vector<ReadRange> in_object(ranges.begin(), ranges.end());
  for (ReadRange& range : in_object) {
    if (range.offset < object.begin || range.offset > object.end ||
        range.out.size() > object.end - range.offset) {
      return ByteSource::start_read(ranges, std::move(done));  // not of one block
    }
    range.offset -= object.begin;
  }
  const std::string name = object_name(entry_.incarnation, number);
  place_.objects->read(name, in_object, [place = place_, name, done = std::move(done)](int result) {
    done(result < 0 ? std::make_exception_ptr(place.error(result, "reading object " + name))
                    : nullptr);
  });
}

ByteView RadosSource::view(std::uint64_t offset, std::uint64_t bytes) const {
  if (!footer_) return {};
  if (offset < footer_offset_) {
    // A reader that begins takes no memory for a footer that is not one.
    static_cast<void>(index());
    return {};
  }
  return footer_->bytes().subspan(offset - footer_offset_, bytes);
}

void RadosSource::check_footer(const RadosPlace& place, const CatalogEntry& entry) {
  const RadosSource source(place, entry, nullptr);
  for (std::uint64_t number = entry.blocks + 1; number < source.objects(); ++number)
    source.check_presence(number);
}

void RadosSource::fetch_footer(const RadosPlace& place, const CatalogEntry& entry,
                               MutableBytes out) {
  const RadosSource source(place, entry, nullptr);
  source.read(source.footer_offset_, out);
}

// --- ObjectsSource

ObjectsSource::ObjectsSource(RadosPlace place, std::uint64_t incarnation, std::uint64_t first,
                             std::uint64_t objects)
    : place_(std::move(place)), incarnation_(incarnation), first_(first) {
  for (const auto& bytes : object_sizes(place_, incarnation_, first, objects))
    ends_.push_back(size() + bytes.value_or(0));
}

void ObjectsSource::read(std::uint64_t offset, MutableBytes out) const {
  check_range(*this, offset, out.size());
  read_objects(place_, incarnation_, offset, out, [this](std::uint64_t at) {
    const auto i = static_cast<std::uint64_t>(std::upper_bound(ends_.begin(), ends_.end(), at) -
                                              ends_.begin());
    return std::pair(first_ + i, FarSource::Extent{i == 0 ? 0 : ends_[i - 1], ends_[i]});
  });
}

}  // namespace sml
