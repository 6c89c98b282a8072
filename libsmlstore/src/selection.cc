#include "smlstore/selection.h"

#include <algorithm>
#include <optional>
#include <span>

#include "quote.h"
#include "smlformat/error.h"

namespace sml {
namespace {

bool any_matches(const std::vector<Glob>& globs, std::string_view key) noexcept {
  return std::any_of(globs.begin(), globs.end(),
                     [key](const Glob& glob) { return glob.matches(key); });
}

bool are_literal(const std::vector<Glob>& globs) noexcept {
  return std::all_of(globs.begin(), globs.end(),
                     [](const Glob& glob) { return glob.literal() != nullptr; });
}

// XXH3-128 of the numbers of all records of the samples, ascending, as u64.
Hash128 digest_of(const Dataset& dataset, const std::vector<std::uint64_t>& samples) {
  if (dataset.grouping() == Grouping::kNone) return xxh3_128(std::as_bytes(std::span(samples)));
  std::uint64_t records = 0;
  for (const std::uint64_t sample : samples) records += dataset.sample(sample).size();
  std::vector<std::uint64_t> numbers;
  numbers.reserve(records);
  for (const std::uint64_t sample : samples) {
    const NumberRange range = dataset.sample(sample);
    for (std::uint64_t number = range.first; number < range.last; ++number)
      numbers.push_back(number);
  }
  return xxh3_128(std::as_bytes(std::span(numbers)));
}

}  // namespace

Selection select(const Dataset& dataset, const SelectionOptions& options) {
  const bool all = !options.next_key && options.match.empty();
  std::vector<bool> selected(dataset.samples(), all);
  std::vector<bool> excluded(options.exclude.empty() ? 0 : dataset.samples());
  if (options.next_key) {
    std::string key;
    while (options.next_key(key)) {
      const std::optional<std::uint64_t> number = dataset.find(key);
      if (!number) throw Error(ErrorCode::kNotFound, "no record has the key " + quote(key));
      selected[dataset.sample_of(*number)] = true;
    }
  }
  // Patterns without wildcards are keys; only others need a walk over all names. As there, a key in
  // two containers means both records.
  const auto mark = [&](const std::vector<Glob>& globs, std::vector<bool>& samples) {
    for (const Glob& glob : globs) {
      for (const Dataset::Container& container : dataset.containers()) {
        const auto number = container.reader->index().find(*glob.literal());
        if (number) samples[dataset.sample_of(container.first_record + *number)] = true;
      }
    }
  };
  if (are_literal(options.match) && are_literal(options.exclude)) {
    mark(options.match, selected);
    mark(options.exclude, excluded);
  } else {
    for (Dataset::NameCursor at(dataset); !at.done(); at.advance()) {
      const bool in = any_matches(options.match, at.key());
      const bool out = any_matches(options.exclude, at.key());
      if (!in && !out) continue;
      const std::uint64_t sample = dataset.sample_of(at.number());
      if (in) selected[sample] = true;
      if (out) excluded[sample] = true;
    }
  }

  Selection selection;
  for (std::uint64_t sample = 0; sample < selected.size(); ++sample) {
    if (selected[sample] && (excluded.empty() || !excluded[sample]))
      selection.samples.push_back(sample);
  }
  selection.digest = digest_of(dataset, selection.samples);
  return selection;
}

}  // namespace sml
