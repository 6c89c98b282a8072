// Tar and zip archives as records. The archives are written by Python and by GNU tar.
#include <algorithm>
#include <clocale>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "smlstore/record_source.h"
#include "support/containers.h"
#include "support/errors.h"
#include "support/records.h"

using sml::Bytes;
using sml::ErrorCode;
using sml::list_archive;
using sml::SourceOptions;
using sml::stream_archive;
using sml::Symlinks;
using sml::test::check_error;
using sml::test::keys_of;
using sml::test::Problems;
using sml::test::Records;
using sml::test::records_of;
namespace fs = std::filesystem;

namespace {

constexpr const char* kPython = R"python(
import bz2, gzip, io, lzma, sys, tarfile, zipfile

def digits(n):
    return ''.join(map(str, range(n)))[:n].encode()

def member(name, content=b'', **fields):
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content

def tar(name, members, format=tarfile.GNU_FORMAT):
    with tarfile.open(name, 'w', format=format) as out:
        for info, content in members:
            out.addfile(info, io.BytesIO(content))

def read(name):
    with open(name, 'rb') as file:
        return file.read()

def write(name, content):
    with open(name, 'wb') as file:
        file.write(content)

LINK, SYMBOLIC, DIRECTORY, FIFO = tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE
STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
)python";

