// How an input of the container targets becomes a container. Its first byte chooses:
//
//   0  the rest, as it is
//   1  the rest, with its checksums repaired
//   2  u32 size, as many bytes of header and blocks, and the rest is the footer: padding and tail
//      are added, and the checksums repaired. Small inputs are containers this way, and bytes may
//      come and go in the middle of them.
#pragma once

#include "fuzz.h"
#include "smlformat/layout.h"
#include "support/reseal.h"

namespace sml::fuzz {

struct ContainerInput {
  Bytes bytes;
  // Its checksums are its own: what can be opened is what a writer wrote.
  bool genuine = false;
};

inline ContainerInput make_container(Input input) {
  ContainerInput container;
  Bytes& bytes = container.bytes;
  const unsigned form = input.number<std::uint8_t>() % 3;
  if (form != 2) {
    bytes.assign(input.rest().begin(), input.rest().end());
    container.genuine = form == 0;
    if (form == 1) test::reseal_container(bytes);
    return container;
  }
  const ByteView front = input.take(input.number<std::uint32_t>());
  const ByteView footer = input.rest().first(input.rest().size() / kSectionAlign * kSectionAlign);
  bytes.assign(front.begin(), front.end());
  bytes.resize(round_up(front.size(), kFooterAlign));
  Tail tail;
  tail.footer_offset = bytes.size();
  bytes.insert(bytes.end(), footer.begin(), footer.end());
  const auto encoded = tail.encode();
  bytes.insert(bytes.end(), encoded.begin(), encoded.end());
  test::reseal_container(bytes);
  return container;
}

// What opening a container and asking its index may take. The footer is copied where it is not
// aligned; the dictionaries in it are kept as they are and digested: 5 times its bytes. The rest is
// independent of the input: zstd's contexts and tables (200 KiB), one name page decoded in each of
// a few buffers (128 KiB each), section rows (100 KiB), messages.
constexpr std::uint64_t kIndexMemoryPerByte = 6;
constexpr std::uint64_t kIndexMemory = 1U << 20;

// Once for every thread, and not the container's: made before anything is counted.
inline void warm_up() { Decoder::local(); }

}  // namespace sml::fuzz
