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

/// Hashes a sequence of fields. Every field is preceded by its length, so that no two sequences read alike.
class DigestBuilder {
 public:
  DigestBuilder();
  DigestBuilder& field(std::string_view bytes);
  DigestBuilder& field(std::uint64_t value);
  Digest finish();

 private:
  void raw(const void* data, std::size_t size);
  alignas(8) unsigned char state_[128];  // SHA256_CTX
};

/// The digest of `bytes` alone, without a length prefix.
Digest sha256(std::span<const std::byte> bytes);
Digest sha256(std::string_view bytes);

}  // namespace kernelwright
