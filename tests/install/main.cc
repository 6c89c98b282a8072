// What a user of the installed libraries would write; returns 0 where both work.
#include <smlformat/checksum.h>

int main() {
  // The check value of CRC32C.
  return sml::crc32c(sml::as_bytes("123456789")) == 0xe3069283U ? 0 : 1;
}
