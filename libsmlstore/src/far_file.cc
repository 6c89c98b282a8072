#include "far_file.h"

#include <array>

#include "smlformat/error.h"
#include "smlformat/layout.h"

namespace sml {
namespace {

// Where the footer starts, as far as the end of the file tells; 0 where that is no tail.
std::uint64_t footer_offset_of(const FileSource& file, Hash128& id) {
  if (file.size() < Header::kBytes + Tail::kBytes) return 0;
  std::array<std::byte, Tail::kBytes> bytes{};
  file.read(file.size() - Tail::kBytes, bytes);
  try {
    const Tail tail = Tail::decode(bytes);
    const bool fits = tail.footer_offset % kFooterAlign == 0 &&
                      tail.footer_offset >= Header::kBytes &&
                      tail.footer_offset <= file.size() - Tail::kBytes;
    id = tail.id;
    return fits ? tail.footer_offset : 0;
  } catch (const Error&) {  // told by who reads all of it
    return 0;
  }
}

}  // namespace

std::shared_ptr<const ContainerReader> open_far_file(const std::shared_ptr<const FileSource>& file,
                                                     const std::string& index_directory) {
  Hash128 id;
  const std::uint64_t footer = index_directory.empty() ? 0 : footer_offset_of(*file, id);
  // What is kept may be damaged: once more with what the file has.
  for (int tries = 0; footer != 0 && tries < 2; ++tries) {
    try {
      const auto kept = cached_footer(
          index_directory, id, file->size() - footer, [] {},
          [&](MutableBytes out) { file->read(footer, out); });
      return std::make_shared<const ContainerReader>(
          std::make_shared<const FarFile>(file, footer, kept));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kCorrupt && error.code() != ErrorCode::kTruncated) throw;
      discard_footer(index_directory, id);
    }
  }
  return std::make_shared<const ContainerReader>(file);
}

}  // namespace sml
