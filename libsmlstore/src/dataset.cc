#include "smlstore/dataset.h"

#include <algorithm>
#include <deque>

#include <fmt/format.h>

#include "posix_file.h"
#include "quote.h"
#include "record_fetch.h"
#include "smlformat/error.h"
#include "smlformat/key.h"
#include "smlstore/directory_store.h"

namespace sml {
namespace {

// Names to walk in the time that one lookup of a key takes.
constexpr std::uint64_t kWalkedPerLookup = 5;

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorCode::kInvalidArgument, why); }

// Calls `f`, naming the container in errors that do not name it yet.
template <class F>
auto within(const std::string& path, F f) {
  try {
    return f();
  } catch (const Error& error) {
    throw error.within_once(shown_path(path));
  }
}

Dataset::Container open_file(const std::string& path, const DatasetOptions& options) {
  Dataset::Container container;
  container.name = container_name(path);
  container.path = path;
  container.reader = open_container_file(path, options.mapped, options.index_directory);
  return container;
}

// Containers as they are opened, one after another; what cannot be opened goes to on_unusable.
class Opened {
 public:
  explicit Opened(const DatasetOptions& options) : options_(options) {}

  template <class Open>
  void add(Open open) {
    try {
      containers.push_back(open());
    } catch (const Error& error) {
      if (!options_.on_unusable) throw;
      options_.on_unusable(error);
      unusable = true;
    }
  }

  std::vector<Dataset::Container> containers;
  bool unusable = false;

 private:
  const DatasetOptions& options_;
};

void add_files(const std::string& directory, const DatasetOptions& options, Opened& opened) {
  for (const std::string& file : list_containers(directory))
    opened.add([&] { return open_file(directory + file, options); });
  if (opened.containers.empty() && !opened.unusable) {
    throw Error(ErrorCode::kNotFound,
                shown_path(directory) + ": no containers (*.sml) in this directory");
  }
}

void add_catalogued(const Store& store, const Catalog& catalog, const Location& location,
                    Opened& opened) {
  for (const CatalogEntry& entry : catalog.containers) {
    if (!location.container.empty() && entry.name != location.container) continue;
    opened.add([&] {
      Dataset::Container container;
      container.name = entry.name;
      container.path = store.place(entry.name);
      container.reader = store.open_container(entry);
      return container;
    });
  }
  if (!opened.containers.empty() || opened.unusable) return;
  throw Error(ErrorCode::kNotFound, location.container.empty()
                                        ? shown_path(location.path) + ": the data set is empty"
                                        : shown_path(location.path) + ": no such container");
}

// Gives containers that are not mapped their place in the cache.
void use_cache(const std::shared_ptr<BlockCache>& cache,
               std::vector<Dataset::Container>& containers) {
  for (Dataset::Container& container : containers) {
    const ContainerReader& reader = *container.reader;
    if (is_mapped(reader)) continue;
    const Index& index = reader.index();
    std::uint64_t block_bytes = 0;  // of the largest
    for (std::uint64_t i = 0; i < index.blocks(); ++i)
      block_bytes = std::max(block_bytes, index.block_offset(i + 1) - index.block_offset(i));
    if (cache->limit_bytes() < block_bytes) {
      throw Error(ErrorCode::kLimit,
                  fmt::format("{}: the cache has room for {} bytes, and a block of {} takes {}",
                              shown_path(cache->directory()), cache->limit_bytes(),
                              shown_path(container.path), block_bytes),
                  fmt::format("'sml cache init --size {} --cache-dir {}' or more gives it room",
                              block_bytes, shown_path(cache->directory())));
    }
    container.cached = cache->use(reader.id(), index.blocks());
  }
}

// "1, 2, 5 and 3 more"
std::string list_parts(const std::vector<std::uint32_t>& parts) {
  constexpr std::size_t kShown = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(parts.size(), kShown); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(parts[i]);
  }
  if (parts.size() > kShown) text += fmt::format(" and {} more", parts.size() - kShown);
  return text;
}

void check_parts(const std::vector<Dataset::Container>& containers, bool partial) {
  const Dataset::Container* first = nullptr;
  std::vector<const Dataset::Container*> found;  // by part, from 1
  for (const Dataset::Container& container : containers) {
    const Header& header = container.reader->header();
    if (header.parts == 0) continue;
    if (first == nullptr) {
      first = &container;
      found.resize(header.parts + 1);
    }
    if (header.parts != first->reader->header().parts) {
      refuse(fmt::format("{} is one of {} parts, {} one of {}", quote(first->name),
                         first->reader->header().parts, quote(container.name), header.parts));
    }
    if (const Dataset::Container* other = found[header.part]) {
      refuse(fmt::format("part {} of {} is there twice: {} and {}", header.part, header.parts,
                         quote(other->name), quote(container.name)));
    }
    found[header.part] = &container;
  }
  if (first == nullptr || partial) return;
  std::vector<std::uint32_t> missing;
  for (std::uint32_t part = 1; part < found.size(); ++part) {
    if (found[part] == nullptr) missing.push_back(part);
  }
  if (!missing.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} {} of {} missing", missing.size() == 1 ? "part" : "parts",
                            list_parts(missing), found.size() - 1),
                "--partial opens what is there");
  }
}

