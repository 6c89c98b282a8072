// Objects over librados' C API: a module of its own (objects.h), linked to nothing of SML.
//
// Every operation is bounded by rados_osd_op_timeout, which librados applies to reads and writes
// but not to watches and notifications: those are waited for here, and what is waited for no longer
// is kept until the connection ends, since librados may still write to it (Cluster::abandon).
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/random.h>
#include <unistd.h>

#include <rados/librados.h>

#include "objects_module.h"

namespace sml {
namespace {

constexpr char kChecksumAttribute[] = "crc32c";
constexpr char kVersionAttribute[] = "version";
constexpr std::uint32_t kWatchSeconds = 10;  // a client that is cut off so long is given up
constexpr char kTickSeconds[] = "2";         // watches are confirmed so often
constexpr std::uint64_t kNotifyMs = 3000;    // whole seconds; a client that died takes so long
constexpr std::size_t kMostRanges = 4096;    // an operation counts its parts in 16 bits
constexpr std::size_t kFirstReadBytes = 65536;
// Calls return at once: what is in flight is limited by those who call.
constexpr char kInFlightBytes[] = "4294967296";
constexpr char kInFlightOperations[] = "65536";

struct ReleaseWrite {
  void operator()(void* operation) const noexcept { rados_release_write_op(operation); }
};
struct ReleaseRead {
  void operator()(void* operation) const noexcept { rados_release_read_op(operation); }
};
using WriteOperation = std::unique_ptr<void, ReleaseWrite>;
using ReadOperation = std::unique_ptr<void, ReleaseRead>;

WriteOperation write_operation() { return WriteOperation(rados_create_write_op()); }
ReadOperation read_operation() { return ReadOperation(rados_create_read_op()); }

// All attributes of an object, asked for as part of a read operation.
class Attributes {
 public:
  explicit Attributes(rados_read_op_t operation) {
    rados_read_op_getxattrs(operation, &iterator_, &result_);
  }
  ~Attributes() {
    if (iterator_ != nullptr) rados_getxattrs_end(iterator_);
  }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;

  // Valid after the operation; for one attribute only, once.
  std::optional<std::string> find(std::string_view wanted) {
    if (result_ < 0) return std::nullopt;
    const char* name = nullptr;
    const char* value = nullptr;
    std::size_t bytes = 0;
    while (rados_getxattrs_next(iterator_, &name, &value, &bytes) == 0 && name != nullptr) {
      if (name == wanted) return value != nullptr ? std::string(value, bytes) : std::string();
    }
    return std::nullopt;
  }

 private:
  rados_xattrs_iter_t iterator_ = nullptr;
  int result_ = 0;
};

// What one thread waits for and librados completes, perhaps after the thread has gone.
class Pending {
 public:
  Pending() = default;
  virtual ~Pending() = default;
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;

  // False if it takes longer: then it is abandoned.
  bool wait(std::chrono::duration<double> at_most, int& result) {
    std::unique_lock lock(mutex_);
    const auto until = std::chrono::steady_clock::now() +
                       std::chrono::duration_cast<std::chrono::steady_clock::duration>(at_most);
    while (!done_) {
      if (changed_.wait_until(lock, until) == std::cv_status::timeout && !done_) {
        abandoned_ = true;
        return false;
      }
    }
    result = result_;
    return true;
  }

  static void complete(rados_completion_t completion, void* argument) noexcept {
    auto& self = *static_cast<Pending*>(argument);
    const int result = rados_aio_get_return_value(completion);
    rados_aio_release(completion);
    const std::lock_guard lock(self.mutex_);
    self.done_ = true;
    self.result_ = result;
    if (self.abandoned_) {
      self.is_late(result);
    } else {
      self.changed_.notify_all();
    }
  }

