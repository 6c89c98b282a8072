#include "name_sort.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "smlformat/key.h"

namespace sml {
namespace {

// Multikey quicksort over 8-byte pieces that are kept beside the indices, so that a key is fetched
// once for every 8 of its bytes that matter (J. Bentley, R. Sedgewick 1997; R. Ng, K. Kakehi 2007).
// What is sorted is the key with a zero byte put behind its stem: zero occurs in no key, so plain
// byte order of these strings is name order.
class NameSorter {
 public:
  struct Row {
    std::uint64_t piece;
    std::uint32_t index;
  };
  using Iterator = std::pmr::vector<Row>::iterator;

  explicit NameSorter(const std::function<std::string_view(std::uint32_t)>& key_of)
      : key_of_(key_of) {}

  void sort(Iterator begin, Iterator end, std::size_t depth) const {
    while (end - begin > 1) {
      bool more = false;
      for (Iterator i = begin; i != end; ++i) more = load_piece(*i, depth) || more;
      std::sort(begin, end, [](const Row& a, const Row& b) {
        return a.piece != b.piece ? a.piece < b.piece : a.index < b.index;
      });
      if (!more) return;
      depth += sizeof(std::uint64_t);
      // Runs of equal pieces differ further on, if at all. The last one is left to the loop.
      Iterator run = begin;
      for (;;) {
        const std::uint64_t piece = run->piece;
        const Iterator run_end =
            std::find_if(run, end, [piece](const Row& row) { return row.piece != piece; });
        if (run_end == end) break;
        sort(run, run_end, depth);
        run = run_end;
      }
      begin = run;
    }
  }

 private:
  // The 8 bytes from `depth` on, big-endian, zeros beyond the end. Whether any follow.
  bool load_piece(Row& row, std::size_t depth) const {
    const std::string_view key = key_of_(row.index);
    const std::size_t stem = key_stem(key).size();
    char bytes[sizeof(std::uint64_t)] = {};
    std::size_t filled = 0;
    if (depth < stem) {
      filled = std::min(sizeof bytes, stem - depth);
      std::memcpy(bytes, key.data() + depth, filled);
    }
    if (filled < sizeof bytes && depth + filled == stem) ++filled;  // the zero byte
    const std::size_t from = depth + filled;  // in the string, so from - 1 in the key
    if (filled < sizeof bytes && from <= key.size()) {
      const std::size_t rest = std::min(sizeof bytes - filled, key.size() + 1 - from);
      std::memcpy(bytes + filled, key.data() + from - 1, rest);
    }
    std::memcpy(&row.piece, bytes, sizeof bytes);
    row.piece = __builtin_bswap64(row.piece);
    return depth + sizeof bytes < key.size() + 1;
  }

  const std::function<std::string_view(std::uint32_t)>& key_of_;
};

}  // namespace

void sort_by_name(std::pmr::vector<std::uint32_t>& indices,
                  const std::function<std::string_view(std::uint32_t)>& key_of) {
  const auto before = [&key_of](std::uint32_t a, std::uint32_t b) {
    const auto order = compare_names(key_of(a), key_of(b));
    return order != 0 ? order < 0 : a < b;
  };
  if (std::is_sorted(indices.begin(), indices.end(), before)) return;
  std::pmr::vector<NameSorter::Row> rows(indices.get_allocator());
  rows.reserve(indices.size());
  for (const std::uint32_t index : indices) rows.push_back({0, index});
  NameSorter(key_of).sort(rows.begin(), rows.end(), 0);
  std::transform(rows.begin(), rows.end(), indices.begin(),
                 [](const NameSorter::Row& row) { return row.index; });
}

}  // namespace sml
