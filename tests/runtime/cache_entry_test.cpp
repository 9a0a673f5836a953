#include "kernelwright/runtime/cache_entry.h"

#include <gmock/gmock.h>

#include <chrono>
#include <cstring>
#include <random>

#include "runtime/cache_testing.h"

namespace kernelwright {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing::test_binary;
using testing::test_key;
using Bytes = std::vector<std::byte>;

void seal(Bytes& entry) {  // makes the checksum right again
  const Digest sum = sha256(std::span(entry).first(entry.size() - 32));
  std::memcpy(entry.data() + entry.size() - 32, sum.bytes.data(), 32);
}

std::size_t offset_of(const Bytes& entry, std::string_view name) {
  const std::string_view text(reinterpret_cast<const char*>(entry.data()), entry.size());
  return text.find(name);
}

TEST(CacheEntry, KeepsEveryFieldOfKeyAndBinary) {
  const DecodeResult result = decode_entry(encode_entry(test_key(), test_binary()));
  ASSERT_TRUE(result.entry) << result.reason;
  EXPECT_EQ(result.entry->key, test_key());
  EXPECT_EQ(result.entry->binary, test_binary());
}

TEST(CacheEntry, KeepsEmptyAndExtremeValues) {
  CacheKey key;
  key.abi = -2147483647 - 1;
  key.options = {"", std::string("a\0b", 3), ""};
  Binary binary;
  binary.usage.registers = 2147483647;
  binary.compile_ms = -0.0;
  const DecodeResult result = decode_entry(encode_entry(key, binary));
  ASSERT_TRUE(result.entry) << result.reason;
  EXPECT_EQ(result.entry->key, key);
  EXPECT_EQ(result.entry->binary, binary);
  EXPECT_TRUE(std::signbit(result.entry->binary.compile_ms));
}

TEST(CacheEntry, TwoWritingsOfOneKeyAreByteIdentical) {
  EXPECT_EQ(encode_entry(test_key(), test_binary()), encode_entry(test_key(), test_binary()));
}

TEST(CacheEntry, KeepsCodeThatCompressesTooWellOrNotAtAll) {
  Binary zeros = test_binary(), noise = test_binary();
  zeros.cubin.assign(4 << 20, std::byte{0});
  std::mt19937 random(1);
  for (std::byte& byte : noise.cubin) byte = static_cast<std::byte>(random());
  EXPECT_EQ(decode_entry(encode_entry(test_key(), zeros)).entry->binary, zeros);
  EXPECT_EQ(decode_entry(encode_entry(test_key(), noise)).entry->binary, noise);
}

TEST(CacheEntry, SkippingThePayloadLeavesTheRest) {
  const DecodeResult result = decode_entry(encode_entry(test_key(), test_binary()), Payload::kSkip);
  Binary expected = test_binary();
  expected.cubin.clear();
  expected.ptx.clear();
  EXPECT_EQ(result.entry->binary, expected);
}

TEST(CacheEntry, EveryByteChangedOnceIsDetected) {
  const Bytes good = encode_entry(test_key(), test_binary(0, 500));
  for (std::size_t i = 0; i < good.size(); ++i)
    for (const unsigned flip : {0xffu, 1u << (i % 8)}) {
      Bytes bad = good;
      bad[i] ^= static_cast<std::byte>(flip);
      const DecodeResult result = decode_entry(bad);
      ASSERT_FALSE(result.entry) << "byte " << i;
      ASSERT_NE(result.reason, "");
    }
}

TEST(CacheEntry, EveryTruncationAndEveryExtensionIsDetected) {
  const Bytes good = encode_entry(test_key(), test_binary(0, 500));
  for (std::size_t size = 0; size < good.size(); ++size) {
    const DecodeResult result = decode_entry(std::span(good).first(size));
    ASSERT_FALSE(result.entry) << size;
    ASSERT_THAT(result.reason, StartsWith("truncated"));
  }
  Bytes longer = good;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode_entry(longer).entry);
}

TEST(CacheEntry, AnotherVersionSaysWhichItIs) {
  Bytes entry = encode_entry(test_key(), test_binary());
  entry[8] = std::byte{7};
  seal(entry);
  EXPECT_EQ(decode_entry(entry).reason, "format version 7; this library reads 1");
}

