// Sorts record indices by the names of their keys.
#pragma once

#include <cstdint>
#include <functional>
#include <memory_resource>
#include <string_view>
#include <vector>

namespace sml {

// Name order (smlformat/key.h); equal keys by index. key_of(index) gives a view that stays valid.
// Where the indices are sorted already one pass finds it out; else 16 bytes a record are taken from
// the vector's memory meanwhile.
void sort_by_name(std::pmr::vector<std::uint32_t>& indices,
                  const std::function<std::string_view(std::uint32_t)>& key_of);

}  // namespace sml
