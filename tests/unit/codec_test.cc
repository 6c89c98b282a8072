#include "smlformat/codec.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "smlformat/error.h"

namespace {

using sml::as_bytes;
using sml::as_text;
using sml::Bytes;
using sml::ByteView;
using sml::Codec;
using sml::CompressionOptions;
using sml::Decoder;
using sml::Dictionary;
using sml::Encoded;
using sml::Encoder;

std::string random_bytes(std::size_t size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string out(size, '\0');
  for (char& c : out) c = static_cast<char>(random() >> 56);
  return out;
}

// Words from a small vocabulary: as compressible as prose.
std::string words(std::size_t size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::mt19937_64 vocabulary(99);
  std::vector<std::string> all(500);
  for (auto& word : all) {
    for (std::size_t n = 2 + vocabulary() % 8; n > 0; --n)
      word += static_cast<char>('a' + vocabulary() % 26);
  }
  std::string out;
  while (out.size() < size) out += all[random() % all.size()] + (random() % 12 == 0 ? ".\n" : " ");
  out.resize(size);
  return out;
}

Encoder encoder(CompressionOptions::Mode mode,
                std::shared_ptr<const Dictionary> dictionary = nullptr, int level = 3) {
  CompressionOptions options;
  options.mode = mode;
  options.level = level;
  return Encoder(options, std::move(dictionary));
}

std::string decoded(Codec codec, ByteView stored, const Dictionary* dictionary, std::size_t size) {
  Bytes raw(size);
  Decoder::local().decode(codec, stored, dictionary, raw);
  return std::string(as_text(raw));
}

sml::ErrorCode code_of(Codec codec, ByteView stored, const Dictionary* dictionary,
                       std::size_t size) {
  try {
    decoded(codec, stored, dictionary, size);
  } catch (const sml::Error& e) {
    return e.code();
  }
  return sml::ErrorCode::kCancelled;
}

std::shared_ptr<const Dictionary> trained_dictionary(int level = 3) {
  std::string data;
  std::vector<std::size_t> sizes;
  for (std::uint64_t i = 0; i < 400; ++i) {
    data +=
        "{\"path\": \"train/images/" + std::to_string(i * 7919) + ".jpg\", " + words(700, i) + "}";
    sizes.push_back(data.size());
  }
  for (std::size_t i = sizes.size() - 1; i > 0; --i) sizes[i] -= sizes[i - 1];
  auto bytes = Dictionary::train(as_bytes(data), sizes, 16384);
  REQUIRE(bytes);
  CHECK(bytes->size() <= 16384);
  CHECK(*bytes == *Dictionary::train(as_bytes(data), sizes, 16384));
  return std::make_shared<const Dictionary>(std::move(*bytes), level);
}

constexpr auto kModes = {CompressionOptions::Mode::kNone, CompressionOptions::Mode::kAuto,
                         CompressionOptions::Mode::kZstd};

}  // namespace

TEST_CASE("random bytes look incompressible, at any size from 1 KiB") {
  for (const std::size_t size : {1024U, 1025U, 1500U, 4096U, 10'000U, 1'000'000U}) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      CAPTURE(size);
      CAPTURE(seed);
      CHECK(sml::looks_incompressible(as_bytes(random_bytes(size, seed))));
    }
  }
}

TEST_CASE("small inputs never look incompressible") {
  for (const std::size_t size : {0U, 1U, 100U, 511U}) {
    CHECK_FALSE(sml::looks_incompressible(as_bytes(random_bytes(size, 1))));
  }
}

