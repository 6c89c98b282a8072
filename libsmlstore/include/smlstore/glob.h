// Patterns over whole keys.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sml {

// A pattern that the whole key must match, bytewise:
//
//   ?        any byte but /
//   *        any number of bytes, none of them /
//   **/      zero or more directories; where it starts the pattern or follows a /
//   **       at the end, likewise: everything below; anywhere else the same as *
//   [a-z]    one byte of a set, never /; ] stands for itself as the first of the set, - as the
//   first or last
//   [!x]     one byte outside a set, and not /; [^x] too
//   \x       x itself, in a set too
//
// Dots are ordinary, and so is every other byte. Immutable; safe for threads.
class Glob {
 public:
  // Throws kInvalidArgument: an unclosed [, a range out of order, a lone backslash at the end.
  explicit Glob(std::string_view pattern);

  // Takes time linear in the pattern times the key at worst (no backtracking), and usually one step
  // per byte.
  bool matches(std::string_view key) const noexcept;

  // The one key that the pattern matches where it has no wildcards, else nothing.
  const std::string* literal() const noexcept {
    return shape_ == Shape::kLiteral ? &prefix_ : nullptr;
  }

 private:
  // What is between the literal bytes at both ends of the pattern. All but kMachine need no
  // machine.
  enum class Shape : std::uint8_t { kLiteral, kStar, kRest, kDirectories, kMachine, kNever };

  // One state of a nondeterministic machine that reads the key byte by byte. State i means: tokens
  // before i have matched.
  struct Token {
    enum class Kind : std::uint8_t {
      kBytes,  // consumes one byte of `bytes`
      kStar,   // consumes bytes but /, or nothing
      kRest,   // consumes anything up to the end
      kEnter,  // consumes nothing: before directories, which may be none
      kInside  // consumes anything, and leaves after a /
    };
    Kind kind = Kind::kBytes;
    bool single = false;  // kBytes of one byte, `byte`: a literal
    unsigned char byte = 0;
    std::array<std::uint64_t, 4> bytes{};  // bit b of 256: byte b is consumed
  };
  static std::vector<Token> parse(std::string_view pattern);
  void build_machine(const std::vector<Token>& tokens);
  bool run_machine(std::string_view key) const noexcept;
  template <class Words>
  bool run(std::string_view key, Words words, std::uint64_t* states,
           std::uint64_t* next) const noexcept;

  Shape shape_ = Shape::kLiteral;
  std::string prefix_;  // literal bytes at the start
  std::string suffix_;  // and at the end
  // The machine, bit-parallel: words_ words of 64 states each.
  std::size_t words_ = 0;
  std::size_t accept_ = 0;              // the last state
  std::vector<std::uint64_t> advance_;  // [byte][word]: states left for the next one by this byte
  std::vector<std::uint64_t>
      stay_;  // [2][word]: states that stay, by a byte that is not / and by a /
  std::vector<std::uint64_t> skip_one_;  // [word]: states that reach the next one without a byte
  std::vector<std::uint64_t>
      skip_two_;  // [word]: states that reach the one after it without a byte
};

}  // namespace sml
