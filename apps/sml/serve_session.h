// One client of `sml serve-stdio`: requests in lines of JSON, answers with the bytes of records
// behind them (format-spec/serve-stdio.md).
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "output.h"
#include "smlstore/dataset.h"
#include "smlstore/reader.h"

namespace sml {

// What the sessions of a server share. Safe for threads.
class ServedDataset {
 public:
  // options: memory and threads of all sessions together.
  ServedDataset(const Dataset& dataset, std::string location, const ReaderOptions& options)
      : dataset_(dataset), location_(std::move(location)), options_(options) {}

  const Dataset& dataset() const noexcept { return dataset_; }
  const std::string& location() const noexcept { return location_; }

  // A share of the memory and of the threads for one of `workers` that read side by side; less
  // where little is left. Given back by end().
  ReaderOptions begin(std::uint64_t workers);
  void end(const ReaderOptions& share, const ReaderStats& stats);
  // Of readers that have ended.
  ReaderStats stats() const;

 private:
  const Dataset& dataset_;
  const std::string location_;
  const ReaderOptions options_;
  mutable std::mutex mutex_;
  std::uint64_t taken_ = 0;
  ReaderStats stats_;
};

// For one thread.
class ServeSession {
 public:
  static constexpr std::size_t kMaxRequestBytes = 16U << 20;

  ServeSession(ServedDataset& served, Output& out);
  ~ServeSession();

  // Writes the answer of a request, without flushing it. False: the session is at its end. Throws
  // what Output throws.
  bool answer(std::string_view request);
  // The answer to a request that is longer than it may be.
  void refuse_long_request();

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace sml
