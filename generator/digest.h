/// SHA-256, the one hash of the project: cache keys, template closures, entry checksums.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace kernelwright {

/// A SHA-256 digest.
struct Digest {
  std::array<std::uint8_t, 32> bytes{};
  bool operator==(const Digest&) const = default;
  auto operator<=>(const Digest&) const = default;
  /// 64 lower-case hex digits.
  std::string hex() const;
};

/// Which code hashes: the fastest that the processor runs, or the code that every processor runs. Both give the same.
enum class HashPath { kFastest, kPortable };

/// Hashes a sequence of fields. Every field is preceded by its length, so that no two sequences read alike.
class DigestBuilder {
 public:
  explicit DigestBuilder(HashPath path = HashPath::kFastest) : path_(path) {}
  DigestBuilder& field(std::string_view bytes);
  DigestBuilder& field(std::uint64_t value);
  /// The digest of all fields. The builder cannot be used again.
  Digest finish();

 private:
  friend Digest sha256(std::span<const std::byte> bytes, HashPath path);
  void raw(const void* data, std::size_t size);
  HashPath path_;
  std::uint64_t length_ = 0;  // bytes so far
  std::uint8_t held_[64];     // the last length_ % 64 of them, which fill no block yet
  std::uint32_t state_[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                             0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
};

/// The digest of `bytes` alone, without a length prefix.
Digest sha256(std::span<const std::byte> bytes, HashPath path = HashPath::kFastest);
Digest sha256(std::string_view bytes);

}  // namespace kernelwright
