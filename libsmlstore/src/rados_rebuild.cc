#include <algorithm>
#include <charconv>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "posix_file.h"
#include "quote.h"
#include "rados_source.h"
#include "rados_store.h"
#include "smlformat/layout.h"
#include "smlstore/dataset.h"
#include "smlstore/rebuild.h"

namespace sml {
namespace {

constexpr std::uint64_t kMaxContainerBytes = std::numeric_limits<std::int64_t>::max();

// What is there of an incarnation.
struct FoundObjects {
  std::vector<std::uint64_t> numbers;  // ascending
  bool has_watch = false;              // the object that its packer watches
};

struct Sealed {
  CatalogEntry entry;
  std::shared_ptr<const ContainerReader> reader;  // for its index only
  std::uint64_t missing = 0;                      // objects
  std::uint64_t first_missing = 0;
  bool may_join = true;
};

std::string unsealed_name(std::uint64_t incarnation) {
  return fmt::format("unsealed-{:016x}", incarnation);
}

bool is_damage(const Error& error) {
  return error.code() == ErrorCode::kCorrupt || error.code() == ErrorCode::kTruncated ||
         error.code() == ErrorCode::kUnsupported;
}

// By their ids the names of containers, as far as a catalog that cannot be read shows them. An id
// is no coincidence.
std::map<std::string, std::string, std::less<>> names_in(std::string_view damaged_catalog) {
  constexpr std::string_view kName = "{\"name\":";
  constexpr std::string_view kId = ",\"id\":\"";
  constexpr std::size_t kIdDigits = 32;
  std::map<std::string, std::string, std::less<>> names;
  for (std::size_t at = damaged_catalog.find(kName); at != std::string_view::npos;) {
    const std::size_t begin = at + kName.size();
    at = damaged_catalog.find(kName, begin);
    const std::string_view entry = damaged_catalog.substr(begin, at - begin);
    const std::size_t id = entry.find(kId);
    if (id == std::string_view::npos) continue;
    const auto name = nlohmann::json::parse(entry.substr(0, id), nullptr, false);
    if (name.is_string())
      names.emplace(entry.substr(id + kId.size(), kIdDigits), name.get<std::string>());
  }
  return names;
}

class Rebuild {
 public:
  Rebuild(RadosStore& store, const RebuildOptions& options)
      : store_(store), place_(store.where()), options_(options) {}

  RebuildReport run();

 private:
  void read_catalog();
  void find_objects();
  void refuse_packers() const;
  void examine(std::uint64_t incarnation, const FoundObjects& found);
  std::optional<Sealed> open_sealed(std::uint64_t incarnation, const FoundObjects& found,
                                    std::optional<Error>& why) const;
  std::optional<CatalogEntry> entry_up_to(std::uint64_t incarnation, std::uint64_t last) const;
  void name_containers();
  std::string free_name(const std::string& wanted, std::uint64_t incarnation);
  void compare_keys();
  void take_in();
  void announce(std::string name, std::uint64_t incarnation);

  void problem(ErrorCode code, std::string_view name, const std::string& what,
               std::string hint = {}) {
    report_.problems.push_back(Error(code, what, std::move(hint)).within(store_.place(name)));
  }
  void check_stop() const {
    if (options_.stop.stop_requested()) throw Error(ErrorCode::kCancelled, "cancelled");
  }

