// Blocks of the cache that this process has mapped: how many at a time, and how long.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace sml {

// What was unmapped is given back to the system when nobody can use it any more: a pin keeps all
// that was mapped when it was taken. Pins form a chain, each keeping the later ones, and what is
// unmapped goes into the latest one, so that it goes when all earlier ones have gone.
class MappingPin {
 public:
  MappingPin() = default;
  ~MappingPin();
  MappingPin(const MappingPin&) = delete;
  MappingPin& operator=(const MappingPin&) = delete;

 private:
  friend class CacheMappings;
  struct Unmapped {
    const std::byte* at;
    std::size_t bytes;
  };
  std::vector<Unmapped> unmapped_;
  std::shared_ptr<MappingPin> next_;
};

// Safe for threads.
class CacheMappings {
 public:
  // A place for a mapping: null while there is none. Whether it was used since the last look.
  struct Place {
    std::atomic<const std::byte*>* at;
    std::atomic<std::uint8_t>* recent;
  };

  // At most so many; 4 MiB each make 64 GiB, and the system has 65,530 for a process.
  static constexpr std::size_t kMost = 16384;

  ~CacheMappings();

  std::shared_ptr<const MappingPin> pin() const;
  // Puts a mapping into its place, of `owner`; where one is there already that stays. Returns what
  // is there. Where there are too many, one that was not used for long goes.
  const std::byte* add(const void* owner, Place place, const std::byte* at, std::size_t bytes);
  // Unless something else is there by now.
  void remove(Place place, const std::byte* at);
  void remove_all();
  void remove_of(const void* owner);

 private:
  struct Entry {
    const void* owner;
    Place place;
    const std::byte* at;
    std::size_t bytes;
  };
  void unmap(std::size_t entry);
  void advance();

  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
  std::size_t hand_ = 0;
  std::shared_ptr<MappingPin> pin_ = std::make_shared<MappingPin>();
};

}  // namespace sml
