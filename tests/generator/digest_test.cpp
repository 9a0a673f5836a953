#include "kernelwright/generator/digest.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace kernelwright {
namespace {

TEST(Digest, MatchesTheStandardsExample) {  // FIPS 180-4, "abc"
  EXPECT_EQ(sha256("abc").hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Digest, MatchesTheStandardsMillionLetters) {
  EXPECT_EQ(sha256(std::string(1000000, 'a')).hex(),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/// Bytes 3, 10, 17 and so on.
std::vector<std::byte> made_bytes(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(7 * i + 3);
  return bytes;
}

TEST(Digest, PadsEveryLengthAroundABlockOnBothPaths) {  // the digests are of another implementation
  const std::pair<std::size_t, const char*> cases[] = {
      {0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {1, "084fed08b978af4d7d196a7446a86b58009e636b611db16211b65a9aadff29c5"},
      {55, "e7313d333c272e639f790978283f9eb392e843d0f29b7016828bb1daa4aac70b"},
      {56, "4324d65f3c103567f5589c710bc08f8523f929a9272e3af36fc968e52abc6c27"},
      {63, "81c80242132f230c3bd41b3e63bbcff16107339549214a99614ff26664625055"},
      {64, "39e3d7b6b5d075d37d053ad89b24b41bef4f3c29760c84447cab3f3be1882241"},
      {65, "aacca6ff74fdbb296d165a45cecfa04e5127bc008770fbbdd48006f2d2fae95e"},
      {119, "9ce7368e4daf32341631b492e80359dc9f594b48453cd0dd5bf0b19279cc177e"},
      {120, "7836b787757e95e58b3ca5aec90b1b004e8deba1e50e9675af9cabf1a13a04b5"},
      {128, "d2742f1f4ac6bb7ca2b239ee18402ba8b3f9f8e652d2a72973c2b9ba11c08cf6"},
      {1000, "1e9bc38cbf860b9ec31918b065f9b52476c549a782e0e7990bed8ce3868d2371"},
  };
  for (const auto& [length, hex] : cases)
    for (const HashPath path : {HashPath::kFastest, HashPath::kPortable})
      EXPECT_EQ(sha256(made_bytes(length), path).hex(), hex) << length;
}

TEST(Digest, IsTheSameForBytesThatComeInPieces) {
  for (std::size_t first = 0; first < 200; first += 7) {
    const std::string text(first, 'x'), rest(300 - first, 'y');
    DigestBuilder portable(HashPath::kPortable);
    EXPECT_EQ(DigestBuilder().field(text).field(rest).finish(), portable.field(text).field(rest).finish()) << first;
  }
}

TEST(Digest, TellsFieldsApartByTheirLengths) {
  EXPECT_NE(DigestBuilder().field("ab").field("c").finish(), DigestBuilder().field("a").field("bc").finish());
  EXPECT_EQ(DigestBuilder().field("ab").field("c").finish(), DigestBuilder().field("ab").field("c").finish());
}

}  // namespace
}  // namespace kernelwright