class Archives : public sml::test::TemporaryDirectory {
 public:
  void run(const std::string& command) const {
    REQUIRE(std::system(("cd '" + path() + "' && " + command).c_str()) == 0);
  }
  void python(const std::string& script) const {
    write("script.py", sml::as_bytes(kPython + script));
    run("/usr/bin/python3 script.py");
  }
  std::string content(const std::string& name) const {
    std::ifstream in(file(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
};

std::string digits(std::size_t bytes) {
  std::string text;
  for (int i = 0; text.size() < bytes; ++i) text += std::to_string(i);
  text.resize(bytes);
  return text;
}

// As from a pipe: the descriptor is read once.
Records streamed(const std::string& path, const SourceOptions& options = {}) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(fd >= 0);
  struct Close {
    int fd;
    ~Close() { ::close(fd); }
  } const close{fd};
  return records_of(*stream_archive(fd, path, options));
}

Records listed(const std::string& path, const SourceOptions& options = {}) {
  return records_of(*list_archive(path, options));
}

}  // namespace

TEST_CASE("members of tar archives of every format, listed and streamed") {
  const Archives archives;
  archives.python(R"(
long = 'long/' + 150 * 'n' + '/' + 150 * 'm'
for name, format in ('gnu.tar', tarfile.GNU_FORMAT), ('pax.tar', tarfile.PAX_FORMAT), ('ustar.tar', tarfile.USTAR_FORMAT):
    tar(name, [member('a', type=DIRECTORY), member('a/one', b'1'), member('empty'), member('block', digits(512)),
               member(long if format != tarfile.USTAR_FORMAT else 'long', digits(2000)), member('fifo', type=FIFO),
               member('link', type=SYMBOLIC, linkname='a/one'), member('large', digits(300000))], format)
for name, compress in ('gnu.tar.gz', gzip.compress), ('gnu.tar.bz2', bz2.compress), ('gnu.tar.xz', lzma.compress):
    write(name, compress(read('gnu.tar')))
)");
  for (const char* name :
       {"gnu.tar", "pax.tar", "ustar.tar", "gnu.tar.gz", "gnu.tar.bz2", "gnu.tar.xz"}) {
    CAPTURE(name);
    const bool ustar = std::string(name) == "ustar.tar";
    const std::string long_name = "long/" + std::string(150, 'n') + "/" + std::string(150, 'm');
    const Records expected = {{"a/one", "1"},
                              {"empty", ""},
                              {"block", digits(512)},
                              {ustar ? "long" : long_name, digits(2000)},
                              {"large", digits(300'000)}};
    const std::string path = archives.file(name);
    const auto list = list_archive(path, {});
    CHECK(records_of(*list) == expected);
    CHECK(list->origin(0) == path + ": a/one");
    CHECK(streamed(path) == expected);
    Bytes range(1000);
    list->read(4, 123'456, range);
    CHECK(sml::as_text(range) == digits(300'000).substr(123'456, 1000));
  }
}

TEST_CASE("names are the bytes that are in the archive, whatever the locale") {
  const Archives archives;
  // Not UTF-8; UTF-8; UTF-8 with a combining accent, which some would compose; a newline.
  archives.python(R"(
names = ['bad\udcff\udcfe', '\u00e9', 'e\u0301', 'new\nline']
for name, format in ('gnu.tar', tarfile.GNU_FORMAT), ('pax.tar', tarfile.PAX_FORMAT), ('ustar.tar', tarfile.USTAR_FORMAT):
    tar(name, [member(n, b'x') for n in names] + [member('to ' + n, type=LINK, linkname=n) for n in names], format)
# A GNU tar in pax format writes any bytes as if they were UTF-8, without saying that they are not.
write('x.zip', b'')
with zipfile.ZipFile('x.zip', 'w') as out:
    for n in 'AA', '\u00e9', 'e\u0301', 'BB\u00e9':
        out.writestr(n, 'x')
# AA without, BB with the flag that says UTF-8.
write('x.zip', read('x.zip').replace(b'AA', b'\xff\xfe').replace(b'BB', b'\xff\xfe'))
write('bad\udcff\udcfe', b'x')
)");
  archives.run("tar --format=pax -cf gnupax.tar bad*");
  const std::string before = std::setlocale(LC_ALL, nullptr);
  for (const char* locale : {"C", "C.UTF-8"}) {
    CAPTURE(locale);
    REQUIRE(std::setlocale(LC_ALL, locale) != nullptr);
    Records expected = {
        {"bad\xff\xfe", "x"}, {"\xc3\xa9", "x"}, {"e\xcc\x81", "x"}, {"new\nline", "x"}};
    for (std::size_t i = 0; i < 4; ++i) expected.emplace_back("to " + expected[i].first, "x");
    for (const char* name : {"gnu.tar", "pax.tar", "ustar.tar"}) {
      CAPTURE(name);
      CHECK(listed(archives.file(name)) == expected);
    }
    CHECK(listed(archives.file("gnupax.tar")) == Records{{"bad\xff\xfe", "x"}});
    const Records zip = {
        {"\xff\xfe", "x"}, {"\xc3\xa9", "x"}, {"e\xcc\x81", "x"}, {"\xff\xfe\xc3\xa9", "x"}};
    CHECK(listed(archives.file("x.zip")) == zip);
    CHECK(streamed(archives.file("x.zip")) == zip);
  }
  std::setlocale(LC_ALL, before.c_str());
}

TEST_CASE("members of a zip archive, stored and deflated") {
  const Archives archives;
  archives.python(R"(
with zipfile.ZipFile('x.zip', 'w') as out:
    out.writestr('dir/', b'')
    out.writestr('dir/stored', digits(1000), compress_type=STORED)
    out.writestr('deflated', digits(100000), compress_type=DEFLATED)
    out.writestr('empty', b'')
    link = zipfile.ZipInfo('link')
    link.create_system = 3
    link.external_attr = 0o120777 << 16
    out.writestr(link, 'deflated')
with zipfile.ZipFile('empty.zip', 'w') as out:
    pass
)");
  const Records expected = {
      {"dir/stored", digits(1000)}, {"deflated", digits(100'000)}, {"empty", ""}};
  CHECK(listed(archives.file("x.zip")) == expected);
  CHECK(streamed(archives.file("x.zip")) == expected);
  CHECK(listed(archives.file("empty.zip")).empty());
  CHECK(streamed(archives.file("empty.zip")).empty());
  SourceOptions options;
  options.symlinks = Symlinks::kError;
  check_error(ErrorCode::kInvalidArgument, "link: is a symbolic link",
              [&] { list_archive(archives.file("x.zip"), options); });
}

TEST_CASE("sparse members have their holes") {
  const Archives archives;
  archives.python(R"(
with open('sparse', 'wb') as out:
    out.truncate(1 << 20)
    out.seek(500000)
    out.write(b'middle')
with open('hole', 'wb') as out:
    out.truncate(100000)
with open('start', 'wb') as out:
    out.write(b'start')
    out.truncate(1 << 20)
write('after', b'after')
)");
  archives.run(
      "tar --format=gnu -cSf gnu.tar sparse hole start after && tar --format=pax -cSf pax10.tar "
      "sparse hole start after && "
      "tar --format=pax --sparse-version=0.0 -cSf pax00.tar sparse hole start after && "
      "tar --format=pax --sparse-version=0.1 -cSf pax01.tar sparse hole start after");
  std::string sparse(1U << 20, '\0');
  sparse.replace(500'000, 6, "middle");
  std::string start(1U << 20, '\0');
  start.replace(0, 5, "start");
  const Records expected = {{"sparse", sparse},
                            {"hole", std::string(100'000, '\0')},
                            {"start", start},
                            {"after", "after"}};
  for (const char* name : {"gnu.tar", "pax00.tar", "pax01.tar", "pax10.tar"}) {
    CAPTURE(name);
    // Compared as truth values: a failure would print megabytes.
    CHECK((listed(archives.file(name)) == expected));
    CHECK((streamed(archives.file(name)) == expected));
  }
}

TEST_CASE("hard links are copies of the last member before them with that name") {
  const Archives archives;
  archives.python(R"(
tar('x.tar', [member('./a', b'first'), member('l1', type=LINK, linkname='a'), member('a', b'second'),
              member('l2', type=LINK, linkname='./a'), member('l3', type=LINK, linkname='l1'),
              member('s', type=SYMBOLIC, linkname='a'), member('l4', type=LINK, linkname='s'),
              member('b', b'other')])
tar('bad.tar', [member('l', type=LINK, linkname='later'), member('later', b'x')])
)");
  CHECK(listed(archives.file("x.tar")) == Records{{"a", "first"},
                                                  {"l1", "first"},
                                                  {"a", "second"},
                                                  {"l2", "second"},
                                                  {"l3", "first"},
                                                  {"b", "other"}});
  Problems problems;
  CHECK(listed(archives.file("bad.tar"), problems.options()) == Records{{"later", "x"}});
  CHECK(problems.has(ErrorCode::kNotFound, "bad.tar: l: is a hard link to 'later'"));
  check_error(ErrorCode::kNotFound, "'later'", [&] { listed(archives.file("bad.tar")); });
  // A stream cannot go back.
  Problems stream_problems;
  CHECK(keys_of(streamed(archives.file("x.tar"), stream_problems.options())) ==
        std::vector<std::string>{"a", "a", "b"});
  CHECK(stream_problems.found.size() == 4);
  check_error(ErrorCode::kUnsupported, "l1: is a hard link to 'a'",
              [&] { streamed(archives.file("x.tar")); });
}

TEST_CASE("names are stripped, prefixed, and refused where they lead elsewhere") {
  const Archives archives;
  archives.python(R"(
tar('x.tar', [member('./a', b'1'), member('/b', b'2'), member('../c', b'3'), member('d/../e', b'4'),
              member('f//g', b'5'), member('.//./h', b'6'), member('i' * 4000, b'7'), member('..', b'8')])
)");
  SourceOptions options;
  Problems listed_problems;
  Problems streamed_problems;
  options = listed_problems.options();
  options.prefix = "p/";
  const Records expected = {
      {"p/a", "1"}, {"p/b", "2"}, {"p/h", "6"}, {"p/" + std::string(4000, 'i'), "7"}};
  CHECK(listed(archives.file("x.tar"), options) == expected);
  options.on_problem = streamed_problems.options().on_problem;
  CHECK(streamed(archives.file("x.tar"), options) == expected);
  for (const Problems* problems : {&listed_problems, &streamed_problems}) {
    CHECK(problems->found.size() == 4);
    CHECK(problems->has(ErrorCode::kInvalidArgument,
                        "../c: cannot be a key: it has the component '..'"));
    CHECK(problems->has(ErrorCode::kInvalidArgument, "d/../e"));
    CHECK(problems->has(ErrorCode::kInvalidArgument, "f//g"));
  }
  check_error(ErrorCode::kInvalidArgument, "../c", [&] { listed(archives.file("x.tar")); });
}

TEST_CASE("a tar that is cut anywhere before its end mark is an error") {
  const Archives archives;
  archives.python(R"(
tar('x.tar', [member('a', digits(700)), member('b' * 120, b'x'), member('c', b'')])
tar('pax.tar', [member('a', digits(700)), member('b' * 120, b'x'), member('c', b'')], tarfile.PAX_FORMAT)
)");
  for (const char* name : {"x.tar", "pax.tar"}) {
    const std::string whole = archives.content(name);
    // The archive has its end mark from the first block of zeros after the header of "c" on.
    const std::size_t last = whole.find_last_not_of('\0') / 512 * 512 + 512;
    const std::string path = archives.file("cut.tar");
    for (std::size_t n = 1; n < last + 512; n += n % 512 == 511 ? 1 : 37) {
      CAPTURE(n);
      archives.write("cut.tar", sml::as_bytes(whole.substr(0, n)));
      const auto list_error = sml::test::error_of([&] { listed(path); });
      const auto stream_error = sml::test::error_of([&] { streamed(path); });
      REQUIRE(list_error.has_value());
      REQUIRE(stream_error.has_value());
      CHECK(std::string(list_error->what()).find(path) == 0);
      CHECK(std::string(stream_error->what()).find(path) == 0);
    }
    archives.write("cut.tar", sml::as_bytes(whole.substr(0, last + 512)));
    CHECK(listed(path).size() == 3);
    CHECK(streamed(path).size() == 3);
  }
  archives.write("x.tar", sml::as_bytes(archives.content("x.tar").substr(0, 1024)));
  check_error(ErrorCode::kTruncated, "x.tar", [&] { listed(archives.file("x.tar")); });
}

TEST_CASE("cut and damaged compressed archives are errors") {
  const Archives archives;
  archives.python(R"(
tar('x.tar', [member('a', digits(70000)), member('b', b'x')])
write('x.gz', gzip.compress(read('x.tar')))
write('x.bz2', bz2.compress(read('x.tar')))
write('x.xz', lzma.compress(read('x.tar')))
with zipfile.ZipFile('x.zip', 'w', DEFLATED) as out:
    out.writestr('a', digits(70000))
    out.writestr('b', b'x')
)");
  for (const char* name : {"x.gz", "x.bz2", "x.xz", "x.zip"}) {
    const std::string whole = archives.content(name);
    REQUIRE(listed(archives.file(name)).size() == 2);
    for (std::size_t parts = 1; parts < 20; ++parts) {
      CAPTURE(name);
      CAPTURE(parts);
      archives.write("cut", sml::as_bytes(whole.substr(0, whole.size() * parts / 20)));
      CHECK(sml::test::error_of([&] { listed(archives.file("cut")); }).has_value());
      CHECK(sml::test::error_of([&] { streamed(archives.file("cut")); }).has_value());
    }
    archives.write("cut", sml::as_bytes(whole.substr(0, whole.size() - 1)));
    CHECK(sml::test::error_of([&] { listed(archives.file("cut")); }).has_value());
    if (std::string(name) != "x.zip") {
      archives.write("more", sml::as_bytes(whole + "garbage"));
      CHECK(sml::test::error_of([&] { listed(archives.file("more")); }).has_value());
      CHECK(sml::test::error_of([&] { streamed(archives.file("more")); }).has_value());
    }
  }
  // Damage in the data, which only a checksum can tell: the record is a problem, the other one is
  // given.
  std::string zip = archives.content("x.zip");
  zip[5000] = static_cast<char>(zip[5000] ^ 0x55);
  const std::string path = archives.write("damaged.zip", sml::as_bytes(zip));
  check_error(ErrorCode::kCorrupt, path + ": a", [&] { listed(path); });
  check_error(ErrorCode::kCorrupt, path + ": a", [&] { streamed(path); });
}

TEST_CASE("a zip member with a wrong checksum is a problem and the others are given") {
  const Archives archives;
  archives.python(R"(
with zipfile.ZipFile('x.zip', 'w', STORED) as out:
    out.writestr('a', 'content')
    out.writestr('b', 'other')
write('x.zip', read('x.zip').replace(b'content', b'c0ntent'))
)");
  Problems problems;
  CHECK(listed(archives.file("x.zip"), problems.options()) == Records{{"b", "other"}});
  CHECK(problems.found.size() == 1);
  CHECK(problems.has(ErrorCode::kCorrupt, "x.zip: a: "));
}

TEST_CASE("what follows the end mark of a tar is read or an error, never passed over") {
  const Archives archives;
  archives.python(R"(
tar('one.tar', [member('a', b'1')])
tar('two.tar', [member('b', b'2')])
write('both.tar', read('one.tar') + read('two.tar'))
write('garbage.tar', read('one.tar') + 1000 * b'garbage')
write('few.tar', read('one.tar') + b'few')
write('padded.tar', read('one.tar') + bytes(102400))
write('none.tar', bytes(10240))
tar('empty.tar', [])
)");
  const Records both = {{"a", "1"}, {"b", "2"}};
  CHECK(listed(archives.file("both.tar")) == both);
  CHECK(streamed(archives.file("both.tar")) == both);
  for (const char* name : {"garbage.tar", "few.tar"}) {
    CAPTURE(name);
    CHECK(sml::test::error_of([&] { listed(archives.file(name)); }).has_value());
    CHECK(sml::test::error_of([&] { streamed(archives.file(name)); }).has_value());
  }
  CHECK(listed(archives.file("padded.tar")).size() == 1);
  CHECK(streamed(archives.file("padded.tar")).size() == 1);
  for (const char* name : {"none.tar", "empty.tar"}) {
    CHECK(listed(archives.file(name)).empty());
    CHECK(streamed(archives.file(name)).empty());
  }
}

TEST_CASE("what is no archive is refused with a reason") {
  const Archives archives;
  archives.write("empty", {});
  archives.write("text", sml::as_bytes("this is no archive at all, but text that is long enough"));
  for (const char* name : {"empty", "text"}) {
    CAPTURE(name);
    check_error(ErrorCode::kInvalidArgument, archives.file(name),
                [&] { listed(archives.file(name)); });
    check_error(ErrorCode::kInvalidArgument, archives.file(name),
                [&] { streamed(archives.file(name)); });
  }
  check_error(ErrorCode::kInvalidArgument, "is empty", [&] { listed(archives.file("empty")); });
  check_error(ErrorCode::kInvalidArgument, "is empty", [&] { streamed(archives.file("empty")); });
  check_error(ErrorCode::kInvalidArgument, "neither a tar nor a zip",
              [&] { listed(archives.file("text")); });
  check_error(ErrorCode::kInvalidArgument, "is a directory", [&] { listed(archives.path()); });
  check_error(ErrorCode::kNotFound, "absent", [&] { listed(archives.file("absent")); });
}

TEST_CASE("what was not read of a streamed member is passed over") {
  const Archives archives;
  archives.python(
      "tar('x.tar', [member('a', digits(300000)), member('b', b'x'), member('c', b'y')])");
  const int fd = ::open(archives.file("x.tar").c_str(), O_RDONLY | O_CLOEXEC);
  const auto stream = stream_archive(fd, "-", {});
  sml::RecordStream::Record record;
  REQUIRE(stream->next(record));
  Bytes out(10);
  CHECK(stream->read(out) == 10);
  REQUIRE(stream->next(record));
  REQUIRE(stream->next(record));
  CHECK(record.key == "c");
  CHECK(record.origin == "-: c");
  CHECK(stream->read(out) == 1);
  CHECK_FALSE(stream->next(record));
  ::close(fd);
}

TEST_CASE("an archive that becomes shorter after listing is an error") {
  const Archives archives;
  archives.python("tar('x.tar', [member('a', digits(3000))])");
  const auto list = list_archive(archives.file("x.tar"), {});
  fs::resize_file(archives.file("x.tar"), 1000);
  check_error(ErrorCode::kIo, "x.tar: a", [&] { records_of(*list); });
}
