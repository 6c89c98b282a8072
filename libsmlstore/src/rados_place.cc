#include "rados_place.h"

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include <fmt/format.h>

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
    case ENOTCONN:
      return say(ErrorCode::kUnavailable,
                 "the connection was away for long, and another process may have taken over");
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
  if (result == -ETIMEDOUT) unanswered_ = true;
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

bool Operations::unanswered() const {
  const std::lock_guard lock(mutex_);
  return unanswered_;
}

std::optional<Error> Operations::failure(const RadosPlace& place, const std::string& what) const {
  const std::lock_guard lock(mutex_);
  if (result_ == 0) return std::nullopt;
  return place.error(result_, fmt::format("{} {}", what, object_));
}

std::vector<std::optional<std::uint64_t>> object_sizes(const RadosPlace& place,
                                                       std::uint64_t incarnation,
                                                       std::uint64_t first, std::uint64_t count) {
  // In steps that are long enough for a gap to fill one.
  const std::uint64_t gap = count == 0 ? kMaxWrites : kMostMissing;
  const std::uint64_t step = 2 * gap;
  std::vector<std::optional<std::uint64_t>> sizes;
  std::uint64_t end = 0;  // behind the last one that is there
  while (sizes.size() <= end + gap && (count == 0 || sizes.size() < count)) {
    const std::uint64_t from = sizes.size();
    sizes.resize(count == 0 ? from + step : std::min(from + step, count));
    Operations questions(kMaxWrites);
    for (std::uint64_t i = from; i < sizes.size(); ++i) {
      questions.begin();
      const std::string name = object_name(incarnation, first + i);
      std::optional<std::uint64_t>& size = sizes[i];
      place.objects->stat(name, [&questions, &size, name](int result, std::uint64_t bytes,
                                                          std::optional<std::uint32_t>) {
        if (result == 0) size = bytes;
        questions.end(result == -ENOENT ? 0 : result, 0, name);
      });
    }
    questions.wait();
    if (const auto failure = questions.failure(place, "looking at object"))
      throw failure->within(place.path);
    for (std::uint64_t i = from; i < sizes.size(); ++i) {
      if (sizes[i]) end = i + 1;
    }
  }
  if (count == 0) sizes.resize(end);
  return sizes;
}

void delete_objects(const RadosPlace& place, std::uint64_t incarnation, std::uint64_t first,
                    std::uint64_t end) {
  // A large number is looked into first: a catalog may say anything.
  if (end == 0 || end > first + kMostMissing)
    end = first + object_sizes(place, incarnation, first, end == 0 ? 0 : end - first).size();
  Operations deletions(kMaxWrites);
  while (end > first) {
    const std::string name = object_name(incarnation, --end);
    deletions.begin();
    place.objects->remove(name, [&deletions, name](int result) {
      deletions.end(result == -ENOENT ? 0 : result, 0, name);
    });
  }
  deletions.wait();
  if (const auto failure = deletions.failure(place, "deleting object"))
    throw failure->within(place.path);
}

}  // namespace sml
