// Data sets in Ceph where two want the same at once, or one was cut off.
#include "rados_store.h"

#include <cerrno>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <unistd.h>

#include <doctest/doctest.h>

#include "pools.h"
#include "rados_sink.h"
#include "smlformat/checksum.h"
#include "smlformat/error.h"
#include "smlstore/copy.h"
#include "smlstore/directory_store.h"

namespace {

using namespace sml;

// A data set of its own in one pool, gone again at the end.
class Set {
 public:
  explicit Set(const std::string& pool) {
    static int count = 0;
    const std::string name = "race-" + std::to_string(getpid()) + "-" + std::to_string(++count);
    location = Location::parse("rados://" + pool + "/" + name);
    objects = open_objects({.pool = pool, .name_space = name, .conf = {}, .user = {}});
    place = {objects, location.path, pool, 30};
  }
  ~Set() {
    for (const std::string& name : names()) {
      std::promise<void> gone;
      objects->remove(name, [&](int) { gone.set_value(); });
      gone.get_future().get();
    }
  }
  Set(const Set&) = delete;
  Set& operator=(const Set&) = delete;

  // Another process, as far as the store can tell.
  std::shared_ptr<Store> store() const { return Store::open(location); }
  std::set<std::string> names() const {
    std::set<std::string> out;
    CHECK(objects->list([&](const std::string& name) { out.insert(name); }) == 0);
    return out;
  }
  void create(const std::string& name, ByteView bytes) const {
    std::promise<int> result;
    objects->create(name, bytes, crc32c(bytes), [&](int value) { result.set_value(value); });
    REQUIRE(result.get_future().get() == 0);
  }

  Location location;
  std::shared_ptr<Objects> objects;
  RadosPlace place;
};

template <class Body>
void in_each_pool(const Body& body) {
  for (const std::string& pool : pools()) {
    CAPTURE(pool);
    const Set set(pool);
    body(set);
  }
}

std::shared_ptr<const ContainerReader> a_container() {
  return open_container_file(vector_path("06-several-blocks.sml"), true);
}

NewContainer resumable(const std::string& name) {
  NewContainer container;
  container.name = name;
  container.recipe = 7;
  container.resume = true;
  return container;
}

// A packer that died behind some bytes.
void leave_unsealed(const Set& set, const std::string& name) {
  const auto container = a_container();
  const auto pending = set.store()->create(resumable(name));
  Bytes header(container->header().header_bytes);
  container->source().read(0, header);
  pending->append(header);
}

template <class Body>
ErrorCode code_of(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.code();
  }
  FAIL("no error");
  return {};
}

// A watch that says what it is told to.
struct FakeWatch final : ObjectWatch {
  explicit FakeWatch(bool is_lost) : is_lost_(is_lost) {}
  bool lost() const noexcept override { return is_lost_; }
  bool is_lost_;
};

}  // namespace

TEST_CASE("rados store: a catalog is replaced only while it is what was seen") {
  in_each_pool([](const Set& set) {
    const auto store = set.store();
    auto& rados = dynamic_cast<RadosStore&>(*store);
    CHECK(!rados.stored_catalog());
    Catalog catalog;
    catalog.revision = 5;
    CHECK(rados.replace(std::nullopt, catalog));
    CHECK(!rados.replace(std::nullopt, catalog));
    const auto seen = rados.stored_catalog();
    rados.update([](Catalog& now) { now.revision = 6; });
    CHECK(!rados.replace(seen, catalog));
    CHECK(store->catalog()->revision == 6);
    const auto now = rados.stored_catalog();
    CHECK(rados.replace(now, catalog));
    CHECK(store->catalog()->revision == 5);
  });
}

TEST_CASE("rados store: what was found unsealed and is resumed meanwhile is not removed") {
  in_each_pool([](const Set& set) {
    leave_unsealed(set, "one");
    const auto store = set.store();
    const std::vector<Store::Unsealed> found = store->unsealed();
    REQUIRE(found.size() == 1);
    CHECK(!found[0].alive);
    const auto container = a_container();
    const auto resumed = set.store()->create(resumable("one"));
    CHECK(resumed->interrupted() != nullptr);
    CHECK(code_of([&] { store->remove_unsealed(found[0]); }) == ErrorCode::kUnavailable);
    copy_container(*container, *resumed, {});
    resumed->publish({});
    CHECK(store->names() == std::vector<std::string>{"one"});
    CHECK(store->open_container(store->catalog()->containers[0])->id() == container->id());
    // It is of the past now: nothing of the container is touched.
    const auto before = set.names();
    store->remove_unsealed(found[0]);
    CHECK(set.names() == before);
  });
}

TEST_CASE("rados store: one container is begun and resumed by one packer only") {
  in_each_pool([](const Set& set) {
    leave_unsealed(set, "one");
    const auto first = set.store()->create(resumable("one"));
    CHECK(code_of([&] { set.store()->create(resumable("one")); }) == ErrorCode::kUnavailable);
    NewContainer anew = resumable("one");
    anew.resume = false;
    CHECK(code_of([&] { set.store()->create(anew); }) == ErrorCode::kUnavailable);
  });
}

