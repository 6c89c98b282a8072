#include "smlformat/checksum.h"

// Long inputs gain from the widest vectors that the processor has; libxxhash chooses them at run
// time where it was built to.
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

namespace sml {

Hash128 xxh3_128(ByteView bytes) noexcept {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

}  // namespace sml