 private:
  // Completed when no one waited any more; in librados' thread.
  virtual void is_late(int result) noexcept { (void)result; }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  bool abandoned_ = false;
  int result_ = 0;
};

// A connection, and the operations that are under way on it.
class Cluster {
 public:
  Cluster(rados_t rados, rados_ioctx_t io, double timeout_s)
      : rados_(rados), io_(io), timeout_(timeout_s) {}
  ~Cluster() {
    const bool none_abandoned = abandoned_.empty();
    if (none_abandoned) rados_ioctx_destroy(io_);
    rados_shutdown(rados_);
    // What was abandoned may have been completed until now, and that uses the context.
    if (!none_abandoned) rados_ioctx_destroy(io_);
  }
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  rados_t rados() const noexcept { return rados_; }
  rados_ioctx_t io() const noexcept { return io_; }
  std::chrono::duration<double> timeout() const noexcept { return timeout_; }

  void enter() {
    const std::lock_guard lock(mutex_);
    ++under_way_;
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    if (--under_way_ == 0) none_.notify_all();
  }
  void wait_for_all() {
    std::unique_lock lock(mutex_);
    none_.wait(lock, [this] { return under_way_ == 0; });
  }

  void abandon(std::unique_ptr<Pending> pending) {
    const std::lock_guard lock(mutex_);
    abandoned_.push_back(std::move(pending));
  }

 private:
  rados_t rados_;
  rados_ioctx_t io_;
  std::chrono::duration<double> timeout_;
  std::mutex mutex_;
  std::condition_variable none_;
  std::size_t under_way_ = 0;
  std::vector<std::unique_ptr<Pending>> abandoned_;
};

// An operation under way. It deletes itself when it is done.
class Operation {
 public:
  explicit Operation(Cluster& cluster) : cluster_(cluster) {}
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  // `begin` hands the operation and a completion to librados, which calls back if that gave 0.
  template <class Begin>
  static void start(std::unique_ptr<Operation> operation, const Begin& begin) {
    Cluster& cluster = operation->cluster_;
    rados_completion_t completion = nullptr;
    int result = rados_aio_create_completion2(operation.get(), &Operation::complete, &completion);
    if (result >= 0) {
      cluster.enter();
      Operation* const running = operation.release();
      result = begin(*running, completion);
      if (result >= 0) return;
      operation.reset(running);
      rados_aio_release(completion);
      cluster.leave();
    }
    operation->finish(result);
  }

 private:
  virtual void finish(int result) = 0;

  static void complete(rados_completion_t completion, void* argument) noexcept {
    std::unique_ptr<Operation> operation(static_cast<Operation*>(argument));
    Cluster& cluster = operation->cluster_;
    const int result = rados_aio_get_return_value(completion);
    rados_aio_release(completion);
    operation->finish(std::min(result, 0));
    operation.reset();
    cluster.leave();
  }

  Cluster& cluster_;
};

class Write final : public Operation {
 public:
  Write(Cluster& cluster, WriteOperation operation, Objects::Done done)
      : Operation(cluster), operation_(std::move(operation)), done_(std::move(done)) {}

  rados_write_op_t get() const noexcept { return operation_.get(); }

 private:
  void finish(int result) override { done_(result); }

  WriteOperation operation_;
  Objects::Done done_;
};

class Read : public Operation {
 public:
  explicit Read(Cluster& cluster) : Operation(cluster), operation_(read_operation()) {}

  rados_read_op_t get() const noexcept { return operation_.get(); }

 private:
  ReadOperation operation_;
};

class ReadRanges final : public Read {
 public:
  ReadRanges(Cluster& cluster, std::span<const ReadRange> ranges, Objects::Done done)
      : Read(cluster), done_(std::move(done)) {
    parts_.reserve(ranges.size());
    for (const ReadRange& range : ranges) {
      if (range.out.empty()) continue;  // to an OSD no bytes are all bytes
      parts_.push_back({.wanted = range.out.size()});
      Part& part = parts_.back();
      rados_read_op_read(get(), range.offset, range.out.size(),
                         reinterpret_cast<char*>(range.out.data()), &part.bytes, &part.result);
    }
    if (parts_.empty()) rados_read_op_stat(get(), &bytes_, nullptr, nullptr);
  }

 private:
  struct Part {
    std::size_t wanted = 0;
    std::size_t bytes = 0;
    int result = 0;
  };

  void finish(int result) override {
    for (const Part& part : parts_) {
      if (result == 0) result = std::min(part.result, 0);
      if (result == 0 && part.bytes != part.wanted) result = -ENODATA;
    }
    done_(result);
  }

