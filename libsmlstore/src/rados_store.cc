#include "rados_store.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "key_check.h"
#include "missing_as_zeros.h"
#include "posix_file.h"
#include "rados_sink.h"
#include "rados_source.h"
#include "smlformat/error.h"

namespace sml {
namespace {

constexpr char kRebuildHint[] = "'sml recover' of the data set makes it anew from its objects";

// "2026-11-30T22:00:00Z"
std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[32];
  text[std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc)] = '\0';
  return text;
}

// Waits between tries to change the catalog, at first at most and in the end; drawn at random, so
// that many who try at once do not meet again.
constexpr std::chrono::microseconds kFirstBackoff{4000};
constexpr std::chrono::microseconds kLastBackoff{1000000};

class Backoff {
 public:
  // Throws kCancelled where stop is requested.
  void wait(const std::stop_token& stop) {
    std::uniform_int_distribution<std::int64_t> draw(0, most_.count());
    std::mutex mutex;
    std::condition_variable_any condition;
    std::unique_lock lock(mutex);
    condition.wait_for(lock, stop, std::chrono::microseconds(draw(random_)), [] { return false; });
    if (stop.stop_requested())
      throw Error(ErrorCode::kCancelled, "cancelled while changing the catalog");
    most_ = std::min(2 * most_, kLastBackoff);
  }

 private:
  std::minstd_rand random_{static_cast<std::minstd_rand::result_type>(random_number())};
  std::chrono::microseconds most_ = kFirstBackoff;
};

std::uint64_t random_but_0() { return std::max<std::uint64_t>(random_number(), 1); }

// Marks what was announced as removed; false where it is not this owner's any more.
bool give_up(Catalog& catalog, const std::string& name, std::uint64_t owner) {
  const Announcement* const own = catalog.find_announced(name);
  if (own == nullptr || own->owner != owner) return false;
  catalog.removed.push_back({own->name, own->incarnation, 0});
  std::erase_if(catalog.announced, [&](const Announcement& one) { return one.name == name; });
  return true;
}

class PendingInRados final : public PendingContainer {
 public:
  PendingInRados(std::shared_ptr<RadosStore> store, NewContainer container)
      : store_(std::move(store)),
        container_(std::move(container)),
        incarnation_(random_but_0()),
        owner_(random_but_0()) {
    announce();
    sink_.emplace(store_->where(), incarnation_, *watch_, resumed_);
  }
  ~PendingInRados() override {
    // What is being written must have arrived before it is deleted.
    if (sink_) unanswered_ = sink_->unanswered();
    sink_.reset();
    watch_.reset();
    if (published_ || container_.resume) return;
    try {
      withdraw();
    } catch (const std::exception&) {
      // It stays in the catalog, and `sml rm --unsealed` finds it.
    }
  }
  PendingInRados(const PendingInRados&) = delete;
  PendingInRados& operator=(const PendingInRados&) = delete;

  void append(ByteView bytes) override { sink_->append(bytes); }
  void append_block(ByteView bytes, std::uint32_t crc32c) override {
    sink_->append_block(bytes, crc32c);
  }
  void begin_footer() override { sink_->begin_footer(); }
  void restart() override { sink_->restart(); }
  void publish(const std::stop_token& stop) override;
  std::shared_ptr<const ByteSource> interrupted() const override {
    if (!resumed_) return nullptr;
    return std::make_shared<const ObjectsSource>(store_->where(), incarnation_, 0, 0);
  }
  std::string kept() const override {
    return published_ || !container_.resume || is_taken_over() ? std::string()
                                                               : store_->place(container_.name);
  }

 private:
  void announce();
  bool is_in_catalog() const;
  bool is_taken_over() const;
  void withdraw();

  std::shared_ptr<RadosStore> store_;
  NewContainer container_;
  std::uint64_t incarnation_;
  std::uint64_t owner_;
  std::unique_ptr<ObjectWatch> watch_;
  bool resumed_ = false;  // an interrupted pack is continued
  std::optional<RadosSink> sink_;
  bool unanswered_ = false;  // a write may still be made
  bool published_ = false;
  bool taken_over_ = false;  // as publish() found
};

// Throws where a container cannot be begun, apart from another that packs it.
void check_can_join(const Catalog& catalog, const NewContainer& container,
                    const RadosStore& store) {
  const std::string where = store.place(container.name);
  if (!can_be_located(container.name)) {
    throw Error(ErrorCode::kInvalidArgument, where + ": no name in Ceph",
                "a location ends a name at '?', and at '@' before digits");
  }
  if (const CatalogEntry* entry = catalog.find(container.name); entry && !container.overwrite) {
    throw Error(ErrorCode::kAlreadyExists, where + ": exists already", "--overwrite replaces it");
  }
  catalog.check_membership(container.membership, container.name);
}

