#include "missing_as_zeros.h"

#include <algorithm>

#include "smlformat/error.h"

namespace sml {
namespace {

bool is_missing(const Error& error) noexcept {
  return error.code() == ErrorCode::kCorrupt || error.code() == ErrorCode::kTruncated;
}

}  // namespace

void MissingAsZeros::read(std::uint64_t offset, MutableBytes out) const {
  if (offset > size() || out.size() > size() - offset)
    throw Error(ErrorCode::kTruncated, "the container ends before");
  while (!out.empty()) {
    const FarSource::Extent extent = source_.object(source_.object_at(offset));
    const MutableBytes part = out.first(std::min(out.size(), extent.end - offset));
    try {
      source_.read_stored(offset, part);
    } catch (const Error& error) {
      if (!is_missing(error)) throw;
      std::fill(part.begin(), part.end(), std::byte{0});
    }
    out = out.subspan(part.size());
    offset += part.size();
  }
}

std::string MissingAsZeros::why_missing(std::uint64_t offset) const {
  const FarSource::Extent extent = source_.object(source_.object_at(offset));
  Buffer bytes(extent.end - extent.begin);
  try {
    source_.read_stored(extent.begin, bytes);
    return {};
  } catch (const Error& error) {
    if (!is_missing(error)) throw;
    return error.what();
  }
}

}  // namespace sml
