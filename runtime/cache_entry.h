/// One entry of the cubin cache as bytes: what is in the file, and nothing about where the file is. docs/cache.md has
/// the format byte by byte. An entry describes itself (the whole key and the whole Binary) and ends in a SHA-256 of
/// itself.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernelwright/runtime/binary.h"
#include "kernelwright/runtime/cache_key.h"

namespace kernelwright {

inline constexpr int kEntryFormatVersion = 1;
/// Larger files are not entries. The largest kernel seen so far makes one of 0.2 MB.
inline constexpr std::size_t kMaxEntryBytes = std::size_t{128} << 20;

struct DecodedEntry {
  CacheKey key;
  Binary binary;
};

struct DecodeResult {
  std::optional<DecodedEntry> entry;
  std::string reason;  // what is wrong, where there is no entry: "truncated: 17 of 1234 bytes"
};

enum class Payload {
  kUnpack,
  kCubinOnly,  // leaves ptx empty: to launch on a GPU the cubin is enough, and the PTX is the larger part
  kSkip,       // leaves both empty: for listings
};

/// The file's bytes. The same key and Binary give the same bytes. Throws Error if cubin or PTX is beyond what an entry
/// may hold (64 MB each), or a list (options, warnings) has more than 4096 items.
std::vector<std::byte> encode_entry(const CacheKey& key, const Binary& binary);

/// Reads any bytes whatsoever: an entry, or the reason why they are not one. Throws nothing but std::bad_alloc, and
/// allocates in proportion to `bytes` (at most kMaxUnpackRatio times).
DecodeResult decode_entry(std::span<const std::byte> bytes, Payload payload = Payload::kUnpack);

/// The same without the checksum: for fuzzing the parser behind it. Never for files.
DecodeResult decode_entry_unchecked(std::span<const std::byte> bytes, Payload payload = Payload::kUnpack);

/// A field that unpacks to more than this many times its size is refused, so that a few bytes cannot claim gigabytes;
/// what compresses better than that is stored plain.
inline constexpr std::size_t kMaxUnpackRatio = 256;

}  // namespace kernelwright
