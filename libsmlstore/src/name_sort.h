// Sorts record indices by the names of their keys.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory_resource>
#include <string_view>
#include <vector>

#include "smlformat/key.h"

namespace sml {

// Name order; equal keys by index. key_of(index) gives a view that stays valid. Nearly nothing to do where the indices are sorted already.
template <class KeyOf>
void sort_by_name(std::pmr::vector<std::uint32_t>& indices, KeyOf key_of) {
  const auto before = [&key_of](std::uint32_t a, std::uint32_t b) {
    const auto order = compare_names(key_of(a), key_of(b));
    return order != 0 ? order < 0 : a < b;
  };
  if (!std::is_sorted(indices.begin(), indices.end(), before)) {
    std::sort(indices.begin(), indices.end(), before);
  }
}

}  // namespace sml
