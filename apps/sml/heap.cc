#include "heap.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include <sys/mman.h>

#include <malloc.h>

#include "smlformat/bytes.h"

namespace sml {

void reserve_heap(std::size_t bytes) {
#ifdef __GLIBC__
  constexpr std::size_t kMostByHeap = 32U << 20;  // glibc's limit: more is mapped by itself
  constexpr std::size_t kPart = kMostByHeap / 2;
  constexpr std::uintptr_t kPage = 4096;
  ::mallopt(M_MMAP_THRESHOLD, static_cast<int>(kMostByHeap));
  ::mallopt(M_TRIM_THRESHOLD, static_cast<int>(std::min<std::size_t>(2 * bytes, 1U << 30)));
  struct Free {
    void operator()(void* memory) const noexcept { std::free(memory); }
  };
  std::vector<std::unique_ptr<void, Free>> parts;
  for (std::size_t taken = 0; taken < bytes; taken += kPart) {
    parts.emplace_back(std::malloc(kPart));
    if (parts.back() == nullptr) return;
    const auto begin = round_up(reinterpret_cast<std::uintptr_t>(parts.back().get()), kPage);
    ::madvise(reinterpret_cast<void*>(begin), kPart - kPage, MADV_HUGEPAGE);
  }
#else
  static_cast<void>(bytes);
#endif
}

}  // namespace sml
