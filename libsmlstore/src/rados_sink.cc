#include "rados_sink.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <utility>

#include "smlformat/checksum.h"
#include "smlformat/error.h"
#include "smlformat/layout.h"

namespace sml {

RadosSink::RadosSink(RadosPlace place, std::uint64_t incarnation, const ObjectWatch& watch,
                     bool resumed)
    : place_(std::move(place)), incarnation_(incarnation), watch_(watch), resumed_(resumed) {
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
  if (const auto failure = writes_.failure(place_, "writing object"))
    throw failure->within(place_.path);
}

void RadosSink::put(ByteView bytes, std::uint32_t crc) {
  check();
  const std::string name = object_name(incarnation_, objects_++);
  writes_.begin(bytes.size());
  if (resumed_) return put_again(name, bytes, crc);
  create(name, bytes, crc);
}

// A write that has begun.
void RadosSink::create(const std::string& name, ByteView bytes, std::uint32_t crc) {
  const std::uint64_t size = bytes.size();
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
  const auto owned = std::make_shared<const Bytes>(bytes.begin(), bytes.end());
  place_.objects->checksum(name, owned->size(),
                           [this, name, crc, owned](int result, std::uint32_t there) {
                             if (result == 0 && there == crc)
                               return writes_.end(0, owned->size(), name);
                             if (result == -ENOENT) return create(name, *owned, crc);
                             if (watch_.lost()) return writes_.end(-ENOTCONN, owned->size(), name);
                             place_.objects->remove(name, [this, name, crc, owned](int removed) {
                               if (removed == 0 || removed == -ENOENT)
                                 return create(name, *owned, crc);
                               writes_.end(removed, owned->size(), name);
                             });
                           });
}

void RadosSink::begin_footer() {
  in_footer_ = true;
  entry_.blocks = objects_ - 1;
  entry_.blocks_end = entry_.container_bytes;
}

void RadosSink::append_block(ByteView bytes, std::uint32_t crc32c) {
  entry_.container_bytes += bytes.size();
  put(bytes, crc32c);
}

void RadosSink::append(ByteView bytes) {
  if (objects_ == 0) entry_.header_bytes = static_cast<std::uint32_t>(bytes.size());
  entry_.container_bytes += bytes.size();
  if (!in_footer_) return put(bytes, crc32c(bytes));
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
      put(footer_, crc32c(footer_));
      footer_.clear();
    }
  }
}

bool RadosSink::unanswered() {
  writes_.wait();
  return writes_.unanswered();
}

// All writes have been made, and what is there is still this packer's.
void RadosSink::settle() {
  writes_.wait();
  check();
  if (resumed_ && watch_.lost()) throw place_.located_error(-ENOTCONN, "deleting objects");
}

void RadosSink::restart() {
  settle();
  if (objects_ > 0 || resumed_) delete_objects(place_, incarnation_, 0, resumed_ ? 0 : objects_);
  forget();
}

CatalogEntry RadosSink::finish() {
  if (!footer_.empty()) put(footer_, crc32c(footer_));
  footer_.clear();
  settle();
  if (resumed_) delete_objects(place_, incarnation_, objects_, 0);
  if (tail_.size() != Tail::kBytes)
    throw Error(ErrorCode::kInvalidArgument, "what was written is no container");
  entry_.id = Tail::decode(tail_).id;
  return entry_;
}

}  // namespace sml
