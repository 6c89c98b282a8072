#include "smlstore/verify.h"

#include <algorithm>
#include <memory>
#include <random>

#include <fmt/format.h>

#include "far_source.h"
#include "ordered_tasks.h"
#include "quote.h"
#include "smlformat/checksum.h"
#include "smlformat/key.h"
#include "verify_block.h"

namespace sml {
namespace {

[[noreturn]] void corrupt(const std::string& what) { throw Error(ErrorCode::kCorrupt, what); }

// The bytes as the store has them, not as they are kept on this machine.
class StoredBytes final : public ByteSource {
 public:
  explicit StoredBytes(const ContainerReader& reader)
      : source_(reader.source()), far_(far_source(reader)) {}

  std::uint64_t size() const override { return source_.size(); }
  void read(std::uint64_t offset, MutableBytes out) const override {
    far_ != nullptr ? far_->read_stored(offset, out) : source_.read(offset, out);
  }
  ByteView view(std::uint64_t offset, std::uint64_t bytes) const override {
    return far_ != nullptr ? ByteView() : source_.view(offset, bytes);
  }

 private:
  const ByteSource& source_;
  const FarSource* far_;
};

// What an object of a container must have as its checksum.
std::uint32_t expected_crc32c(const ContainerReader& reader, const FarSource& source,
                              std::uint64_t object) {
  const Index& index = reader.index();
  if (object > 0 && object <= index.blocks()) return index.block(object - 1).crc32c;
  const FarSource::Extent extent = source.object(object);
  Bytes bytes(extent.end - extent.begin);
  if (object == 0) {
    const auto header = reader.header().encode();
    std::copy(header.begin(), header.end(), bytes.begin());
    return crc32c(bytes);
  }
  // The footer was checked when it was opened; in front of it there are zeros.
  const std::uint64_t begin = std::max(extent.begin, reader.tail().footer_offset);
  source.read(begin, MutableBytes(bytes).subspan(begin - extent.begin));
  return crc32c(bytes);
}

// One object of a container, by what the store says of it.
BlockReport verify_object(const Dataset::Container& container, const FarSource& source,
                          std::uint64_t object, VerifyDepth depth) {
  BlockReport report;
  const ContainerReader& reader = *container.reader;
  const bool is_block = object > 0 && object <= reader.index().blocks();
  try {
    if (depth == VerifyDepth::kQuick) {
      source.check_presence(object);
    } else {
      const std::uint32_t expected = expected_crc32c(reader, source, object);
      if (const std::uint32_t stored = source.stored_crc32c(object); stored != expected)
        corrupt(fmt::format("checksum mismatch (expected {:08x}, the store computes {:08x})",
                            expected, stored));
    }
    if (is_block && starts_records(reader.index().block(object - 1).kind))
      report.records = reader.index().block(object - 1).slots;
  } catch (const Error& error) {
    report.findings.push_back(error.within(is_block      ? fmt::format("block {}", object - 1)
                                           : object == 0 ? "header"
                                                         : "footer"));
  }
  return report;
}

// What surrounds the blocks: header, paddings, footer, names.
BlockReport verify_frame(const ContainerReader& reader) {
  BlockReport report;
  const auto attempt = [&report](auto check) {
    try {
      check();
    } catch (const Error& error) {
      report.findings.push_back(error);
    }
  };
  const StoredBytes source(reader);
  const Index& index = reader.index();
  const Tail& tail = reader.tail();
  attempt([&] {
    std::byte header[Header::kBytes];
    source.read(0, header);
    if (Header::decode(header).encode() != reader.header().encode())
      corrupt("the header differs from its copy in the footer");
  });
  attempt([&] {
    const SourceBytes padding(source, Header::kBytes,
                              reader.header().header_bytes - Header::kBytes);
    if (!all_zero(*padding)) corrupt("padding behind the header is not zero");
  });
  attempt([&] {
    const std::uint64_t end = index.block_offset(index.blocks());
    const SourceBytes gap(source, end, tail.footer_offset - end);
    if (!all_zero(*gap)) corrupt("padding before the footer is not zero");
  });
  attempt([&] {
    const SourceBytes bytes(source, tail.footer_offset, tail.footer_bytes);
    const ByteView footer = *bytes;
    const std::uint32_t crc = crc32c(footer);
    const Hash128 id = xxh3_128(footer);
    if (crc != tail.footer_crc32c || id != tail.id) {
      corrupt(
          fmt::format("footer at offset {}: checksum mismatch (stored {:08x}, computed {:08x}; "
                      "XXH3 stored {}, computed {})",
                      tail.footer_offset, tail.footer_crc32c, crc, tail.id.hex(), id.hex()));
    }
    // The index has checked that the sections ascend and lie within the footer.
    std::uint64_t end =
        FooterHeader::kBytes + std::uint64_t{index.counts().sections} * SectionRow::kBytes;
    for (std::uint32_t i = 0; i <= index.counts().sections; ++i) {
      SectionRow row;
      row.offset = footer.size();
      if (i < index.counts().sections) {
        row = SectionRow::decode(footer.data() + FooterHeader::kBytes + i * SectionRow::kBytes);
      }
      if (!all_zero(footer.subspan(end, row.offset - end))) {
        corrupt(fmt::format("footer: padding at offset {} is not zero", tail.footer_offset + end));
      }
      end = row.offset + row.bytes;
    }
  });
  attempt([&] {
    std::string previous;
    std::uint64_t key_bytes = 0;
    for (Index::NameCursor at(index, 0); !at.done(); at.advance()) {
      if (at.rank() > 0 && compare_names(previous, at.key()) >= 0) {
        corrupt(fmt::format("names: {} does not come after {}", quote(at.key()), quote(previous)));
      }
      if (reader.header().grouping == Grouping::kStem && at.rank() > 0 &&
          index.starts_sample(at.rank()) != (key_stem(previous) != key_stem(at.key()))) {
        corrupt(
            fmt::format("names: the stem of {} contradicts the sample bounds", quote(at.key())));
      }
      const std::uint64_t number = index.number_of(at.rank());
      if (index.rank_of(number) != at.rank()) {
        corrupt(fmt::format("names: rank {} leads to number {}, which leads to rank {}", at.rank(),
                            number, index.rank_of(number)));
      }
      previous.assign(at.key());
      key_bytes += at.key().size();
    }
    if (key_bytes != index.counts().key_bytes) {
      corrupt(fmt::format("footer: {} bytes of keys, the names have {}", index.counts().key_bytes,
                          key_bytes));
    }
  });
  return report;
}

class Verifier {
 public:
  Verifier(const Dataset& dataset, const VerifyOptions& options)
      : dataset_(dataset),
        options_(options),
        workers_(threads(dataset, options)),
        tasks_(workers_) {
    for (const Dataset::Container& container : dataset.containers())
      total_bytes_ += container.reader->tail().container_bytes;
  }

