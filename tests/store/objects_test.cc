#include "objects.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include <doctest/doctest.h>

#include "pools.h"
#include "smlformat/checksum.h"
#include "smlformat/error.h"

namespace {

using sml::Bytes;
using sml::ByteView;
using sml::Objects;

constexpr std::size_t kMiB = 1024 * 1024;

Bytes random_bytes(std::size_t count, std::uint64_t seed) {
  Bytes out(count);
  std::mt19937_64 random(seed);
  for (std::byte& byte : out) byte = static_cast<std::byte>(random());
  return out;
}

// Functions with a callback, as functions that wait.
struct Found {
  int result = 1;
  std::uint64_t bytes = 0;
  std::optional<std::uint32_t> crc32c;
};

template <class Start>
int wait_for(const Start& start) {
  std::promise<int> result;
  start([&](int value) { result.set_value(value); });
  return result.get_future().get();
}
int create(Objects& objects, const std::string& name, ByteView bytes) {
  return wait_for([&](Objects::Done done) {
    objects.create(name, bytes, sml::crc32c(bytes), std::move(done));
  });
}
int read(Objects& objects, const std::string& name, const std::vector<sml::ReadRange>& ranges) {
  return wait_for([&](Objects::Done done) { objects.read(name, ranges, std::move(done)); });
}
int remove(Objects& objects, const std::string& name) {
  return wait_for([&](Objects::Done done) { objects.remove(name, std::move(done)); });
}
Found stat(Objects& objects, const std::string& name) {
  std::promise<Found> found;
  objects.stat(name, [&](int result, std::uint64_t bytes, std::optional<std::uint32_t> crc32c) {
    found.set_value({result, bytes, crc32c});
  });
  return found.get_future().get();
}
Found checksum(Objects& objects, const std::string& name, std::uint64_t bytes) {
  std::promise<Found> found;
  objects.checksum(name, bytes, [&](int result, std::uint32_t crc32c) {
    found.set_value({result, bytes, crc32c});
  });
  return found.get_future().get();
}

// A namespace of its own in one pool, empty again at the end.
class Place {
 public:
  explicit Place(const std::string& pool) {
    static int count = 0;
    options_.pool = pool;
    options_.name_space = "test-" + std::to_string(getpid()) + "-" + std::to_string(++count);
    objects_ = sml::open_objects(options_);
  }
  ~Place() {
    for (const std::string& name : names()) remove(*objects_, name);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  Objects& operator*() const { return *objects_; }
  const sml::ObjectsOptions& options() const { return options_; }
  // Another client of it.
  std::unique_ptr<Objects> other() const { return sml::open_objects(options_); }

  std::set<std::string> names() const {
    std::set<std::string> out;
    CHECK(objects_->list([&](const std::string& name) { CHECK(out.insert(name).second); }) == 0);
    return out;
  }

 private:
  sml::ObjectsOptions options_;
  std::unique_ptr<Objects> objects_;
};

template <class Body>
void in_each_pool(const Body& body) {
  for (const std::string& pool : pools()) {
    CAPTURE(pool);
    const Place place(pool);
    body(place);
  }
}

}  // namespace

TEST_CASE("objects: what was created is found, with its size and checksum") {
  in_each_pool([](const Place& place) {
    const Bytes bytes = random_bytes(5 * kMiB + 7, 1);
    CHECK(create(*place, "a", bytes) == 0);
    const Found found = stat(*place, "a");
    CHECK(found.result == 0);
    CHECK(found.bytes == bytes.size());
    CHECK(found.crc32c == sml::crc32c(bytes));
    CHECK(stat(*place, "b").result == -ENOENT);
    CHECK(create(*place, "empty", {}) == 0);
    CHECK(stat(*place, "empty").bytes == 0);
    CHECK(stat(*place, "empty").crc32c == 0);
  });
}

TEST_CASE("objects: one that exists is not created again, and keeps its bytes") {
  in_each_pool([](const Place& place) {
    const Bytes bytes = random_bytes(1000, 2);
    CHECK(create(*place, "a", bytes) == 0);
    CHECK(create(*place, "a", random_bytes(1001, 3)) == -EEXIST);
    Bytes out(1000);
    CHECK(read(*place, "a", {{0, out}}) == 0);
    CHECK(out == bytes);
    CHECK(remove(*place, "a") == 0);
    CHECK(remove(*place, "a") == -ENOENT);
    CHECK(stat(*place, "a").result == -ENOENT);
  });
}

TEST_CASE("objects: ranges are read in any order, each into its memory") {
  in_each_pool([](const Place& place) {
    const Bytes bytes = random_bytes(4 * kMiB + 3, 4);
    CHECK(create(*place, "a", bytes) == 0);
    const auto part = [&](std::size_t offset, std::size_t count) {
      return Bytes(bytes.begin() + static_cast<std::ptrdiff_t>(offset),
                   bytes.begin() + static_cast<std::ptrdiff_t>(offset + count));
    };
    Bytes tail(3);
    Bytes middle(kMiB);
    Bytes none;
    Bytes one(1);
    CHECK(read(*place, "a", {{4 * kMiB, tail}, {12345, middle}, {7, none}, {0, one}}) == 0);
    CHECK(tail == part(4 * kMiB, 3));
    CHECK(middle == part(12345, kMiB));
    CHECK(one == part(0, 1));

    std::vector<Bytes> small(1000, Bytes(100));
    std::vector<sml::ReadRange> ranges;
    for (std::size_t i = 0; i < small.size(); ++i) ranges.push_back({4000 * i, small[i]});
    CHECK(read(*place, "a", ranges) == 0);
    for (std::size_t i = 0; i < small.size(); ++i) REQUIRE(small[i] == part(4000 * i, 100));

    CHECK(read(*place, "a", {}) == 0);
    CHECK(read(*place, "a", {{0, none}}) == 0);
  });
}

TEST_CASE("objects: a range beyond the end, and an object that does not exist") {
  in_each_pool([](const Place& place) {
    const Bytes bytes = random_bytes(10000, 5);
    CHECK(create(*place, "a", bytes) == 0);
    Bytes first(100);
    Bytes out(100);
    CHECK(read(*place, "a", {{9900, out}}) == 0);
    CHECK(read(*place, "a", {{0, first}, {9901, out}}) == -ENODATA);
    CHECK(read(*place, "a", {{10000, out}}) == -ENODATA);
    CHECK(read(*place, "a", {{1U << 30U, out}}) == -ENODATA);
    CHECK(read(*place, "b", {{0, out}}) == -ENOENT);
    CHECK(read(*place, "b", {}) == -ENOENT);
    CHECK(read(*place, "a", std::vector<sml::ReadRange>(4097, {0, out})) == -E2BIG);
  });
}

TEST_CASE("objects: the store computes the checksum that is known of the bytes") {
  in_each_pool([](const Place& place) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{9},
                                    std::size_t{65536}, 4 * kMiB, 4 * kMiB + 3, 9 * kMiB + 1}) {
      CAPTURE(count);
      const std::string name = std::to_string(count);
      const Bytes bytes = random_bytes(count, count);
      CHECK(create(*place, name, bytes) == 0);
      const Found found = checksum(*place, name, count);
      CHECK(found.result == 0);
      CHECK(found.crc32c == sml::crc32c(bytes));
      CHECK(checksum(*place, name, count + 1).result == -ENODATA);
    }
    CHECK(create(*place, "standard", sml::as_bytes("123456789")) == 0);
    CHECK(checksum(*place, "standard", 9).crc32c == 0xe3069283);
    CHECK(checksum(*place, "none", 9).result == -ENOENT);
    CHECK(checksum(*place, "none", 0).result == -ENOENT);
  });
}