  std::vector<Part> parts_;
  std::uint64_t bytes_ = 0;
  Objects::Done done_;
};

class Stat final : public Read {
 public:
  Stat(Cluster& cluster, Objects::StatDone done)
      : Read(cluster), attributes_(get()), done_(std::move(done)) {
    rados_read_op_stat(get(), &bytes_, &modified_, &result_);
  }

 private:
  void finish(int result) override {
    std::optional<std::uint32_t> checksum;
    if (result == 0) result = std::min(result_, 0);
    if (result == 0) {
      const std::optional<std::string> value = attributes_.find(kChecksumAttribute);
      if (value && value->size() == sizeof *checksum) checksum = load<std::uint32_t>(value->data());
    }
    done_(result, result == 0 ? bytes_ : 0, checksum);
  }

  Attributes attributes_;
  std::uint64_t bytes_ = 0;
  std::time_t modified_ = 0;
  int result_ = 0;
  Objects::StatDone done_;
};

class Checksum final : public Read {
 public:
  Checksum(Cluster& cluster, std::uint64_t bytes, Objects::ChecksumDone done)
      : Read(cluster), wanted_(bytes), done_(std::move(done)) {
    rados_read_op_stat(get(), &bytes_, &modified_, &stat_result_);
    if (wanted_ == 0) return;  // to an OSD no bytes are all bytes
    // No chunk size: one checksum.
    constexpr std::uint32_t kInitial = 0xffffffff;
    rados_read_op_checksum(get(), LIBRADOS_CHECKSUM_TYPE_CRC32C,
                           reinterpret_cast<const char*>(&kInitial), sizeof kInitial, 0,
                           static_cast<std::size_t>(wanted_), 0, reinterpret_cast<char*>(&answer_),
                           sizeof answer_, &result_);
  }

 private:
  void finish(int result) override {
    if (result == 0) result = std::min({stat_result_, result_, 0});
    if (result == 0 && (bytes_ != wanted_ || (wanted_ != 0 && answer_.count != 1))) {
      result = -ENODATA;
    }
    // An OSD leaves out the final inversion.
    done_(result, result == 0 && wanted_ != 0 ? ~answer_.value : 0);
  }

  // Little-endian, as it comes.
  struct Answer {
    std::uint32_t count = 0;
    std::uint32_t value = 0;
  };
  std::uint64_t wanted_;
  std::uint64_t bytes_ = 0;
  std::time_t modified_ = 0;
  int stat_result_ = 0;
  int result_ = 0;
  Answer answer_;
  Objects::ChecksumDone done_;
};

// What librados knows of a watch.
class Registration final : public Pending {
 public:
  Registration(Cluster& cluster, std::string name) : cluster_(cluster), name_(std::move(name)) {}

  // To be followed by wait().
  int start() {
    rados_completion_t completion = nullptr;
    int result =
        rados_aio_create_completion2(static_cast<Pending*>(this), &Pending::complete, &completion);
    if (result < 0) return result;
    result = rados_aio_watch2(cluster_.io(), name_.c_str(), completion, &cookie_, &notified,
                              &failed, kWatchSeconds, this);
    if (result < 0) rados_aio_release(completion);
    return result;
  }
  void end() {
    rados_unwatch2(cluster_.io(), cookie_);
    rados_watch_flush(cluster_.rados());
  }

  bool lost() const noexcept {
    if (failed_) return true;
    const int age_ms = rados_watch_check(cluster_.io(), cookie_);
    return age_ms < 0 || static_cast<std::uint32_t>(age_ms) >= kWatchSeconds * 1000;
  }

 private:
  static void notified(void* argument, std::uint64_t notification, std::uint64_t cookie,
                       std::uint64_t /*notifier*/, void* /*data*/, std::size_t /*bytes*/) noexcept {
    const auto& self = *static_cast<Registration*>(argument);
    rados_notify_ack(self.cluster_.io(), self.name_.c_str(), notification, cookie, nullptr, 0);
  }
  static void failed(void* argument, std::uint64_t /*cookie*/, int /*error*/) noexcept {
    static_cast<Registration*>(argument)->failed_ = true;
  }

