// An interrupted pack that is resumed: wherever it stopped, the bytes are those of one that was
// not.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "smlformat/container_reader.h"
#include "smlstore/directory_store.h"
#include "smlstore/packer.h"
#include "support/containers.h"
#include "support/errors.h"
#include "support/pack_input.h"

namespace {

using sml::Bytes;
using sml::ByteView;
using sml::ErrorCode;
using sml::FileSink;
using sml::MemorySource;
using sml::PackOptions;
using sml::test::check_error;
using sml::test::kSeed;
using sml::test::mixed_records;
using sml::test::Records;
using sml::test::TemporaryDirectory;
using sml::test::TestList;
using sml::test::TestStream;
namespace fs = std::filesystem;

PackOptions small_blocks() {
  PackOptions options;
  options.block_bytes = sml::kMinBlockBytes;
  return options;
}

struct Packed {
  Bytes bytes;
  sml::PackProgress progress;
};

// `input`: a list or a stream.
template <class Input>
Packed pack(Input&& input, PackOptions options, std::optional<ByteView> resume = {}) {
  std::optional<MemorySource> source;
  if (resume) options.resume = &source.emplace(*resume);
  Packed packed;
  options.on_progress = [&](const sml::PackProgress& at) { packed.progress = at; };
  sml::MemorySink sink;
  sml::pack(input, options, sink);
  packed.bytes = sink.bytes();
  return packed;
}

sml::ContainerReader reader_of(const Bytes& bytes) {
  return sml::ContainerReader(std::make_shared<MemorySource>(bytes));
}

// How many records from the first on lie wholly in the first `cut` bytes.
std::uint64_t whole_records(const sml::ContainerReader& reader, std::uint64_t cut) {
  const sml::Index& index = reader.index();
  std::uint64_t number = 0;
  for (; number < index.records(); ++number) {
    const sml::Place place = index.place(number);
    const std::uint64_t end = place.pieces == 1 ? place.offset + place.slot_bytes
                                                : index.block_offset(place.block + place.pieces);
    if (end > cut) break;
  }
  return number;
}

// Lengths at which a pack may have stopped: all places where something begins or ends, those
// beside them, and some others.
std::set<std::uint64_t> cut_points(const Bytes& bytes, std::mt19937& random) {
  const sml::ContainerReader reader = reader_of(bytes);
  std::set<std::uint64_t> cuts = {0, 1, 64, sml::Header::kBytes - 1, bytes.size() - 1};
  const auto around = [&cuts](std::uint64_t at) { cuts.insert({at - 1, at, at + 1}); };
  for (std::uint64_t block = 0; block <= reader.index().blocks(); ++block)
    around(reader.index().block_offset(block));
  around(reader.tail().footer_offset);
  cuts.insert(reader.tail().footer_offset + reader.tail().footer_bytes / 2);
  around(bytes.size() - sml::Tail::kBytes);
  for (int i = 0; i < 10; ++i) cuts.insert(random() % bytes.size());
  return cuts;
}

bool is_sanitized() {
  const char* const sanitizers = std::getenv("SML_SANITIZE");
  return sanitizers != nullptr && *sanitizers != '\0';
}

std::vector<PackOptions> matrix() {
  std::vector<PackOptions> all;
  for (const auto order :
       {sml::PackOrder::kRandom, sml::PackOrder::kName, sml::PackOrder::kInput}) {
    for (const auto grouping : {sml::Grouping::kNone, sml::Grouping::kStem}) {
      for (const auto mode :
           {sml::CompressionOptions::Mode::kNone, sml::CompressionOptions::Mode::kAuto}) {
        for (const std::uint32_t align : {1U, 512U}) {
          PackOptions options = small_blocks();
          options.order = order;
          options.grouping = grouping;
          options.compression.mode = mode;
          options.align = align;
          options.threads = 1 + static_cast<unsigned>(all.size() % 3);
          all.push_back(options);
        }
      }
    }
  }
  if (!is_sanitized()) return all;
  // Of all values of each option some: instrumented, all would take minutes.
  std::vector<PackOptions> some;
  for (std::size_t i = 0; i < all.size(); i += 5) some.push_back(all[i]);
  return some;
}

// Small records that a dictionary pays for.
Records annotations() {
  std::mt19937 random(kSeed);
  Records records;
  for (int i = 0; i < 4000; ++i) {
    records.emplace_back("r" + std::to_string(i),
                         "{\"width\": " + std::to_string(random() % 1000) +
                             ", \"height\": " + std::to_string(random() % 1000) +
                             ", \"class\": \"n" + std::to_string(random() % 1000) +
                             "\", \"source\": \"a synthetic corpus of annotations\"}");
  }
  return records;
}

// Keeps what was written before it was told to start anew.
class RestartedSink final : public sml::ByteSink {
 public:
  void append(ByteView bytes) override { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  void restart() override { before_ = std::exchange(bytes_, {}); }
  const Bytes& bytes() const { return bytes_; }
  const Bytes& before() const { return before_; }

 private:
  Bytes bytes_;
  Bytes before_;
};

std::string content_of(const std::string& path) {
  const sml::FileSource source(path);
  std::string content(source.size(), '\0');
  source.read(0, std::as_writable_bytes(std::span(content)));
  return content;
}

}  // namespace

TEST_CASE("a list is packed to the same bytes from wherever it stopped, and nothing twice") {
  const Records records = mixed_records(100);
  std::mt19937 random(kSeed);
  for (const PackOptions& options : matrix()) {
    CAPTURE(sml::pack_order_name(options.order));
    CAPTURE(sml::grouping_name(options.grouping));
    CAPTURE(options.align);
    const Bytes whole = pack(TestList(records), options).bytes;
    const sml::ContainerReader reader = reader_of(whole);
    for (const std::uint64_t cut : cut_points(whole, random)) {
      CAPTURE(cut);
      const TestList list(records);
      const Packed resumed = pack(list, options, ByteView(whole).first(cut));
      CHECK(resumed.bytes == whole);
      CHECK(resumed.progress.records == reader.index().records());
      CHECK(resumed.progress.resumed_records == whole_records(reader, cut));
      if (cut >= reader.index().block_offset(reader.index().blocks())) CHECK(list.reads == 0);
    }
  }
}

TEST_CASE("a dictionary is read back") {
  const Records records = annotations();
  std::mt19937 random(kSeed);
  PackOptions options = small_blocks();
  const Bytes whole = pack(TestList(records), options).bytes;
  PackOptions in_order = options;
  in_order.order = sml::PackOrder::kInput;
  const Bytes streamed = pack(TestStream(records, true), in_order).bytes;
  const sml::ContainerReader reader = reader_of(whole);
  REQUIRE(reader.dictionary() != nullptr);
  REQUIRE(reader_of(streamed).dictionary() != nullptr);
  for (const std::uint64_t cut : cut_points(whole, random)) {
    CAPTURE(cut);
    const TestList list(records);
    const Packed resumed = pack(list, options, ByteView(whole).first(cut));
    CHECK(resumed.bytes == whole);
    CHECK(resumed.progress.resumed_records == whole_records(reader, cut));
    if (cut >= reader.index().block_offset(1))
      CHECK(list.reads == records.size() - whole_records(reader, cut));
  }
  for (const std::uint64_t cut : cut_points(streamed, random)) {
    CAPTURE(cut);
    CHECK(pack(TestStream(records, true), in_order, ByteView(streamed).first(cut)).bytes ==
          streamed);
  }
}

TEST_CASE("a stream is packed to the same bytes from wherever it stopped") {
  const Records records = mixed_records(100);
  std::mt19937 random(kSeed);
  for (const bool sizes_known : {true, false}) {
    for (PackOptions options : matrix()) {
      if (options.order != sml::PackOrder::kInput) continue;
      CAPTURE(sml::grouping_name(options.grouping));
      CAPTURE(options.align);
      const Bytes whole = pack(TestStream(records, sizes_known), options).bytes;
      const sml::ContainerReader reader = reader_of(whole);
      for (const std::uint64_t cut : cut_points(whole, random)) {
        CAPTURE(cut);
        const Packed resumed =
            pack(TestStream(records, sizes_known), options, ByteView(whole).first(cut));
        CHECK(resumed.bytes == whole);
        CHECK(resumed.progress.resumed_records == whole_records(reader, cut));
      }
    }
  }
}

TEST_CASE("what is damaged is packed again") {
  const Records records = mixed_records(100);
  std::mt19937 random(kSeed);
  PackOptions options = small_blocks();
  options.grouping = sml::Grouping::kStem;
  PackOptions in_order = options;
  in_order.order = sml::PackOrder::kInput;
  const Bytes whole = pack(TestList(records), options).bytes;
  const Bytes streamed = pack(TestStream(records, true), in_order).bytes;
  const auto damaged = [&random](Bytes bytes, std::uint64_t from) {
    const std::uint64_t at = from + random() % (bytes.size() - from);
    bytes[at] ^= static_cast<std::byte>(1 + random() % 255);
    return bytes;
  };
  for (int i = 0; i < 100; ++i) {
    CAPTURE(i);
    // Every other time in front, where header, tables and dictionary are.
    const std::uint64_t from = i % 2 == 0 ? 0 : sml::Header::kBytes;
    Bytes part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(
                                                  i % 2 == 0 ? 600 : whole.size() * 3 / 4));
    CHECK(pack(TestList(records), options, damaged(part, from)).bytes == whole);
    part.assign(streamed.begin(), streamed.begin() + static_cast<std::ptrdiff_t>(
                                                         i % 2 == 0 ? 600 : streamed.size() / 2));
    CHECK(pack(TestStream(records, true), in_order, damaged(part, from)).bytes == streamed);
  }

