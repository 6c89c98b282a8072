#include "smlstore/key_batch.h"

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "support/containers.h"

using sml::Dataset;
using sml::KeyBatch;
using sml::test::build_container;
using sml::test::ContainerOptions;
using sml::test::Record;

namespace {

std::string key_text(std::size_t i) {
  return "class" + std::to_string(i * 7919 % 97) + "/" + std::to_string(i) + ".jpg";
}

Dataset dataset_of(std::vector<std::size_t> sizes) {
  std::vector<Dataset::Container> containers;
  std::size_t next = 0;
  for (const std::size_t size : sizes) {
    std::vector<Record> records;
    for (std::size_t i = 0; i < size; ++i) records.push_back({key_text(next++), ""});
    ContainerOptions options;
    options.order = containers.size() % 2 == 0 ? sml::PackOrder::kRandom : sml::PackOrder::kName;
    // The source keeps only a view of the bytes.
    static std::vector<std::unique_ptr<sml::Bytes>> kept;
    kept.push_back(std::make_unique<sml::Bytes>(build_container(records, options)));
    Dataset::Container container;
    container.name = "c" + std::to_string(containers.size());
    container.reader =
        std::make_shared<sml::ContainerReader>(std::make_shared<sml::MemorySource>(*kept.back()));
    containers.push_back(std::move(container));
  }
  return Dataset::from(std::move(containers));
}

void check_batch(const Dataset& dataset, KeyBatch& batch,
                 const std::vector<std::uint64_t>& numbers) {
  batch.load(numbers);
  std::string key;
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    dataset.key_of(numbers[i], key);
    wrong += batch[i] == key ? 0 : 1;
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("a batch gives the key of each record, in the order asked for") {
  const Dataset dataset = dataset_of({33, 1, 500});
  KeyBatch batch(dataset);
  check_batch(dataset, batch, {});
  check_batch(dataset, batch, {533, 0, 32, 33, 34, 34, 0, 533, 100});
  std::vector<std::uint64_t> all(dataset.records());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = all.size() - 1 - i;
  check_batch(dataset, batch, all);
  check_batch(dataset, batch, {7});
}

TEST_CASE("large batches, which several threads share, give the same keys") {
  const Dataset dataset = dataset_of({70000, 30000});
  std::mt19937_64 random(1);
  std::vector<std::uint64_t> numbers(150000);
  for (std::uint64_t& number : numbers) number = random() % dataset.records();
  for (const unsigned threads : {1U, 4U}) {
    KeyBatch batch(dataset, threads);
    check_batch(dataset, batch, numbers);
    check_batch(dataset, batch, std::vector<std::uint64_t>(40000, 12345));
  }
}

TEST_CASE("a batch is smaller where keys are long") {
  const Dataset dataset = dataset_of({100});
  CHECK(KeyBatch(dataset).limit() == KeyBatch::kMaxRecords);
  static sml::Bytes bytes = build_container({{std::string(4000, 'k'), "x"}});
  Dataset::Container container;
  container.reader =
      std::make_shared<sml::ContainerReader>(std::make_shared<sml::MemorySource>(bytes));
  std::vector<Dataset::Container> containers;
  containers.push_back(std::move(container));
  const Dataset long_keys = Dataset::from(std::move(containers));
  CHECK(KeyBatch(long_keys).limit() == (96U << 20) / 4001);
}