TEST_CASE("objects: one of more than 16 MiB") {
  in_each_pool([](const Place& place) {
    const Bytes bytes = random_bytes(20 * kMiB + 5, 6);
    CHECK(create(*place, "large", bytes) == 0);
    Bytes out(bytes.size());
    CHECK(read(*place, "large", {{0, out}}) == 0);
    CHECK(out == bytes);
    CHECK(checksum(*place, "large", bytes.size()).crc32c == sml::crc32c(bytes));
  });
}

TEST_CASE("objects: 64 are created and read at a time; the bytes need not last; the end waits") {
  in_each_pool([](const Place& place) {
    constexpr std::size_t kCount = 64;
    std::atomic<int> done = 0;
    std::atomic<int> failed = 0;
    const auto note = [&](int result) {
      if (result != 0) ++failed;
      ++done;
    };
    {
      const std::unique_ptr<Objects> objects = place.other();
      for (std::size_t i = 0; i < kCount; ++i) {
        Bytes bytes = random_bytes(kMiB, i);
        const std::uint32_t crc32c = sml::crc32c(bytes);
        objects->create(std::to_string(i), bytes, crc32c, note);
        bytes.assign(bytes.size(), std::byte{0});
      }
    }
    CHECK(done == kCount);
    std::vector<Bytes> out(kCount, Bytes(kMiB));
    {
      const std::unique_ptr<Objects> objects = place.other();
      for (std::size_t i = 0; i < kCount; ++i) {
        const std::array<sml::ReadRange, 2> ranges{
            sml::ReadRange{0, sml::MutableBytes(out[i]).first(1000)},
            sml::ReadRange{1000, sml::MutableBytes(out[i]).subspan(1000)}};
        objects->read(std::to_string(i), ranges, note);
      }
    }
    CHECK(done == 2 * kCount);
    CHECK(failed == 0);
    for (std::size_t i = 0; i < kCount; ++i) CHECK(out[i] == random_bytes(kMiB, i));
  });
}

