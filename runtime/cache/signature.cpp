// Keys as PEM files, and the few calls of libsodium. RFC 8410 makes each kind of key a fixed prefix and 32 bytes.
#include "kernelwright/runtime/cache/signature.h"

#include <fmt/format.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernelwright/generator/digest.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/trusted_files.h"

#ifdef KERNELWRIGHT_HAS_SODIUM
#include <sodium.h>
#endif

namespace kernelwright {
namespace {

constexpr std::size_t kMostPemBytes = 4096;
// DER of SubjectPublicKeyInfo and of PrivateKeyInfo, up to the key's bytes. 2b 65 70 is the identifier of Ed25519.
constexpr std::array<std::uint8_t, 12> kPublicPrefix{0x30, 0x2a, 0x30, 0x05, 0x06, 0x03,
                                                     0x2b, 0x65, 0x70, 0x03, 0x21, 0x00};
constexpr std::array<std::uint8_t, 16> kSigningPrefix{0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06,
                                                      0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20};

/// Text and keys that leave no trace in memory.
void clear(void* bytes, std::size_t size) { explicit_bzero(bytes, size); }

struct Cleared {
  std::string text;
  ~Cleared() { clear(text.data(), text.size()); }
};

/// The 32 bytes between "-----BEGIN <label>-----" and its end, behind `prefix`.
template <std::size_t kPrefix>
std::optional<std::array<std::byte, 32>> key_bytes(std::string_view text, std::string_view label,
                                                   const std::array<std::uint8_t, kPrefix>& prefix) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (text.size() > kMostPemBytes) return std::nullopt;
  const std::string begin = fmt::format("-----BEGIN {}-----\n", label), end = fmt::format("-----END {}-----", label);
  const std::size_t from = text.find(begin), to = text.find(end);
  if (from == text.npos || to == text.npos || to < from + begin.size()) return std::nullopt;
  constexpr std::size_t kBytes = kPrefix + 32;
  std::array<std::byte, kBytes> der{};
  std::uint32_t bits = 0;
  int held = 0;
  std::size_t filled = 0, padding = 0;
  for (const char c : text.substr(from + begin.size(), to - from - begin.size())) {
    if (c == '\n' || c == '\r') continue;
    if (c == '=') {
      ++padding;
      continue;
    }
    const std::size_t digit = kDigits.find(c);
    if (digit == kDigits.npos || padding > 0) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    held += 6;
    if (held < 8) continue;
    held -= 8;
    if (filled == kBytes) return std::nullopt;
    der[filled++] = static_cast<std::byte>(bits >> held & 0xff);
    bits &= (1u << held) - 1;
  }
  if (filled != kBytes || bits != 0 || padding != (3 - kBytes % 3) % 3) return std::nullopt;
  if (!std::equal(prefix.begin(), prefix.end(), der.begin(),
                  [](std::uint8_t wanted, std::byte found) { return std::byte{wanted} == found; }))
    return std::nullopt;
  std::array<std::byte, 32> key;
  std::copy_n(der.begin() + kPrefix, 32, key.begin());
  clear(der.data(), der.size());
  clear(&bits, sizeof bits);
  return key;
}

TrustedFile open_key_file(const std::string& path, KeyFile kind, std::uint64_t max_bytes) {
  const Trust trust = kind == KeyFile::kPrivate ? Trust::kOwnOnly : Trust::kOwnOrRoot;
  TrustedFile file = open_trusted_file(path, trust, max_bytes);
  if (!file.fd) throw ConfigError(path, file.reason);
  struct stat info {};
  fstat(file.fd.get(), &info);
  if (kind == KeyFile::kPrivate && (info.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    throw ConfigError(path, fmt::format("is readable by others (mode {:04o}); chmod 600 it", info.st_mode & 07777));
  return file;
}

std::string read_key_file(const std::string& path, KeyFile kind) {
  const TrustedFile file = open_key_file(path, kind, kMostPemBytes);
  std::string text(static_cast<std::size_t>(file.bytes), '\0');
  const ssize_t count = pread(file.fd.get(), text.data(), text.size(), 0);
  if (count != static_cast<ssize_t>(text.size())) throw ConfigError(path, "cannot be read");
  return text;
}

#ifdef KERNELWRIGHT_HAS_SODIUM
std::vector<std::byte> with_domain(std::string_view domain, std::span<const std::byte> message) {
  std::vector<std::byte> bytes;
  bytes.reserve(domain.size() + 1 + message.size());
  for (const char c : domain) bytes.push_back(static_cast<std::byte>(c));
  bytes.push_back(std::byte{0});
  bytes.insert(bytes.end(), message.begin(), message.end());
  return bytes;
}

unsigned char* as_sodium(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* as_sodium(const std::byte* bytes) { return reinterpret_cast<const unsigned char*>(bytes); }

/// A secret key as libsodium wants it: the seed and the public key behind it.
struct SodiumKeys {
  explicit SodiumKeys(const std::array<std::byte, 32>& seed) {
    static_assert(crypto_sign_BYTES == kSignatureBytes && crypto_sign_PUBLICKEYBYTES == sizeof(PublicKey::bytes));
    if (sodium_init() < 0) throw Error("libsodium cannot be initialised");
    crypto_sign_seed_keypair(as_sodium(open.bytes.data()), secret, as_sodium(seed.data()));
  }
  ~SodiumKeys() { sodium_memzero(secret, sizeof secret); }
  PublicKey open;
  unsigned char secret[crypto_sign_SECRETKEYBYTES];
};
#else
[[noreturn]] void refuse_without_sodium() {
  throw MissingError(
      "this build of kernelwright has no libsodium, by which it would sign and check signatures; build it where "
      "libsodium-dev is installed");
}
#endif

}  // namespace

std::string PublicKey::name() const { return sha256(bytes).hex().substr(0, 12); }

SigningKey::SigningKey(std::span<const std::byte, 32> seed) { std::copy_n(seed.begin(), 32, seed_.begin()); }
SigningKey::SigningKey(SigningKey&& other) noexcept : seed_(other.seed_) { clear(other.seed_.data(), 32); }
SigningKey::~SigningKey() { clear(seed_.data(), seed_.size()); }

#ifdef KERNELWRIGHT_HAS_SODIUM
bool can_sign() { return true; }

PublicKey SigningKey::public_key() const { return SodiumKeys(seed_).open; }

Signature SigningKey::sign(std::string_view domain, std::span<const std::byte> message) const {
  const SodiumKeys keys(seed_);
  const std::vector<std::byte> bytes = with_domain(domain, message);
  Signature signature;
  crypto_sign_detached(as_sodium(signature.data()), nullptr, as_sodium(bytes.data()), bytes.size(), keys.secret);
  return signature;
}

bool is_signed_by(const PublicKey& key, std::string_view domain, std::span<const std::byte> message,
                  const Signature& signature) {
  const std::vector<std::byte> bytes = with_domain(domain, message);
  return sodium_init() >= 0 && crypto_sign_verify_detached(as_sodium(signature.data()), as_sodium(bytes.data()),
                                                           bytes.size(), as_sodium(key.bytes.data())) == 0;
}
#else
bool can_sign() { return false; }
PublicKey SigningKey::public_key() const { refuse_without_sodium(); }
Signature SigningKey::sign(std::string_view, std::span<const std::byte>) const { refuse_without_sodium(); }
bool is_signed_by(const PublicKey&, std::string_view, std::span<const std::byte>, const Signature&) {
  refuse_without_sodium();
}
#endif

std::optional<PublicKey> public_key_of_pem(std::string_view text) {
  const auto bytes = key_bytes(text, "PUBLIC KEY", kPublicPrefix);
  if (!bytes) return std::nullopt;
  return PublicKey{*bytes};
}

std::optional<SigningKey> signing_key_of_pem(std::string_view text) {
  auto bytes = key_bytes(text, "PRIVATE KEY", kSigningPrefix);
  if (!bytes) return std::nullopt;
  std::optional<SigningKey> key(std::in_place, std::span<const std::byte, 32>(*bytes));
  clear(bytes->data(), bytes->size());
  return key;
}

void check_key_file(const std::string& path, KeyFile kind) {
  constexpr std::uint64_t kMostBytes = std::uint64_t{4} << 20;  // Debian's file of all authorities has 0.2 MB
  open_key_file(path, kind, kMostBytes);
}

PublicKey read_public_key(const std::string& path) {
  const std::optional<PublicKey> key = public_key_of_pem(read_key_file(path, KeyFile::kPublic));
  if (!key) throw ConfigError(path, "is no public key of Ed25519 in PEM; `openssl pkey -pubout` writes one");
  return *key;
}

SigningKey read_signing_key(const std::string& path) {
  const Cleared file{read_key_file(path, KeyFile::kPrivate)};
  std::optional<SigningKey> key = signing_key_of_pem(file.text);
  if (!key)
    throw ConfigError(path, "is no private key of Ed25519 in PEM; `openssl genpkey -algorithm ed25519` writes one");
  return std::move(*key);
}

}  // namespace kernelwright
