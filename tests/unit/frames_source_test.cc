// Framed record streams as records.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "smlformat/checksum.h"
#include "smlformat/frames.h"
#include "smlstore/record_source.h"
#include "support/containers.h"
#include "support/errors.h"
#include "support/records.h"

using sml::as_bytes;
using sml::Bytes;
using sml::ErrorCode;
using sml::Frame;
using sml::FrameType;
using sml::list_frames;
using sml::stream_frames;
using sml::test::check_error;
using sml::test::Problems;
using sml::test::Records;
using sml::test::records_of;
using sml::test::TemporaryDirectory;

namespace {

// Builds a stream frame by frame.
class Frames {
 public:
  Frames() { sml::put_frames_magic(bytes); }

  Frames& piece(const std::string& key, const std::string& payload, std::uint64_t record_bytes,
                bool continues) {
    Frame frame;
    frame.key = key;
    frame.continues = continues;
    frame.record_bytes = record_bytes;
    put(frame, payload);
    if (!continues) {
      ++records_;
      total_ += record_bytes;
    }
    return *this;
  }
  Frames& record(const std::string& key, const std::string& content) {
    return piece(key, content, content.size(), false);
  }
  Frames& in_pieces(const std::string& key, const std::string& content, std::size_t piece_bytes) {
    for (std::size_t at = 0; at < content.size(); at += piece_bytes) {
      piece(key, content.substr(at, piece_bytes), content.size(),
            at + piece_bytes < content.size());
    }
    return *this;
  }
  Frames& failed(const std::string& key, const std::string& message) {
    Frame frame;
    frame.type = FrameType::kFailed;
    frame.key = key;
    put(frame, message);
    return *this;
  }
  Frames& end() {
    Frame frame;
    frame.type = FrameType::kEnd;
    frame.number = records_;
    frame.record_bytes = total_;
    put(frame, "");
    return *this;
  }

  Bytes bytes;

 private:
  void put(Frame& frame, const std::string& payload) {
    frame.payload_bytes = static_cast<std::uint32_t>(payload.size());
    frame.payload_crc32c = sml::crc32c(as_bytes(payload));
    sml::put_frame_header(bytes, frame);
    const auto view = as_bytes(payload);
    bytes.insert(bytes.end(), view.begin(), view.end());
  }

  std::uint64_t records_ = 0;
  std::uint64_t total_ = 0;
};

std::string digits(std::size_t bytes) {
  std::string text;
  for (int i = 0; text.size() < bytes; ++i) text += std::to_string(i);
  text.resize(bytes);
  return text;
}

// The bytes through a pipe.
Records streamed(const Bytes& bytes, const sml::SourceOptions& options = {},
                 std::size_t piece_bytes = 7) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  std::jthread writer([&, fd = ends[1]] {
    for (std::size_t at = 0; at < bytes.size();) {
      const ssize_t put =
          ::write(fd, bytes.data() + at, std::min<std::size_t>(1000, bytes.size() - at));
      if (put <= 0) break;
      at += static_cast<std::size_t>(put);
    }
    ::close(fd);
  });
  struct Close {
    int fd;
    ~Close() {
      char rest[4096];  // so that the writer ends
      while (::read(fd, rest, sizeof rest) > 0) {
      }
      ::close(fd);
    }
  } const close{ends[0]};
  const auto stream = stream_frames(ends[0], "input", options);
  return records_of(*stream, piece_bytes);
}

}  // namespace

