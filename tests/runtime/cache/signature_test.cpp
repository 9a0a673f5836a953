// Keys in PEM files, and signatures by libsodium, which agree with those of OpenSSL.
#include "kernelwright/runtime/cache/signature.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "kernelwright/generator/error.h"
#include "runtime/cache/testing.h"
#include "support/signing.h"

namespace kernelwright::signature_test {
namespace {

using test::kOtherPublicPem, test::kPublicPem, test::kSigningPem, test::write_file;
using ::testing::AllOf;
using ::testing::HasSubstr;

// openssl pkeyutl -sign -rawin of "test", a zero byte and "a message".
constexpr const char* kByOpenssl =
    "bc486a1e4f030c4180d9e1b4073021b137ca0a7a1d4cb0aed8ceb5614609212c"
    "adec7ca79b1403792be960f8f23b0c3b335e15aadcf06d1e8fb7fec7ad73aa06";

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string hex_of(const Signature& signature) {
  std::string hex;
  for (const std::byte byte : signature) {
    const char* const digits = "0123456789abcdef";
    hex += digits[std::to_integer<int>(byte) >> 4];
    hex += digits[std::to_integer<int>(byte) & 15];
  }
  return hex;
}

TEST(Signature, IsTheOneThatOpensslMakes) {
  if (!can_sign()) GTEST_SKIP() << "this build has no libsodium";
  const auto key = signing_key_of_pem(kSigningPem);
  ASSERT_TRUE(key);
  EXPECT_EQ(key->public_key(), public_key_of_pem(kPublicPem));
  EXPECT_EQ(hex_of(key->sign("test", bytes_of("a message"))), kByOpenssl);
}

TEST(Signature, HoldsForItsKeyItsDomainAndItsMessageAlone) {
  if (!can_sign()) GTEST_SKIP() << "this build has no libsodium";
  const Signature signature = signing_key_of_pem(kSigningPem)->sign("test", bytes_of("a message"));
  const PublicKey key = *public_key_of_pem(kPublicPem);
  EXPECT_TRUE(is_signed_by(key, "test", bytes_of("a message"), signature));
  EXPECT_FALSE(is_signed_by(*public_key_of_pem(kOtherPublicPem), "test", bytes_of("a message"), signature));
  EXPECT_FALSE(is_signed_by(key, "tesT", bytes_of("a message"), signature));
  EXPECT_FALSE(is_signed_by(key, "test", bytes_of("a messagE"), signature));
  EXPECT_FALSE(is_signed_by(PublicKey{}, "test", bytes_of("a message"), signature)) << "a point of small order";
  for (std::size_t i = 0; i < signature.size(); ++i) {
    Signature bad = signature;
    bad[i] ^= std::byte{1};
    EXPECT_FALSE(is_signed_by(key, "test", bytes_of("a message"), bad)) << i;
  }
}

TEST(Signature, WithoutLibsodiumIsRefusedByName) {
  if (can_sign()) GTEST_SKIP() << "this build has libsodium";
  const auto key = signing_key_of_pem(kSigningPem);
  ASSERT_TRUE(key);
  EXPECT_THROW(key->sign("test", {}), MissingError);
  EXPECT_THROW(is_signed_by(*public_key_of_pem(kPublicPem), "test", {}, Signature{}), MissingError);
}

TEST(PemKey, IsOneOfEd25519AndOfThatKind) {
  EXPECT_FALSE(public_key_of_pem(""));
  EXPECT_FALSE(public_key_of_pem(kSigningPem));
  EXPECT_FALSE(signing_key_of_pem(kPublicPem));
  const std::string x25519 =
      "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VuAyEAX95qGljyHcmoOc42GTa9z7aFEbWP+UqoyLEhid7iqm0=\n"
      "-----END PUBLIC KEY-----\n";
  EXPECT_FALSE(public_key_of_pem(x25519));
  const std::string good = kPublicPem;
  for (std::size_t i = 0; i + 1 < good.size(); ++i)  // no shorter text is a key, but for its last line's end
    EXPECT_FALSE(public_key_of_pem(good.substr(0, i))) << i;
  std::string crlf = good;
  for (std::size_t at = 0; (at = crlf.find("=\n", at)) != crlf.npos; at += 2) crlf.replace(at, 2, "=\r\n");
  EXPECT_TRUE(public_key_of_pem(crlf));
}

TEST(KeyFile, OfASecretMayBeReadByItsOwnerAlone) {
  test::TempFolder folder;
  const std::string path = folder / "key.pem";
  write_file(path, kSigningPem);
  const auto refusal = [&](mode_t mode) {
    chmod(path.c_str(), mode);
    try {
      read_signing_key(path);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal(0600), "");
  EXPECT_THAT(refusal(0640), AllOf(HasSubstr(path), HasSubstr("is readable by others (mode 0640); chmod 600 it")));
  EXPECT_THAT(refusal(0622), HasSubstr("is writable by others"));
  write_file(path, "-----BEGIN PRIVATE KEY-----\nMC4C\n-----END PRIVATE KEY-----\n");
  EXPECT_THAT(refusal(0600), AllOf(HasSubstr("is no private key of Ed25519"), testing::Not(HasSubstr("MC4C"))));
}

TEST(KeyFile, OfAPublicKeyMayBeWrittenByNoOtherUser) {
  test::TempFolder folder;
  const std::string path = folder / "key.pub";
  write_file(path, kPublicPem);
  chmod(path.c_str(), 0644);
  EXPECT_EQ(read_public_key(path), *public_key_of_pem(kPublicPem));
  chmod(path.c_str(), 0666);
  EXPECT_THROW(read_public_key(path), ConfigError);
  EXPECT_THROW(read_public_key(folder / "absent"), ConfigError);
}

}  // namespace
}  // namespace kernelwright::signature_test