  VerifyReport run() {
    for (const Dataset::Container& container : dataset_.containers()) start(container);
    while (!running_.empty()) take();
    check_unique();
    return report_;
  }

 private:
  // A task under way. The frame of a container is a task too, before those of its blocks.
  struct Running {
    const Dataset::Container* container;
    bool frame;
    std::uint64_t bytes;
  };
  struct Sums {
    bool complete = true;  // no block was left out
    std::uint64_t raw_bytes = 0;
    std::uint64_t stored_bytes = 0;
    std::uint64_t blocks_left = 0;
    bool sound = true;
  };

  // Reading from far away is mostly waiting.
  static unsigned threads(const Dataset& dataset, const VerifyOptions& options) {
    constexpr unsigned kThreadsThatWait = 16;
    const unsigned wanted = Workers::wanted(options.threads);
    const bool far =
        std::any_of(dataset.containers().begin(), dataset.containers().end(),
                    [](const auto& container) { return far_source(*container.reader) != nullptr; });
    return far ? std::max(wanted, kThreadsThatWait) : wanted;
  }

  void start(const Dataset::Container& container) {
    const std::shared_ptr<const ContainerReader> reader = container.reader;
    const Index& index = reader->index();
    const FarSource* const far = far_source(*reader);
    if (options_.depth == VerifyDepth::kChecksums && far == nullptr) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}: a container file has no store that could compute checksums",
                              container.path));
    }
    const std::uint64_t block_bytes = index.block_offset(index.blocks()) - index.block_offset(0);
    const std::uint64_t frame_bytes = reader->tail().container_bytes - block_bytes;
    if (options_.depth != VerifyDepth::kAll) return start_objects(container, far, frame_bytes);
    submit({&container, true, frame_bytes}, [reader] { return verify_frame(*reader); });
    const std::uint64_t always = draw_one(index);
    const auto dictionary = std::make_shared<const CheckedDictionary>(*reader);
    for (std::uint64_t block = 0; block < index.blocks(); ++block) {
      if (!is_sampled() && block != always) continue;
      submit(
          {&container, false, index.block_offset(block + 1) - index.block_offset(block)},
          [&container, dictionary, block] { return verify_block(container, *dictionary, block); });
    }
  }

  void start_objects(const Dataset::Container& container, const FarSource* far,
                     std::uint64_t frame_bytes) {
    const Index& index = container.reader->index();
    // Header and rest are one task. Of a file that was opened nothing else is to be known.
    submit({&container, true, frame_bytes}, [this, &container, far, &index] {
      BlockReport report;
      for (std::uint64_t object = 0; far != nullptr && object < far->objects(); ++object) {
        if (object > 0 && object <= index.blocks()) continue;
        BlockReport one = verify_object(container, *far, object, options_.depth);
        report.findings.insert(report.findings.end(), one.findings.begin(), one.findings.end());
      }
      return report;
    });
    const std::uint64_t always = draw_one(index);
    for (std::uint64_t block = 0; far != nullptr && block < index.blocks(); ++block) {
      if (options_.depth == VerifyDepth::kChecksums && !is_sampled() && block != always) continue;
      submit({&container, false, index.block_offset(block + 1) - index.block_offset(block)},
             [this, &container, far, block] {
               return verify_object(container, *far, block + 1, options_.depth);
             });
    }
  }

  // The block of a container that is in its sample in any case.
  std::uint64_t draw_one(const Index& index) {
    return std::uniform_int_distribution<std::uint64_t>(
        0, std::max<std::uint64_t>(index.blocks(), 1) - 1)(sampler_);
  }

  bool is_sampled() {
    if (options_.sample_percent >= 100) return true;
    return std::uniform_real_distribution<double>(0, 100)(sampler_) < options_.sample_percent;
  }

  template <class Task>
  void submit(const Running& running, Task task) {
    while (tasks_.size() >= 2 * std::size_t{workers_.threads()} + 2) take();
    check_stop();
    running_.push_back(running);
    tasks_.submit(std::move(task));
  }

  void take() {
    check_stop();
    const Running running = running_.front();
    running_.pop_front();
    const BlockReport block = tasks_.take();
    const Index& index = running.container->reader->index();
    if (running.frame) {
      ++report_.containers;
      sums_ = {};
      sums_.blocks_left = index.blocks();
      sums_.complete = options_.depth == VerifyDepth::kAll && options_.sample_percent >= 100;
    } else {
      ++report_.blocks;
      --sums_.blocks_left;
    }
    report_.records += block.records;
    report_.bytes += running.bytes;
    sums_.raw_bytes += block.raw_bytes;
    sums_.stored_bytes += block.stored_bytes;
    sums_.sound = sums_.sound && block.findings.empty();
    for (const Error& error : block.findings) damage(*running.container, error);
    if (sums_.blocks_left == 0 && sums_.complete && sums_.sound) check_sums(*running.container);
    if (options_.on_progress) options_.on_progress(report_.bytes, total_bytes_);
  }

  // A dictionary is counted in no sum. Sums of damaged containers would only repeat what is known.
  void check_sums(const Dataset::Container& container) {
    const FooterHeader& counts = container.reader->index().counts();
    const auto same = [&](const char* what, std::uint64_t in_footer, std::uint64_t in_blocks) {
      if (in_footer == in_blocks) return;
      damage(container,
             Error(ErrorCode::kCorrupt, fmt::format("footer: {} {} bytes, the records have {}",
                                                    in_footer, what, in_blocks)));
    };
    same("raw", counts.raw_bytes, sums_.raw_bytes);
    same("stored", counts.stored_bytes, sums_.stored_bytes);
  }

  void check_unique() {
    if (dataset_.containers().size() < 2) return;
    try {
      std::string previous;
      std::size_t holder = 0;
      std::uint64_t seen = 0;
      for (Dataset::NameCursor at(dataset_); !at.done(); at.advance()) {
        if (seen % 4096 == 0) check_stop();
        if (seen++ > 0 && at.key() == previous && at.container() != holder) {
          damage(Error(ErrorCode::kAmbiguous,
                       fmt::format("key {} is in containers {} and {}", quote(previous),
                                   quote(dataset_.containers()[holder].name),
                                   quote(dataset_.containers()[at.container()].name))));
        }
        previous.assign(at.key());
        holder = at.container();
      }
    } catch (const Error& error) {
      // Names that cannot be read have been found before, container by container.
      if (error.code() != ErrorCode::kCorrupt) throw;
    }
  }

  void check_stop() const {
    if (options_.stop.stop_requested()) throw Error(ErrorCode::kCancelled, "cancelled");
  }

  void damage(const Dataset::Container& container, const Error& error) {
    damage(error.within(fmt::format("container {}", quote(container.name))));
  }

  void damage(const Error& error) {
    // A store that does not answer says nothing of its data.
    if (error.code() == ErrorCode::kUnavailable) throw Error(error);
    ++report_.damaged;
    if (options_.on_damage) options_.on_damage(error);
  }

  const Dataset& dataset_;
  const VerifyOptions& options_;
  std::uint64_t total_bytes_ = 0;
  std::mt19937_64 sampler_{options_.sample_seed};
  VerifyReport report_;
  Sums sums_;  // of the container whose results are being taken
  std::deque<Running> running_;
  Workers workers_;
  OrderedTasks<BlockReport> tasks_;
};

}  // namespace

VerifyReport verify(const Dataset& dataset, const VerifyOptions& options) {
  return Verifier(dataset, options).run();
}

}  // namespace sml