  RadosStore& store_;
  const RadosPlace& place_;
  const RebuildOptions& options_;
  std::optional<Objects::Versioned> seen_;
  bool is_sound_ = false;  // what the catalog says can be relied on
  Catalog catalog_;
  std::map<std::uint64_t, FoundObjects> found_;  // that the catalog does not name
  std::vector<Sealed> sealed_;
  std::vector<std::pair<std::string, std::uint64_t>> unsealed_;  // name and incarnation
  std::set<std::string> names_;                                  // that are taken
  RebuildReport report_;
};

RebuildReport Rebuild::run() {
  read_catalog();
  find_objects();
  if (!seen_ && found_.empty())
    throw Error(ErrorCode::kNotFound, place_.path + ": there is no such data set");
  refuse_packers();
  for (const auto& [incarnation, found] : found_) examine(incarnation, found);
  name_containers();
  compare_keys();
  take_in();
  const bool is_changed =
      report_.damage || !report_.containers.empty() || !report_.unsealed.empty();
  if (!is_changed || options_.dry_run) return std::move(report_);
  check_stop();
  if (!store_.replace(seen_, catalog_)) {
    throw Error(ErrorCode::kUnavailable,
                place_.path + ": the catalog was changed meanwhile, and is left as it is now",
                "the same command tries again");
  }
  return std::move(report_);
}

void Rebuild::read_catalog() {
  seen_ = store_.stored_catalog();
  if (!seen_) {
    report_.damage.emplace(ErrorCode::kNotFound, place_.path + ": there is no catalog");
    return;
  }
  try {
    catalog_ = store_.decode(*seen_);
    is_sound_ = true;
    for (const CatalogEntry& one : catalog_.containers) names_.insert(one.name);
    for (const Announcement& one : catalog_.announced) names_.insert(one.name);
    if (!seen_->version.empty()) return;
    report_.damage.emplace(ErrorCode::kCorrupt,
                           place_.path + ": catalog: its object has no attribute 'version'");
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCorrupt) throw;
    report_.damage.emplace(error.code(), error.what());
  }
}

void Rebuild::find_objects() {
  // "0123456789abcdef.0000002a", "0123456789abcdef.w"
  const int result = place_.objects->list([this](const std::string& name) {
    constexpr std::size_t kDigits = 16;
    const std::string_view number =
        std::string_view(name).substr(std::min(name.size(), kDigits + 1));
    std::uint64_t incarnation = 0;
    std::uint64_t value = 0;
    std::from_chars(name.data(), name.data() + std::min(name.size(), kDigits), incarnation, 16);
    std::from_chars(number.data(), number.data() + number.size(), value, 16);
    if (incarnation != 0 && name == watch_name(incarnation)) {
      found_[incarnation].has_watch = true;
    } else if (incarnation != 0 && name == object_name(incarnation, value)) {
      found_[incarnation].numbers.push_back(value);
    } else if (name != kCatalogObject) {
      ++report_.foreign;
    }
  });
  if (result < 0) throw place_.located_error(result, "listing the objects");
  for (const CatalogEntry& one : catalog_.containers) found_.erase(one.incarnation);
  for (const Announcement& one : catalog_.announced) found_.erase(one.incarnation);
  for (const Removal& one : catalog_.removed) found_.erase(one.incarnation);
  for (auto& [incarnation, found] : found_) {
    std::vector<std::uint64_t>& numbers = found.numbers;
    std::sort(numbers.begin(), numbers.end());
    numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  }
}

void Rebuild::refuse_packers() const {
  for (const auto& [incarnation, found] : found_) {
    check_stop();
    if (!found.has_watch || !store_.is_alive(incarnation)) continue;
    throw Error(ErrorCode::kUnavailable,
                fmt::format("{}: a packer is at work on what the catalog does not name ({:016x})",
                            place_.path, incarnation),
                "end it first; one that was killed counts as alive for some 10 to 30 seconds");
  }
}

void Rebuild::examine(std::uint64_t incarnation, const FoundObjects& found) {
  check_stop();
  std::optional<Error> why;
  if (std::optional<Sealed> sealed = open_sealed(incarnation, found, why))
    return sealed_.push_back(*std::move(sealed));
  const std::string name = free_name(unsealed_name(incarnation), incarnation);
  std::uint64_t expected = 0;
  for (const std::uint64_t number : found.numbers) {
    if (number - expected > kMaxWrites) {
      return problem(ErrorCode::kCorrupt, name,
                     fmt::format("its objects {:08x} to {:08x} are missing: what is behind would "
                                 "not be found, and is left as it is",
                                 expected, number - 1));
    }
    expected = number + 1;
  }
  unsealed_.emplace_back(name, incarnation);
  // A catalog that is sound would have named what was sealed.
  if (is_sound_ || found.numbers.empty()) return;
  if (!why) why.emplace(ErrorCode::kTruncated, "it was never sealed, or its end is lost");
  report_.problems.push_back(
      Error(why->code(), why->what(),
            fmt::format("'sml recover {} -o FILE' saves what is intact; 'sml rm --unsealed' "
                        "removes it",
                        store_.place(name)))
          .within_once(store_.place(name)));
}

// The last object ends with the tail, unless a packer that another took over from wrote more.
std::optional<Sealed> Rebuild::open_sealed(std::uint64_t incarnation, const FoundObjects& found,
                                           std::optional<Error>& why) const {
  const auto oldest = found.numbers.rbegin() +
                      static_cast<std::ptrdiff_t>(std::min(found.numbers.size(), kMaxWrites + 1));
  for (auto last = found.numbers.rbegin(); last != oldest; ++last) {
    try {
      const std::optional<CatalogEntry> entry = entry_up_to(incarnation, *last);
      if (!entry) continue;
      Sealed sealed;
      store_.forget_index(entry->id);  // what is there counts
      sealed.reader = store_.open_sealed(*entry);
      sealed.entry = CatalogEntry::of({}, *sealed.reader);
      sealed.entry.incarnation = incarnation;
      const auto there = static_cast<std::uint64_t>(found.numbers.rend() - last);
      sealed.missing = *last + 1 - there;
      for (const std::uint64_t number : found.numbers) {
        if (number != sealed.first_missing) break;
        ++sealed.first_missing;
      }
      return sealed;
    } catch (const Error& error) {
      if (!is_damage(error)) throw;
      if (!why) why = error;
    }
  }
  return std::nullopt;
}

// What a container whose objects are those up to `last` is, as far as its tail tells; nothing where
// they do not end with a tail.
std::optional<CatalogEntry> Rebuild::entry_up_to(std::uint64_t incarnation,
                                                 std::uint64_t last) const {
  // A piece of what follows the blocks may be shorter than the tail.
  const std::uint64_t first = last - std::min<std::uint64_t>(last, 1);
  const ObjectsSource end(place_, incarnation, first, last - first + 1);
  const std::uint64_t last_bytes = ObjectsSource(place_, incarnation, last, 1).size();
  if (end.size() < Tail::kBytes || last_bytes == 0) return std::nullopt;
  std::byte bytes[Tail::kBytes];
  end.read(end.size() - Tail::kBytes, bytes);
  Tail tail;
  try {
    tail = Tail::decode(bytes);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kTruncated) return std::nullopt;
    throw;
  }
  const std::uint64_t size = tail.container_bytes;
  if (size > kMaxContainerBytes || size < last_bytes || tail.footer_offset % kFooterAlign != 0 ||
      size < Tail::kBytes || tail.footer_offset > size - Tail::kBytes) {
    return std::nullopt;
  }
  // All pieces but the last have the same size, and the first one begins where the blocks end: less
  // than kFooterAlign before the footer.
  const std::uint64_t last_begin = size - last_bytes;
  const std::uint64_t behind = last_begin - std::min(last_begin, tail.footer_offset);
  const std::uint64_t before = (behind + kFooterObjectBytes - 1) / kFooterObjectBytes;  // pieces
  if (before >= last || before * kFooterObjectBytes > last_begin) return std::nullopt;
  CatalogEntry entry;
  entry.name = unsealed_name(incarnation);  // for errors: then it counts as unsealed
  entry.id = tail.id;
  entry.container_bytes = size;
  entry.blocks = last - before - 1;
  entry.blocks_end = last_begin - before * kFooterObjectBytes;
  entry.incarnation = incarnation;
  if (round_up(entry.blocks_end, kFooterAlign) != tail.footer_offset) return std::nullopt;
  return entry;
}