// Throws where the container is being packed, or was and cannot be continued.
void check_can_begin(const Catalog& catalog, const NewContainer& container,
                     const RadosStore& store) {
  check_can_join(catalog, container, store);
  if (const Announcement* other = catalog.find_announced(container.name)) {
    if (store.is_alive(other->incarnation)) {
      throw Error(ErrorCode::kUnavailable, fmt::format("{}: is being packed since {}",
                                                       store.place(container.name), other->since));
    }
    if (!container.resume) {
      constexpr std::uint32_t kNever = 0;
      throw Error(ErrorCode::kAlreadyExists,
                  fmt::format("{}: was begun at {} and never sealed", store.place(container.name),
                              other->since),
                  fmt::format("{}'sml rm --unsealed' removes what packers left",
                              other->recipe == kNever ? "" : "--resume continues it; "));
    }
    if (other->recipe != container.recipe) {
      throw Error(
          ErrorCode::kInvalidArgument,
          store.place(container.name) + ": the options are not those of the interrupted pack",
          "'sml rm --unsealed' removes what it left, to start anew");
    }
  }
}

// Watched first: a packer that is announced and not watched counts as dead.
void PendingInRados::announce() {
  const Catalog seen = store_->catalog().value_or(Catalog());
  check_can_begin(seen, container_, *store_);
  const Announcement* const left = seen.find_announced(container_.name);
  resumed_ = left != nullptr;
  if (resumed_) incarnation_ = left->incarnation;
  const std::string watched = watch_name(incarnation_);
  const int result = store_->where().objects->watch(watched, watch_);
  if (result < 0) throw store_->where().located_error(result, "watching " + watched);
  try {
    store_->update([&](Catalog& catalog) {
      check_can_join(catalog, container_, *store_);
      const Announcement* const now = catalog.find_announced(container_.name);
      const bool as_seen =
          (now == nullptr) == (left == nullptr) && (now == nullptr || now->owner == left->owner);
      if (!as_seen) {
        throw Error(ErrorCode::kUnavailable, store_->place(container_.name) +
                                                 ": another process began or removed it just now");
      }
      catalog.announce({container_.name, incarnation_, owner_, container_.recipe,
                        container_.membership, utc_now()});
    });
  } catch (...) {
    watch_.reset();
    if (!resumed_) store_->where().objects->remove(watched, [](int) {});
    throw;
  }
}

void PendingInRados::publish(const std::stop_token& stop) {
  CatalogEntry entry = sink_->finish();
  entry.name = container_.name;
  const auto reader = store_->open_sealed(entry);
  CatalogEntry complete = CatalogEntry::of(container_.name, *reader);
  complete.incarnation = incarnation_;
  KeyCheck keys(*store_, container_.name, *reader, &store_->compared());
  try {
    store_->update(
        [&](Catalog& catalog) {
          const Announcement* const own = catalog.find_announced(container_.name);
          taken_over_ = own == nullptr || own->owner != owner_;
          if (taken_over_) {
            throw Error(ErrorCode::kUnavailable,
                        store_->place(container_.name) +
                            ": another process has taken over or removed what was packed");
          }
          catalog.check_membership(container_.membership, container_.name);
          keys.run(catalog);
          std::erase_if(catalog.announced,
                        [&](const Announcement& one) { return one.name == container_.name; });
          if (const CatalogEntry* replaced = catalog.find(container_.name))
            catalog.removed.push_back(
                {replaced->name, replaced->incarnation, object_count(*replaced)});
          catalog.add(complete);
        },
        stop);
  } catch (const Error& error) {
    // A change that was given up may have been made, and the catalog changed again since.
    if (error.code() != ErrorCode::kUnavailable || !is_in_catalog()) throw;
  }
  published_ = true;
  watch_.reset();
  store_->where().objects->remove(watch_name(incarnation_), [](int) {});
  if (!container_.overwrite) return;
  try {
    store_->delete_removed();
  } catch (const Error&) {
    // What was replaced stays in the catalog as removed, for who removes next.
  }
}

bool PendingInRados::is_in_catalog() const {
  const Catalog catalog = store_->catalog().value_or(Catalog());
  const CatalogEntry* const entry = catalog.find(container_.name);
  return entry != nullptr && entry->incarnation == incarnation_;
}

