// SHA-256 as FIPS 180-4 defines it, with the instructions of x86 where the processor has them: a cache hit hashes the
// whole entry. No library is needed for one hash.
#include "kernelwright/generator/digest.h"

#include <algorithm>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace kernelwright {
namespace {

constexpr std::size_t kBlock = 64;

/// The first 32 bits behind the point of the cube roots of the first 64 primes.
alignas(16) constexpr std::uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t big_endian(const std::uint8_t* at) {
  return std::uint32_t{at[0]} << 24 | std::uint32_t{at[1]} << 16 | std::uint32_t{at[2]} << 8 | at[3];
}

/// Adds `count` blocks of 64 bytes to the state.
void compress(std::uint32_t* state, const std::uint8_t* data, std::size_t count) {
  for (; count > 0; --count, data += kBlock) {
    std::uint32_t w[64];
    for (int i = 0; i < 16; ++i) w[i] = big_endian(data + 4 * i);
    for (int i = 16; i < 64; ++i) {
      const std::uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
      const std::uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    std::uint32_t s[8];
    std::copy_n(state, 8, s);
    for (int i = 0; i < 64; ++i) {
      const std::uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
      const std::uint32_t majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
      const std::uint32_t t1 =
          s[7] + (std::rotr(s[4], 6) ^ std::rotr(s[4], 11) ^ std::rotr(s[4], 25)) + choice + kRound[i] + w[i];
      const std::uint32_t t2 = (std::rotr(s[0], 2) ^ std::rotr(s[0], 13) ^ std::rotr(s[0], 22)) + majority;
      for (int j = 7; j > 0; --j) s[j] = s[j - 1];
      s[4] += t1;
      s[0] = t1 + t2;
    }
    for (int i = 0; i < 8; ++i) state[i] += s[i];
  }
}

#if defined(__x86_64__)
/// The same with the SHA extensions, four rounds at a time. Their two registers hold the words a, b, e, f and c, d, g,
/// h.
__attribute__((target("sha,ssse3,sse4.1"))) void compress_sha_ni(std::uint32_t* state, const std::uint8_t* data,
                                                                 std::size_t count) {
  const auto load = [](const void* at) { return _mm_loadu_si128(static_cast<const __m128i*>(at)); };
  const __m128i big_endian_words = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  const __m128i badc = _mm_shuffle_epi32(load(state), 0xB1), hgfe = _mm_shuffle_epi32(load(state + 4), 0x1B);
  __m128i abef = _mm_alignr_epi8(badc, hgfe, 8), cdgh = _mm_blend_epi16(hgfe, badc, 0xF0);
  for (; count > 0; --count, data += kBlock) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];  // the last 16 words of the schedule
    for (int i = 0; i < 16; ++i) {
      __m128i& next = w[i % 4];
      if (i < 4) {
        next = _mm_shuffle_epi8(load(data + 16 * i), big_endian_words);
      } else {
        const __m128i last = w[(i + 3) % 4];
        next = _mm_add_epi32(_mm_sha256msg1_epu32(next, w[(i + 1) % 4]), _mm_alignr_epi8(last, w[(i + 2) % 4], 4));
        next = _mm_sha256msg2_epu32(next, last);
      }
      const __m128i sum = _mm_add_epi32(next, load(kRound + 4 * i));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0E));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1B), dchg = _mm_shuffle_epi32(cdgh, 0xB1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state), _mm_blend_epi16(feba, dchg, 0xF0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

bool has_sha_ni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_SSE4_1) || !(c & bit_SSSE3)) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA);
}
#endif

using Compress = void (*)(std::uint32_t*, const std::uint8_t*, std::size_t);

Compress compress_of(HashPath path) {
#if defined(__x86_64__)
  static const bool fast = has_sha_ni();
  if (fast && path == HashPath::kFastest) return compress_sha_ni;
#endif
  (void)path;
  return compress;
}

}  // namespace

std::string Digest::hex() const {
  static constexpr char digits[] = "0123456789abcdef";
  std::string text(64, '0');
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    text[2 * i] = digits[bytes[i] >> 4];
    text[2 * i + 1] = digits[bytes[i] & 15];
  }
  return text;
}

void DigestBuilder::raw(const void* data, std::size_t size) {
  const Compress add = compress_of(path_);
  const auto* at = static_cast<const std::uint8_t*>(data);
  const std::size_t held = length_ % kBlock;
  length_ += size;
  if (held > 0) {
    const std::size_t taken = std::min(size, kBlock - held);
    if (taken > 0) std::memcpy(held_ + held, at, taken);
    if (held + taken < kBlock) return;
    add(state_, held_, 1);
    at += taken;
    size -= taken;
  }
  add(state_, at, size / kBlock);
  if (size % kBlock > 0) std::memcpy(held_, at + size - size % kBlock, size % kBlock);
}

DigestBuilder& DigestBuilder::field(std::string_view bytes) {
  field(static_cast<std::uint64_t>(bytes.size()));
  raw(bytes.data(), bytes.size());
  return *this;
}

DigestBuilder& DigestBuilder::field(std::uint64_t value) {
  unsigned char little[8];
  for (int i = 0; i < 8; ++i) little[i] = static_cast<unsigned char>(value >> (8 * i));
  raw(little, sizeof(little));
  return *this;
}

Digest DigestBuilder::finish() {
  const std::uint64_t bits = 8 * length_;
  static constexpr std::uint8_t kPadding[kBlock] = {0x80};
  raw(kPadding, 1 + (kBlock + 55 - length_ % kBlock) % kBlock);  // up to 8 bytes before the end of a block
  std::uint8_t big[8];
  for (int i = 0; i < 8; ++i) big[i] = static_cast<std::uint8_t>(bits >> (56 - 8 * i));
  raw(big, sizeof(big));
  Digest digest;
  for (int i = 0; i < 32; ++i) digest.bytes[i] = static_cast<std::uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
  return digest;
}

Digest sha256(std::span<const std::byte> bytes, HashPath path) {
  DigestBuilder hash(path);
  hash.raw(bytes.data(), bytes.size());
  return hash.finish();
}

Digest sha256(std::string_view bytes) { return sha256(std::as_bytes(std::span(bytes.data(), bytes.size()))); }

}  // namespace kernelwright
