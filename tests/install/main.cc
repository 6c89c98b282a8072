// What a user of the installed libraries would write; returns 0 where both work.
#include <smlformat/checksum.h>
#include <smlstore/glob.h>

int main() {
  // The check value of CRC32C.
  const bool format_works = sml::crc32c(sml::as_bytes("123456789")) == 0xe3069283U;
  const bool store_works = sml::Glob("**/*.png").matches("a/b/c.png");
  return format_works && store_works ? 0 : 1;
}
