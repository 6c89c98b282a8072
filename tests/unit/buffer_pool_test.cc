#include "../../libsmlstore/src/buffer_pool.h"

#include <doctest/doctest.h>

using sml::Buffer;
using sml::BufferPool;

TEST_CASE("a buffer is used again for a read of its size, or of an eighth less") {
  BufferPool pool(1'000'000);
  Buffer buffer = pool.take(180'000);
  const std::byte* const memory = buffer.data();
  pool.give_back(std::move(buffer));
  CHECK(pool.idle_bytes() == 180'000);
  CHECK(pool.take(180'001).data() != memory);
  CHECK(pool.take(159'000).data() != memory);
  CHECK(pool.idle_bytes() == 180'000);
  buffer = pool.take(160'000);
  CHECK(buffer.data() == memory);
  CHECK(buffer.size() == 160'000);
  CHECK(pool.idle_bytes() == 0);
}

TEST_CASE("no more stays idle than was said: what is idle for longest goes first") {
  BufferPool pool(300'000);
  Buffer first = pool.take(100'000);
  Buffer second = pool.take(150'000);
  Buffer third = pool.take(200'000);
  const std::byte* const memory = third.data();
  pool.give_back(std::move(first));
  pool.give_back(std::move(second));
  CHECK(pool.idle_bytes() == 250'000);
  pool.give_back(std::move(third));
  CHECK(pool.idle_bytes() == 200'000);
  CHECK(pool.take(200'000).data() == memory);
  pool.give_back(pool.take(300'001));
  pool.give_back(pool.take(1000));  // small ones are not worth it
  CHECK(pool.idle_bytes() == 0);
}