TEST_CASE("rados store: a packer that cannot begin leaves nothing") {
  in_each_pool([](const Set& set) {
    const auto store = set.store();
    NewContainer part = resumable("part-1");
    part.membership = {Grouping::kNone, 1, 2};
    part.resume = false;
    const auto first = store->create(part);
    const auto before = set.names();
    part.name = "another";
    CHECK(code_of([&] { store->create(part); }) == ErrorCode::kAlreadyExists);
    CHECK(set.names() == before);
  });
}

TEST_CASE("rados store: who lost what was packed does not publish it") {
  in_each_pool([](const Set& set) {
    const auto container = a_container();
    const auto store = set.store();
    const auto pending = store->create(resumable("one"));
    copy_container(*container, *pending, {});
    auto& rados = dynamic_cast<RadosStore&>(*store);
    rados.update([](Catalog& catalog) { catalog.announced[0].owner ^= 1; });
    CHECK(pending->kept() == store->place("one"));
    CHECK(code_of([&] { pending->publish({}); }) == ErrorCode::kUnavailable);
    CHECK(pending->kept().empty());
    CHECK(store->names().empty());
  });
}

TEST_CASE("rados store: the objects of an unsealed container are found up to its end") {
  in_each_pool([](const Set& set) {
    // As many missing in a row as may be, at every place around the steps of the search.
    for (const std::size_t count : {0, 1, 31, 32, 33, 63, 64, 65, 95, 96, 97, 130, 200}) {
      CAPTURE(count);
      const std::uint64_t incarnation = 1000 + count;
      std::uint64_t end = 0;
      for (std::size_t i = 0; i < count; ++i) {
        const bool gap = i % (kMaxWrites + 1) != 0;  // one is there, kMaxWrites are not
        if (gap) continue;
        set.create(object_name(incarnation, i), Bytes(i + 1));
        end = i + 1;
      }
      const auto sizes = object_sizes(set.place, incarnation, 0, 0);
      REQUIRE(sizes.size() == end);
      for (std::size_t i = 0; i < end; ++i)
        CHECK(sizes[i] == (i % (kMaxWrites + 1) == 0 ? std::optional(i + 1) : std::nullopt));
      CHECK(object_sizes(set.place, incarnation, 0, count).size() == count);
      delete_objects(set.place, incarnation, 0, 0);
    }
    CHECK(set.names().empty());
  });
}

TEST_CASE("rados store: an object that another try made counts as written, if it is the same") {
  in_each_pool([](const Set& set) {
    const FakeWatch held(false);
    const Bytes header(200, std::byte{1});
    const Bytes other(200, std::byte{2});
    for (const bool resumed : {false, true}) {
      CAPTURE(resumed);
      const std::uint64_t incarnation = resumed ? 2 : 1;
      set.create(object_name(incarnation, 0), header);
      set.create(object_name(incarnation, 1), header);
      RadosSink sink(set.place, incarnation, held, resumed);
      sink.append(header);
      sink.append(other);
      if (resumed) {
        // Those of an interrupted pack are replaced.
        CHECK(code_of([&] { sink.finish(); }) == ErrorCode::kInvalidArgument);  // no container
        CHECK(object_sizes(set.place, incarnation, 0, 0).size() == 2);
      } else {
        CHECK(code_of([&] { sink.finish(); }) == ErrorCode::kAlreadyExists);
      }
    }
  });
}

TEST_CASE("rados store: a packer that was away for long removes nothing") {
  in_each_pool([](const Set& set) {
    const FakeWatch lost(true);
    const Bytes there(200, std::byte{1});
    const Bytes other(200, std::byte{2});
    for (std::uint64_t i = 0; i < 3; ++i) set.create(object_name(1, i), there);
    const auto before = set.names();
    RadosSink sink(set.place, 1, lost, true);
    sink.append(there);
    CHECK(code_of([&] { sink.restart(); }) == ErrorCode::kUnavailable);
    CHECK(code_of([&] { sink.finish(); }) == ErrorCode::kUnavailable);
    sink.append(other);
    CHECK(code_of([&] { sink.finish(); }) == ErrorCode::kUnavailable);
    CHECK(set.names() == before);
  });
}

TEST_CASE("rados store: a name that no location can hold is refused") {
  in_each_pool([](const Set& set) {
    for (const std::string name : {"a?b", "a@3", "?", "@1"}) {
      CAPTURE(name);
      CHECK(code_of([&] { set.store()->check(resumable(name)); }) == ErrorCode::kInvalidArgument);
      CHECK(code_of([&] { set.store()->create(resumable(name)); }) == ErrorCode::kInvalidArgument);
    }
    for (const std::string name : {"a@b", "@", "a@3.x", "part-1-of-2"}) {
      CAPTURE(name);
      set.store()->check(resumable(name));
    }
    CHECK(set.names().empty());
  });
}