  // The watch came about after all: it is given up, else the object would count as watched.
  void is_late(int result) noexcept override {
    if (result < 0) return;
    const auto ended = [](rados_completion_t completion, void*) { rados_aio_release(completion); };
    rados_completion_t completion = nullptr;
    if (rados_aio_create_completion2(nullptr, ended, &completion) < 0) return;
    if (rados_aio_unwatch(cluster_.io(), cookie_, completion) < 0) rados_aio_release(completion);
  }

  Cluster& cluster_;
  std::string name_;
  std::uint64_t cookie_ = 0;
  std::atomic<bool> failed_ = false;
};

class Watch final : public ObjectWatch {
 public:
  Watch(std::shared_ptr<Cluster> cluster, std::unique_ptr<Registration> registration)
      : cluster_(std::move(cluster)), registration_(std::move(registration)) {}
  ~Watch() override { registration_->end(); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  bool lost() const noexcept override { return registration_->lost(); }

 private:
  std::shared_ptr<Cluster> cluster_;
  std::unique_ptr<Registration> registration_;
};

// A question to whoever watches an object.
class Notification final : public Pending {
 public:
  Notification() = default;
  ~Notification() override {
    if (reply_ != nullptr) rados_buffer_free(reply_);
  }
  Notification(const Notification&) = delete;
  Notification& operator=(const Notification&) = delete;

  int start(Cluster& cluster, const std::string& name) {
    rados_completion_t completion = nullptr;
    int result =
        rados_aio_create_completion2(static_cast<Pending*>(this), &Pending::complete, &completion);
    if (result < 0) return result;
    result = rados_aio_notify(cluster.io(), name.c_str(), completion, nullptr, 0, kNotifyMs,
                              &reply_, &reply_bytes_);
    if (result < 0) rados_aio_release(completion);
    return result;
  }

  // How many watch, whether or not they answered; none where there is no reply. The reply begins
  // with the number of answers; where that is 0, the number of those that gave none follows.
  std::uint32_t watchers() const noexcept {
    std::uint32_t count = 0;
    if (reply_ == nullptr || reply_bytes_ < sizeof count) return 0;
    count = load<std::uint32_t>(reply_);
    if (count == 0 && reply_bytes_ >= 2 * sizeof count) {
      count = load<std::uint32_t>(reply_ + sizeof count);
    }
    return count;
  }

 private:
  char* reply_ = nullptr;
  std::size_t reply_bytes_ = 0;
};

int random_version(std::string& out) {
  static constexpr char kHex[] = "0123456789abcdef";
  unsigned char bytes[16];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) return -EIO;
  out.clear();
  for (const unsigned char byte : bytes) {
    out += kHex[byte >> 4U];
    out += kHex[byte & 15U];
  }
  return 0;
}

class RadosObjects final : public Objects {
 public:
  explicit RadosObjects(std::shared_ptr<Cluster> cluster) : cluster_(std::move(cluster)) {}
  ~RadosObjects() override { cluster_->wait_for_all(); }
  RadosObjects(const RadosObjects&) = delete;
  RadosObjects& operator=(const RadosObjects&) = delete;

  void create(const std::string& name, ByteView bytes, std::uint32_t crc32c, Done done) override {
    WriteOperation operation = write_operation();
    rados_write_op_create(operation.get(), LIBRADOS_CREATE_EXCLUSIVE, nullptr);
    rados_write_op_set_alloc_hint2(
        operation.get(), bytes.size(), bytes.size(),
        LIBRADOS_ALLOC_HINT_FLAG_SEQUENTIAL_WRITE | LIBRADOS_ALLOC_HINT_FLAG_RANDOM_READ |
            LIBRADOS_ALLOC_HINT_FLAG_IMMUTABLE | LIBRADOS_ALLOC_HINT_FLAG_LONGLIVED);
    rados_write_op_write_full(operation.get(), text(bytes), bytes.size());
    rados_write_op_setxattr(operation.get(), kChecksumAttribute,
                            reinterpret_cast<const char*>(&crc32c), sizeof crc32c);
    start_write(name, std::move(operation), std::move(done));
  }