TEST_CASE("what zstd gains from does not look incompressible") {
  for (const std::size_t size : {1024U, 5000U, 100'000U}) {
    CAPTURE(size);
    CHECK_FALSE(sml::looks_incompressible(as_bytes(words(size, 1))));
    CHECK_FALSE(sml::looks_incompressible(as_bytes(std::string(size, '\0'))));

    const std::string noise = random_bytes(size, 2);
    constexpr std::string_view kBase64 =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string base64;
    for (const char c : noise) base64 += kBase64[static_cast<unsigned char>(c) % 64];
    CHECK_FALSE(sml::looks_incompressible(as_bytes(base64)));

    // A 440 Hz tone with noise at 44.1 kHz, 16 bits; floating-point numbers; counters.
    std::mt19937_64 random(3);
    std::string sound;
    std::string numbers;
    std::string counters;
    for (std::size_t i = 0; i < size / 4; ++i) {
      const double noise_here = static_cast<double>(random() % 2001) - 1000;
      const auto sample =
          static_cast<std::int16_t>(8000 * std::sin(static_cast<double>(i) * 0.0627) + noise_here);
      sound.append(reinterpret_cast<const char*>(&sample), 2);
      sound.append(reinterpret_cast<const char*>(&sample), 2);
      const auto number = static_cast<float>(noise_here / 1000);
      numbers.append(reinterpret_cast<const char*>(&number), 4);
      const auto counter = static_cast<std::uint32_t>(i * 97);
      counters.append(reinterpret_cast<const char*>(&counter), 4);
    }
    CHECK_FALSE(sml::looks_incompressible(as_bytes(sound)));
    CHECK_FALSE(sml::looks_incompressible(as_bytes(numbers)));
    CHECK_FALSE(sml::looks_incompressible(as_bytes(counters)));
  }
}

TEST_CASE("a body that is compressible in one quarter does not look incompressible") {
  const std::string noise = random_bytes(30'000, 4);
  CHECK_FALSE(sml::looks_incompressible(as_bytes(noise + words(10'000, 4))));
  CHECK_FALSE(sml::looks_incompressible(as_bytes(words(10'000, 4) + noise)));
}

TEST_CASE("a header does not hide what follows it") {
  CHECK(sml::looks_incompressible(as_bytes(words(300, 5) + random_bytes(100'000, 5))));
}

TEST_CASE("what was encoded decodes to itself, in every mode and at every size") {
  for (const auto mode : kModes) {
    Encoder e = encoder(mode);
    for (const std::size_t size : {0U, 1U, 63U, 64U, 65U, 1000U, 131'072U, 200'000U, 5'000'000U}) {
      CAPTURE(size);
      for (const std::string& raw :
           {words(size, 6), random_bytes(size, 6), std::string(size, 'x')}) {
        const Encoded out = e.encode(as_bytes(raw));
        CHECK(out.stored.size() <= raw.size());
        CHECK((out.codec == Codec::kStored) == (out.stored.size() == raw.size()));
        CHECK(decoded(out.codec, out.stored, nullptr, raw.size()) == raw);
      }
    }
  }
}

TEST_CASE("modes choose between stored and zstd") {
  Encoder none = encoder(CompressionOptions::Mode::kNone);
  Encoder automatic = encoder(CompressionOptions::Mode::kAuto);
  Encoder always = encoder(CompressionOptions::Mode::kZstd);
  const std::string text = words(10'000, 7);
  const std::string noise = random_bytes(10'000, 7);
  const std::string little(60, 'x');
  CHECK(none.encode(as_bytes(text)).codec == Codec::kStored);
  CHECK(automatic.encode(as_bytes(text)).codec == Codec::kZstd);
  CHECK(always.encode(as_bytes(text)).codec == Codec::kZstd);
  CHECK(automatic.encode(as_bytes(noise)).codec == Codec::kStored);
  CHECK(always.encode(as_bytes(noise)).codec == Codec::kStored);
  CHECK(automatic.encode(as_bytes(little)).codec == Codec::kStored);
  CHECK(always.encode(as_bytes(little)).codec == Codec::kZstd);
  // A gain of 2 % pays only where zstd was asked for.
  const std::string nearly = random_bytes(9'000, 8) + std::string(200, 'x') + random_bytes(800, 9);
  CHECK(automatic.encode(as_bytes(nearly)).codec == Codec::kStored);
  CHECK(always.encode(as_bytes(nearly)).codec == Codec::kZstd);
}

TEST_CASE("stored records are the input itself") {
  Encoder e = encoder(CompressionOptions::Mode::kNone);
  const std::string raw = words(100, 9);
  CHECK(e.encode(as_bytes(raw)).stored.data() == as_bytes(raw).data());
}

TEST_CASE("frames carry their size, and neither a checksum nor a dictionary's number") {
  // Zstandard frame header (RFC 8878): magic, then a descriptor whose bits 0-1 (dictionary) and 2
  // (checksum) are 0. Bit 5 (single segment) with size flag 1 has the size - 256 in 2 bytes.
  const std::shared_ptr<const Dictionary> dictionary = trained_dictionary();
  const std::string raw = words(1000, 10);
  for (const auto& d : {std::shared_ptr<const Dictionary>(), dictionary}) {
    Encoder e = encoder(CompressionOptions::Mode::kZstd, d);
    const ByteView frame = e.encode(as_bytes(raw)).stored;
    CHECK(sml::load<std::uint32_t>(frame.data()) == 0xfd2fb528);
    CHECK(frame[4] == std::byte{0x60});
    CHECK(sml::load<std::uint16_t>(frame.data() + 5) == 1000 - 256);
  }
}

TEST_CASE("an encoder's result depends on its input alone, not on what it encoded before") {
  const std::shared_ptr<const Dictionary> dictionary = trained_dictionary();
  for (const auto& d : {std::shared_ptr<const Dictionary>(), dictionary}) {
    Encoder used = encoder(CompressionOptions::Mode::kAuto, d);
    for (std::uint64_t i = 0; i < 50; ++i) {
      const std::string raw = words(10 + i * i * 40, i);
      Encoder fresh = encoder(CompressionOptions::Mode::kAuto, d);
      const Encoded a = used.encode(as_bytes(raw));
      const Encoded b = fresh.encode(as_bytes(raw));
      CHECK(a.codec == b.codec);
      CHECK(as_text(a.stored) == as_text(b.stored));
    }
  }
}

TEST_CASE("a trained dictionary makes small records smaller") {
  const std::shared_ptr<const Dictionary> dictionary = trained_dictionary();
  Encoder with = encoder(CompressionOptions::Mode::kAuto, dictionary);
  Encoder without = encoder(CompressionOptions::Mode::kAuto);
  std::size_t bytes_with = 0;
  std::size_t bytes_without = 0;
  for (std::uint64_t i = 0; i < 50; ++i) {
    const std::string raw = words(500, 1000 + i);
    const Encoded out = with.encode(as_bytes(raw));
    CHECK(out.codec == Codec::kZstdDictionary);
    CHECK(decoded(out.codec, out.stored, dictionary.get(), raw.size()) == raw);
    bytes_with += out.stored.size();
    bytes_without += without.encode(as_bytes(raw)).stored.size();
  }
  CHECK(bytes_with < bytes_without * 3 / 4);
  // Records that are too small without one.
  CHECK(with.encode(as_bytes(std::string_view("{\"path\": \"train/images/"))).codec ==
        Codec::kZstdDictionary);
}

TEST_CASE("a dictionary opened for decoding decodes what any level encoded") {
  for (const int level : {1, 3, 19}) {
    const std::shared_ptr<const Dictionary> dictionary = trained_dictionary(level);
    const Dictionary decoding(Bytes(dictionary->bytes().begin(), dictionary->bytes().end()), 0);
    Encoder e = encoder(CompressionOptions::Mode::kZstd, dictionary, level);
    const std::string raw = words(3000, 11);
    const Encoded out = e.encode(as_bytes(raw));
    CHECK(decoded(out.codec, out.stored, &decoding, raw.size()) == raw);
  }
}

TEST_CASE("there is no dictionary where there is little to learn from") {
  CHECK_FALSE(Dictionary::train({}, {}, 16384));
  const std::string one = words(100'000, 12);
  CHECK_FALSE(Dictionary::train(as_bytes(one), {one.size()}, 16384));
  const std::string few = words(1000, 12);
  CHECK_FALSE(Dictionary::train(as_bytes(few), std::vector<std::size_t>(100, 10), 16384));
}

TEST_CASE("dictionaries that zstd does not take, or that are too large, are refused") {
  const std::shared_ptr<const Dictionary> dictionary = trained_dictionary();
  Bytes damaged(dictionary->bytes().begin(),
                dictionary->bytes().begin() + 40);  // its magic, and half of its tables
  for (const int level : {0, 3}) {
    try {
      const Dictionary refused(damaged, level);
      FAIL("accepted");
    } catch (const sml::Error& e) {
      CHECK(e.code() == sml::ErrorCode::kCorrupt);
    }
  }
  try {
    const Dictionary refused(Bytes(sml::kMaxDictionaryBytes + 1), 0);
    FAIL("accepted");
  } catch (const sml::Error& e) {
    CHECK(e.code() == sml::ErrorCode::kLimit);
  }
}

TEST_CASE("decoding gives exactly the record's size, or an error") {
  using enum sml::ErrorCode;
  Encoder e = encoder(CompressionOptions::Mode::kZstd);
  const std::string raw = words(2000, 13);
  const ByteView view = e.encode(as_bytes(raw)).stored;
  const Bytes frame(view.begin(), view.end());
  CHECK(code_of(Codec::kZstd, frame, nullptr, 1999) == kCorrupt);
  CHECK(code_of(Codec::kZstd, frame, nullptr, 2001) == kCorrupt);
  CHECK(code_of(Codec::kZstd, frame, nullptr, 0) == kCorrupt);
  CHECK(code_of(Codec::kStored, as_bytes("abc"), nullptr, 4) == kCorrupt);
  CHECK(code_of(Codec::kZstd, {}, nullptr, 0) == kCorrupt);
  for (std::size_t size = 0; size < frame.size(); ++size) {
    CHECK(code_of(Codec::kZstd, ByteView(frame).first(size), nullptr, 2000) == kCorrupt);
  }
  // Two frames; a frame and a frame to be skipped (magic 184d2a50, no bytes).
  Bytes two = frame;
  two.insert(two.end(), frame.begin(), frame.end());
  CHECK(code_of(Codec::kZstd, two, nullptr, 4000) == kCorrupt);
  Bytes skipped = frame;
  for (const int b : {0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0})
    skipped.push_back(static_cast<std::byte>(b));
  CHECK(code_of(Codec::kZstd, skipped, nullptr, 2000) == kCorrupt);
}

TEST_CASE("frames with a checksum are refused: whoever writes one does not write this format") {
  // "hello" as one raw block; with zstd's own checksum, the low 32 bits of XXH64, behind it.
  const auto bytes = [](std::initializer_list<int> values) {
    Bytes out;
    for (const int value : values) out.push_back(static_cast<std::byte>(value));
    return out;
  };
  const Bytes plain = bytes({0x28, 0xb5, 0x2f, 0xfd, 0x20, 5, 0x29, 0, 0, 'h', 'e', 'l', 'l', 'o'});
  CHECK(decoded(Codec::kZstd, plain, nullptr, 5) == "hello");
  Bytes with_checksum = plain;
  with_checksum[4] = std::byte{0x24};
  for (const int byte : {0x0f, 0x86, 0xf4, 0xa3})
    with_checksum.push_back(static_cast<std::byte>(byte));
  CHECK(code_of(Codec::kZstd, with_checksum, nullptr, 5) == sml::ErrorCode::kCorrupt);
  // A dictionary id of 0 in one byte.
  Bytes with_id = plain;
  with_id[4] = std::byte{0x21};
  with_id.insert(with_id.begin() + 5, std::byte{0});
  CHECK(code_of(Codec::kZstd, with_id, nullptr, 5) == sml::ErrorCode::kCorrupt);
}

TEST_CASE("unknown codecs and missing dictionaries are told") {
  CHECK(code_of(static_cast<Codec>(3), as_bytes("abc"), nullptr, 3) == sml::ErrorCode::kCorrupt);
  CHECK(code_of(Codec::kZstdDictionary, as_bytes("abc"), nullptr, 3) == sml::ErrorCode::kCorrupt);
  // A frame that was made with a dictionary does not decode to its record without.
  const std::shared_ptr<const Dictionary> dictionary = trained_dictionary();
  Encoder e = encoder(CompressionOptions::Mode::kZstd, dictionary);
  const std::string raw = words(500, 14);
  const Encoded out = e.encode(as_bytes(raw));
  REQUIRE(out.codec == Codec::kZstdDictionary);
  CHECK(code_of(Codec::kZstd, out.stored, nullptr, raw.size()) == sml::ErrorCode::kCorrupt);
}

TEST_CASE("damaged frames give an error or the record's size in bytes, never more") {
  Encoder e = encoder(CompressionOptions::Mode::kZstd);
  const std::string raw = words(800, 15);
  const ByteView view = e.encode(as_bytes(raw)).stored;
  const Bytes frame(view.begin(), view.end());
  for (std::size_t at = 0; at < frame.size() * 8; ++at) {
    Bytes bad = frame;
    bad[at / 8] ^= std::byte{1} << (at % 8);
    const sml::ErrorCode code = code_of(Codec::kZstd, bad, nullptr, raw.size());
    CHECK((code == sml::ErrorCode::kCorrupt || code == sml::ErrorCode::kCancelled));
  }
}

TEST_CASE("one dictionary serves many threads") {
  const std::shared_ptr<const Dictionary> dictionary = trained_dictionary();
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (std::size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      Encoder e = encoder(CompressionOptions::Mode::kAuto, dictionary);
      for (std::uint64_t i = 0; i < 100; ++i) {
        const std::string raw = words(400, i);
        const Encoded out = e.encode(as_bytes(raw));
        if (decoded(out.codec, out.stored, dictionary.get(), raw.size()) != raw) ++wrong[t];
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4, 0));
}
