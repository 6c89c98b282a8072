// Work done in parallel, results taken in the order of submission.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
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
  // Whether the thread that takes results does nothing else, and so counts as one of the threads.
  enum class Consumer : std::uint8_t { kApart, kHelps };

  // threads 0: one per processor. Where the system gives fewer, those that it gives.
  explicit Workers(unsigned threads, Consumer consumer = Consumer::kApart)
      : threads_(wanted(threads)) {
    if (threads_ == 1) return;
    if (consumer == Consumer::kHelps) --threads_;
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
  // Workers; 1 where there are none.
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
    for (const auto& task : tasks_) {
      if (task->begun.exchange(true)) task->result.wait();
    }
  }
  OrderedTasks(const OrderedTasks&) = delete;
  OrderedTasks& operator=(const OrderedTasks&) = delete;

  template <class Work>
  void submit(Work work) {
    const auto& task = tasks_.emplace_back(std::make_shared<Task>(std::move(work)));
    workers_.run([task] { task->begin(); });
  }

  std::size_t size() const noexcept { return tasks_.size(); }
  bool empty() const noexcept { return tasks_.empty(); }

  // The oldest result; until it is there, does what nobody has begun. Rethrows what its task threw.
  Result take() {
    for (const auto& task : tasks_) {
      if (tasks_.front()->is_done()) break;
      task->begin();
    }
    const std::shared_ptr<Task> task = std::move(tasks_.front());
    tasks_.pop_front();
    return task->result.get();
  }

 private:
  struct Task {
    template <class Work>
    explicit Task(Work given) : work(std::move(given)), result(work.get_future()) {}
    void begin() {
      if (!begun.exchange(true)) work();
    }
    bool is_done() const {
      return result.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    }

    std::packaged_task<Result()> work;
    std::future<Result> result;
    std::atomic<bool> begun = false;
  };

  Workers& workers_;
  std::deque<std::shared_ptr<Task>> tasks_;
};

}  // namespace sml
