#include <exception>
#include <memory>
#include <string>
#include <utility>

#include <archive.h>
#include <archive_entry.h>

#include "record_writer.h"

namespace sml {
namespace {

// As tar itself does: archives are whole records of 20 blocks.
constexpr std::uint64_t kTarRecordBytes = 10240;

class TarWriter final : public RecordWriter {
 public:
  explicit TarWriter(Output& out)
      : out_(out),
        archive_(archive_write_new(), archive_write_free),
        entry_(archive_entry_new(), archive_entry_free) {
    if (!archive_ || !entry_) throw std::bad_alloc();
    // Not pax: libarchive's pax writer fails on names that are not UTF-8 and depends on the locale.
    check(archive_write_set_format_gnutar(archive_.get()));
    // No blocks of libarchive's own: what we give it comes back as it is, without a copy. Output
    // makes large writes of it.
    check(archive_write_set_bytes_per_block(archive_.get(), 0));
    check(archive_write_open(archive_.get(), this, nullptr, &TarWriter::on_write, nullptr));
  }

  ~TarWriter() override { discarding_ = true; }

  std::optional<Error> write(const RecordPiece& piece) override {
    if (piece.offset == 0) {
      if (piece.key.ends_with('/')) {
        return Error(ErrorCode::kUnsupported,
                     "a key that ends in '/' would be a directory in a tar archive");
      }
      begin(piece);
    }
    piece_ = &piece;
    ByteView rest = piece.bytes;
    while (!rest.empty()) {
      const la_ssize_t written = archive_write_data(archive_.get(), rest.data(), rest.size());
      check(written > 0 ? ARCHIVE_OK : ARCHIVE_FATAL);
      rest = rest.subspan(static_cast<std::size_t>(written));
    }
    piece_ = nullptr;
    if (piece.last) check(archive_write_finish_entry(archive_.get()));
    return std::nullopt;
  }

  void fail(const RecordPiece& piece, const Error& error) override {
    // A header promises bytes that will not come: no reader may take this archive for a whole one.
    if (piece.offset > 0) throw error;
  }

  void release() override { out_.release(); }
  void flush() override { out_.flush(); }

  void finish() override {
    check(archive_write_close(archive_.get()));
    const std::uint64_t beyond = out_.bytes() % kTarRecordBytes;
    if (beyond > 0) out_.write(std::string(kTarRecordBytes - beyond, '\0'));
    out_.finish();
  }

 private:
  void begin(const RecordPiece& piece) {
    archive_entry_clear(entry_.get());
    key_ = piece.key;
    archive_entry_copy_pathname(entry_.get(), key_.c_str());
    archive_entry_set_filetype(entry_.get(), AE_IFREG);
    archive_entry_set_perm(entry_.get(), 0644);
    archive_entry_set_size(entry_.get(), static_cast<la_int64_t>(piece.record_bytes));
    archive_entry_set_mtime(entry_.get(), 0, 0);
    check(archive_write_header(archive_.get(), entry_.get()));
  }

  // Exceptions do not cross libarchive: they are kept, and thrown again by check(). To libarchive
  // every write succeeds: one that has seen a failure does not free all that it holds.
  static la_ssize_t on_write(archive* /*archive*/, void* self, const void* data,
                             std::size_t bytes) {
    auto& writer = *static_cast<TarWriter*>(self);
    if (writer.discarding_) return static_cast<la_ssize_t>(bytes);
    try {
      const ByteView view(static_cast<const std::byte*>(data), bytes);
      // All but the piece's own bytes is libarchive's.
      if (writer.piece_ != nullptr && writer.piece_->bytes.data() == data) {
        writer.out_.write_held(view, writer.piece_->immutable);
      } else {
        writer.out_.write(view);
      }
    } catch (...) {
      writer.failure_ = std::current_exception();
      writer.discarding_ = true;
    }
    return static_cast<la_ssize_t>(bytes);
  }

  void check(int status) {
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    if (status >= ARCHIVE_WARN) return;
    const char* why = archive_error_string(archive_.get());
    throw Error(ErrorCode::kIo,
                std::string("tar: ") + (why != nullptr ? why : "cannot be written"));
  }

  Output& out_;
  std::exception_ptr failure_;
  const RecordPiece* piece_ = nullptr;  // that is being written
  bool discarding_ = false;  // after a failure, and where the archive is left without its end mark
  std::string key_;
  std::unique_ptr<archive, int (*)(archive*)> archive_;
  std::unique_ptr<archive_entry, void (*)(archive_entry*)> entry_;
};

}  // namespace

std::unique_ptr<RecordWriter> make_tar_writer(Output& out) {
  return std::make_unique<TarWriter>(out);
}

}  // namespace sml