TEST_CASE("records of a framed stream, listed and streamed") {
  const TemporaryDirectory directory;
  const std::string large = digits(10'000);
  const Bytes bytes = Frames()
                          .record("b", "one")
                          .record("a/\xff\n", "")
                          .in_pieces("large", large, 999)
                          .in_pieces("large2", large, 10'000 / 2)
                          .record("b", "again")
                          .end()
                          .bytes;
  const Records expected = {
      {"b", "one"}, {"a/\xff\n", ""}, {"large", large}, {"large2", large}, {"b", "again"}};
  const std::string path = directory.write("frames", bytes);
  const auto list = list_frames(path, {});
  CHECK(records_of(*list) == expected);
  CHECK(list->origin(1) == path + ": a/\xff\\n");
  CHECK(streamed(bytes) == expected);
  // Any range of a record in pieces.
  for (const std::size_t offset : {0U, 1U, 998U, 999U, 1000U, 5000U, 9'990U, 10'000U}) {
    for (const std::size_t wanted : {0U, 1U, 2U, 1000U, 3000U}) {
      Bytes out(std::min<std::size_t>(wanted, large.size() - offset));
      for (const std::uint64_t i : {2U, 3U}) {
        list->read(i, offset, out);
        CHECK(sml::as_text(out) == large.substr(offset, out.size()));
      }
    }
  }
}

TEST_CASE("what was not read of a streamed record is passed over") {
  const TemporaryDirectory directory;
  const std::string path = directory.write("frames", Frames()
                                                         .in_pieces("large", digits(1000), 100)
                                                         .record("x", "content")
                                                         .record("y", "z")
                                                         .end()
                                                         .bytes);
  const int fd = ::open(path.c_str(), O_RDONLY);
  const auto stream = stream_frames(fd, path, {});
  sml::RecordStream::Record record;
  REQUIRE(stream->next(record));
  Bytes out(150);
  CHECK(stream->read(out) == 150);
  REQUIRE(stream->next(record));
  CHECK(record.key == "x");
  REQUIRE(stream->next(record));
  CHECK(record.key == "y");
  CHECK(record.origin == path + ": y");
  CHECK(stream->read(out) == 1);
  CHECK(stream->read(out) == 0);
  CHECK_FALSE(stream->next(record));
  CHECK_FALSE(stream->next(record));
  ::close(fd);
}

TEST_CASE("prefixes are put before keys, and unsafe keys are problems") {
  const TemporaryDirectory directory;
  const Bytes bytes = Frames()
                          .record("../x", "1")
                          .record("/y", "2")
                          .in_pieces("a//b", digits(100), 9)
                          .record("ok", "3")
                          .end()
                          .bytes;
  const std::string path = directory.write("frames", bytes);
  Problems listed_problems;
  Problems streamed_problems;
  auto options = listed_problems.options();
  options.prefix = "p/";
  CHECK(records_of(*list_frames(path, options)) == Records{{"p/ok", "3"}});
  options.on_problem = streamed_problems.options().on_problem;
  CHECK(streamed(bytes, options) == Records{{"p/ok", "3"}});
  for (const Problems* problems : {&listed_problems, &streamed_problems}) {
    CHECK(problems->found.size() == 3);
    CHECK(problems->has(ErrorCode::kInvalidArgument, "../x"));
    CHECK(problems->has(ErrorCode::kInvalidArgument, "/y"));
    CHECK(problems->has(ErrorCode::kInvalidArgument, "a//b"));
  }
  check_error(ErrorCode::kInvalidArgument, "../x", [&] { list_frames(path, {}); });
  check_error(ErrorCode::kInvalidArgument, "../x", [&] { streamed(bytes); });
}

TEST_CASE("what the sender could not give is a problem that names the key") {
  const TemporaryDirectory directory;
  const std::string large = digits(1000);
  const Bytes bytes = Frames()
                          .record("a", "1")
                          .failed("lost", "disk\non fire")
                          .piece("broken", large.substr(0, 500), 1000, true)
                          .failed("broken", "checksum mismatch")
                          .in_pieces("whole", large, 300)
                          .end()
                          .bytes;
  const std::string path = directory.write("frames", bytes);
  Problems problems;
  CHECK(records_of(*list_frames(path, problems.options())) ==
        Records{{"a", "1"}, {"whole", large}});
  CHECK(problems.found.size() == 2);
  CHECK(problems.has(ErrorCode::kIo, path + ": record 'lost': its sender failed: disk\\non fire"));
  CHECK(problems.has(ErrorCode::kIo, "record 'broken': its sender failed: checksum mismatch"));
  check_error(ErrorCode::kIo, "lost", [&] { list_frames(path, {}); });
  check_error(ErrorCode::kIo, "lost", [&] { streamed(bytes); });

  // In a stream the record has begun when it breaks: reading fails, and the next record can be had.
  const int fd = ::open(path.c_str(), O_RDONLY);
  const auto stream = stream_frames(fd, path, problems.options());
  sml::RecordStream::Record record;
  REQUIRE(stream->next(record));
  REQUIRE(stream->next(record));
  CHECK(record.key == "broken");
  Bytes out(1000);
  check_error(ErrorCode::kIo, "broken", [&] { stream->read(out); });
  REQUIRE(stream->next(record));
  CHECK(record.key == "whole");
  CHECK(stream->read(out) == 1000);
  CHECK_FALSE(stream->next(record));
  ::close(fd);
}

TEST_CASE("a stream that is cut anywhere is an error") {
  const TemporaryDirectory directory;
  const Bytes bytes = Frames().record("a", "1").in_pieces("b", digits(100), 40).end().bytes;
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    CAPTURE(n);
    const Bytes cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
    const std::string path = directory.write("cut", cut);
    check_error(ErrorCode::kTruncated, path, [&] { list_frames(path, {}); });
    check_error(ErrorCode::kTruncated, "input", [&] { streamed(cut); });
  }
}

TEST_CASE("damage, bytes after the end and other files are errors") {
  const TemporaryDirectory directory;
  const Bytes bytes = Frames().record("a", "content").end().bytes;
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    CAPTURE(n);
    Bytes damaged = bytes;
    damaged[n] ^= std::byte{0x10};
    const std::string path = directory.write("damaged", damaged);
    CHECK(sml::test::error_of([&] { list_frames(path, {}); }).has_value());
    CHECK(sml::test::error_of([&] { streamed(damaged); }).has_value());
  }
  Bytes more = bytes;
  more.push_back(std::byte{0});
  const std::string path = directory.write("more", more);
  check_error(ErrorCode::kCorrupt, path, [&] { list_frames(path, {}); });
  check_error(ErrorCode::kCorrupt, "input", [&] { streamed(more); });
  check_error(ErrorCode::kInvalidArgument, "is a directory",
              [&] { list_frames(directory.path(), {}); });
  check_error(ErrorCode::kNotFound, "absent", [&] { list_frames(directory.file("absent"), {}); });
}

TEST_CASE("a stream's file that changes after listing is noticed") {
  const TemporaryDirectory directory;
  Bytes bytes = Frames().record("a", "content").end().bytes;
  const std::string path = directory.write("frames", bytes);
  const auto list = list_frames(path, {});
  bytes[sml::kFramesMagicBytes + sml::kFrameHeaderBytes + 1] ^= std::byte{1};
  directory.write("frames", bytes);
  check_error(ErrorCode::kCorrupt, path + ": a: checksum mismatch", [&] { records_of(*list); });
  directory.write("frames", {});
  check_error(ErrorCode::kIo, path + ": a", [&] { records_of(*list); });
}
