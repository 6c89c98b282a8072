#include "../../libsmlstore/src/read_memory.h"

#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

using sml::ReadMemory;

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kLarge = 64U << 10;

}  // namespace

TEST_CASE("what is given back is taken again, the lowest first, and gaps grow together") {
  ReadMemory memory(64 * kLarge);
  ReadMemory::Piece a = memory.take(kLarge);
  ReadMemory::Piece b = memory.take(2 * kLarge - 5);
  const ReadMemory::Piece c = memory.take(kLarge);
  const std::byte* const first = a.bytes().data();
  CHECK(b.bytes().data() == first + kLarge);
  CHECK(b.bytes().size() == 2 * kLarge - 5);
  CHECK(b.capacity() == 2 * kLarge);
  CHECK(c.bytes().data() == first + 3 * kLarge);
  { const ReadMemory::Piece gone = std::move(a); }
  CHECK(memory.take(2 * kLarge).bytes().data() == first + 4 * kLarge);
  CHECK(memory.take(kLarge - 100).bytes().data() != first);  // small: from the heap
  CHECK(memory.take(kLarge).bytes().data() == first);
  { const ReadMemory::Piece gone = std::move(b); }
  CHECK(memory.take(3 * kLarge).bytes().data() == first);
}

TEST_CASE("there is always memory, and a piece outlives what it was taken from") {
  std::optional<ReadMemory> memory(kLarge);
  const ReadMemory::Piece fits = memory->take(kLarge);
  const ReadMemory::Piece does_not = memory->take(kLarge);
  CHECK(memory->take(0).bytes().empty());
  memory.reset();
  std::memset(fits.bytes().data(), 1, kLarge);
  std::memset(does_not.bytes().data(), 2, kLarge);
  CHECK(fits.bytes()[kLarge - 1] == std::byte{1});
}

TEST_CASE("pieces share no bytes, and all is free again in the end") {
  constexpr std::size_t kAll = 256 * kLarge;
  ReadMemory memory(kAll);
  std::mt19937_64 random(1);
  std::vector<std::pair<ReadMemory::Piece, int>> pieces;
  const auto is_whole = [](const std::pair<ReadMemory::Piece, int>& one) {
    const sml::MutableBytes bytes = one.first.bytes();
    return bytes.front() == std::byte(one.second) && bytes.back() == std::byte(one.second);
  };
  for (int step = 0; step < 20000; ++step) {
    if (pieces.size() < 40 && random() % 2 == 0) {
      pieces.emplace_back(memory.take(kLarge + random() % (4 * kLarge)), step % 256);
      const sml::MutableBytes bytes = pieces.back().first.bytes();
      std::memset(bytes.data(), step % 256, kPage);
      std::memset(bytes.data() + bytes.size() - kPage, step % 256, kPage);
    } else if (!pieces.empty()) {
      std::swap(pieces[random() % pieces.size()], pieces.back());
      REQUIRE(is_whole(pieces.back()));
      pieces.pop_back();
    }
  }
  pieces.clear();
  CHECK(memory.take(kAll).capacity() == kAll);
  const ReadMemory::Piece all = memory.take(kAll);
  CHECK(memory.take(kLarge).bytes().data() != all.bytes().data());
}
