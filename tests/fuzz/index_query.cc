// Every question that an index answers, asked of a container whose checksums hold: an answer, or
// sml::Error, and the answers agree with each other.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "container_input.h"
#include "fuzz.h"
#include "smlformat/container_reader.h"
#include "smlformat/error.h"
#include "smlformat/key.h"

namespace sml::fuzz {
namespace {

constexpr std::uint64_t kMostRecords = 512;
constexpr std::uint64_t kMostKeyBytes = 2U << 20;

// Runs `ask`. False where the index is found to be damaged, which a genuine one must not be.
template <class Ask>
bool attempt(bool genuine, Ask ask) {
  try {
    ask();
    return true;
  } catch (const Error& error) {
    if (genuine) fail(error.what());
    return false;
  }
}

class Questions {
 public:
  Questions(const ContainerReader& reader, bool genuine)
      : header_(reader.header()), index_(reader.index()), genuine_(genuine) {}

  void names();
  void numbers();
  void samples();
  void blocks();
  void places();
  void sizes();
  void other_keys(ByteView text);

 private:
  std::uint64_t most_records() const { return std::min(index_.records(), kMostRecords); }

  const Header& header_;
  const Index& index_;
  bool genuine_;
};

void Questions::names() {
  std::uint64_t key_bytes = 0;
  std::string previous;
  std::string key;
  attempt(genuine_, [&] {
    Index::NameCursor cursor(index_, 0);
    for (std::uint64_t rank = 0; rank < most_records(); ++rank, cursor.advance()) {
      check(!cursor.done() && cursor.rank() == rank, "a cursor at another rank");
      index_.key_at_rank(rank, key);
      check(cursor.key() == key, "a cursor at another key");
      check(is_valid_key(key), "a key that is none");
      key_bytes += kNamePageKeys * key.size();
      if (key_bytes > kMostKeyBytes) return;
      if (genuine_) {
        check(rank == 0 || compare_names(previous, key) < 0, "keys out of name order");
        check(index_.lower_bound(key) == rank, "a key that lower_bound does not find");
      }
      previous = key;
    }
    check(cursor.done() == (most_records() == index_.records()), "a cursor that ends elsewhere");
  });
  for (std::uint64_t rank = index_.records() - most_records(); rank < index_.records();
       rank += 1 + rank % 7) {
    attempt(genuine_, [&] {
      const Index::NameCursor cursor(index_, rank);
      index_.key_at_rank(rank, key);
      key_bytes += kNamePageKeys * key.size();
      check(cursor.key() == key, "a cursor that starts at another key");
    });
    if (key_bytes > 2 * kMostKeyBytes) return;
  }
  check(Index::NameCursor(index_, index_.records()).done(), "a cursor behind the end");
}

void Questions::numbers() {
  std::uint64_t key_bytes = 0;
  std::string key;
  std::string other;
  for (std::uint64_t number = 0; number < most_records() && key_bytes < kMostKeyBytes; ++number) {
    attempt(genuine_, [&] {
      const std::uint64_t rank = index_.rank_of(number);
      check(rank < index_.records(), "a rank out of range");
      const std::uint64_t back = index_.number_of(rank);
      check(back < index_.records(), "a number out of range");
      const bool follows =
          header_.order != PackOrder::kInput &&
          (header_.order == PackOrder::kName || header_.grouping == Grouping::kNone);
      if (genuine_ || follows) check(back == number, "number_of(rank_of(i)) is not i");
      index_.key_of(number, key);
      key_bytes += kNamePageKeys * key.size();
      const std::optional<std::uint64_t> found = index_.find(key);
      if (genuine_) check(found == number, "find(key_of(i)) is not i");
      if (!found) return;
      check(*found < index_.records(), "find gives a number out of range");
      index_.key_of(*found, other);
      check(other == key, "find gives a record with another key");
    });
  }
}

void Questions::samples() {
  check(index_.samples() <= index_.records(), "more samples than records");
  check(index_.records() == 0 || index_.starts_sample(0), "a first record that starts no sample");
  std::uint64_t end = 0;
  const std::uint64_t samples = std::min(index_.samples(), kMostRecords);
  for (std::uint64_t sample = 0; sample < samples; ++sample) {
    const NumberRange range = index_.sample(sample);
    check(range.first == end && range.first < range.last && range.last <= index_.records(),
          "samples that do not follow each other");
    check(index_.sample_of(range.first) == sample && index_.sample_of(range.last - 1) == sample,
          "a record of another sample");
    end = range.last;
  }
  if (samples == index_.samples()) check(end == index_.records(), "records of no sample");
}

void Questions::blocks() {
  std::uint64_t end = 0;
  for (std::uint64_t block = 0; block < index_.blocks(); ++block) {
    const NumberRange range = index_.block_samples(block);
    check(range.first <= range.last && range.last <= index_.samples(),
          "samples of a block out of range");
    check(range.first >= end, "blocks whose samples overlap");
    end = range.last;
  }
}

void Questions::places() {
  for (std::uint64_t number = 0; number < most_records(); ++number) {
    attempt(genuine_, [&] {
      const Place place = index_.place(number);
      check(place.block < index_.blocks() && place.pieces > 0 &&
                place.pieces <= index_.blocks() - place.block,
            "a place without blocks");
      check(place.offset >= index_.block_offset(place.block) &&
                place.slot_bytes >= SlotPrefix::kBytes &&
                place.slot_bytes <= index_.block_offset(place.block + 1) - place.offset,
            "a place outside its block");
      const std::uint64_t bytes = index_.raw_bytes(number);
      check(bytes <= index_.counts().raw_bytes, "a record larger than all records");
      check(bytes <= header_.piece_bytes || place.pieces == (bytes - 1) / header_.piece_bytes + 1,
            "a number of pieces that does not follow from the size");
    });
  }
}

void Questions::sizes() {
  const IndexBytes bytes = index_.bytes();
  std::uint64_t parts = 0;
  for (const std::uint64_t part : {bytes.places, bytes.raw_sizes, bytes.names, bytes.key_table,
                                   bytes.ranks, bytes.samples, bytes.blocks, bytes.dictionary}) {
    check(part <= bytes.total, "a part larger than the index");
    parts += part;
  }
  check(parts <= bytes.total, "parts larger than the index");
  if (!genuine_ || index_.records() > kMostRecords) return;
  std::uint64_t raw_bytes = 0;
  std::uint64_t key_bytes = 0;
  std::string key;
  for (std::uint64_t number = 0; number < index_.records(); ++number) {
    raw_bytes += index_.raw_bytes(number);
    index_.key_of(number, key);
    key_bytes += key.size();
  }
  check(raw_bytes == index_.counts().raw_bytes, "sizes that do not sum to raw_bytes");
  check(key_bytes == index_.counts().key_bytes, "keys that do not sum to key_bytes");
}

// Keys that are hardly there.
void Questions::other_keys(ByteView text) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{5}, text.size()}) {
    const std::string key(as_text(text.first(std::min(bytes, text.size()))));
    attempt(genuine_, [&] {
      const std::optional<std::uint64_t> found = index_.find(key);
      if (!found) return;
      std::string found_key;
      index_.key_of(*found, found_key);
      check(found_key == key, "find gives a record with another key");
    });
    attempt(genuine_, [&] {
      check(index_.lower_bound(key) <= index_.records(), "lower_bound is out of range");
    });
  }
}

}  // namespace
}  // namespace sml::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sml::fuzz;
  warm_up();
  const ContainerInput container = make_container(Input(data, size));
  const MemoryLimit limit(kIndexMemory + kIndexMemoryPerByte * container.bytes.size());
  try {
    const sml::ContainerReader reader(std::make_shared<sml::MemorySource>(container.bytes));
    Questions questions(reader, container.genuine);
    questions.names();
    questions.numbers();
    questions.samples();
    questions.blocks();
    questions.places();
    questions.sizes();
    questions.other_keys(sml::ByteView(container.bytes).subspan(sml::Header::kBytes));
    reader.dictionary();
  } catch (const sml::Error&) {
  }
  return 0;
}
