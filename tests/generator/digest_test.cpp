#include "kernelwright/generator/digest.h"

#include <gtest/gtest.h>

namespace kernelwright {
namespace {

TEST(Digest, MatchesTheStandardsExample) {  // FIPS 180-4, "abc"
  EXPECT_EQ(sha256("abc").hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Digest, TellsFieldsApartByTheirLengths) {
  EXPECT_NE(DigestBuilder().field("ab").field("c").finish(), DigestBuilder().field("a").field("bc").finish());
  EXPECT_EQ(DigestBuilder().field("ab").field("c").finish(), DigestBuilder().field("ab").field("c").finish());
}

}  // namespace
}  // namespace kernelwright
