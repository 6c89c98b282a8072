#include "archive_reader.h"

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <cstdio>

#include <sys/stat.h>
#include <unistd.h>

#include <archive.h>
#include <archive_entry.h>
#include <locale.h>

#include "posix_file.h"

namespace sml {
namespace {

constexpr std::size_t kBufferBytes = 256U << 10;
constexpr std::size_t kTarBlockBytes = 512;
constexpr std::size_t kZipHeaderBytes = 30;
constexpr std::size_t kZipEndBytes = 22;
constexpr std::size_t kMaxZipHeaderBytes = kZipHeaderBytes + 2 * 0xffff;

// libarchive converts names between character sets, and UTF-8 even to itself (it composes accents).
// In the "C" locale every name that is not ASCII fails to convert, and comes as the bytes that are
// in the archive.
class RawNames {
 public:
  RawNames() noexcept : before_(::uselocale(c_locale())) {}
  ~RawNames() { ::uselocale(before_); }
  RawNames(const RawNames&) = delete;
  RawNames& operator=(const RawNames&) = delete;

 private:
  static locale_t c_locale() noexcept {
    static const locale_t locale = ::newlocale(LC_ALL_MASK, "C", locale_t{});
    return locale;
  }
  locale_t before_;
};

std::string text_or_empty(const char* text) { return text != nullptr ? text : ""; }

bool contains(std::string_view text, std::string_view part) noexcept {
  return text.find(part) != std::string_view::npos;
}

}  // namespace

struct ArchiveReader::Callbacks {
  template <class F>
  static auto guarded(archive* a, void* self, F call) noexcept -> decltype(call()) {
    try {
      return call();
    } catch (...) {
      static_cast<ArchiveReader*>(self)->callback_error_ = std::current_exception();
      ::archive_set_error(a, EIO, "cannot read the input");
      return ARCHIVE_FATAL;
    }
  }