TEST_CASE("objects: of a versioned one only who knows its version changes it") {
  in_each_pool([](const Place& place) {
    Objects::Versioned found;
    CHECK((*place).get("v", found) == -ENOENT);
    CHECK((*place).put("v", sml::as_bytes("one"), "no such version") == -ECANCELED);
    CHECK((*place).put("v", sml::as_bytes("one"), std::nullopt) == 0);
    CHECK((*place).put("v", sml::as_bytes("two"), std::nullopt) == -ECANCELED);
    CHECK((*place).get("v", found) == 0);
    CHECK(sml::as_text(found.bytes) == "one");
    const std::string first = found.version;
    CHECK(!first.empty());

    const Bytes large = random_bytes(200000, 7);
    CHECK((*place).put("v", large, first) == 0);
    CHECK((*place).put("v", sml::as_bytes("three"), first) == -ECANCELED);
    CHECK((*place).get("v", found) == 0);
    CHECK(found.bytes == large);
    CHECK(found.version != first);

    CHECK((*place).remove_version("v", first) == -ECANCELED);
    CHECK((*place).put("v", {}, found.version) == 0);
    CHECK((*place).get("v", found) == 0);
    CHECK(found.bytes.empty());
    CHECK((*place).remove_version("v", found.version) == 0);
    CHECK((*place).remove_version("v", found.version) == -ENOENT);
    CHECK((*place).put("v", sml::as_bytes("four"), found.version) == -ECANCELED);

    // One that someone made otherwise.
    CHECK((*place).put("x", sml::as_bytes("one"), "") == -ECANCELED);
    CHECK((*place).get("x", found) == -ENOENT);
    CHECK(create(*place, "x", random_bytes(10, 8)) == 0);
    CHECK((*place).put("x", sml::as_bytes("one"), std::nullopt) == -ECANCELED);
    CHECK((*place).put("x", sml::as_bytes("one"), first) == -ECANCELED);
    CHECK((*place).put("x", sml::as_bytes("one"), "") == 0);
    CHECK((*place).put("x", sml::as_bytes("two"), "") == -ECANCELED);
    CHECK((*place).get("x", found) == 0);
    CHECK(sml::as_text(found.bytes) == "one");
    CHECK((*place).put("x", sml::as_bytes("two"), found.version) == 0);
  });
}

