#include "cache_state.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "smlformat/layout.h"

namespace sml {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kMagic{"SMLCACHE", 8};
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kGroupFlag = 1;
constexpr std::size_t kStateBytes = 4096;

// Bytes of the file `locks`.
constexpr std::uint64_t kNamingLock = 0;
constexpr std::uint64_t kRoomLock = 1;
constexpr std::uint64_t kUseLocks = std::uint64_t{1} << 40U;
constexpr std::uint64_t kFetchLocks = std::uint64_t{1} << 62U;

// Locks are held for a moment, or by a process that was stopped.
constexpr std::chrono::milliseconds kPoll{1};
constexpr std::chrono::milliseconds kLongestNaming{200};
constexpr std::chrono::seconds kLongestRoom{5};
// Of looking for room in vain, and of counting.
constexpr std::chrono::seconds kLookAgain{1};
constexpr std::chrono::seconds kCountAgain{10};
// Room is made for more than one block at a time: a sixteenth of all, and no more than this.
constexpr std::uint64_t kMostRoom = 256U << 20;

// Blocks are written in pieces: the page cache takes a large one in pages of 2 MiB, which a virtual
// machine whose idle memory is watched (DAMON) loses from its shadow page tables as a whole each
// time one of them is looked at. Records are then read at half the speed (scripts/bench-cache).
constexpr std::uint64_t kWriteBytes = 128U << 10;

std::uint64_t taken_by(std::uint64_t bytes) noexcept { return round_up(bytes, 4096); }

bool is_hex(std::string_view text) noexcept {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_id(std::string_view name) noexcept { return name.size() == 32 && is_hex(name); }
bool is_block(std::string_view name) noexcept { return name.size() >= 8 && is_hex(name); }
bool is_temporary(std::string_view name) noexcept {
  return name.size() == 20 && name.ends_with(".tmp") && is_hex(name.substr(0, 16));
}

std::uint64_t from_hex(std::string_view text) noexcept {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return value;
}

Hash128 id_of(std::string_view hex) noexcept {
  return {from_hex(hex.substr(16)), from_hex(hex.substr(0, 16))};
}

std::uint64_t use_lock(const Hash128& id) noexcept {
  return kUseLocks + (id.low & (kUseLocks - 1));
}

FileDescriptor open_directory(int parent, const std::string& name) noexcept {
  return FileDescriptor(
      ::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

// Never waits for what may be a FIFO.
FileDescriptor open_file(int directory, const char* name) noexcept {
  return FileDescriptor(
      ::openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

bool is_file(int directory, const char* name, struct stat& status) noexcept {
  return ::fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(status.st_mode);
}

// Whether a file begins as blocks do.
bool is_block_file(int directory, const char* name) noexcept {
  const FileDescriptor fd = open_file(directory, name);
  std::array<char, kBlockMagic.size()> magic{};
  return fd && ::pread(fd.get(), magic.data(), magic.size(), 0) == ssize_t{magic.size()} &&
         std::string_view(magic.data(), magic.size()) == kBlockMagic;
}

// Removes a file that a process which died left under a name of its own.
void remove_left_over(int directory, const char* name) noexcept {
  const FileDescriptor fd = open_file(directory, name);
  if (fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) ::unlinkat(directory, name, 0);
}

void subtract(std::atomic_ref<std::uint64_t> from, std::uint64_t bytes) noexcept {
  std::uint64_t now = from.load();
  while (!from.compare_exchange_weak(now, now - std::min(now, bytes))) {
  }
}

// Whether what is there can be trusted: it is our own, or of a group that we are in and not open to
// everybody.
bool is_ours(const struct stat& status, bool group) {
  if (!group) return status.st_uid == ::geteuid();
  if ((status.st_mode & S_IWOTH) != 0) return false;
  if (status.st_uid == ::geteuid() || status.st_gid == ::getegid()) return true;
  std::vector<gid_t> groups(static_cast<std::size_t>(std::max(0, ::getgroups(0, nullptr))));
  const int count = ::getgroups(static_cast<int>(groups.size()), groups.data());
  groups.resize(static_cast<std::size_t>(std::max(0, count)));
  return std::find(groups.begin(), groups.end(), status.st_gid) != groups.end();
}

[[noreturn]] void refuse(const std::string& directory, ErrorCode code, const std::string& why) {
  throw Error(code, shown_path(directory) + ": " + why);
}

}  // namespace

std::string cached_block_name(std::uint64_t block) { return fmt::format("{:08x}", block); }

// A container that has blocks here.
struct CacheState::Candidate {
  std::string id;
  std::int64_t used_s = 0;
  std::int64_t used_ns = 0;
};

CacheState::CacheState(std::string directory, FileDescriptor blocks, FileDescriptor locks,
                       void* state)
    : directory_(std::move(directory)),
      blocks_(std::move(blocks)),
      locks_(std::move(locks)),
      state_(static_cast<std::uint64_t*>(state)),
      sharing_((load<std::uint32_t>(reinterpret_cast<const char*>(state) + 12) & kGroupFlag) != 0
                   ? CacheSharing::kGroup
                   : CacheSharing::kUser),
      seen_generation_(word(kGeneration).load()) {}

CacheState::~CacheState() { ::munmap(state_, kStateBytes); }

std::unique_ptr<CacheState> CacheState::open(const std::string& directory) {
  FileDescriptor blocks(open_path(directory + "/blocks", O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  if (!blocks) {
    if (errno == ENOENT) return nullptr;
    throw system_error(directory, "cannot open the cache", errno);
  }
  const FileDescriptor state(::openat(blocks.get(), "state", O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  if (!state) {
    if (errno == ENOENT) return nullptr;
    throw system_error(directory, "cannot open the cache", errno);
  }
  struct stat status {};
  std::array<std::byte, 16> head{};
  if (::fstat(state.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_size != off_t{kStateBytes} ||
      ::pread(state.get(), head.data(), head.size(), 0) != ssize_t{head.size()} ||
      as_text(head).substr(0, kMagic.size()) != kMagic) {
    refuse(directory, ErrorCode::kCorrupt, "blocks/state: is not that of a cache");
  }
  if (const auto version = load<std::uint32_t>(head.data() + 8); version != kVersion)
    refuse(directory, ErrorCode::kUnsupported,
           fmt::format("blocks/state: version {}; this build knows version 1", version));
  const bool group = (load<std::uint32_t>(head.data() + 12) & kGroupFlag) != 0;
  struct stat place {};
  if (::fstat(blocks.get(), &place) != 0 || !is_ours(status, group) || !is_ours(place, group)) {
    refuse(directory, ErrorCode::kIo,
           group ? "the cache belongs to another group, or is open to everybody"
                 : "the cache belongs to another user");
  }
  FileDescriptor locks(::openat(blocks.get(), "locks", O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  if (!locks) throw system_error(directory + "/blocks/locks", "cannot open", errno);
  void* const at = ::mmap(nullptr, kStateBytes, PROT_READ | PROT_WRITE, MAP_SHARED, state.get(), 0);
  if (at == MAP_FAILED) throw system_error(directory, "cannot map the cache", errno);
  return std::unique_ptr<CacheState>(
      new CacheState(directory, std::move(blocks), std::move(locks), at));
}

// Where it is not had at once, it is not had at all.
class CacheState::RoomLock {
 public:
  explicit RoomLock(CacheState& state) : state_(state) {
    const std::lock_guard guard(state_.mutex_);
    held_ = !state_.making_room_ && state_.lock(kRoomLock, F_WRLCK);
    if (held_) state_.making_room_ = true;
  }
  ~RoomLock() {
    if (!held_) return;
    const std::lock_guard guard(state_.mutex_);
    state_.lock(kRoomLock, F_UNLCK);
    state_.making_room_ = false;
  }
  RoomLock(const RoomLock&) = delete;
  RoomLock& operator=(const RoomLock&) = delete;
  explicit operator bool() const noexcept { return held_; }

 private:
  CacheState& state_;
  bool held_ = false;
};

void CacheState::init(const std::string& directory, std::uint64_t bytes, bool group) {
  // A state that is damaged, or without its locks, is made anew.
  bool is_damaged = false;
  std::unique_ptr<CacheState> there;
  try {
    there = open(directory);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCorrupt && error.code() != ErrorCode::kNotFound) throw;
    is_damaged = true;
  }
  if (there) {
    if (group && there->sharing_ != CacheSharing::kGroup)
      refuse(directory, ErrorCode::kInvalidArgument, "is the cache of a user, not of a group");
    there->word(kLimit).store(bytes);
    return;
  }
  const CacheSharing sharing = group ? CacheSharing::kGroup : CacheSharing::kUser;
  make_cache_directory(directory, sharing);
  if (group) ::chmod(directory.c_str(), 02770);
  make_directory_at(AT_FDCWD, directory + "/blocks", sharing);
  const FileDescriptor blocks(
      open_path(directory + "/blocks", O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  if (!blocks) throw system_error(directory, "cannot make a cache", errno);
  // Who has the old one mapped counts there; blocks are counted anew below.
  if (is_damaged) ::unlinkat(blocks.get(), "state", 0);
  std::array<std::byte, kStateBytes> state{};
  std::memcpy(state.data(), kMagic.data(), kMagic.size());
  store(state.data() + 8, kVersion);
  store(state.data() + 12, group ? kGroupFlag : std::uint32_t{0});
  store(state.data() + 8 * kLimit, bytes);
  for (const auto& [name, content] :
       {std::pair("locks", ByteView()), std::pair("state", ByteView(state))}) {
    NewCacheFile file(blocks.get(), sharing);
    if (!file) throw system_error(directory, "cannot make a cache", errno);
    write_at(file.fd(), 0, content, directory);
    if (!file.give_name(name) && errno != EEXIST)
      throw system_error(directory, "cannot make a cache", errno);
  }
  // Blocks may be there though their state was lost.
  const auto made = open(directory);
  if (!made) refuse(directory, ErrorCode::kIo, "the cache was removed while it was made");
  made->word(kLimit).store(bytes);
  const RoomLock lock(*made);
  if (lock) made->recount();
}

bool CacheState::lock(std::uint64_t byte, short type) const noexcept {
  struct flock what {};
  what.l_type = type;
  what.l_whence = SEEK_SET;
  what.l_start = static_cast<off_t>(byte);
  what.l_len = 1;
  return ::fcntl(locks_.get(), F_OFD_SETLK, &what) == 0;
}

void CacheState::warn(std::string_view why) {
  if (gone_.exchange(true) || !on_warning) return;
  on_warning(fmt::format("{}: {}: blocks are no longer kept", shown_path(directory_), why));
}

void CacheState::follow_generation() {
  const std::uint64_t now = word(kGeneration).load(std::memory_order_relaxed);
  if (now == seen_generation_.load(std::memory_order_relaxed)) return;
  seen_generation_.store(now, std::memory_order_relaxed);
  mappings_.remove_all();
}

// ---- files of blocks

FileDescriptor CacheState::open_block(const std::string& id, std::uint64_t block) const noexcept {
  const std::string path = id + "/" + cached_block_name(block);
  return open_file(blocks_.get(), path.c_str());
}

bool CacheState::has_block(const std::string& id, std::uint64_t block) const noexcept {
  const std::string path = id + "/" + cached_block_name(block);
  return ::faccessat(blocks_.get(), path.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

bool CacheState::keep_block(const std::string& id, std::uint64_t block, ByteView bytes) {
  FileDescriptor directory = open_directory(blocks_.get(), id);
  if (!directory) {
    make_directory_at(blocks_.get(), id, sharing_);
    directory = open_directory(blocks_.get(), id);
  }
  const auto fail = [this] {
    warn(std::generic_category().message(errno));
    return false;
  };
  if (!directory) return fail();
  NewCacheFile file(directory.get(), sharing_);
  if (!file) return fail();
  try {
    for (std::uint64_t at = 0; at < bytes.size(); at += kWriteBytes)
      write_at(file.fd(), at, bytes.subspan(at, std::min(kWriteBytes, bytes.size() - at)),
               directory_);
  } catch (const Error& error) {
    warn(std::string_view(error.what()).substr(shown_path(directory_).size() + 2));
    return false;
  }
  const std::uint64_t taken = taken_by(bytes.size());
  if (!begin_naming()) return false;
  const std::uint64_t before = word(kTaken).fetch_add(taken);
  bool kept = before <= limit_bytes() && taken <= limit_bytes() - before;
  bool counts = false;
  int error = 0;
  if (kept) {
    counts = file.give_name(cached_block_name(block));
    error = counts ? 0 : errno;
    kept = counts || error == EEXIST;
  }
  if (!counts) subtract(word(kTaken), taken);
  end_naming();
  // ENOENT: who made room removed the directory.
  if (error != 0 && error != EEXIST && error != ENOENT)
    warn(std::generic_category().message(error));
  return kept;
}

bool CacheState::drop_block(const std::string& id, std::uint64_t block) {
  const FileDescriptor directory = open_directory(blocks_.get(), id);
  const std::string name = cached_block_name(block);
  struct stat status {};
  // Not while somebody counts, who may have counted it or not.
  const bool counted = begin_naming();
  const bool dropped = directory && is_file(directory.get(), name.c_str(), status) &&
                       ::unlinkat(directory.get(), name.c_str(), 0) == 0;
  if (counted) {
    if (dropped) subtract(word(kTaken), taken_by(static_cast<std::uint64_t>(status.st_size)));
    end_naming();
  }
  if (dropped) {
    // For others: here the mapping of this one block is given up.
    std::uint64_t before = word(kGeneration).fetch_add(1);
    seen_generation_.compare_exchange_strong(before, before + 1);
  }
  return dropped;
}

// ---- locks

// With threads of this process it is shared by counting: the lock is one for all of them.
bool CacheState::begin_naming() {
  const auto begin = Clock::now();
  for (;;) {
    {
      const std::lock_guard guard(mutex_);
      if (naming_ > 0 || lock(kNamingLock, F_RDLCK)) {
        ++naming_;
        return true;
      }
    }
    if (Clock::now() - begin > kLongestNaming) return false;
    std::this_thread::sleep_for(kPoll);
  }
}

void CacheState::end_naming() {
  const std::lock_guard guard(mutex_);
  if (--naming_ == 0) lock(kNamingLock, F_UNLCK);
}

void CacheState::begin_use(const Hash128& id) {
  const std::uint64_t byte = use_lock(id);
  const auto begin = Clock::now();
  for (;;) {
    {
      const std::lock_guard guard(mutex_);
      unsigned& users = users_[byte];
      // Without the lock blocks may go meanwhile, which does no harm.
      if (users > 0 || lock(byte, F_RDLCK) || Clock::now() - begin > kLongestRoom) {
        ++users;
        break;
      }
    }
    std::this_thread::sleep_for(kPoll);
  }
  ::utimensat(blocks_.get(), id.hex().c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
}

void CacheState::end_use(const Hash128& id) {
  const std::uint64_t byte = use_lock(id);
  const std::lock_guard guard(mutex_);
  if (--users_[byte] > 0) return;
  users_.erase(byte);
  lock(byte, F_UNLCK);
}

std::uint64_t CacheState::fetch_lock(const Hash128& id, std::uint64_t block) {
  std::array<std::byte, 24> key{};
  store(key.data(), id.low);
  store(key.data() + 8, id.high);
  store(key.data() + 16, block);
  return kFetchLocks + (xxh3_64(key) & (kFetchLocks / 2 - 1));
}

bool CacheState::try_fetch(std::uint64_t byte, std::uint64_t bytes) {
  const std::lock_guard guard(mutex_);
  if (!fetching_.insert(byte).second) return false;
  if (!lock(byte, F_WRLCK)) {
    fetching_.erase(byte);
    return false;
  }
  fetched_bytes_ += taken_by(bytes);
  return true;
}

void CacheState::end_fetch(std::uint64_t byte, std::uint64_t bytes) {
  const std::lock_guard guard(mutex_);
  lock(byte, F_UNLCK);
  fetching_.erase(byte);
  fetched_bytes_ -= taken_by(bytes);
}

void CacheState::give_back_room(std::uint64_t bytes) noexcept { fetched_bytes_ -= taken_by(bytes); }

// ---- room

bool CacheState::has_room(std::uint64_t bytes) {
  // Beside what is being fetched here; others' fetches show when they are kept.
  const auto taken = [&] { return fetched_bytes_.load() + taken_by(bytes); };
  const auto fits = [&] {
    const std::uint64_t there = word(kTaken).load();
    return there <= limit_bytes() && taken() <= limit_bytes() - there;
  };
  if (gone_.load(std::memory_order_relaxed)) return false;
  if (fits()) return true;
  if (taken() > limit_bytes()) return false;
  bool count = false;
  {
    const std::lock_guard guard(mutex_);
    const auto now = Clock::now();
    if (no_room_at_ && now - *no_room_at_ < kLookAgain) return false;
    count = !counted_at_ || now - *counted_at_ > kCountAgain;
  }
  const RoomLock room(*this);
  if (!room) return false;
  if (count) recount();
  // What is being kept meanwhile may be counted in neither number for a moment, so that too little
  // is removed; when nothing is, all the rest is in use.
  for (std::uint64_t removed = 1; removed > 0 && !fits();) {
    const std::uint64_t wanted = std::max(taken(), std::min(limit_bytes() / 16, kMostRoom));
    removed = remove_down_to(limit_bytes() - std::min(limit_bytes(), wanted)).blocks;
  }
  const bool found = fits();
  const std::lock_guard guard(mutex_);
  if (!found) no_room_at_ = Clock::now();
  return found;
}

// Counts what is there, unless somebody is about to name a block.
void CacheState::recount() {
  const std::lock_guard guard(mutex_);
  if (naming_ > 0 || !lock(kNamingLock, F_WRLCK)) return;
  std::uint64_t taken = 0;
  each_name(blocks_.get(), [&](const char* id) {
    if (!is_id(id)) return;
    const FileDescriptor directory = open_directory(blocks_.get(), id);
    if (!directory) return;
    each_name(directory.get(), [&](const char* name) {
      struct stat status {};
      if (is_block(name) && is_file(directory.get(), name, status))
        taken += taken_by(static_cast<std::uint64_t>(status.st_size));
    });
  });
  word(kTaken).store(taken);
  lock(kNamingLock, F_UNLCK);
  counted_at_ = Clock::now();
}

// Containers that have blocks here, those first that were not used for longest.
std::vector<CacheState::Candidate> CacheState::candidates() const {
  std::vector<Candidate> found;
  each_name(blocks_.get(), [&](const char* id) {
    struct stat status {};
    if (is_id(id) && ::fstatat(blocks_.get(), id, &status, AT_SYMLINK_NOFOLLOW) == 0)
      found.push_back({id, status.st_mtim.tv_sec, status.st_mtim.tv_nsec});
  });
  std::sort(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(a.used_s, a.used_ns, a.id) < std::tie(b.used_s, b.used_ns, b.id);
  });
  return found;
}

// Removes blocks of a container, unless it is in use, until `wanted` bytes are free.
std::uint64_t CacheState::remove_blocks(const Candidate& candidate, std::uint64_t wanted,
                                        BlockCache::Removed& removed) {
  const std::uint64_t byte = use_lock(id_of(candidate.id));
  // All along: nobody here may begin to use it.
  const std::lock_guard guard(mutex_);
  if (users_.contains(byte) || !lock(byte, F_WRLCK)) return 0;
  std::uint64_t freed = 0;
  if (const FileDescriptor directory = open_directory(blocks_.get(), candidate.id)) {
    each_name(directory.get(), [&](const char* name) {
      struct stat status {};
      if (is_temporary(name)) return remove_left_over(directory.get(), name);
      if (freed >= wanted || !is_block(name) || !is_file(directory.get(), name, status) ||
          !is_block_file(directory.get(), name) || ::unlinkat(directory.get(), name, 0) != 0)
        return;
      const std::uint64_t taken = taken_by(static_cast<std::uint64_t>(status.st_size));
      subtract(word(kTaken), taken);
      freed += taken;
      ++removed.blocks;
    });
    // Only where it is empty.
    ::unlinkat(blocks_.get(), candidate.id.c_str(), AT_REMOVEDIR);
  }
  lock(byte, F_UNLCK);
  if (freed > 0) word(kGeneration).fetch_add(1);
  removed.bytes += freed;
  return freed;
}

BlockCache::Removed CacheState::remove_down_to(std::uint64_t bytes) {
  BlockCache::Removed removed;
  const auto excess = [&] {
    const std::uint64_t taken = word(kTaken).load();
    return taken - std::min(taken, bytes);
  };
  for (const Candidate& candidate : candidates()) {
    if (excess() == 0) break;
    remove_blocks(candidate, excess(), removed);
  }
  removed.bytes_in_use = excess();
  follow_generation();
  return removed;
}

BlockCache::Removed CacheState::trim(std::uint64_t bytes) {
  const auto begin = Clock::now();
  std::optional<RoomLock> room;
  while (!room.emplace(*this)) {
    if (Clock::now() - begin > kLongestRoom)
      refuse(directory_, ErrorCode::kUnavailable, "another process is making room in the cache");
    std::this_thread::sleep_for(kPoll);
  }
  recount();
  BlockCache::Removed removed = remove_down_to(bytes);
  // What was left over is removed also where blocks may stay.
  BlockCache::Removed none;
  for (const Candidate& candidate : candidates()) remove_blocks(candidate, 0, none);
  each_name(blocks_.get(), [&](const char* name) {
    if (is_temporary(name)) remove_left_over(blocks_.get(), name);
  });
  return removed;
}

CacheInfo CacheState::info() {
  CacheInfo info;
  info.limit_bytes = limit_bytes();
  info.group = sharing_ == CacheSharing::kGroup;
  for (const Candidate& candidate : candidates()) {
    CacheContainer container;
    container.id = id_of(candidate.id);
    container.used_at = candidate.used_s;
    if (const FileDescriptor directory = open_directory(blocks_.get(), candidate.id)) {
      each_name(directory.get(), [&](const char* name) {
        struct stat status {};
        if (!is_block(name) || !is_file(directory.get(), name, status)) return;
        ++container.blocks;
        container.bytes += taken_by(static_cast<std::uint64_t>(status.st_size));
      });
    }
    struct flock what {};
    what.l_type = F_WRLCK;
    what.l_whence = SEEK_SET;
    what.l_start = static_cast<off_t>(use_lock(container.id));
    what.l_len = 1;
    const std::lock_guard guard(mutex_);
    container.in_use = users_.contains(use_lock(container.id)) ||
                       (::fcntl(locks_.get(), F_OFD_GETLK, &what) == 0 && what.l_type != F_UNLCK);
    info.blocks += container.blocks;
    info.block_bytes += container.bytes;
    info.containers.push_back(container);
  }
  return info;
}

}  // namespace sml
