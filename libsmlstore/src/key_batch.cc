#include "smlstore/key_batch.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <vector>

#include "ordered_tasks.h"
#include "quote.h"

namespace sml {
namespace {

// Below this the threads would take longer to wake than they save.
constexpr std::size_t kMinRecordsPerTask = 16384;

// A record of the batch: its page among those of all containers (32 bits), its place in the page
// (5 bits), its place in the batch (21 bits). Ordered by page where it is ordered as a number.
using Entry = std::uint64_t;
constexpr unsigned kBatchBits = 21;
constexpr unsigned kSlotBits = 5;
static_assert(KeyBatch::kMaxRecords == std::size_t{1} << kBatchBits);
static_assert(kNamePageKeys == 1U << kSlotBits);

std::uint64_t page_of(Entry entry) noexcept { return entry >> (kSlotBits + kBatchBits); }
std::uint32_t slot_of(Entry entry) noexcept {
  return static_cast<std::uint32_t>(entry >> kBatchBits) & (kNamePageKeys - 1);
}
std::size_t index_of(Entry entry) noexcept { return entry & (KeyBatch::kMaxRecords - 1); }

// Sorts by page; `pages` is above all of them. Radix sort, least significant digit first.
void sort_by_page(std::vector<Entry>& entries, std::vector<Entry>& spare, std::uint64_t pages) {
  constexpr unsigned kDigitBits = 11;
  spare.resize(entries.size());
  const unsigned bits = pages < 2 ? 0 : static_cast<unsigned>(std::bit_width(pages - 1));
  for (unsigned done = 0; done < bits; done += kDigitBits) {
    const unsigned shift = kSlotBits + kBatchBits + done;
    const auto digit = [shift](Entry entry) { return (entry >> shift) & ((1U << kDigitBits) - 1); };
    std::array<std::uint32_t, (1U << kDigitBits) + 1> starts{};
    for (const Entry entry : entries) ++starts[digit(entry) + 1];
    for (std::size_t i = 1; i < starts.size(); ++i) starts[i] += starts[i - 1];
    for (const Entry entry : entries) spare[starts[digit(entry)]++] = entry;
    entries.swap(spare);
  }
}

// Text that stays where it is until clear().
class Arena {
 public:
  char* take(std::size_t bytes) {
    if (chunks_.empty() || kChunkBytes - used_ < bytes) {
      if (!chunks_.empty()) ++current_;
      if (current_ == chunks_.size())
        chunks_.push_back(std::make_unique_for_overwrite<char[]>(kChunkBytes));
      used_ = 0;
    }
    char* const text = chunks_[current_].get() + used_;
    used_ += bytes;
    return text;
  }
  void clear() noexcept { current_ = used_ = 0; }

 private:
  static constexpr std::size_t kChunkBytes = std::size_t{1} << 20;  // many keys of any size

  std::vector<std::unique_ptr<char[]>> chunks_;
  std::size_t current_ = 0;
  std::size_t used_ = 0;
};

}  // namespace

struct KeyBatch::State {
  State(const Dataset& d, unsigned t) : dataset(d), threads(t) {
    std::uint64_t pages = 0;
    for (const Dataset::Container& container : dataset.containers()) {
      first_page.push_back(pages);
      pages += (container.reader->index().records() + kNamePageKeys - 1) / kNamePageKeys;
    }
    first_page.push_back(pages);
  }

  // The entries of part of the batch.
  void locate(std::span<const std::uint64_t> numbers, std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      const std::size_t container = dataset.container_of_record(numbers[i]);
      const Dataset::Container& c = dataset.containers()[container];
      try {
        const std::uint64_t rank = c.reader->index().rank_of(numbers[i] - c.first_record);
        const std::uint64_t page = first_page[container] + rank / kNamePageKeys;
        entries[i] = (page << kSlotBits | rank % kNamePageKeys) << kBatchBits | i;
      } catch (const Error& error) {
        throw error.within("container " + quote(c.name));
      }
    }
  }

  // Decodes the pages of part of the sorted entries.
  void decode(std::size_t first, std::size_t last, Arena& arena) {
    arena.clear();
    NamePage page;
    std::uint64_t decoded = ~std::uint64_t{0};
    std::size_t container = 0;
    for (std::size_t at = first; at < last; ++at) {
      const Entry entry = entries[at];
      if (const std::uint64_t number = page_of(entry); number != decoded) {
        while (number >= first_page[container + 1]) ++container;
        const Dataset::Container& c = dataset.containers()[container];
        try {
          c.reader->index().read_page(number - first_page[container], kNamePageKeys, page);
        } catch (const Error& error) {
          throw error.within("container " + quote(c.name));
        }
        decoded = number;
      }
      const std::string_view key = page[slot_of(entry)];
      char* const text = arena.take(key.size());
      std::memcpy(text, key.data(), key.size());
      keys[index_of(entry)] = {text, key.size()};
    }
  }

  // Calls work(first, last, part) for all of `count`, by several threads where that pays.
  template <class Work>
  void in_parts(std::size_t count, Work work) {
    if (count < 2 * kMinRecordsPerTask) return work(std::size_t{0}, count, std::size_t{0});
    if (!workers) workers.emplace(threads);
    const std::size_t parts = std::min<std::size_t>(workers->threads(), count / kMinRecordsPerTask);
    OrderedTasks<bool> tasks(*workers);
    for (std::size_t part = 0; part < parts; ++part) {
      tasks.submit([=] {
        work(count * part / parts, count * (part + 1) / parts, part);
        return true;
      });
    }
    while (!tasks.empty()) tasks.take();
  }

  const Dataset& dataset;
  unsigned threads;
  std::vector<std::uint64_t> first_page;  // of each container; one more
  std::vector<Entry> entries;
  std::vector<Entry> spare;
  std::vector<std::string_view> keys;
  std::vector<Arena> arenas;
  std::optional<Workers> workers;
};

KeyBatch::KeyBatch(const Dataset& dataset, unsigned threads)
    : state_(std::make_unique<State>(dataset, threads)) {}
KeyBatch::~KeyBatch() = default;

std::size_t KeyBatch::limit() const noexcept {
  constexpr std::uint64_t kKeyBytes = 96U << 20;
  std::uint64_t bytes = 0;
  for (const Dataset::Container& container : state_->dataset.containers())
    bytes += container.reader->index().counts().key_bytes;
  const std::uint64_t average = bytes / std::max<std::uint64_t>(1, state_->dataset.records()) + 1;
  return static_cast<std::size_t>(std::clamp<std::uint64_t>(kKeyBytes / average, 1, kMaxRecords));
}

void KeyBatch::load(std::span<const std::uint64_t> numbers) {
  if (numbers.size() > kMaxRecords) throw std::logic_error("too many records for a batch of keys");
  State& s = *state_;
  s.entries.resize(numbers.size());
  s.keys.resize(numbers.size());
  s.in_parts(numbers.size(), [&s, numbers](std::size_t first, std::size_t last, std::size_t) {
    s.locate(numbers, first, last);
  });
  sort_by_page(s.entries, s.spare, s.first_page.back());
  s.arenas.resize(std::max<std::size_t>(s.arenas.size(), s.workers ? s.workers->threads() : 1));
  s.in_parts(numbers.size(), [&s](std::size_t first, std::size_t last, std::size_t part) {
    s.decode(first, last, s.arenas[part]);
  });
}

std::string_view KeyBatch::operator[](std::size_t i) const noexcept { return state_->keys[i]; }

}  // namespace sml
