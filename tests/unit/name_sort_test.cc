#include "../../libsmlstore/src/name_sort.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "smlformat/key.h"

namespace {

std::vector<std::uint32_t> sorted_indices(const std::vector<std::string>& keys) {
  std::pmr::vector<std::uint32_t> indices(keys.size());
  std::iota(indices.begin(), indices.end(), 0U);
  sml::sort_by_name(indices, [&](std::uint32_t i) { return std::string_view(keys[i]); });
  return {indices.begin(), indices.end()};
}

std::vector<std::uint32_t> plainly_sorted(const std::vector<std::string>& keys) {
  std::vector<std::uint32_t> indices(keys.size());
  std::iota(indices.begin(), indices.end(), 0U);
  std::stable_sort(indices.begin(), indices.end(),
                   [&](auto a, auto b) { return sml::compare_names(keys[a], keys[b]) < 0; });
  return indices;
}

}  // namespace

TEST_CASE("names sort by stem, then by key, equal ones as they came") {
  CHECK(sorted_indices({"b", "a.2", "a-", "a.10", "a", "a.2"}) ==
        std::vector<std::uint32_t>{4, 3, 1, 5, 2, 0});
}

TEST_CASE("keys with long common beginnings and dots at every place sort as compare_names says") {
  constexpr unsigned kSeed = 7;
  MESSAGE("seed ", kSeed);
  std::mt19937 random(kSeed);
  const std::string alphabet("a./\x01\xff");
  for (int round = 0; round < 50; ++round) {
    std::vector<std::string> keys;
    for (int i = 0; i < 300; ++i) {
      std::string key(random() % 20, 'p');
      const std::size_t bytes = 1 + random() % 12;
      for (std::size_t b = 0; b < bytes; ++b) key += alphabet[random() % alphabet.size()];
      keys.push_back(key);
    }
    CHECK(sorted_indices(keys) == plainly_sorted(keys));
  }
}