TEST_CASE("objects: many change one versioned object, and no change is lost") {
  in_each_pool([](const Place& place) {
    constexpr int kThreads = 8;
    constexpr int kEach = 10;
    CHECK((*place).put("counter", sml::as_bytes("0"), std::nullopt) == 0);
    const std::unique_ptr<Objects> other = place.other();
    std::atomic<int> unexpected = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        Objects& objects = i % 2 == 0 ? *place : *other;
        std::mt19937 random(static_cast<unsigned>(i));
        for (int made = 0; made < kEach;) {
          Objects::Versioned found;
          if (objects.get("counter", found) != 0) ++unexpected;
          const int count = std::stoi(std::string(sml::as_text(found.bytes)));
          const std::string next = std::to_string(count + 1);
          const int result = objects.put("counter", sml::as_bytes(next), found.version);
          if (result == 0) ++made;
          if (result != 0 && result != -ECANCELED) ++unexpected;
          if (unexpected != 0) return;
          std::this_thread::sleep_for(std::chrono::milliseconds(random() % 20));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(unexpected == 0);
    Objects::Versioned found;
    CHECK((*place).get("counter", found) == 0);
    CHECK(sml::as_text(found.bytes) == std::to_string(kThreads * kEach));
  });
}

TEST_CASE("objects: who watches is seen by all, until the watch ends") {
  in_each_pool([](const Place& place) {
    const std::unique_ptr<Objects> other = place.other();
    bool watched = true;
    CHECK((*place).is_watched("job", watched) == -ENOENT);
    std::unique_ptr<sml::ObjectWatch> first;
    std::unique_ptr<sml::ObjectWatch> second;
    CHECK((*place).watch("job", first) == 0);
    CHECK(stat(*place, "job").bytes == 0);
    CHECK(!first->lost());
    CHECK((*place).is_watched("job", watched) == 0);
    CHECK(watched);
    watched = false;
    CHECK(other->is_watched("job", watched) == 0);
    CHECK(watched);

    CHECK(other->watch("job", second) == 0);
    first.reset();
    CHECK((*place).is_watched("job", watched) == 0);
    CHECK(watched);
    second.reset();
    CHECK((*place).is_watched("job", watched) == 0);
    CHECK(!watched);
    CHECK(other->is_watched("job", watched) == 0);
    CHECK(!watched);
  });
}

TEST_CASE("objects: a watch outlives its objects, and is lost with its object") {
  in_each_pool([](const Place& place) {
    std::unique_ptr<sml::ObjectWatch> watch;
    CHECK(place.other()->watch("job", watch) == 0);
    bool watched = false;
    CHECK((*place).is_watched("job", watched) == 0);
    CHECK(watched);
    CHECK(!watch->lost());
    CHECK(remove(*place, "job") == 0);
    for (int i = 0; i < 300 && !watch->lost(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    CHECK(watch->lost());
  });
}

TEST_CASE("objects: all of a namespace are listed, and no others") {
  in_each_pool([](const Place& place) {
    CHECK(place.names().empty());
    std::set<std::string> names;
    for (int i = 0; i < 200; ++i) names.insert("block-" + std::to_string(i));
    names.insert("\xff name with / and \xc3\xa4");
    for (const std::string& name : names) CHECK(create(*place, name, sml::as_bytes(name)) == 0);
    const Place apart(place.options().pool);
    CHECK(create(*apart, "block-1", sml::as_bytes("other")) == 0);
    CHECK(place.names() == names);
    CHECK(apart.names() == std::set<std::string>{"block-1"});
    CHECK(stat(*apart, "block-2").result == -ENOENT);
    CHECK(stat(*place, "block-1").bytes == 7);
    CHECK(stat(*apart, "block-1").bytes == 5);
  });
}

TEST_CASE("objects: what is told where connecting fails") {
  const auto error_of = [](const std::string& pool, const std::string& user,
                           const std::string& conf) {
    sml::ObjectsOptions options;
    options.pool = pool;
    options.user = user;
    options.conf = conf;
    try {
      sml::open_objects(options);
    } catch (const sml::Error& error) {
      return std::string(sml::error_code_name(error.code())) + ": " + error.what();
    }
    return std::string("connected");
  };
  CHECK(error_of("no such", "", "") == "not_found: no such pool 'no such'");
  CHECK(error_of("p", "nobody", "")
            .starts_with("io: client.nobody is not permitted to use the cluster"));
  CHECK(error_of("p", "", "/no/such/file") ==
        "io: settings of Ceph: /no/such/file: No such file or directory");
  CHECK(error_of("p", "", "/dev/null") ==
        "unavailable: settings of Ceph: /dev/null names no monitor");
}