  void read(const std::string& name, std::span<const ReadRange> ranges, Done done) override {
    if (ranges.size() > kMostRanges) {
      done(-E2BIG);
      return;
    }
    start_read(name, std::make_unique<ReadRanges>(*cluster_, ranges, std::move(done)));
  }

  void stat(const std::string& name, StatDone done) override {
    start_read(name, std::make_unique<Stat>(*cluster_, std::move(done)));
  }

  void checksum(const std::string& name, std::uint64_t bytes, ChecksumDone done) override {
    start_read(name, std::make_unique<Checksum>(*cluster_, bytes, std::move(done)));
  }

  void remove(const std::string& name, Done done) override {
    WriteOperation operation = write_operation();
    rados_write_op_remove(operation.get());
    start_write(name, std::move(operation), std::move(done));
  }

  int get(const std::string& name, Versioned& out) override {
    // Bytes and version come from one operation, so they belong together; it is repeated where the
    // object is larger than was thought.
    for (std::size_t room = kFirstReadBytes;;) {
      out.bytes.resize(room);
      const ReadOperation operation = read_operation();
      Attributes attributes(operation.get());
      std::uint64_t bytes = 0;
      std::time_t modified = 0;
      std::size_t read = 0;
      int stat_result = 0;
      int read_result = 0;
      rados_read_op_stat(operation.get(), &bytes, &modified, &stat_result);
      rados_read_op_read(operation.get(), 0, room, reinterpret_cast<char*>(out.bytes.data()), &read,
                         &read_result);
      int result = rados_read_op_operate(operation.get(), cluster_->io(), name.c_str(), 0);
      if (result >= 0) result = std::min({stat_result, read_result, 0});
      if (result < 0) return result;
      if (bytes > room) {
        room = static_cast<std::size_t>(bytes);
        continue;
      }
      if (read != bytes) return -EIO;
      out.bytes.resize(read);
      out.version = attributes.find(kVersionAttribute).value_or(std::string());
      return 0;
    }
  }

  int put(const std::string& name, ByteView bytes,
          const std::optional<std::string>& expected) override {
    std::string version;
    int result = random_version(version);
    if (result < 0) return result;
    const WriteOperation operation = write_operation();
    if (!expected) {
      rados_write_op_create(operation.get(), LIBRADOS_CREATE_EXCLUSIVE, nullptr);
    } else {
      // To an OSD an attribute that is missing is an empty one, of an object that is missing too.
      if (expected->empty()) rados_write_op_assert_exists(operation.get());
      compare_version(operation.get(), *expected);
    }
    rados_write_op_write_full(operation.get(), text(bytes), bytes.size());
    rados_write_op_setxattr(operation.get(), kVersionAttribute, version.data(), version.size());
    result = operate(name, operation.get());
    if (result == -ETIMEDOUT && current_version(name) == version) return 0;
    // Changed meanwhile: someone was first to create it, or removed it.
    if (result == (expected ? -ENOENT : -EEXIST)) return -ECANCELED;
    return result;
  }

  int remove_version(const std::string& name, const std::string& expected) override {
    const WriteOperation operation = write_operation();
    compare_version(operation.get(), expected);
    rados_write_op_remove(operation.get());
    const int result = operate(name, operation.get());
    if (result == -ETIMEDOUT) {
      Versioned found;
      if (get(name, found) == -ENOENT) return 0;
    }
    return result;
  }

  int watch(const std::string& name, std::unique_ptr<ObjectWatch>& out) override {
    // First: a full pool answers to this, and holds up who watches.
    const WriteOperation operation = write_operation();
    rados_write_op_create(operation.get(), LIBRADOS_CREATE_IDEMPOTENT, nullptr);
    int result = operate(name, operation.get());
    if (result < 0) return result;
    auto registration = std::make_unique<Registration>(*cluster_, name);
    result = registration->start();
    if (result < 0) return result;
    if (!registration->wait(cluster_->timeout(), result)) {
      cluster_->abandon(std::move(registration));
      return -ETIMEDOUT;
    }
    if (result < 0) {
      // librados has given it up by itself; what it still had to say of it is over then.
      rados_watch_flush(cluster_->rados());
      return result;
    }
    out = std::make_unique<Watch>(cluster_, std::move(registration));
    return 0;
  }

