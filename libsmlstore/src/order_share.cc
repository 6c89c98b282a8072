#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "smlformat/error.h"
#include "smlstore/order.h"

namespace sml {
namespace {

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

std::uint64_t saturating_add(std::uint64_t a, std::uint64_t b) noexcept {
  return a > kMost - b ? kMost : a + b;
}

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorCode::kInvalidArgument, why); }

}  // namespace

Share share_of(std::uint64_t samples, const ShareOptions& options) {
  if (options.world == 0) refuse("a world of 0 ranks");
  if (options.rank >= options.world) {
    refuse(
        fmt::format("rank {} in a world of {} (ranks count from 0)", options.rank, options.world));
  }
  if (options.start > samples)
    refuse(fmt::format("start {} is beyond the {} samples", options.start, samples));
  if (options.even == Even::kWrap && samples == 0) refuse("an empty order cannot wrap");

  const std::uint64_t left = samples - options.start;
  const std::uint64_t batch = std::max<std::uint64_t>(options.batch, 1);
  // Saturated, it is still more than `left`.
  const std::uint64_t unit = options.world > kMost / batch ? kMost : options.world * batch;
  std::uint64_t even_end = samples;
  if (options.even == Even::kDrop) even_end -= left % unit;
  if (options.even == Even::kWrap && left % unit != 0) {
    const std::uint64_t missing = unit - left % unit;
    if (missing > kMost - samples) {
      refuse(fmt::format("{} ranks with batches of {} are more than an order can be wrapped to",
                         options.world, batch));
    }
    even_end += missing;
  }

  Share share;
  share.start = options.start;
  const std::uint64_t cut = options.count ? saturating_add(options.start, *options.count) : kMost;
  share.end = std::min(even_end, cut);
  if (options.even == Even::kDrop) share.dropped = std::min(samples, cut) - share.end;
  if (share.end > samples) share.wrapped = share.end - samples;
  share.next_start = std::min(share.end, samples);
  share.world = options.world;
  const std::uint64_t phase = options.start % options.world;
  const std::uint64_t ahead =
      options.rank >= phase ? options.rank - phase : options.world - phase + options.rank;
  share.first = saturating_add(options.start, ahead);
  return share;
}

}  // namespace sml