  static la_ssize_t read(archive* a, void* self, const void** buffer) {
    return guarded(a, self, [&] {
      return static_cast<la_ssize_t>(static_cast<ArchiveReader*>(self)->read_input(buffer));
    });
  }
  static la_int64_t skip(archive*, void* self, la_int64_t bytes) {
    return static_cast<ArchiveReader*>(self)->skip_input(bytes);
  }
  static la_int64_t seek(archive* a, void* self, la_int64_t offset, int whence) {
    return guarded(a, self, [&]() -> la_int64_t {
      return static_cast<ArchiveReader*>(self)->seek_input(offset, whence);
    });
  }
};

void ArchiveReader::Free::operator()(archive* a) const noexcept { ::archive_read_free(a); }

ArchiveReader::ArchiveReader(int fd, Input input, std::string name, std::stop_token stop,
                             std::string head)
    : fd_(fd),
      input_(input),
      name_(std::move(name)),
      stop_(std::move(stop)),
      head_(std::move(head)),
      buffer_(kBufferBytes),
      archive_(::archive_read_new()) {
  archive* a = archive_.get();
  if (a == nullptr) {
    throw std::bad_alloc();
  }
  const RawNames raw_names;
  // Not all that libarchive knows: some of its filters run other programs.
  ::archive_read_support_filter_bzip2(a);
  ::archive_read_support_filter_xz(a);
  ::archive_read_support_filter_lzma(a);
  ::archive_read_support_filter_lzip(a);
  ::archive_read_support_filter_zstd(a);
  ::archive_read_support_filter_lz4(a);
  ::archive_read_support_filter_compress(a);
  ::archive_read_support_format_tar(a);
  // Read on behind an end mark: what follows is more members or an error, and never passed over.
  ::archive_read_set_format_option(a, "tar", "read_concatenated_archives", "1");
  ::archive_read_set_read_callback(a, Callbacks::read);
  ::archive_read_set_callback_data(a, this);
  if (input_ == Input::kRegularFile) {
    struct stat status {};
    if (::fstat(fd_, &status) != 0) {
      throw system_error(name_, "cannot open", errno);
    }
    input_bytes_ = static_cast<std::uint64_t>(status.st_size);
    if (input_bytes_ == 0) {
      throw Error(ErrorCode::kInvalidArgument, shown_path(name_) + ": is empty: no archive");
    }
    std::byte magic[2];
    head_.assign(reinterpret_cast<const char*>(magic), read_at(fd_, 0, magic, name_));
  }
  if (GzipReader::is_gzip(as_bytes(head_))) {
    if (input_ == Input::kRegularFile) head_.clear();
    gzip_ = std::make_unique<GzipReader>([this](MutableBytes out) { return read_raw(out); }, name_);
  } else if (input_ == Input::kRegularFile) {
    head_.clear();
    ::archive_read_support_format_zip_seekable(a);
    ::archive_read_set_skip_callback(a, Callbacks::skip);
    ::archive_read_set_seek_callback(a, Callbacks::seek);
  }
  if (input_ == Input::kRegularFile && !gzip_ && is_empty_zip()) {
    ended_ = true;
    return;
  }
  if (const int result = ::archive_read_open1(a); result < ARCHIVE_WARN) {
    fail(result, {});
  }
}

ArchiveReader::~ArchiveReader() = default;

// Bytes of the input as they are; 0 at its end.
std::size_t ArchiveReader::read_raw(MutableBytes out) {
  if (stop_.stop_requested()) {
    throw Error(ErrorCode::kCancelled, "cancelled");
  }
  if (!head_.empty()) {
    const std::size_t given = std::min(head_.size(), out.size());
    std::copy_n(head_.begin(), given, reinterpret_cast<char*>(out.data()));
    head_.erase(0, given);
    return given;
  }
  if (input_ == Input::kRegularFile) {
    const std::size_t given = read_at(fd_, raw_position_, out, name_);
    raw_position_ += given;
    return given;
  }
  ssize_t got;
  do {
    got = ::read(fd_, out.data(), out.size());
  } while (got < 0 && errno == EINTR && !stop_.stop_requested());
  if (got < 0) {
    throw errno == EINTR ? Error(ErrorCode::kCancelled, "cancelled")
                         : system_error(name_, "cannot read", errno);
  }
  return static_cast<std::size_t>(got);
}

std::size_t ArchiveReader::read_input(const void** buffer) {
  *buffer = buffer_.data();
  if (!gzip_) raw_position_ = position_;
  const std::size_t given = gzip_ ? gzip_->read(buffer_) : read_raw(buffer_);
  // At the end the last bytes stay: check_end() looks at those that nothing used.
  if (given > 0) {
    given_bytes_ = given;
    position_ += given;
  }
  return given;
}

// At most to the end of the file: what lseek would allow beyond it is how a cut archive goes
// unnoticed.
std::int64_t ArchiveReader::skip_input(std::int64_t bytes) noexcept {
  const std::uint64_t left = input_bytes_ - std::min(position_, input_bytes_);
  const std::uint64_t skipped =
      std::min(left, static_cast<std::uint64_t>(std::max<std::int64_t>(bytes, 0)));
  position_ += skipped;
  return static_cast<std::int64_t>(skipped);
}

std::int64_t ArchiveReader::seek_input(std::int64_t offset, int whence) {
  const std::int64_t base = whence == SEEK_CUR   ? static_cast<std::int64_t>(position_)
                            : whence == SEEK_END ? static_cast<std::int64_t>(input_bytes_)
                                                 : 0;
  std::int64_t target = 0;
  if (__builtin_add_overflow(base, offset, &target) || target < 0) {
    throw Error(ErrorCode::kCorrupt, shown_path(name_) + ": points outside of itself");
  }
  position_ = static_cast<std::uint64_t>(target);
  return target;
}

void ArchiveReader::fail(int result, std::string_view member) {
  usable_ = (result == ARCHIVE_FAILED || result == ARCHIVE_WARN) && callback_error_ == nullptr &&
            !member.empty();
  if (callback_error_ != nullptr) {
    std::rethrow_exception(std::exchange(callback_error_, nullptr));
  }
  const std::string message = text_or_empty(::archive_error_string(archive_.get()));
  std::string where = shown_path(name_);
  if (!member.empty()) {
    where += ": " + shown_path(member);
  }
  if (contains(message, "Unrecognized archive format")) {
    throw Error(ErrorCode::kInvalidArgument,
                where + (input_ == Input::kOnce && position_ == 0
                             ? ": is empty: no archive"
                             : ": is neither a tar nor a zip archive"));
  }
  ErrorCode code = ErrorCode::kCorrupt;
  if (contains(message, "runcated")) {
    code = ErrorCode::kTruncated;
  } else if (contains(message, "ncrypt") || contains(message, "assphrase") ||
             contains(message, "nsupported")) {
    code = ErrorCode::kUnsupported;
  }
  throw Error(code, where + ": " + (message.empty() ? "damaged archive" : shown_path(message)));
}

bool ArchiveReader::next(ArchiveMember& member) {
  if (ended_) {
    return false;
  }
  const RawNames raw_names;
  archive_entry* found = nullptr;
  const int result = ::archive_read_next_header(archive_.get(), &found);
  if (result == ARCHIVE_EOF) {
    check_end();
    ended_ = true;
    return false;
  }
  // ARCHIVE_RETRY is a damaged header behind which libarchive would look for the next one: members
  // would be lost.
  if (result != ARCHIVE_OK && result != ARCHIVE_WARN) {
    fail(result, {});
  }
  const char* name = ::archive_entry_pathname(found);
  member.name = name != nullptr ? name : is_zip() ? zip_name() : "";
  if (result == ARCHIVE_WARN) {
    const std::string message = text_or_empty(::archive_error_string(archive_.get()));
    if (contains(message, "nconsistent") || contains(message, "malformed")) {
      fail(ARCHIVE_FAILED, member.name);
    }
  }
  member_name_ = member.name;
  const char* link = ::archive_entry_hardlink(found);
  member.link = text_or_empty(link);
  member_bytes_known_ = ::archive_entry_size_is_set(found) != 0;
  const std::int64_t size = member_bytes_known_ ? ::archive_entry_size(found) : 0;
  if (size < 0) {
    throw Error(ErrorCode::kCorrupt,
                shown_path(name_) + ": " + shown_path(member.name) + ": has a negative size");
  }
  member_bytes_ = static_cast<std::uint64_t>(size);
  member_end_ = 0;
  member.bytes = member_bytes_;
  member.bytes_known = member_bytes_known_;
  member_sparse_ = ::archive_entry_sparse_count(found) > 0;
  member.sparse = member_sparse_;
  const auto type = ::archive_entry_filetype(found);
  // A hard link may come with the data that it repeats; then it is a file like others.
  if (link != nullptr && member_bytes_ == 0) {
    member.kind = ArchiveMember::Kind::kHardLink;
  } else if (type == AE_IFREG || link != nullptr) {
    member.kind = ArchiveMember::Kind::kFile;
  } else {
    member.kind = type == AE_IFLNK   ? ArchiveMember::Kind::kSymbolicLink
                  : type == AE_IFDIR ? ArchiveMember::Kind::kDirectory
                                     : ArchiveMember::Kind::kOther;
  }
  return true;
}

bool ArchiveReader::next_bytes(ByteView& bytes, std::uint64_t& offset) {
  const void* buffer = nullptr;
  std::size_t size = 0;
  la_int64_t at = 0;
  const int result = ::archive_read_data_block(archive_.get(), &buffer, &size, &at);
  if (result == ARCHIVE_EOF) {
    if (member_bytes_known_ && member_end_ < member_bytes_ && !member_sparse_) {
      throw Error(ErrorCode::kTruncated, shown_path(name_) + ": " + shown_path(member_name_) +
                                             ": has fewer bytes than the archive says");
    }
    // A hole may be the last thing in a file.
    offset = std::max(member_end_, member_bytes_);
    return false;
  }
  if (result != ARCHIVE_OK) {
    fail(result, member_name_);
  }
  if (at < 0 || static_cast<std::uint64_t>(at) < member_end_ ||
      (member_bytes_known_ && (static_cast<std::uint64_t>(at) > member_bytes_ ||
                               size > member_bytes_ - static_cast<std::uint64_t>(at)))) {
    usable_ = false;
    throw Error(ErrorCode::kCorrupt, shown_path(name_) + ": " + shown_path(member_name_) +
                                         ": its data do not fit its size");
  }
  bytes = {static_cast<const std::byte*>(buffer), size};
  offset = static_cast<std::uint64_t>(at);
  member_end_ = offset + size;
  return true;
}

// A zip of no members is its end record, which libarchive does not recognize.
bool ArchiveReader::is_empty_zip() const {
  std::array<std::byte, kZipEndBytes> end{};
  return read_at(fd_, 0, end, name_) == end.size() &&
         load<std::uint32_t>(end.data()) == 0x06054b50 &&
         load<std::uint16_t>(end.data() + 10) == 0 &&
         input_bytes_ == kZipEndBytes + load<std::uint16_t>(end.data() + 20);
}

bool ArchiveReader::is_zip() const {
  return (::archive_format(archive_.get()) & ARCHIVE_FORMAT_BASE_MASK) == ARCHIVE_FORMAT_ZIP;
}

bool ArchiveReader::is_plain_tar() const {
  return (::archive_format(archive_.get()) & ARCHIVE_FORMAT_BASE_MASK) == ARCHIVE_FORMAT_TAR &&
         ::archive_filter_count(archive_.get()) == 1 && !gzip_;
}

std::uint64_t ArchiveReader::data_position() const {
  return static_cast<std::uint64_t>(::archive_filter_bytes(archive_.get(), 0));
}

std::uint64_t ArchiveReader::header_position() const {
  return static_cast<std::uint64_t>(::archive_read_header_position(archive_.get()));
}

// libarchive takes the end of the input for the end of a tar, and what follows a compressed stream
// for nothing.
void ArchiveReader::check_end() {
  archive* a = archive_.get();
  if (is_zip()) {
    return;
  }
  usable_ = false;
  // The end mark is one block of zeros at least.
  if (::archive_filter_bytes(a, 0) <
      ::archive_read_header_position(a) + static_cast<std::int64_t>(kTarBlockBytes)) {
    throw Error(ErrorCode::kTruncated,
                shown_path(name_) + ": ends without the end mark of a tar archive",
                "it was cut short, or its writer did not finish");
  }
  if (gzip_) {
    // To the end, where its checksum is.
    const void* buffer = nullptr;
    while (read_input(&buffer) > 0) {
    }
    return;
  }
  switch (::archive_filter_code(a, 0)) {
    case ARCHIVE_FILTER_BZIP2:
    case ARCHIVE_FILTER_XZ:
    case ARCHIVE_FILTER_ZSTD:
    case ARCHIVE_FILTER_LZ4:
      break;
    default:
      return;  // no filter, and nothing is left; or one that does not stop at the end of its own
               // bytes
  }
  const auto used = static_cast<std::uint64_t>(::archive_filter_bytes(a, -1));
  std::uint64_t left = position_ - std::min(position_, used);
  bool more = left > given_bytes_;
  while (left > 0 && !more) {
    // Zeros are padding.
    const auto tail = ByteView(buffer_).subspan(given_bytes_ - left, left);
    more = std::any_of(tail.begin(), tail.end(), [](std::byte b) { return b != std::byte{0}; });
    const void* buffer = nullptr;
    left = more ? 0 : read_input(&buffer);
  }
  if (more) {
    throw Error(ErrorCode::kCorrupt, shown_path(name_) + ": bytes follow the end of the archive");
  }
}

// A zip may mark a name as UTF-8, which libarchive then converts, and here gives no name at all.
// The local header ends where the member's data begin, so it is found backwards from there.
std::string ArchiveReader::zip_name() const {
  const std::uint64_t end = data_position();
  for (std::size_t window = 1024;; window *= 16) {
    const std::size_t bytes =
        static_cast<std::size_t>(std::min<std::uint64_t>({window, kMaxZipHeaderBytes, end}));
    std::vector<std::byte> before(bytes);
    if (read_at(fd_, end - bytes, before, name_) == bytes && bytes >= kZipHeaderBytes) {
      for (std::size_t at = bytes - kZipHeaderBytes + 1; at-- > 0;) {
        const std::byte* header = before.data() + at;
        const std::size_t name_bytes = load<std::uint16_t>(header + 26);
        const std::size_t extra_bytes = load<std::uint16_t>(header + 28);
        if (load<std::uint32_t>(header) == 0x04034b50 &&
            at + kZipHeaderBytes + name_bytes + extra_bytes == bytes) {
          return std::string(as_text(ByteView(before).subspan(at + kZipHeaderBytes, name_bytes)));
        }
      }
    }
    if (bytes < window) {
      return {};
    }
  }
}

}  // namespace sml