TEST(CacheEntry, AMissingFieldIsNamed) {
  Bytes entry = encode_entry(test_key(), test_binary());
  entry[offset_of(entry, "usage.stack")] = std::byte{'x'};
  seal(entry);
  EXPECT_EQ(decode_entry(entry).reason, "malformed: no field 'usage.stack'");
}

TEST(CacheEntry, AnUnknownFieldIsNoFault) {  // a later library may add one without a new version
  Bytes entry = encode_entry(test_key(), test_binary());
  const Bytes sum(entry.end() - 32, entry.end());
  entry.resize(entry.size() - 32);
  for (const char each : std::string("\x03new\x02\0\0\0hi", 10)) entry.push_back(static_cast<std::byte>(each));
  entry.insert(entry.end(), sum.begin(), sum.end());
  entry[12] = static_cast<std::byte>(static_cast<int>(entry[12]) + 1);
  const std::uint64_t size = entry.size();
  std::memcpy(entry.data() + 16, &size, 8);
  seal(entry);
  const DecodeResult result = decode_entry(entry);
  ASSERT_TRUE(result.entry) << result.reason;
  EXPECT_EQ(result.entry->binary, test_binary());
}

TEST(CacheEntry, ALengthThatLiesBuysNoMemory) {
  Bytes entry = encode_entry(test_key(), test_binary());
  const std::size_t ptx = offset_of(entry, "\3ptx") + 4;  // u32 length, u8 codec, u64 raw size
  ASSERT_EQ(static_cast<int>(entry[ptx + 4]), 1) << "the PTX is compressed";
  std::uint64_t claim = std::uint64_t{1} << 60;
  std::memcpy(entry.data() + ptx + 5, &claim, 8);
  seal(entry);
  EXPECT_THAT(decode_entry(entry).reason, HasSubstr("field 'ptx': claims 1152921504606846976 bytes, at most"));
  claim = 60 << 20;
  std::memcpy(entry.data() + ptx + 5, &claim, 8);
  seal(entry);
  EXPECT_THAT(decode_entry(entry).reason, HasSubstr("more than 256 to one"));
  claim = 5000;
  std::memcpy(entry.data() + ptx + 5, &claim, 8);
  seal(entry);
  EXPECT_THAT(decode_entry(entry).reason, HasSubstr("field 'ptx': unpacks to"));
}

// The parser behind the checksum meets bytes that nobody wrote: cut, spliced and overwritten entries, with and without
// a right checksum. The fuzz target goes further; this runs everywhere, with a fixed seed.
TEST(CacheEntry, MutatedEntriesAreReadOrRefusedAndNothingElse) {
  std::mt19937 random(20);
  auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random() % std::max<std::size_t>(limit, 1)); };
  const Bytes good = encode_entry(test_key(), test_binary(0, 200));
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500);
  std::size_t rounds = 0, read = 0;
  while (std::chrono::steady_clock::now() < end || rounds < 2000) {
    Bytes entry = good;
    for (std::size_t changes = 1 + below(4); changes > 0; --changes) {
      switch (below(5)) {
        case 0: entry[below(entry.size())] = static_cast<std::byte>(random()); break;
        case 1: entry.resize(std::max<std::size_t>(56, below(entry.size()))); break;
        case 2: entry.insert(entry.begin() + static_cast<long>(below(entry.size())), below(40), std::byte{0xff}); break;
        case 3:
          entry.erase(entry.begin() + static_cast<long>(below(entry.size() - 60)),
                      entry.begin() + static_cast<long>(entry.size() - 58));
          break;
        default: {
          const std::uint32_t edge[] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff};
          std::memcpy(entry.data() + below(entry.size() - 4), &edge[below(5)], 4);
        }
      }
      if (entry.size() < 64) entry.resize(64);
    }
    if (below(2)) {  // past the header's own checks as well
      const std::uint64_t size = entry.size();
      std::memcpy(entry.data(), good.data(), 12);
      std::memcpy(entry.data() + 16, &size, 8);
    }
    const DecodeResult result = decode_entry_unchecked(entry, below(4) ? Payload::kUnpack : Payload::kSkip);
    ASSERT_EQ(result.entry.has_value(), result.reason.empty());
    read += result.entry.has_value();
    seal(entry);
    ASSERT_EQ(decode_entry(entry).entry.has_value(), decode_entry(entry).reason.empty());
    ++rounds;
  }
  EXPECT_GT(read, 0u) << "some mutations only change values";
  EXPECT_LT(read, rounds);
}

}  // namespace
}  // namespace kernelwright