  // A record that is hit costs itself alone.
  const sml::ContainerReader reader = reader_of(whole);
  std::uint64_t number = 0;
  while (reader.index().place(number).pieces != 1 || reader.index().raw_bytes(number) == 0)
    ++number;
  Bytes hit = whole;
  hit[reader.index().place(number).offset + sml::SlotPrefix::kBytes] ^= std::byte{1};
  const TestList list(records);
  const Packed resumed = pack(list, options, hit);
  CHECK(resumed.bytes == whole);
  CHECK(resumed.progress.resumed_records == records.size() - 1);
  CHECK(list.reads == 1);
}

TEST_CASE("other bytes in place of the container are of no use, and do no harm") {
  const Records records = mixed_records(30);
  const Bytes whole = pack(TestList(records), small_blocks()).bytes;
  std::mt19937 random(kSeed);
  Bytes noise(100'000);
  for (std::byte& byte : noise) byte = static_cast<std::byte>(random());
  CHECK(pack(TestList(records), small_blocks(), noise).bytes == whole);
  // Blocks of this container, but not at their place.
  const sml::ContainerReader reader = reader_of(whole);
  Bytes moved(whole.begin(),
              whole.begin() + static_cast<std::ptrdiff_t>(reader.index().block_offset(1)));
  moved.insert(moved.end(),
               whole.begin() + static_cast<std::ptrdiff_t>(reader.index().block_offset(2)),
               whole.end());
  CHECK(pack(TestList(records), small_blocks(), moved).bytes == whole);
}

TEST_CASE("other sources or options are refused") {
  const Records records = mixed_records(60);
  const PackOptions options = small_blocks();
  const Bytes whole = pack(TestList(records), options).bytes;
  const ByteView part = ByteView(whole).first(whole.size() / 2);
  const auto refused = [](const auto& call) {
    check_error(ErrorCode::kInvalidArgument, "not those of the interrupted pack", call);
  };
  Records changed = records;
  changed[7].first += "x";
  refused([&] { pack(TestList(changed), options, part); });
  changed = records;
  changed[7].second += "x";
  refused([&] { pack(TestList(changed), options, part); });
  changed = records;
  changed.pop_back();
  refused([&] { pack(TestList(changed), options, part); });

  std::vector<PackOptions> others(7, options);
  others[0].seed = 1;
  others[1].order = sml::PackOrder::kName;
  others[2].grouping = sml::Grouping::kStem;
  others[3].block_bytes *= 2;
  others[4].align = 8;
  others[5].part = 1;
  others[5].parts = 2;
  others[6].order = sml::PackOrder::kInput;
  std::set<std::uint32_t> recipes = {sml::pack_recipe(options)};
  for (const PackOptions& other : others) {
    refused([&] { pack(TestList(records), other, part); });
    recipes.insert(sml::pack_recipe(other));
  }
  // What the header does not tell, the recipe does.
  PackOptions other = options;
  other.compression.level = 4;
  recipes.insert(sml::pack_recipe(other));
  other.compression.mode = sml::CompressionOptions::Mode::kNone;
  recipes.insert(sml::pack_recipe(other));
  CHECK(recipes.size() == 10);
  CHECK_FALSE(recipes.contains(0));
  other = options;
  other.threads = 3;
  CHECK(sml::pack_recipe(other) == sml::pack_recipe(options));

  PackOptions in_order = options;
  in_order.order = sml::PackOrder::kInput;
  const Bytes streamed = pack(TestStream(records, true), in_order).bytes;
  changed = records;
  changed[0].second += "x";
  refused([&] { pack(TestStream(changed, true), in_order, streamed); });
}

TEST_CASE("a stream that goes on otherwise is packed as it is") {
  Records records = mixed_records(60);
  PackOptions options = small_blocks();
  options.order = sml::PackOrder::kInput;
  options.compression.mode = sml::CompressionOptions::Mode::kNone;  // the tag is of the beginning
  const Bytes before = pack(TestStream(records, true), options).bytes;
  records.back().second += "x";
  records.emplace_back("one more", "x");
  const Packed resumed = pack(TestStream(records, true), options, before);
  CHECK(resumed.bytes == pack(TestStream(records, true), options).bytes);
}

TEST_CASE("unreadable records are left out of a resumed pack as of any other") {
  const Records records = mixed_records(100);
  TestList list(records);
  list.unreadable = {records[3].first, records[100].first};
  const auto large = std::find_if(records.begin(), records.end(), [](const auto& record) {
    return record.second.size() > sml::kMinBlockBytes;
  });
  for (const bool one_in_pieces : {false, true}) {
    CAPTURE(one_in_pieces);
    if (one_in_pieces) list.unreadable.insert(large->first);
    PackOptions options = small_blocks();
    std::set<std::string> told;
    options.on_unreadable = [&told](const sml::Error& error) { told.insert(error.what()); };
    RestartedSink sink;
    sml::pack(list, options, sink);
    REQUIRE_FALSE(sink.before().empty());
    CHECK(told.size() == list.unreadable.size());
    // It was interrupted before it knew of them, or after.
    for (const Bytes& left : {sink.before(), sink.bytes()}) {
      for (const std::size_t cut : {left.size() / 3, left.size() - 1, left.size()}) {
        CAPTURE(cut);
        told.clear();
        CHECK(pack(list, options, ByteView(left).first(cut)).bytes == sink.bytes());
        CHECK(told.size() == list.unreadable.size());
      }
    }
    CHECK(sml::is_pack_of(list, options, reader_of(sink.bytes()).header()));
    const TestList readable(records);
    check_error(ErrorCode::kInvalidArgument, "not those of the interrupted pack",
                [&] { pack(readable, options, sink.bytes()); });
  }
}

TEST_CASE("a header tells whether a container is what would be packed") {
  const Records records = mixed_records(30);
  const sml::Header header = reader_of(pack(TestList(records), small_blocks()).bytes).header();
  CHECK(sml::is_pack_of(TestList(records), small_blocks(), header));
  PackOptions other = small_blocks();
  other.seed = 1;
  CHECK_FALSE(sml::is_pack_of(TestList(records), other, header));
  Records changed = records;
  changed[3].second += "x";
  CHECK_FALSE(sml::is_pack_of(TestList(changed), small_blocks(), header));
}

TEST_CASE("a file to be resumed stays, and is continued by the next sink of its recipe") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("new.sml");
  std::string left;
  {
    FileSink sink(path, false, 7, true);
    CHECK(sink.unpublished_bytes() == 0);
    CHECK_FALSE(sink.keeps());
    sink.append(sml::as_bytes("first"));
    sink.append(sml::as_bytes("secund"));
    left = sink.unpublished_path();
    FileSink::remove_unpublished();
    CHECK(sink.keeps());
  }
  CHECK(content_of(left) == "firstsecund");
  check_error(ErrorCode::kInvalidArgument, "not those of the interrupted pack",
              [&] { const FileSink sink(path, false, 8, true); });
  {
    const FileSink others(directory.file("ne.sml"), false, 8, true);  // of another name
    const FileSink fresh(path, false, 7, false);
    CHECK(fresh.unpublished_path() != left);
    check_error(ErrorCode::kUnavailable, "is being packed by another process",
                [&] { const FileSink sink(path, false, 7, true); });
  }
  {
    FileSink sink(path, false, 7, true);
    CHECK(sink.unpublished_path() == left);
    CHECK(sink.unpublished_bytes() == 11);
    // What lies there already is not written.
    const auto past = fs::file_time_type::clock::now() - std::chrono::hours(1);
    fs::last_write_time(left, past);
    sink.append(sml::as_bytes("first"));
    CHECK(fs::last_write_time(left) == past);
    sink.append(sml::as_bytes("sec"));
    sink.append(sml::as_bytes("ond"));
    CHECK(content_of(left) == "firstsecond");
    sink.append(sml::as_bytes("end"));
    sink.publish();
    CHECK_FALSE(sink.keeps());
  }
  CHECK(content_of(path) == "firstsecondend");
  CHECK_FALSE(fs::exists(left));
}

