// Work done in parallel, results taken in the order of submission.
#pragma once

#include <deque>
#include <future>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>

namespace sml {

// Worker threads; with one thread none are made and tasks run where they are submitted.
class Workers {
 public:
  // threads 0: one per processor. Where the system gives fewer, those that it gives.
  explicit Workers(unsigned threads) : threads_(wanted(threads)) {
    if (threads_ == 1) return;
    // One by one: a pool that fails to start its second thread waits for the first one for ever.
    unsigned started = 0;
    try {
      pool_ = std::make_unique<boost::asio::thread_pool>(1);
      for (started = 1; started < threads_; ++started) {
        more_.emplace_back([pool = pool_.get()] { pool->attach(); });
      }
    } catch (const std::system_error&) {
      threads_ = std::max(1U, started);
    }
  }
  ~Workers() {
    if (pool_) pool_->join();
  }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  static unsigned wanted(unsigned threads) noexcept {
    return threads != 0 ? threads : std::max(1U, std::thread::hardware_concurrency());
  }
  unsigned threads() const noexcept { return threads_; }
  bool inline_only() const noexcept { return pool_ == nullptr; }

  template <class Task>
  void run(Task task) {
    if (pool_) {
      boost::asio::post(*pool_, std::move(task));
    } else {
      task();
    }
  }

 private:
  unsigned threads_;
  std::unique_ptr<boost::asio::thread_pool> pool_;
  std::vector<std::jthread> more_;  // the pool's threads but the first
};

// For one thread, which submits and takes. The destructor waits for what is under way.
template <class Result>
class OrderedTasks {
 public:
  explicit OrderedTasks(Workers& workers) : workers_(workers) {}
  ~OrderedTasks() {
    for (auto& future : futures_) future.wait();
  }
  OrderedTasks(const OrderedTasks&) = delete;
  OrderedTasks& operator=(const OrderedTasks&) = delete;

  template <class Task>
  void submit(Task task) {
    std::packaged_task<Result()> packaged(std::move(task));
    futures_.push_back(packaged.get_future());
    workers_.run(std::move(packaged));
  }

  std::size_t size() const noexcept { return futures_.size(); }
  bool empty() const noexcept { return futures_.empty(); }

  // The oldest result; waits for it. Rethrows what its task threw.
  Result take() {
    std::future<Result> future = std::move(futures_.front());
    futures_.pop_front();
    return future.get();
  }

 private:
  Workers& workers_;
  std::deque<std::future<Result>> futures_;
};

}  // namespace sml
