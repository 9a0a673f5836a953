#include "kernelwright/runtime/cache/entry.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <random>
#include <utility>

#include "runtime/cache/testing.h"

namespace kernelwright {
namespace {

using test::test_binary;
using test::test_key;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Bytes = std::vector<std::byte>;

std::uint64_t head_bytes(const Bytes& entry) {
  std::uint64_t size = 0;
  std::memcpy(&size, entry.data() + 24, sizeof(size));
  return size;
}

void seal(Bytes& entry) {  // makes the checksums right again, the head's first: the PTX's covers it
  const auto head = static_cast<std::size_t>(head_bytes(entry));
  if (head < 64 || head > entry.size() - 32) return;  // a header that was spoilt: nothing to seal
  const auto sum = [&](std::size_t from, std::size_t to) {
    const Digest digest = sha256(std::span(entry).subspan(from, to - from));
    std::memcpy(entry.data() + to, digest.bytes.data(), 32);
  };
  sum(0, head - 32);
  sum(head - 32, entry.size() - 32);
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

TEST(CacheEntry, EveryByteChangedOnceIsDetectedByWhoeverReadsIt) {
  const Bytes good = encode_entry(test_key(), test_binary(0, 500));
  const auto head = static_cast<std::size_t>(head_bytes(good));
  for (const Payload payload : {Payload::kUnpack, Payload::kCubinOnly, Payload::kSkip}) {
    const std::size_t read = payload == Payload::kUnpack ? good.size() : head;
    ASSERT_EQ(entry_bytes_needed(good, good.size(), payload), read);
    for (std::size_t i = 0; i < read; ++i)
      for (const unsigned flip : {0xffu, 1u << (i % 8)}) {
        Bytes bad(good.begin(), good.begin() + static_cast<long>(read));
        bad[i] ^= static_cast<std::byte>(flip);
        const DecodeResult result = decode_entry(std::as_const(bad), good.size(), payload);
        ASSERT_FALSE(result.entry) << "byte " << i;
        ASSERT_NE(result.reason, "");
        ASSERT_FALSE(decode_entry(std::move(bad), good.size(), payload).entry) << "byte " << i << ", in place";
      }
  }
}

TEST(CacheEntry, TheCubinAloneNeedsNoByteOfThePtx) {
  const Bytes good = encode_entry(test_key(), test_binary());
  const std::size_t needed =
      entry_bytes_needed(std::span(good).first(kEntryPrefixBytes), good.size(), Payload::kCubinOnly);
  ASSERT_LT(needed, good.size());
  Bytes start(good.begin(), good.begin() + static_cast<long>(needed));
  Binary expected = test_binary();
  expected.ptx.clear();
  const DecodeResult copied = decode_entry(std::as_const(start), good.size(), Payload::kCubinOnly);
  ASSERT_TRUE(copied.entry) << copied.reason;
  EXPECT_EQ(copied.entry->binary, expected);
  const std::byte* memory = start.data();
  const DecodeResult moved = decode_entry(std::move(start), good.size(), Payload::kCubinOnly);
  ASSERT_TRUE(moved.entry) << moved.reason;
  EXPECT_EQ(moved.entry->binary, expected);
  EXPECT_EQ(moved.entry->key, test_key());
  EXPECT_EQ(moved.entry->binary.cubin.data(), memory) << "the cubin takes over the memory that was read";
}

TEST(CacheEntry, TheStartOfAnEntryIsNoWholeEntry) {
  const Bytes good = encode_entry(test_key(), test_binary());
  const auto head = std::span(good).first(static_cast<std::size_t>(head_bytes(good)));
  EXPECT_THAT(decode_entry(head, good.size(), Payload::kUnpack).reason, StartsWith("truncated: "));
  EXPECT_THAT(decode_entry(head.first(head.size() - 1), good.size(), Payload::kCubinOnly).reason,
              StartsWith("truncated: "));
  EXPECT_THAT(decode_entry(head, Payload::kCubinOnly).reason, StartsWith("truncated: ")) << "of a file cut there";
}

TEST(CacheEntry, ThePtxOfAnotherEntryIsDetected) {
  Binary other = test_binary();
  other.compile_ms += 1;  // the same PTX and so the same sizes, behind another head
  const Bytes theirs = encode_entry(test_key(), other);
  Bytes mixed = encode_entry(test_key(), test_binary());
  ASSERT_EQ(mixed.size(), theirs.size());
  const auto head = static_cast<long>(head_bytes(mixed));
  std::copy(theirs.begin() + head, theirs.end(), mixed.begin() + head);
  EXPECT_EQ(decode_entry(mixed).reason, "damaged: the PTX's checksum differs");
  EXPECT_TRUE(decode_entry(mixed, Payload::kCubinOnly).entry);
}

TEST(CacheEntry, AHeadBeyondTheFileIsRefused) {
  for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{63}, ~std::uint64_t{0}, std::uint64_t{1} << 40}) {
    Bytes entry = encode_entry(test_key(), test_binary());
    std::memcpy(entry.data() + 24, &size, 8);
    EXPECT_LE(entry_bytes_needed(entry, entry.size(), Payload::kCubinOnly), entry.size());
    EXPECT_THAT(decode_entry(entry).reason, StartsWith("malformed: a head of "));
    EXPECT_THAT(decode_entry(entry, Payload::kCubinOnly).reason, StartsWith("malformed: a head of "));
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
  EXPECT_EQ(decode_entry(entry).reason, "format version 7; this library reads 2");
}

TEST(CacheEntry, AMissingFieldIsNamed) {
  Bytes entry = encode_entry(test_key(), test_binary());
  entry[offset_of(entry, "usage.stack")] = std::byte{'x'};
  seal(entry);
  EXPECT_EQ(decode_entry(entry).reason, "malformed: no field 'usage.stack'");
}

TEST(CacheEntry, AnUnknownFieldIsNoFault) {  // a later library may add one without a new version
  Bytes entry = encode_entry(test_key(), test_binary());
  const std::string field("\x03new\x02\0\0\0hi", 10);
  const auto* bytes = reinterpret_cast<const std::byte*>(field.data());
  const std::uint64_t head = head_bytes(entry) + field.size(), size = entry.size() + field.size();
  entry.insert(entry.begin() + static_cast<long>(head_bytes(entry)) - 32, bytes, bytes + field.size());
  entry[12] = static_cast<std::byte>(static_cast<int>(entry[12]) + 1);
  std::memcpy(entry.data() + 16, &size, 8);
  std::memcpy(entry.data() + 24, &head, 8);
  seal(entry);
  const DecodeResult result = decode_entry(entry);
  ASSERT_TRUE(result.entry) << result.reason;
  EXPECT_EQ(result.entry->binary, test_binary());
}

TEST(CacheEntry, ALengthThatLiesBuysNoMemory) {
  Bytes entry = encode_entry(test_key(), test_binary());
  const auto ptx = static_cast<std::size_t>(head_bytes(entry));  // u8 codec, u64 raw size
  ASSERT_EQ(static_cast<int>(entry[ptx]), 1) << "the PTX is compressed";
  const auto claim = [&](std::size_t at, std::uint64_t size) {
    std::memcpy(entry.data() + at, &size, 8);
    seal(entry);
    return decode_entry(entry).reason;
  };
  EXPECT_THAT(claim(ptx + 1, std::uint64_t{1} << 60), HasSubstr("the PTX: claims 1152921504606846976 bytes, at most"));
  EXPECT_THAT(claim(ptx + 1, 60 << 20), HasSubstr("more than 256 to one"));
  EXPECT_THAT(claim(ptx + 1, 5000), HasSubstr("the PTX: unpacks to"));
  const std::size_t cubin = offset_of(entry, "\5cubin") + 6 + 4;  // after the value's u32 length
  ASSERT_EQ(static_cast<int>(entry[cubin]), 0) << "the cubin is stored as it is";
  EXPECT_EQ(claim(cubin + 1, std::uint64_t{1} << 60),
            "malformed: field 'cubin': claims 1152921504606846976 bytes, at most 67108864 are allowed");
  EXPECT_EQ(claim(cubin + 1, 2999), "malformed: field 'cubin': claims 2999 bytes and has 3000");
  EXPECT_EQ(decode_entry(Bytes(entry), entry.size(), Payload::kCubinOnly).reason, decode_entry(entry).reason);
}

// The parser behind the checksum reads bytes that no writer wrote: cut, spliced and overwritten entries, with and
// without a right checksum. The fuzz target goes further; this test runs everywhere, with a fixed seed.
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
        case 1: entry.resize(std::max<std::size_t>(64, below(entry.size()))); break;
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
      if (entry.size() < 100) entry.resize(100);
    }
    if (below(2)) {  // past the header's own checks as well
      const std::uint64_t size = entry.size();
      std::memcpy(entry.data(), good.data(), 12);
      std::memcpy(entry.data() + 16, &size, 8);
    }
    const Payload payload =
        std::array{Payload::kUnpack, Payload::kUnpack, Payload::kCubinOnly, Payload::kSkip}[below(4)];
    const DecodeResult result = decode_entry_unchecked(entry, payload);
    ASSERT_EQ(result.entry.has_value(), result.reason.empty());
    read += result.entry.has_value();
    seal(entry);
    const DecodeResult sealed = decode_entry(std::as_const(entry), entry.size(), payload);
    ASSERT_EQ(sealed.entry.has_value(), sealed.reason.empty());
    const std::size_t needed = entry_bytes_needed(entry, entry.size(), payload);
    ASSERT_LE(needed, entry.size());
    Bytes start(entry.begin(), entry.begin() + static_cast<long>(needed));
    const DecodeResult moved = decode_entry(std::move(start), entry.size(), payload);
    ASSERT_EQ(moved.reason, sealed.reason) << "the bytes that are needed are all that count";
    if (moved.entry) {
      ASSERT_EQ(moved.entry->binary.cubin, sealed.entry->binary.cubin);
    }
    ++rounds;
  }
  EXPECT_GT(read, 0u) << "some mutations only change values";
  EXPECT_LT(read, rounds);
}

}  // namespace
}  // namespace kernelwright