std::string Rebuild::free_name(const std::string& wanted, std::uint64_t incarnation) {
  const auto is_name = [](const std::string& name) {
    return is_container_name(name) && can_be_located(name);
  };
  std::string name = wanted;
  for (std::uint64_t more = incarnation; !is_name(name) || names_.contains(name); ++more) {
    name = fmt::format("{}-{:016x}", wanted, more);
    if (!is_name(name)) name = fmt::format("recovered-{:016x}", more);
  }
  names_.insert(name);
  return name;
}

void Rebuild::name_containers() {
  // Of two with one name the whole one gets it.
  std::stable_sort(sealed_.begin(), sealed_.end(),
                   [](const Sealed& a, const Sealed& b) { return a.missing < b.missing; });
  const auto names = names_in(seen_ ? as_text(seen_->bytes) : std::string_view());
  for (Sealed& one : sealed_) {
    const Membership& membership = one.entry.membership;
    std::string name;
    if (const auto seen = names.find(one.entry.id.hex()); seen != names.end()) {
      name = seen->second;
    } else {
      name = membership.parts > 0 ? fmt::format("part-{}-of-{}", membership.part, membership.parts)
                                  : fmt::format("recovered-{:016x}", one.entry.incarnation);
    }
    one.entry.name = free_name(name, one.entry.incarnation);
    if (one.missing == 0) continue;
    problem(ErrorCode::kCorrupt, one.entry.name,
            fmt::format("{} of its objects {} missing, the first one {}", one.missing,
                        one.missing == 1 ? "is" : "are",
                        object_name(one.entry.incarnation, one.first_missing)),
            "'sml verify --quick' names all");
  }
}

