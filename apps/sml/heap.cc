#include "heap.h"

#include <algorithm>
#include <vector>

#include <malloc.h>

#include "smlformat/bytes.h"

namespace sml {

void reserve_heap(std::size_t bytes) {
#ifdef __GLIBC__
  constexpr std::size_t kMostByHeap = 32U << 20;  // glibc's limit: more is mapped by itself
  constexpr std::size_t kPart = kMostByHeap / 2;
  ::mallopt(M_MMAP_THRESHOLD, static_cast<int>(kMostByHeap));
  ::mallopt(M_TRIM_THRESHOLD, static_cast<int>(std::min<std::size_t>(2 * bytes, 1U << 30)));
  // Taken from the heap, which keeps the place for others.
  std::vector<Buffer> parts;
  for (std::size_t taken = 0; taken < bytes; taken += kPart) parts.emplace_back(kPart);
#else
  static_cast<void>(bytes);
#endif
}

}  // namespace sml
