#include "fuzz.h"

#include <cstdio>
#include <cstdlib>
#include <new>

#include <unistd.h>

#include <malloc.h>

#if defined(__SANITIZE_ADDRESS__)
#define SML_COUNT_BY_HOOKS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SML_COUNT_BY_HOOKS 1
#endif
#endif

namespace sml::fuzz {
namespace {

thread_local bool counting = false;
thread_local std::int64_t live_bytes = 0;
thread_local std::int64_t most_bytes = 0;

void count_allocation(std::size_t bytes) noexcept {
  if (!counting) return;
  live_bytes += static_cast<std::int64_t>(bytes);
  if (live_bytes <= most_bytes) return;
  counting = false;
  char line[128];
  const int length = std::snprintf(
      line, sizeof line, "an allocation of %zu bytes makes %lld live, above the limit of %lld",
      bytes, static_cast<long long>(live_bytes), static_cast<long long>(most_bytes));
  fail(length > 0 ? line : "too much memory");
}

void count_release(std::size_t bytes) noexcept {
  if (counting) live_bytes -= static_cast<std::int64_t>(bytes);
}

}  // namespace

void fail(const char* what) noexcept {
  char line[256];
  const int length = std::snprintf(line, sizeof line, "fuzz: %s\n", what);
  if (length > 0) {
    const auto bytes = std::min(static_cast<std::size_t>(length), sizeof line - 1);
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line, bytes);
  }
  std::abort();
}

#if defined(SML_COUNT_BY_HOOKS)

// Declared here, because g++ 12 has the functions but not their header.
extern "C" {
int __sanitizer_install_malloc_and_free_hooks(void (*allocated)(const volatile void*, std::size_t),
                                              void (*released)(const volatile void*));
std::size_t __sanitizer_get_allocated_size(const volatile void* memory);
}

namespace {

[[maybe_unused]] const int hooks = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void* memory, std::size_t bytes) {
      if (memory != nullptr) count_allocation(bytes);
    },
    [](const volatile void* memory) {
      if (counting && memory != nullptr) count_release(__sanitizer_get_allocated_size(memory));
    });

}  // namespace

#endif

MemoryLimit::MemoryLimit(std::uint64_t bytes) noexcept {
  check(!counting, "two memory limits at once");
  live_bytes = 0;
  set(bytes);
  counting = true;
}

MemoryLimit::~MemoryLimit() { counting = false; }

void MemoryLimit::set(std::uint64_t bytes) noexcept {
  most_bytes = static_cast<std::int64_t>(
      std::min<std::uint64_t>(bytes, std::numeric_limits<std::int64_t>::max()));
}

}  // namespace sml::fuzz

#if !defined(SML_COUNT_BY_HOOKS)

namespace {

void* counted(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  sml::fuzz::count_allocation(::malloc_usable_size(memory));
  return memory;
}

void release(void* memory) noexcept {
  if (memory == nullptr) return;
  sml::fuzz::count_release(::malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

// The other forms of new and delete call these.
void* operator new(std::size_t bytes) { return counted(std::malloc(bytes == 0 ? 1 : bytes)); }
void* operator new(std::size_t bytes, std::align_val_t align) {
  const auto alignment = static_cast<std::size_t>(align);
  return counted(std::aligned_alloc(alignment, sml::round_up(bytes == 0 ? 1 : bytes, alignment)));
}
void operator delete(void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }

#endif
