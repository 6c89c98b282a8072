#include "rados_container.h"

#include <algorithm>
#include <cerrno>
#include <future>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "smlformat/checksum.h"
#include "smlformat/error.h"
#include "smlformat/layout.h"

namespace sml {

Error RadosPlace::error(int result, const std::string& what) const {
  const auto say = [&](ErrorCode code, const std::string& why, std::string hint = {}) {
    return Error(code, fmt::format("{}: {}", what, why), std::move(hint));
  };
  switch (-result) {
    case ETIMEDOUT:
      return say(ErrorCode::kUnavailable, fmt::format("no answer within {:g} s", timeout_s),
                 "'ceph -s' shows whether the cluster is well; --ceph-timeout waits longer");
    case ENOENT:
      return say(ErrorCode::kCorrupt, fmt::format("it is missing from pool {}", pool));
    case ENODATA:
      return say(ErrorCode::kTruncated, "it is too short");
    case ENOSPC:
    case EDQUOT:
      return say(ErrorCode::kIo, fmt::format("pool {} is full", pool),
                 "'ceph df' shows the room that is left, 'ceph osd pool get-quota' its limits");
    case EPERM:
    case EACCES:
      return say(ErrorCode::kIo, "not permitted", "'ceph auth get' shows what the user may do");
    case EEXIST:
      return say(ErrorCode::kAlreadyExists, "the object exists with other bytes");
    case EIO:
      return say(ErrorCode::kCorrupt, "the store cannot read the object: its copies are damaged",
                 "'ceph health detail' shows what Ceph knows of it");
    default:
      return say(ErrorCode::kIo, std::generic_category().message(-result));
  }
}

std::string object_name(std::uint64_t incarnation, std::uint64_t number) {
  return fmt::format("{:016x}.{:08x}", incarnation, number);
}

std::string watch_name(std::uint64_t incarnation) { return fmt::format("{:016x}.w", incarnation); }

std::uint64_t object_count(const CatalogEntry& entry) noexcept {
  const std::uint64_t footer = entry.container_bytes - entry.blocks_end;
  return 1 + entry.blocks + (footer + kFooterObjectBytes - 1) / kFooterObjectBytes;
}

// --- Operations

void Operations::begin(std::uint64_t bytes) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return under_way_ == 0 || (under_way_ < most_ && bytes_ + bytes <= kMostBytes);
  });
  ++under_way_;
  bytes_ += bytes;
}

void Operations::end(int result, std::uint64_t bytes, const std::string& object) {
  const std::lock_guard lock(mutex_);
  --under_way_;
  bytes_ -= bytes;
  if (result < 0 && result_ == 0) {
    result_ = result;
    object_ = object;
  }
  // Under the lock: who waits may destroy this as soon as it is free.
  changed_.notify_all();
}

void Operations::wait() noexcept {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return under_way_ == 0; });
}

int Operations::result(std::string& object) const {
  const std::lock_guard lock(mutex_);
  object = object_;
  return result_;
}

void Operations::reset() {
  const std::lock_guard lock(mutex_);
  result_ = 0;
  object_.clear();
}

void delete_objects(const RadosPlace& place, std::uint64_t incarnation, std::uint64_t first,
                    std::uint64_t end) {
  Operations deletions(kMaxWrites);
  std::mutex mutex;
  std::uint64_t found_end = first;  // behind the last object that was there
  for (std::uint64_t number = first; end == 0 || number < end; ++number) {
    deletions.begin();
    if (end == 0) {
      const std::lock_guard lock(mutex);
      // Up to kMaxWrites have not answered yet.
      if (number > found_end + 2 * kMaxWrites) {
        deletions.end(0, 0, {});
        break;
      }
    }
    const std::string name = object_name(incarnation, number);
    place.objects->remove(name, [&, number, name](int result) {
      if (result == 0) {
        const std::lock_guard lock(mutex);
        found_end = std::max(found_end, number + 1);
      }
      deletions.end(result == -ENOENT ? 0 : result, 0, name);
    });
  }
  deletions.wait();
  std::string object;
  if (const int result = deletions.result(object); result < 0)
    throw place.error(result, "deleting object " + object).within(place.path);
}

// --- ObjectsSource

ObjectsSource::ObjectsSource(RadosPlace place, std::uint64_t incarnation, std::uint64_t objects)
    : place_(std::move(place)), incarnation_(incarnation) {
  std::uint64_t missing = 0;  // in a row
  for (std::uint64_t number = 0; objects == 0 ? missing <= kMaxWrites : number < objects;
       ++number) {
    const std::string name = object_name(incarnation_, number);
    std::promise<std::pair<int, std::uint64_t>> answer;
    place_.objects->stat(name, [&](int result, std::uint64_t bytes, std::optional<std::uint32_t>) {
      answer.set_value({result, bytes});
    });
    const std::pair<int, std::uint64_t> got = answer.get_future().get();
    if (got.first < 0 && got.first != -ENOENT)
      throw place_.error(got.first, "object " + name).within(place_.path);
    missing = got.first < 0 ? missing + 1 : 0;
    ends_.push_back(size() + (got.first < 0 ? 0 : got.second));
  }
}

