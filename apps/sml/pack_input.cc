#include "pack_input.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lists.h"

namespace sml {
namespace {

using Kind = PackInputOptions::Kind;

// Several lists, one behind the other.
class JoinedList final : public RecordList {
 public:
  explicit JoinedList(std::vector<std::unique_ptr<RecordList>> lists) : lists_(std::move(lists)) {
    for (const auto& list : lists_) ends_.push_back(size() + list->size());
  }

  std::uint64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  std::string_view key(std::uint64_t i) const override { return list(i).key(within(i)); }
  std::uint64_t bytes(std::uint64_t i) const override { return list(i).bytes(within(i)); }
  std::string origin(std::uint64_t i) const override { return list(i).origin(within(i)); }
  void read(std::uint64_t i, std::uint64_t offset, MutableBytes out) const override {
    list(i).read(within(i), offset, out);
  }

 private:
  std::size_t index(std::uint64_t i) const {
    return static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), i) -
                                    ends_.begin());
  }
  const RecordList& list(std::uint64_t i) const { return *lists_[index(i)]; }
  std::uint64_t within(std::uint64_t i) const {
    const std::size_t at = index(i);
    return at == 0 ? i : i - ends_[at - 1];
  }

  std::vector<std::unique_ptr<RecordList>> lists_;
  std::vector<std::uint64_t> ends_;
};

// Several streams, one behind the other; each is opened when the one before has ended.
class JoinedStream final : public RecordStream {
 public:
  JoinedStream(PackInputOptions input, SourceOptions options)
      : input_(std::move(input)), options_(std::move(options)) {}
  ~JoinedStream() override { close(); }

  bool next(Record& record) override {
    for (;;) {
      if (stream_ && stream_->next(record)) return true;
      close();
      if (opened_ == input_.sources.size()) return false;
      open(input_.sources[opened_++]);
    }
  }
  std::size_t read(MutableBytes out) override { return stream_->read(out); }

 private:
  void open(const std::string& source) {
    const bool standard = source == "-";
    const std::string name = standard ? "standard input" : source;
    int fd = STDIN_FILENO;
    if (!standard) {
      fd = fd_ = ::open(source.c_str(), O_RDONLY | O_CLOEXEC);
      if (fd < 0)
        throw Error(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                    name + ": " + std::strerror(errno));
    }
    stream_ = input_.kind == Kind::kArchive ? stream_archive(fd, name, options_)
                                            : stream_frames(fd, name, options_);
  }

  void close() {
    stream_.reset();
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

  PackInputOptions input_;
  SourceOptions options_;
  std::unique_ptr<RecordStream> stream_;
  int fd_ = -1;  // of a source that is not standard input
  std::size_t opened_ = 0;
};

std::unique_ptr<RecordList> list_files(const PackInputOptions& input,
                                       const SourceOptions& options) {
  if (!input.files_from) return list_walked(input.sources, options);
  ListInput paths(*input.files_from, input.nul);
  return list_paths(
      [&paths](std::string& path) {
        std::string_view line;
        if (!paths.next(line)) return false;
        path = line;
        return true;
      },
      options);
}

}  // namespace

bool PackInputOptions::from_standard_input() const {
  return files_from == "-" ||
         (kind != Kind::kFiles && std::find(sources.begin(), sources.end(), "-") != sources.end());
}

bool is_stream(const PackInputOptions& input) {
  if (input.kind == Kind::kFiles) return false;
  return std::any_of(input.sources.begin(), input.sources.end(), [](const std::string& source) {
    struct stat status {};
    // What does not exist is told of when it is opened.
    return source == "-" || (::stat(source.c_str(), &status) == 0 && !S_ISREG(status.st_mode));
  });
}

PackInput open_input(const PackInputOptions& input, const SourceOptions& options) {
  PackInput opened;
  if (input.kind == Kind::kFiles) {
    opened.list = list_files(input, options);
    return opened;
  }
  if (is_stream(input)) {
    opened.stream = std::make_unique<JoinedStream>(input, options);
    return opened;
  }
  std::vector<std::unique_ptr<RecordList>> lists;
  for (const std::string& source : input.sources) {
    lists.push_back(input.kind == Kind::kArchive ? list_archive(source, options)
                                                 : list_frames(source, options));
  }
  opened.list =
      lists.size() == 1 ? std::move(lists.front()) : std::make_unique<JoinedList>(std::move(lists));
  return opened;
}

}  // namespace sml
