// Records to where they are wanted: one after another, as a tar archive, as frames, as files.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "output.h"
#include "smlformat/error.h"
#include "smlstore/reader.h"

namespace sml {

// For one thread. Throws Error where the output fails as a whole (disk full), ClosedPipe where its
// reader has left.
class RecordWriter {
 public:
  virtual ~RecordWriter() = default;
  // Pieces of a record come in a row and without piece.error, and stay until release(). Gives an
  // error where this record cannot be written (its key has no place in this output); its further
  // pieces are not to be given then.
  virtual std::optional<Error> write(const RecordPiece& piece) = 0;
  // A record that cannot be given after all: what was begun of it is taken back or marked, as far
  // as the output allows.
  virtual void fail(const RecordPiece& piece, const Error& error) = 0;
  // Pieces that were given are not used any more.
  virtual void release() = 0;
  // All that was written is on its way: called before waiting for more keys.
  virtual void flush() = 0;
  // Ends the output. Without it the output is incomplete, and whoever reads it can tell (but for
  // raw).
  virtual void finish() = 0;
};

// Bytes of the records, nothing between them.
std::unique_ptr<RecordWriter> make_raw_writer(Output& out);
// A GNU tar archive: mode 0644, owner 0, time 0; nothing in it depends on the machine or the time.
std::unique_ptr<RecordWriter> make_tar_writer(Output& out);
// A framed record stream (format-spec/frames.md).
std::unique_ptr<RecordWriter> make_frames_writer(Output& out);
// Files below `directory`, which is made if need be; never outside, not through symbolic links
// either. Each file appears whole. An existing file is an error of that record unless `overwrite`.
std::unique_ptr<RecordWriter> make_directory_writer(const std::string& directory, bool overwrite);

}  // namespace sml