// Whether what was packed is another process's by now, or gone; false where nobody can tell.
bool PendingInRados::is_taken_over() const {
  // From no other than one that seems to be dead.
  if (taken_over_ || !watch_->lost()) return taken_over_;
  try {
    const std::optional<Catalog> catalog = store_->catalog();
    const Announcement* const own = catalog ? catalog->find_announced(container_.name) : nullptr;
    return own == nullptr || own->owner != owner_;
  } catch (const Error&) {
    return false;
  }
}

// Takes back what was not published.
void PendingInRados::withdraw() {
  bool own = false;
  store_->update([&](Catalog& catalog) { own = give_up(catalog, container_.name, owner_); });
  // A write without an answer may still be made as long as this process lives: then others delete.
  if (own && !unanswered_) store_->delete_removed();
}

}  // namespace

RadosStore::RadosStore(RadosPlace place, StoreOptions options)
    : place_(std::move(place)), options_(std::move(options)) {}

std::string RadosStore::place(std::string_view container) const {
  return fmt::format("{}/{}", place_.path, container);
}

Catalog RadosStore::decode(const Objects::Versioned& stored) const {
  try {
    Catalog catalog = Catalog::decode(as_text(stored.bytes));
    for (const CatalogEntry& entry : catalog.containers) {
      if (entry.incarnation == 0)
        throw Error(ErrorCode::kCorrupt, "catalog: it is that of a directory");
    }
    return catalog;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCorrupt) throw error.within(place_.path);
    throw Error(error.code(), fmt::format("{}: {}", place_.path, error.what()), kRebuildHint);
  }
}

std::optional<Catalog> RadosStore::catalog() const {
  const std::optional<Objects::Versioned> stored = changeable_catalog();
  if (!stored) return std::nullopt;
  return decode(*stored);
}

std::optional<Objects::Versioned> RadosStore::stored_catalog() const {
  Objects::Versioned stored;
  const int result = place_.objects->get(kCatalogObject, stored);
  if (result == -ENOENT) return std::nullopt;
  if (result < 0) throw place_.located_error(result, "reading the catalog");
  return stored;
}

std::optional<Objects::Versioned> RadosStore::changeable_catalog() const {
  std::optional<Objects::Versioned> stored = stored_catalog();
  if (stored && stored->version.empty()) {
    throw Error(ErrorCode::kCorrupt,
                place_.path + ": catalog: its object has no attribute 'version'", kRebuildHint);
  }
  return stored;
}

bool RadosStore::replace(const std::optional<Objects::Versioned>& seen, const Catalog& catalog) {
  const int result = place_.objects->put(kCatalogObject, as_bytes(catalog.encode()),
                                         seen ? std::optional(seen->version) : std::nullopt);
  if (result == -ECANCELED) return false;
  if (result < 0) throw place_.located_error(result, "changing the catalog");
  return true;
}

void RadosStore::update(const std::function<void(Catalog&)>& change, const std::stop_token& stop) {
  for (Backoff backoff;; backoff.wait(stop)) {
    const std::optional<Objects::Versioned> seen = changeable_catalog();
    Catalog catalog = seen ? decode(*seen) : Catalog();
    change(catalog);
    if (replace(seen, catalog)) return;
  }
}

std::shared_ptr<const ContainerReader> RadosStore::open_container(const CatalogEntry& entry) const {
  auto reader = open_sealed(entry);
  if (!CatalogEntry::of(entry.name, *reader).is_same_container(entry)) {
    throw Error(ErrorCode::kCorrupt,
                place(entry.name) + ": has other records, grouping or parts than the catalog says");
  }
  return reader;
}

std::shared_ptr<const ContainerReader> RadosStore::open_sealed(const CatalogEntry& entry) const {
  const std::uint64_t bytes = entry.container_bytes - round_up(entry.blocks_end, kFooterAlign);
  for (bool again = false;; again = true) {
    try {
      const auto footer = cached_footer(
          options_.index_directory, entry.id, bytes,
          [&] { RadosSource::check_footer(place_, entry); },
          [&](MutableBytes out) { RadosSource::fetch_footer(place_, entry, out); });
      const auto source = std::make_shared<RadosSource>(place_, entry, footer);
      const auto reader =
          std::make_shared<ContainerReader>(source, ContainerReader::HeaderFrom::kFooter);
      const CatalogEntry found = CatalogEntry::of(entry.name, *reader);
      if (found.id != entry.id || found.blocks != entry.blocks ||
          found.blocks_end != entry.blocks_end ||
          (entry.header_bytes != 0 && found.header_bytes != entry.header_bytes)) {
        throw Error(ErrorCode::kCorrupt,
                    fmt::format("its objects are those of container {}, not {}", found.id.hex(),
                                entry.id.hex()));
      }
      source->use(reader->index());
      return reader;
    } catch (const Error& error) {
      const bool damaged =
          error.code() == ErrorCode::kCorrupt || error.code() == ErrorCode::kTruncated;
      // What was kept here may be what is damaged.
      if (again || !damaged || options_.index_directory.empty()) {
        const std::string shown = place(entry.name);
        throw std::string_view(error.what()).starts_with(place_.path) ? error : error.within(shown);
      }
      discard_footer(options_.index_directory, entry.id);
    }
  }
}