  int is_watched(const std::string& name, bool& out) override {
    for (bool again = true;; again = false) {
      auto notification = std::make_unique<Notification>();
      int result = notification->start(*cluster_, name);
      if (result < 0) return result;
      if (!notification->wait(cluster_->timeout() + std::chrono::milliseconds(kNotifyMs), result)) {
        cluster_->abandon(std::move(notification));
        return -ETIMEDOUT;
      }
      // A watcher that gives no answer makes it -ETIMEDOUT, with a reply.
      const bool watched = notification->watchers() > 0;
      if (result >= 0 || (result == -ETIMEDOUT && watched)) {
        out = watched;
        return 0;
      }
      // The object moved to another OSD meanwhile.
      if (result != -ENOTCONN || !again) return result;
    }
  }

  int list(const std::function<void(const std::string& name)>& found) override {
    struct Close {
      void operator()(void* context) const noexcept { rados_nobjects_list_close(context); }
    };
    rados_list_ctx_t opened = nullptr;
    int result = rados_nobjects_list_open(cluster_->io(), &opened);
    if (result < 0) return result;
    const std::unique_ptr<void, Close> context(opened);
    const char* name = nullptr;
    while ((result = rados_nobjects_list_next(context.get(), &name, nullptr, nullptr)) == 0) {
      found(name);
    }
    return result == -ENOENT ? 0 : result;
  }

 private:
  // So that a full pool, or one that has used up its quota, answers instead of blocking.
  static constexpr int kFlags = LIBRADOS_OPERATION_FULL_TRY;

  static const char* text(ByteView bytes) noexcept {
    return reinterpret_cast<const char*>(bytes.data());
  }

  void start_write(const std::string& name, WriteOperation operation, Done done) {
    Operation::start(std::make_unique<Write>(*cluster_, std::move(operation), std::move(done)),
                     [&](Operation& running, rados_completion_t completion) {
                       return rados_aio_write_op_operate(static_cast<Write&>(running).get(),
                                                         cluster_->io(), completion, name.c_str(),
                                                         nullptr, kFlags);
                     });
  }
  void start_read(const std::string& name, std::unique_ptr<Read> read) {
    Operation::start(std::move(read), [&](Operation& running, rados_completion_t completion) {
      return rados_aio_read_op_operate(static_cast<Read&>(running).get(), cluster_->io(),
                                       completion, name.c_str(), 0);
    });
  }
  int operate(const std::string& name, rados_write_op_t operation) {
    return std::min(
        rados_write_op_operate2(operation, cluster_->io(), name.c_str(), nullptr, kFlags), 0);
  }

  static void compare_version(rados_write_op_t operation, const std::string& expected) {
    rados_write_op_cmpxattr(operation, kVersionAttribute, LIBRADOS_CMPXATTR_OP_EQ, expected.data(),
                            expected.size());
  }
  std::string current_version(const std::string& name) {
    Versioned found;
    return get(name, found) == 0 ? found.version : std::string();
  }

  std::shared_ptr<Cluster> cluster_;
};

// What librados does not take from CEPH_ARGS itself.
struct EnvironmentArguments {
  std::string user;
  std::string conf;
};

EnvironmentArguments environment_arguments() {
  EnvironmentArguments out;
  const char* const variable = std::getenv("CEPH_ARGS");
  std::vector<std::string> words;
  for (std::string_view rest = variable != nullptr ? variable : ""; !rest.empty();) {
    const std::size_t end = std::min(rest.find(' '), rest.size());
    if (end != 0) words.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string option = words[i];
    std::string value;
    const std::size_t equals = option.find('=');
    if (equals != std::string::npos) {
      value = option.substr(equals + 1);
      option.resize(equals);
    } else if (i + 1 < words.size()) {
      value = words[i + 1];
    }
    if (option == "--id" || option == "--user" || option == "-n" || option == "--name") {
      out.user = value;
    } else if (option == "-c" || option == "--conf") {
      out.conf = value;
    }
  }
  return out;
}

// Connects; what was made so far is ended if it fails.
class Connecting {
 public:
  explicit Connecting(ObjectsFailure& failure) : failure_(failure) {}
  ~Connecting() {
    if (io_ != nullptr) rados_ioctx_destroy(io_);
    if (rados_ != nullptr) rados_shutdown(rados_);
  }
  Connecting(const Connecting&) = delete;
  Connecting& operator=(const Connecting&) = delete;