// Whether a container may hold keys of this stem, whose hash is XXH3-64.
bool may_hold(const Header& header, std::uint64_t stem_hash) noexcept {
  return header.parts == 0 || stem_hash % header.parts == header.part - 1;
}

// A key of both indexes, or nothing.
std::optional<std::string> common_key(const Index& a, const Index& b) {
  const Index& small = a.records() <= b.records() ? a : b;
  const Index& large = a.records() <= b.records() ? b : a;
  if (small.records() < large.records() / kWalkedPerLookup) {
    for (Index::NameCursor at(small, 0); !at.done(); at.advance()) {
      if (large.find(at.key())) return std::string(at.key());
    }
    return std::nullopt;
  }
  Index::NameCursor at(small, 0);
  Index::NameCursor other(large, 0);
  while (!at.done() && !other.done()) {
    const std::strong_ordering order = compare_names(at.key(), other.key());
    if (order == 0) return std::string(at.key());
    order < 0 ? at.advance() : other.advance();
  }
  return std::nullopt;
}

}  // namespace

Dataset Dataset::open(const Location& given, const DatasetOptions& options) {
  const Location location = given.settled();
  if (!location.is_rados() && !location.is_dataset()) {
    if (location.revision) {
      throw Error(ErrorCode::kInvalidArgument,
                  shown_path(location.path) + ": a container has no revisions, data sets have");
    }
    Dataset dataset = from({open_file(location.path, options)});
    if (options.block_cache) use_cache(options.block_cache, dataset.containers_);
    return dataset;
  }
  const std::shared_ptr<Store> store = Store::open(location, options);
  Opened opened(options);
  std::optional<Catalog> catalog = store->catalog();
  if (catalog) {
    if (options.on_stray) {
      for (const std::string& name : store->strays()) options.on_stray(store->place(name));
    }
    if (location.revision)
      catalog = within(location.path, [&] { return catalog->at(*location.revision); });
    add_catalogued(*store, *catalog, location, opened);
  } else if (location.is_rados()) {
    throw Error(ErrorCode::kNotFound, location.path + ": there is no such data set");
  } else if (location.revision.value_or(0) != 0) {
    throw Error(ErrorCode::kNotFound,
                shown_path(location.path) + ": has no catalog, and so no revisions");
  } else {
    add_files(location.path + (location.path.ends_with('/') ? "" : "/"), options, opened);
  }
  return within(location.path, [&] {
    Dataset dataset = from(std::move(opened.containers));
    const bool all = location.container.empty() && !options.partial && !opened.unusable;
    check_parts(dataset.containers_, !all);
    dataset.revision_ = catalog ? catalog->revision : 0;
    if (options.block_cache) use_cache(options.block_cache, dataset.containers_);
    return dataset;
  });
}

Dataset Dataset::from(std::vector<Container> containers) {
  Dataset dataset;
  dataset.containers_ = std::move(containers);
  // By name, not by file name: '-' comes before '.', so that "a-b.sml" precedes "a.sml".
  std::sort(dataset.containers_.begin(), dataset.containers_.end(),
            [](const Container& a, const Container& b) { return a.name < b.name; });
  for (Container& container : dataset.containers_) {
    const Container& first = dataset.containers_.front();
    dataset.grouping_ = first.reader->header().grouping;
    if (const Grouping grouping = container.reader->header().grouping;
        grouping != dataset.grouping_) {
      refuse(
          fmt::format("the containers of a data set must agree on grouping: {} has {}, {} has {}",
                      quote(first.name), grouping_name(dataset.grouping_), quote(container.name),
                      grouping_name(grouping)));
    }
    container.first_record = dataset.records_;
    container.first_sample = dataset.samples_;
    dataset.records_ += container.reader->index().records();
    dataset.samples_ += container.reader->index().samples();
  }
  return dataset;
}

Hash128 Dataset::digest() const {
  Bytes ids;
  for (const Container& container : containers_) {
    std::byte id[16];
    store(id, container.reader->id().low);
    store(id + 8, container.reader->id().high);
    ids.insert(ids.end(), id, id + sizeof id);
  }
  return xxh3_128(ids);
}

std::optional<std::uint64_t> Dataset::find(std::string_view key) const {
  std::optional<std::uint64_t> found;
  const Container* holder = nullptr;
  std::optional<std::uint64_t> stem_hash;
  for (const Container& container : containers_) {
    if (container.reader->header().parts != 0) {
      if (!stem_hash) stem_hash = xxh3_64(as_bytes(key_stem(key)));
      if (!may_hold(container.reader->header(), *stem_hash)) continue;
    }
    const auto number = within(container.path, [&] { return container.reader->index().find(key); });
    if (!number) continue;
    if (holder != nullptr) {
      throw Error(ErrorCode::kAmbiguous,
                  fmt::format("key {} is in containers {} and {}", quote(key), quote(holder->name),
                              quote(container.name)));
    }
    holder = &container;
    found = container.first_record + *number;
  }
  return found;
}

