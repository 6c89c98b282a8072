// A container file on a file system of another machine.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "index_cache.h"
#include "smlformat/bytes.h"
#include "smlformat/container_reader.h"
#include "smlstore/directory_store.h"

namespace sml {

// Read by position; view() gives the footer, which is kept on this machine and mapped by all
// processes.
class FarFile final : public ByteSource {
 public:
  FarFile(std::shared_ptr<const FileSource> file, std::uint64_t footer_offset,
          std::shared_ptr<const KeptFooter> footer)
      : file_(std::move(file)), footer_offset_(footer_offset), footer_(std::move(footer)) {}

  std::uint64_t size() const override { return file_->size(); }
  void read(std::uint64_t offset, MutableBytes out) const override { file_->read(offset, out); }
  ByteView view(std::uint64_t offset, std::uint64_t bytes) const override {
    if (offset < footer_offset_) return {};
    return footer_->bytes().subspan(offset - footer_offset_, bytes);
  }

 private:
  std::shared_ptr<const FileSource> file_;
  std::uint64_t footer_offset_;
  std::shared_ptr<const KeptFooter> footer_;
};

// The container in a file that is not mapped, its footer kept below a directory. Throws as
// ContainerReader does.
std::shared_ptr<const ContainerReader> open_far_file(const std::shared_ptr<const FileSource>& file,
                                                     const std::string& index_directory);

}  // namespace sml