void ObjectsSource::read(std::uint64_t offset, MutableBytes out) const {
  if (offset > size() || out.size() > size() - offset)
    throw Error(ErrorCode::kTruncated, "the container ends before");
  while (!out.empty()) {
    const auto at = std::upper_bound(ends_.begin(), ends_.end(), offset);
    const auto number = static_cast<std::uint64_t>(at - ends_.begin());
    const std::uint64_t begin = number == 0 ? 0 : ends_[number - 1];
    const MutableBytes part = out.first(std::min(out.size(), *at - offset));
    const ReadRange range{offset - begin, part};
    const std::string name = object_name(incarnation_, number);
    std::promise<int> answer;
    place_.objects->read(name, {&range, 1}, [&](int result) { answer.set_value(result); });
    if (const int result = answer.get_future().get(); result < 0)
      throw place_.error(result, "reading object " + name);
    out = out.subspan(part.size());
    offset += part.size();
  }
}

// --- MissingAsZeros

void MissingAsZeros::read(std::uint64_t offset, MutableBytes out) const {
  if (offset > size() || out.size() > size() - offset)
    throw Error(ErrorCode::kTruncated, "the container ends before");
  while (!out.empty()) {
    const FarSource::Extent extent = source_.object(source_.object_at(offset));
    const MutableBytes part = out.first(std::min(out.size(), extent.end - offset));
    try {
      source_.read_stored(offset, part);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kCorrupt && error.code() != ErrorCode::kTruncated) throw;
      std::fill(part.begin(), part.end(), std::byte{0});
    }
    out = out.subspan(part.size());
    offset += part.size();
  }
}

// --- RadosSource

RadosSource::RadosSource(RadosPlace place, const CatalogEntry& entry,
                         std::shared_ptr<const KeptFooter> footer)
    : place_(std::move(place)),
      entry_(entry),
      footer_offset_(round_up(entry.blocks_end, kFooterAlign)),
      footer_(std::move(footer)) {}

const Index& RadosSource::index() const {
  const Index* const index = index_.load(std::memory_order_acquire);
  if (index == nullptr) throw std::logic_error("blocks are read before the index is there");
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
  std::promise<std::pair<int, std::uint64_t>> answer;
  place_.objects->stat(name, [&](int result, std::uint64_t bytes, std::optional<std::uint32_t>) {
    answer.set_value({result, bytes});
  });
  const std::pair<int, std::uint64_t> got = answer.get_future().get();
  if (got.first < 0) throw place_.error(got.first, "object " + name);
  if (got.second != extent.end - extent.begin) {
    throw Error(ErrorCode::kTruncated, fmt::format("object {} has {} bytes instead of {}", name,
                                                   got.second, extent.end - extent.begin));
  }
}

std::uint32_t RadosSource::stored_crc32c(std::uint64_t number) const {
  const std::string name = object_name(entry_.incarnation, number);
  const Extent extent = object(number);
  std::promise<std::pair<int, std::uint32_t>> answer;
  place_.objects->checksum(name, extent.end - extent.begin, [&](int result, std::uint32_t crc) {
    answer.set_value({result, crc});
  });
  const std::pair<int, std::uint32_t> got = answer.get_future().get();
  if (got.first < 0) throw place_.error(got.first, "checking object " + name);
  return got.second;
}

void RadosSource::read(std::uint64_t offset, MutableBytes out) const {
  if (offset > size() || out.size() > size() - offset)
    throw Error(ErrorCode::kTruncated, "the container ends before");
  if (const ByteView there = view(offset, out.size()); !there.empty()) {
    std::copy(there.begin(), there.end(), out.begin());
  } else {
    read_stored(offset, out);
  }
}

void RadosSource::read_stored(std::uint64_t offset, MutableBytes out) const {
  Operations reads(kMaxWrites);
  while (!out.empty()) {
    const std::uint64_t number = object_at(offset);
    const Extent extent = object(number);
    const MutableBytes part = out.first(std::min(out.size(), extent.end - offset));
    const ReadRange range{offset - extent.begin, part};
    const std::string name = object_name(entry_.incarnation, number);
    reads.begin();
    place_.objects->read(name, {&range, 1},
                         [&reads, name](int result) { reads.end(result, 0, name); });
    out = out.subspan(part.size());
    offset += part.size();
  }
  reads.wait();
  std::string object;
  if (const int result = reads.result(object); result < 0)
    throw place_.error(result, "reading object " + object);
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
  if (!footer_ || offset < footer_offset_) return {};
  return footer_->bytes().subspan(offset - footer_offset_, bytes);
}