  Objects* connect(const ObjectsOptions& options) {
    const EnvironmentArguments arguments = environment_arguments();
    std::string user = options.user.empty() ? arguments.user : options.user;
    if (user.empty()) user = "admin";
    if (!user.starts_with("client.")) user.insert(0, "client.");
    failure_.user = user;
    if (failed(ObjectsStep::kSettings, user, rados_create2(&rados_, "ceph", user.c_str(), 0))) {
      return nullptr;
    }

    const std::string conf = options.conf.empty() ? arguments.conf : options.conf;
    const bool is_named = !conf.empty() || std::getenv("CEPH_CONF") != nullptr;
    std::string shown = conf;
    if (shown.empty()) shown = is_named ? std::getenv("CEPH_CONF") : "ceph.conf";
    const int read = rados_conf_read_file(rados_, conf.empty() ? nullptr : conf.c_str());
    // Where none is named, CEPH_ARGS may say enough.
    if (!(read == -ENOENT && !is_named) && failed(ObjectsStep::kSettings, shown, read)) {
      return nullptr;
    }

    // A message of librados is no part of what a command says. CEPH_ARGS may ask for it.
    for (const char* const name : {"log_to_stderr", "err_to_stderr", "mon_cluster_log_to_stderr"}) {
      rados_conf_set(rados_, name, "false");
    }
    for (const char* const name : {"log_file", "admin_socket"}) rados_conf_set(rados_, name, "");
    rados_conf_set(rados_, "objecter_tick_interval", kTickSeconds);
    rados_conf_set(rados_, "objecter_inflight_op_bytes", kInFlightBytes);
    rados_conf_set(rados_, "objecter_inflight_ops", kInFlightOperations);
    if (failed(ObjectsStep::kSettings, "CEPH_ARGS", rados_conf_parse_env(rados_, nullptr))) {
      return nullptr;
    }
    // Whole seconds; 0 would be for ever.
    const std::string seconds =
        std::to_string(std::llround(std::clamp(std::ceil(options.timeout_s), 1.0, 1e6)));
    for (const char* const name :
         {"rados_osd_op_timeout", "rados_mon_op_timeout", "client_mount_timeout"}) {
      if (failed(ObjectsStep::kSettings, name, rados_conf_set(rados_, name, seconds.c_str()))) {
        return nullptr;
      }
    }
    // Without a monitor's address librados would look for one in the DNS, and not say so.
    if (!is_set("mon_host")) {
      failed(ObjectsStep::kNoSettings, is_named ? shown : "", -ENOENT);
      return nullptr;
    }

    if (failed(ObjectsStep::kConnect, "", rados_connect(rados_)) ||
        failed(ObjectsStep::kPool, "", rados_ioctx_create(rados_, options.pool.c_str(), &io_))) {
      return nullptr;
    }
    rados_ioctx_set_namespace(io_, options.name_space.c_str());
    const auto cluster = std::make_shared<Cluster>(std::exchange(rados_, nullptr),
                                                   std::exchange(io_, nullptr), options.timeout_s);
    return std::make_unique<RadosObjects>(cluster).release();
  }

 private:
  bool failed(ObjectsStep step, const std::string& what, int result) {
    if (result >= 0) return false;
    failure_.error = result;
    failure_.step = step;
    failure_.what = what;
    return true;
  }
  bool is_set(const char* name) {
    std::string value(65536, '\0');
    const int result = rados_conf_get(rados_, name, value.data(), value.size());
    return result < 0 || value[0] != '\0';
  }

  ObjectsFailure& failure_;
  rados_t rados_ = nullptr;
  rados_ioctx_t io_ = nullptr;
};

}  // namespace

extern "C" __attribute__((visibility("default"))) Objects* smlrados_open_1(
    const ObjectsOptions& options, ObjectsFailure& failure) {
  return Connecting(failure).connect(options);
}

}  // namespace sml