// Tells one key of each two containers that share any.
void Rebuild::compare_keys() {
  if (sealed_.empty()) return;
  std::vector<Dataset::Container> all;
  const auto add = [&](const CatalogEntry& entry, std::shared_ptr<const ContainerReader> reader) {
    check_stop();
    Dataset::Container container;
    container.name = entry.name;
    container.path = store_.place(entry.name);
    container.reader = std::move(reader);
    // Others cannot be in one data set, which is told elsewhere.
    if (all.empty() ||
        container.reader->header().grouping == all.front().reader->header().grouping) {
      all.push_back(std::move(container));
    }
  };
  for (const CatalogEntry& entry : catalog_.containers) add(entry, store_.open_container(entry));
  for (const Sealed& one : sealed_) add(one.entry, one.reader);
  const Dataset dataset = Dataset::from(std::move(all));

  std::set<std::pair<std::size_t, std::size_t>> told;
  std::string previous;
  std::size_t holder = dataset.containers().size();
  std::uint64_t seen = 0;
  for (Dataset::NameCursor at(dataset); !at.done(); at.advance()) {
    if (seen++ % 4096 == 0) check_stop();
    if (holder == dataset.containers().size() || at.key() != previous) {
      previous.assign(at.key());
      holder = at.container();
      continue;
    }
    if (!told.emplace(holder, at.container()).second) continue;
    const std::string& first = dataset.containers()[holder].name;
    const std::string& second = dataset.containers()[at.container()].name;
    const auto added = std::find_if(sealed_.rbegin(), sealed_.rend(), [&](const Sealed& one) {
      return one.entry.name == first || one.entry.name == second;
    });
    if (added == sealed_.rend()) continue;  // both were there before
    added->may_join = false;
    report_.problems.emplace_back(
        ErrorCode::kAmbiguous,
        fmt::format("{}: key {} is in containers {} and {}", place_.path, quote(previous),
                    quote(first), quote(second)),
        is_sound_ ? std::string() : "'sml rm' of one of them makes keys unique again");
  }
}

void Rebuild::take_in() {
  for (Sealed& one : sealed_) {
    CatalogEntry& entry = one.entry;
    try {
      catalog_.check_membership(entry.membership, {});
    } catch (const Error& error) {
      one.may_join = false;
      report_.problems.push_back(error.within(store_.place(entry.name)));
    }
    // A data set that is sound stays so. Else nothing tells which one to leave out.
    if (is_sound_ && !one.may_join) {
      unsealed_.emplace_back(entry.name, entry.incarnation);
      continue;
    }
    catalog_.add(std::move(entry));
  }
  if (!is_sound_) {
    // Nothing tells what revisions there were.
    catalog_.revision = catalog_.oldest = 1;
    for (CatalogEntry& entry : catalog_.containers) entry.since = 1;
  }
  for (const CatalogEntry& entry : catalog_.containers) {
    if (found_.contains(entry.incarnation)) report_.containers.push_back(entry);
  }
  for (auto& [name, incarnation] : unsealed_) announce(std::move(name), incarnation);
}

// As what a packer that died has left, and never to be resumed. It is to be in the way of nothing
// else, so that it is no part, whatever its header says.
void Rebuild::announce(std::string name, std::uint64_t incarnation) {
  Announcement one;
  one.name = name;
  one.incarnation = incarnation;
  one.owner = std::max<std::uint64_t>(random_number(), 1);
  if (!catalog_.containers.empty())
    one.membership.grouping = catalog_.containers.front().membership.grouping;
  one.since = "an unknown time";
  catalog_.announce(std::move(one));
  report_.unsealed.push_back(std::move(name));
}

}  // namespace

RebuildReport rebuild_catalog(const Location& dataset, const StoreOptions& store,
                              const RebuildOptions& options) {
  if (!dataset.is_rados() || !dataset.container.empty() || dataset.revision)
    throw Error(ErrorCode::kInvalidArgument, dataset.path + ": is no data set in Ceph");
  const std::shared_ptr<Store> opened = Store::open(dataset, store);
  return Rebuild(dynamic_cast<RadosStore&>(*opened), options).run();
}

}  // namespace sml
