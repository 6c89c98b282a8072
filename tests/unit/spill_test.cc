#include "smlstore/spill.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory_resource>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "support/containers.h"
#include "support/errors.h"

using sml::ErrorCode;
using sml::SpillFile;
using sml::SpillMemory;
using sml::test::check_error;
using sml::test::TemporaryDirectory;

namespace {

constexpr std::size_t kMebibyte = 1U << 20;

// How many mappings of this process are of files in `directory`.
std::size_t mappings_in(const std::string& directory) {
  std::ifstream maps("/proc/self/maps");
  std::size_t found = 0;
  for (std::string line; std::getline(maps, line);) {
    found += line.find(directory) != std::string::npos ? 1 : 0;
  }
  return found;
}

}  // namespace

TEST_CASE("large allocations beyond the budget are files, all others memory") {
  const TemporaryDirectory directory;
  SpillMemory memory(4 * kMebibyte, directory.path());
  void* within = memory.allocate(3 * kMebibyte);
  CHECK(mappings_in(directory.path()) == 0);
  void* beyond = memory.allocate(2 * kMebibyte);
  CHECK(mappings_in(directory.path()) == 1);
  void* small = memory.allocate(1000);
  CHECK(mappings_in(directory.path()) == 1);
  // All of it can be used, and no name is left behind.
  std::memset(within, 1, 3 * kMebibyte);
  std::memset(beyond, 2, 2 * kMebibyte);
  std::memset(small, 3, 1000);
  CHECK(std::filesystem::is_empty(directory.path()));
  memory.deallocate(beyond, 2 * kMebibyte);
  CHECK(mappings_in(directory.path()) == 0);
  memory.deallocate(within, 3 * kMebibyte);
  memory.deallocate(small, 1000);
  // What was given back can be used again.
  void* again = memory.allocate(4 * kMebibyte);
  CHECK(mappings_in(directory.path()) == 0);
  memory.deallocate(again, 4 * kMebibyte);
}

TEST_CASE("a vector grows through the budget and keeps its values") {
  const TemporaryDirectory directory;
  SpillMemory memory(kMebibyte, directory.path());
  std::pmr::vector<std::uint64_t> values(&memory);
  for (std::uint64_t i = 0; i < 1'000'000; ++i) {
    values.push_back(i * i);
  }
  CHECK(mappings_in(directory.path()) == 1);
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < values.size(); ++i) {
    wrong += values[i] == i * i ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("a directory where nothing can be made is an error that names it") {
  const TemporaryDirectory directory;
  const std::string absent = directory.file("absent");
  SpillMemory memory(0, absent);
  check_error(ErrorCode::kIo, absent, [&] { static_cast<void>(memory.allocate(2 * kMebibyte)); });
  check_error(ErrorCode::kIo, absent, [&] { const SpillFile file(absent); });
}

TEST_CASE("more than the file system has is an error, and nothing is leaked") {
  const TemporaryDirectory directory;
  SpillMemory memory(0, directory.path());
  check_error(ErrorCode::kIo, directory.path(),
              [&] { static_cast<void>(memory.allocate(std::size_t{1} << 60)); });
  CHECK(mappings_in(directory.path()) == 0);
}

TEST_CASE("a spill file gives back what was appended, with holes as zeros") {
  const TemporaryDirectory directory;
  SpillFile file(directory.path());
  file.append("hello", 5);
  file.append_zeros(1000);
  file.append("world", 5);
  REQUIRE(file.size() == 1010);
  CHECK(std::filesystem::is_empty(directory.path()));
  std::string text(1010, '?');
  file.read(0, text.data(), text.size());
  CHECK(text == "hello" + std::string(1000, '\0') + "world");
  file.truncate(7);
  CHECK(file.size() == 7);
  file.append("!", 1);
  text.assign(3, '?');
  file.read(5, text.data(), 3);
  CHECK(text == std::string("\0\0!", 3));
  check_error(ErrorCode::kIo, "too early", [&] { file.read(6, text.data(), 3); });
  check_error(ErrorCode::kIo, directory.path(), [&] { file.append_zeros(~std::uint64_t{0}); });
}