void RadosSource::fetch_footer(const RadosPlace& place, const CatalogEntry& entry,
                               MutableBytes out) {
  const RadosSource source(place, entry, nullptr);
  source.read(source.footer_offset_, out);
}

// --- RadosSink

RadosSink::RadosSink(RadosPlace place, std::uint64_t incarnation, bool resumed)
    : place_(std::move(place)), incarnation_(incarnation), resumed_(resumed) {
  forget();
}

void RadosSink::forget() {
  objects_ = 0;
  entry_ = {};
  entry_.incarnation = incarnation_;
  in_footer_ = false;
  footer_.clear();
  tail_.clear();
}

void RadosSink::check() const {
  std::string object;
  if (const int result = writes_.result(object); result < 0)
    throw place_.error(result, "writing object " + object).within(place_.path);
}

void RadosSink::put(ByteView bytes) {
  check();
  const std::string name = object_name(incarnation_, objects_++);
  const std::uint32_t crc = crc32c(bytes);
  const std::uint64_t size = bytes.size();
  if (resumed_) return put_again(name, bytes, crc);
  writes_.begin(size);
  place_.objects->create(name, bytes, crc, [this, name, crc, size](int result) {
    if (result != -EEXIST) return writes_.end(result, size, name);
    // A write that was thought lost may have been made all the same.
    place_.objects->stat(name, [this, name, crc, size](int stat_result, std::uint64_t there,
                                                       std::optional<std::uint32_t> crc_there) {
      const bool same = stat_result == 0 && there == size && crc_there == crc;
      writes_.end(same ? 0 : stat_result < 0 ? stat_result : -EEXIST, size, name);
    });
  });
}

// An object that an interrupted pack may have written. What it says of itself is not enough: the
// store computes the checksum of what is there.
void RadosSink::put_again(const std::string& name, ByteView bytes, std::uint32_t crc) {
  const auto put_anew = [this, name, crc,
                         owned = std::make_shared<const Bytes>(bytes.begin(), bytes.end())] {
    place_.objects->create(name, *owned, crc, [this, name, size = owned->size()](int result) {
      writes_.end(result, size, name);
    });
  };
  const std::uint64_t size = bytes.size();
  writes_.begin(size);
  place_.objects->checksum(
      name, size, [this, name, crc, size, put_anew](int result, std::uint32_t there) {
        if (result == 0 && there == crc) return writes_.end(0, size, name);
        if (result == -ENOENT) return put_anew();
        place_.objects->remove(name, [this, name, size, put_anew](int removed) {
          if (removed == 0 || removed == -ENOENT) return put_anew();
          writes_.end(removed, size, name);
        });
      });
}

void RadosSink::begin_footer() {
  in_footer_ = true;
  entry_.blocks = objects_ - 1;
  entry_.blocks_end = entry_.container_bytes;
}

void RadosSink::append(ByteView bytes) {
  if (objects_ == 0) entry_.header_bytes = static_cast<std::uint32_t>(bytes.size());
  entry_.container_bytes += bytes.size();
  if (!in_footer_) return put(bytes);
  const ByteView end = bytes.last(std::min(bytes.size(), Tail::kBytes));
  tail_.insert(tail_.end(), end.begin(), end.end());
  if (tail_.size() > Tail::kBytes)
    tail_.erase(tail_.begin(), tail_.end() - static_cast<std::ptrdiff_t>(Tail::kBytes));
  while (!bytes.empty()) {
    const std::size_t part =
        std::min<std::size_t>(bytes.size(), kFooterObjectBytes - footer_.size());
    footer_.insert(footer_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(part));
    bytes = bytes.subspan(part);
    if (footer_.size() == kFooterObjectBytes) {
      put(footer_);
      footer_.clear();
    }
  }
}

void RadosSink::restart() {
  writes_.wait();
  check();
  if (objects_ > 0 || resumed_) delete_objects(place_, incarnation_, 0, resumed_ ? 0 : objects_);
  forget();
}

CatalogEntry RadosSink::finish() {
  if (!footer_.empty()) put(footer_);
  footer_.clear();
  writes_.wait();
  check();
  if (resumed_) delete_objects(place_, incarnation_, objects_, 0);
  if (tail_.size() != Tail::kBytes)
    throw Error(ErrorCode::kInvalidArgument, "what was written is no container");
  entry_.id = Tail::decode(tail_).id;
  return entry_;
}

}  // namespace sml