void RadosStore::forget_index(const Hash128& id) const {
  discard_footer(options_.index_directory, id);
}

std::shared_ptr<const ByteSource> RadosStore::open_damaged(const std::string& name) const {
  const Catalog now = catalog().value_or(Catalog());
  if (const Announcement* unsealed = now.find_announced(name))
    return std::make_shared<const ObjectsSource>(place_, unsealed->incarnation, 0, 0);
  const CatalogEntry* const entry = now.find(name);
  if (entry == nullptr)
    throw Error(ErrorCode::kNotFound, place(name) + ": there is no such container");
  try {
    // Its index tells where what is missing would be.
    const std::shared_ptr<const ContainerReader> reader = open_container(*entry);
    return std::make_shared<const MissingAsZeros>(reader, *far_source(*reader));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCorrupt && error.code() != ErrorCode::kTruncated &&
        error.code() != ErrorCode::kUnsupported)
      throw;
    return std::make_shared<const ObjectsSource>(place_, entry->incarnation, 0,
                                                 object_count(*entry));
  }
}

void RadosStore::check(const NewContainer& container) const {
  check_can_begin(catalog().value_or(Catalog()), container, *this);
}

std::unique_ptr<PendingContainer> RadosStore::create(const NewContainer& container) {
  return std::make_unique<PendingInRados>(shared_from_this(), container);
}

bool RadosStore::is_alive(std::uint64_t incarnation) const {
  bool watched = false;
  const int result = place_.objects->is_watched(watch_name(incarnation), watched);
  if (result == -ENOENT) return false;
  if (result < 0)
    throw place_.located_error(result, "asking who watches " + watch_name(incarnation));
  return watched;
}

void RadosStore::delete_removed() {
  const std::optional<Catalog> now = catalog();
  if (!now) return;
  for (const Removal& one : now->removed) {
    delete_objects(place_, one.incarnation, 0, one.objects);
    place_.objects->remove(watch_name(one.incarnation), [](int) {});
    update([&](Catalog& catalog) {
      std::erase_if(catalog.removed,
                    [&](const Removal& other) { return other.incarnation == one.incarnation; });
    });
  }
}

std::vector<std::string> RadosStore::names() const { return catalog().value_or(Catalog()).names(); }

void RadosStore::remove(const std::vector<std::string>& names) {
  update([&](Catalog& catalog) {
    for (const std::string& name : names) {
      const CatalogEntry* const entry = catalog.find(name);
      if (entry == nullptr)
        throw Error(ErrorCode::kNotFound, place(name) + ": there is no such container");
      catalog.removed.push_back({entry->name, entry->incarnation, object_count(*entry)});
      catalog.remove(name);
    }
  });
  delete_removed();
}

std::vector<Store::Unsealed> RadosStore::unsealed() const {
  std::vector<Unsealed> found;
  const std::optional<Catalog> now = catalog();
  if (!now) return found;
  for (const Announcement& one : now->announced)
    found.push_back({one.name, one.since, is_alive(one.incarnation), one.owner, {}});
  for (const Removal& one : now->removed) found.push_back({one.name, {}, false, 0, {}});
  return found;
}

void RadosStore::remove_unsealed(const Unsealed& one) {
  if (one.owner != 0) {
    update([&](Catalog& catalog) {
      if (!give_up(catalog, one.name, one.owner) && catalog.find_announced(one.name) != nullptr)
        throw Error(ErrorCode::kUnavailable, place(one.name) + ": is being packed");
    });
  }
  delete_removed();
}

void RadosStore::remove_dataset() {
  const std::optional<Objects::Versioned> stored = changeable_catalog();
  if (!stored) return;
  const Catalog catalog = decode(*stored);
  if (!catalog.containers.empty() || !catalog.announced.empty() || !catalog.removed.empty())
    throw Error(ErrorCode::kInvalidArgument, place_.path + ": the data set is not empty");
  const int result = place_.objects->remove_version(kCatalogObject, stored->version);
  if (result == -ECANCELED)
    throw Error(ErrorCode::kUnavailable, place_.path + ": the data set was changed meanwhile");
  if (result < 0) throw place_.located_error(result, "removing the catalog");
}

}  // namespace sml
