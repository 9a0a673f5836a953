/// Ed25519 signatures (RFC 8032) of what a builder publishes, by libsodium. A build without libsodium reads keys, and
/// refuses to sign or to check with MissingError. Keys are PEM files (RFC 8410), which OpenSSL writes:
///   openssl genpkey -algorithm ed25519 -out key.pem && openssl pkey -in key.pem -pubout -out key.pub
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace kernelwright {

inline constexpr std::size_t kSignatureBytes = 64;

using Signature = std::array<std::byte, kSignatureBytes>;

struct PublicKey {
  std::array<std::byte, 32> bytes{};
  bool operator==(const PublicKey&) const = default;
  /// 12 hex digits of the key's SHA-256, for people.
  std::string name() const;
};

/// The secret half of a key. Its memory is cleared when it goes.
class SigningKey {
 public:
  explicit SigningKey(std::span<const std::byte, 32> seed);
  ~SigningKey();
  SigningKey(SigningKey&& other) noexcept;
  SigningKey& operator=(SigningKey&&) = delete;

  /// The signature of `domain`, a zero byte, and `message`. The domain says what kind of thing is signed. So a
  /// signature of one kind never passes for that of another. Throws MissingError without libsodium.
  Signature sign(std::string_view domain, std::span<const std::byte> message) const;
  /// Throws MissingError without libsodium.
  PublicKey public_key() const;

 private:
  std::array<std::byte, 32> seed_;
};

/// Whether this build has libsodium.
bool can_sign();

/// Whether `signature` is what the owner of `key` makes of `domain` and `message`. Throws MissingError without
/// libsodium.
bool is_signed_by(const PublicKey& key, std::string_view domain, std::span<const std::byte> message,
                  const Signature& signature);

/// The key of a PEM file's text; nothing if the text is no Ed25519 key of that kind.
std::optional<PublicKey> public_key_of_pem(std::string_view text);
std::optional<SigningKey> signing_key_of_pem(std::string_view text);

enum class KeyFile { kPublic, kPrivate };
/// Throws ConfigError that names the path unless it is a file that no other user can write, and no other user can read
/// if it is private. So may a certificate be checked, and its key.
void check_key_file(const std::string& path, KeyFile kind);

/// Reads a key's file. Throws ConfigError that names the path. No other user may be able to write the file of a public
/// key, or to read or write that of a signing key.
PublicKey read_public_key(const std::string& path);
SigningKey read_signing_key(const std::string& path);

}  // namespace kernelwright