TEST_CASE("what lies behind the end is cut off, before the footer or at last") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("new.sml");
  for (const bool footer : {false, true}) {
    {
      FileSink sink(path, true, 7, true);
      sink.append(sml::as_bytes("a long text"));
    }
    FileSink sink(path, true, 7, true);
    sink.append(sml::as_bytes("a long"));
    if (footer) {
      sink.begin_footer();
      CHECK(content_of(sink.unpublished_path()) == "a long");
      sink.append(sml::as_bytes("er"));
    }
    sink.publish();
    CHECK(content_of(path) == (footer ? "a longer" : "a long"));
  }
}

TEST_CASE("of several files that were left the newest is continued") {
  const TemporaryDirectory directory;
  const std::string path = directory.file(std::string(250, 'n') + ".sml");  // its end is cut off
  std::vector<std::string> left;
  {
    // Side by side, so that none continues another.
    std::vector<std::unique_ptr<FileSink>> sinks;
    for (int i = 0; i < 3; ++i) {
      sinks.push_back(std::make_unique<FileSink>(path, false, 7, false));
      sinks.back()->append(sml::as_bytes("x"));
      left.push_back(sinks.back()->unpublished_path());
      fs::copy_file(left.back(), directory.file(std::to_string(i)));
    }
  }
  const auto now = fs::file_time_type::clock::now();
  for (int i = 0; i < 3; ++i) {
    fs::rename(directory.file(std::to_string(i)), left[i]);
    fs::last_write_time(left[i], now - std::chrono::hours(i == 1 ? 1 : 2));
  }
  const FileSink sink(path, false, 7, true);
  CHECK(sink.unpublished_path() == left[1]);
}

TEST_CASE("a pack continues in the file that an interrupted one left") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("new.sml");
  const Records records = mixed_records(100);
  std::mt19937 random(kSeed);
  PackOptions options = small_blocks();
  const Bytes whole = pack(TestList(records), options).bytes;
  const std::uint32_t recipe = sml::pack_recipe(options);
  for (const std::uint64_t cut : cut_points(whole, random)) {
    CAPTURE(cut);
    std::string left;
    Bytes part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(cut));
    if (cut > 1000) part[random() % cut] ^= std::byte{4};
    {
      FileSink sink(path, true, recipe, true);
      sink.append(part);
      left = sink.unpublished_path();
    }
    FileSink sink(path, true, recipe, true);
    CHECK((cut == 0 || sink.unpublished_path() == left));
    const sml::FileSource source(sink.unpublished_path(), sml::FileSource::Mapping::kNever);
    options.resume = &source;
    sml::pack(TestList(records), options, sink);
    sink.publish();
    CHECK(content_of(path) == sml::as_text(whole));
  }
  CHECK(std::distance(fs::directory_iterator(directory.path()), {}) == 1);
}
