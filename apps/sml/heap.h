// The process's heap.
#pragma once

#include <cstddef>

namespace sml {

// Makes the heap keep so many bytes for allocations of up to 32 MiB, in large pages where the
// system has them. For librados, which copies each write: without that it touches new memory page
// by page, which takes as long as the copy. To be called by the thread that writes.
void reserve_heap(std::size_t bytes);

}  // namespace sml