std::size_t Dataset::container_of_record(std::uint64_t number) const noexcept {
  // The last that starts at or before it: empty ones before it start at the same number.
  const auto next =
      std::upper_bound(containers_.begin(), containers_.end(), number,
                       [](std::uint64_t n, const Container& c) { return n < c.first_record; });
  return static_cast<std::size_t>(next - containers_.begin()) - 1;
}

std::size_t Dataset::container_of_sample(std::uint64_t sample) const noexcept {
  const auto next =
      std::upper_bound(containers_.begin(), containers_.end(), sample,
                       [](std::uint64_t n, const Container& c) { return n < c.first_sample; });
  return static_cast<std::size_t>(next - containers_.begin()) - 1;
}

void Dataset::key_of(std::uint64_t number, std::string& key) const {
  const Container& container = containers_[container_of_record(number)];
  within(container.path,
         [&] { container.reader->index().key_of(number - container.first_record, key); });
}

std::uint64_t Dataset::raw_bytes(std::uint64_t number) const {
  const Container& container = containers_[container_of_record(number)];
  return within(container.path, [&] {
    return container.reader->index().raw_bytes(number - container.first_record);
  });
}

NumberRange Dataset::sample(std::uint64_t sample) const noexcept {
  const Container& container = containers_[container_of_sample(sample)];
  const NumberRange range = container.reader->index().sample(sample - container.first_sample);
  return {range.first + container.first_record, range.last + container.first_record};
}

std::uint64_t Dataset::sample_of(std::uint64_t number) const noexcept {
  const Container& container = containers_[container_of_record(number)];
  return container.first_sample +
         container.reader->index().sample_of(number - container.first_record);
}

// The streams that are not done, as a heap with the next name at the front.
struct Dataset::NameCursor::State {
  struct Stream {
    const Container* container;
    std::size_t position;  // of the container
    Index::NameCursor cursor;

    Stream(const Container& c, std::size_t p, std::string_view from)
        : container(&c),
          position(p),
          cursor(c.reader->index(), from.empty() ? 0 : c.reader->index().lower_bound(from)) {}
  };

  std::deque<Stream> streams;  // never moved: views of keys point into them
  std::vector<Stream*> heap;

  static bool before(const Stream* a, const Stream* b) noexcept {
    const std::strong_ordering order = compare_names(a->cursor.key(), b->cursor.key());
    return order == 0 ? a->position < b->position : order < 0;
  }

  void sift_down(std::size_t at) noexcept {
    Stream* const moved = heap[at];
    for (std::size_t child = 2 * at + 1; child < heap.size(); child = 2 * at + 1) {
      if (child + 1 < heap.size() && before(heap[child + 1], heap[child])) ++child;
      if (!before(heap[child], moved)) break;
      heap[at] = heap[child];
      at = child;
    }
    heap[at] = moved;
  }
};

Dataset::NameCursor::NameCursor(const Dataset& dataset, std::string_view from)
    : state_(std::make_unique<State>()) {
  for (std::size_t i = 0; i < dataset.containers_.size(); ++i) {
    const Container& container = dataset.containers_[i];
    within(container.path, [&] { state_->streams.emplace_back(container, i, from); });
    if (!state_->streams.back().cursor.done()) state_->heap.push_back(&state_->streams.back());
  }
  for (std::size_t at = state_->heap.size() / 2; at > 0; --at) state_->sift_down(at - 1);
}
Dataset::NameCursor::NameCursor(NameCursor&&) noexcept = default;
Dataset::NameCursor::~NameCursor() = default;

bool Dataset::NameCursor::done() const noexcept { return state_->heap.empty(); }

std::string_view Dataset::NameCursor::key() const noexcept {
  return state_->heap.front()->cursor.key();
}

std::uint64_t Dataset::NameCursor::number() const {
  const State::Stream& stream = *state_->heap.front();
  return within(stream.container->path, [&] {
    return stream.container->first_record +
           stream.container->reader->index().number_of(stream.cursor.rank());
  });
}

std::size_t Dataset::NameCursor::container() const noexcept {
  return state_->heap.front()->position;
}

void Dataset::NameCursor::advance() {
  State::Stream& stream = *state_->heap.front();
  within(stream.container->path, [&] { stream.cursor.advance(); });
  if (stream.cursor.done()) {
    state_->heap.front() = state_->heap.back();
    state_->heap.pop_back();
    if (state_->heap.empty()) return;
  }
  if (state_->heap.size() > 1) state_->sift_down(0);
}

void check_unique_keys(const Dataset& dataset, const ContainerReader& added,
                       std::string_view added_name) {
  for (const Dataset::Container& container : dataset.containers()) {
    if (Membership::of(container.reader->header()).is_another_part(Membership::of(added.header())))
      continue;
    const auto key = within(container.path,
                            [&] { return common_key(container.reader->index(), added.index()); });
    if (key) {
      throw Error(ErrorCode::kAlreadyExists,
                  fmt::format("key {} is in container {} and in {}", quote(*key),
                              quote(container.name), quote(added_name)));
    }
  }
}

}  // namespace sml
