// The low-level SHA256_* calls. Neither EVP nor SHA256() is used, which calls EVP since OpenSSL 3. EVP's first use in a
// process loads providers, and that costs a cache hit ~1 ms.
#define OPENSSL_API_COMPAT 0x10100000L
#define OPENSSL_SUPPRESS_DEPRECATED
#include "kernelwright/generator/digest.h"

#include <openssl/sha.h>

#include <new>

namespace kernelwright {
namespace {
SHA256_CTX* context(unsigned char* state) { return std::launder(reinterpret_cast<SHA256_CTX*>(state)); }
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

DigestBuilder::DigestBuilder() {
  static_assert(sizeof(SHA256_CTX) <= sizeof(state_) && alignof(SHA256_CTX) <= 8);
  SHA256_Init(new (state_) SHA256_CTX);
}

void DigestBuilder::raw(const void* data, std::size_t size) { SHA256_Update(context(state_), data, size); }

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
  Digest digest;
  SHA256_Final(digest.bytes.data(), context(state_));
  return digest;
}

Digest sha256(std::span<const std::byte> bytes) {
  SHA256_CTX hash;
  SHA256_Init(&hash);
  SHA256_Update(&hash, bytes.data(), bytes.size());
  Digest digest;
  SHA256_Final(digest.bytes.data(), &hash);
  return digest;
}

Digest sha256(std::string_view bytes) { return sha256(std::as_bytes(std::span(bytes.data(), bytes.size()))); }

}  // namespace kernelwright
