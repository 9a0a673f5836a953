/// One entry of the cubin cache as bytes: what is in the file, not where the file is. docs/cache.md has the format byte
/// by byte. An entry describes itself: it has the whole key and the whole Binary. It has two parts, each under a
/// SHA-256 of its own. The head is all that a launch needs. The PTX is apart, so that a hit without PTX neither reads
/// nor hashes it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernelwright/runtime/binary/binary.h"
#include "kernelwright/runtime/binary/cache_key.h"

namespace kernelwright {

inline constexpr int kEntryFormatVersion = 2;
/// Larger files are not entries. The largest kernel seen so far makes one of 0.2 MB.
inline constexpr std::size_t kMaxEntryBytes = std::size_t{128} << 20;

struct DecodedEntry {
  CacheKey key;
  Binary binary;
};

struct DecodeResult {
  std::optional<DecodedEntry> entry;
  std::string reason;  // why there is no entry: "truncated: 17 of 1234 bytes"
};

enum class Payload {
  kUnpack,
  kCubinOnly,  // leaves ptx empty, and its bytes unread and unchecked: a launch on a GPU needs the cubin alone
  kSkip,       // leaves both empty: for listings
};

/// The file's bytes. The same key and Binary give the same bytes. Throws Error if cubin or PTX is larger than an entry
/// may hold (64 MB each), or if a list (options, warnings) has more than 4096 items.
std::vector<std::byte> encode_entry(const CacheKey& key, const Binary& binary);

/// How many bytes from the start of an entry a reader of `payload` needs. The entry's first kEntryPrefixBytes tell (or
/// fewer, if the file has fewer). Any bytes have an answer: at most `file_bytes`.
inline constexpr std::size_t kEntryPrefixBytes = 32;
std::size_t entry_bytes_needed(std::span<const std::byte> start, std::size_t file_bytes, Payload payload);

/// Reads any bytes: returns an entry, or the reason why they are not one. `bytes` are the first bytes of a file of
/// `file_bytes`, at least entry_bytes_needed(). A checksum proves every byte that `payload` needs; no other byte is
/// read. Throws nothing but std::bad_alloc, and allocates in proportion to `bytes` (at most kMaxUnpackRatio times).
DecodeResult decode_entry(std::span<const std::byte> bytes, std::size_t file_bytes, Payload payload);

/// The same, but the cubin takes over the memory of `bytes` where it can. In a fresh process the first touch of a page
/// costs up to 2.5 us (in a virtual machine), so a copy of 80 KB costs 50 us.
DecodeResult decode_entry(std::vector<std::byte>&& bytes, std::size_t file_bytes, Payload payload);

/// The same for a file that is in memory whole.
inline DecodeResult decode_entry(std::span<const std::byte> bytes, Payload payload = Payload::kUnpack) {
  return decode_entry(bytes, bytes.size(), payload);
}

/// The same without the checksums: for fuzzing the parser behind them. Never for files.
DecodeResult decode_entry_unchecked(std::span<const std::byte> bytes, Payload payload = Payload::kUnpack);

/// A field that unpacks to more than this many times its size is refused, so that a few bytes cannot claim gigabytes.
/// The writer stores fields that compress better than that plain.
inline constexpr std::size_t kMaxUnpackRatio = 256;

}  // namespace kernelwright
