#include "kernelwright/runtime/cache/envelope.h"

#include <algorithm>
#include <array>

#include "kernelwright/generator/error.h"

namespace kernelwright {
namespace {

constexpr std::string_view kEnvelopeDomain = "kernelwright remote entry";
constexpr std::array<std::uint8_t, 8> kEnvelopeMagic{0x8b, 'K', 'W', 'R', 0x0d, 0x0a, 0x1a, 0x0a};
constexpr std::uint32_t kEnvelopeVersion = 1;
enum : std::uint32_t { kUnsigned = 0, kSigned = 1 };

// Where the head's fields are.
constexpr std::size_t kVersionAt = 8, kKindAt = 12, kNameAt = 16, kEntryDigestAt = 48, kBuilderAt = 80,
                      kCreatedAt = 112, kSizeAt = 120, kSignatureAt = 128;
static_assert(kSignatureAt + kSignatureBytes == kEnvelopeHeadBytes);

void write_number(std::span<std::byte> at, std::uint64_t value, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) at[i] = static_cast<std::byte>(value >> (8 * i) & 0xff);
}

std::uint64_t read_number(std::span<const std::byte> at, std::size_t bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i) value |= std::uint64_t{std::to_integer<std::uint8_t>(at[i])} << (8 * i);
  return value;
}

/// What the first bytes of an envelope tell, and what proves them.
struct HeadResult {
  std::optional<OpenedEnvelope> envelope;  // without its entry
  std::string reason;
};

bool has_digest(std::span<const std::byte> at, const Digest& digest) {
  return std::ranges::equal(std::as_bytes(std::span(digest.bytes)), at.first(32));
}

/// `entry_bytes`: how many bytes follow the head; nothing: that is not known.
HeadResult open_head(std::span<const std::byte> head, std::optional<std::size_t> entry_bytes, const Digest& name,
                     const EnvelopeTrust& trust) {
  const auto refuse = [](const char* why) -> HeadResult { return {std::nullopt, why}; };
  if (!std::ranges::equal(std::as_bytes(std::span(kEnvelopeMagic)), head.first(kEnvelopeMagic.size())))
    return refuse("is no envelope");
  if (read_number(head.subspan(kVersionAt), 4) != kEnvelopeVersion) return refuse("has another version");
  const std::uint64_t kind = read_number(head.subspan(kKindAt), 4);
  if (kind != kSigned && kind != kUnsigned) return refuse("is neither signed nor unsigned");
  if (entry_bytes && read_number(head.subspan(kSizeAt), 8) != *entry_bytes)
    return refuse("has another size than it says");
  if (!has_digest(head.subspan(kNameAt), name)) return refuse("is of another kernel");

  OpenedEnvelope opened{std::nullopt, static_cast<std::int64_t>(read_number(head.subspan(kCreatedAt), 8)), {}};
  const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
  if (kind == kUnsigned) {
    if (!trust.allow_unsigned) return refuse("is not signed, and a signature is asked for");
    if (!std::ranges::all_of(head.subspan(kBuilderAt, 32), is_zero) ||
        !std::ranges::all_of(head.subspan(kSignatureAt), is_zero))
      return refuse("is not signed and has a signature");
  } else if (!trust.keys.empty() || !trust.allow_unsigned) {
    PublicKey builder;
    std::ranges::copy(head.subspan(kBuilderAt, 32), builder.bytes.begin());
    if (std::ranges::find(trust.keys, builder) == trust.keys.end())
      return refuse("is signed by none of the keys that are trusted");
    Signature signature;
    std::ranges::copy(head.subspan(kSignatureAt), signature.begin());
    if (!is_signed_by(builder, kEnvelopeDomain, head.first(kSignatureAt), signature))
      return refuse("has a false signature");
    opened.builder = builder;
  }
  return {opened, ""};
}

constexpr const char* kTooShort = "is too short for an envelope";

}  // namespace

std::vector<std::byte> make_envelope(const Digest& name, std::span<const std::byte> entry, std::int64_t created_s,
                                     const SigningKey* key) {
  std::vector<std::byte> bytes(kEnvelopeHeadBytes);
  const std::span head(bytes);
  std::ranges::copy(std::as_bytes(std::span(kEnvelopeMagic)), head.begin());
  write_number(head.subspan(kVersionAt), kEnvelopeVersion, 4);
  write_number(head.subspan(kKindAt), key ? kSigned : kUnsigned, 4);
  std::ranges::copy(std::as_bytes(std::span(name.bytes)), head.begin() + kNameAt);
  const Digest digest = sha256(entry);
  std::ranges::copy(std::as_bytes(std::span(digest.bytes)), head.begin() + kEntryDigestAt);
  if (key) std::ranges::copy(key->public_key().bytes, head.begin() + kBuilderAt);
  write_number(head.subspan(kCreatedAt), static_cast<std::uint64_t>(created_s), 8);
  write_number(head.subspan(kSizeAt), entry.size(), 8);
  if (key) std::ranges::copy(key->sign(kEnvelopeDomain, head.first(kSignatureAt)), head.begin() + kSignatureAt);
  bytes.insert(bytes.end(), entry.begin(), entry.end());
  return bytes;
}

std::string fault_of_head(std::span<const std::byte> head, const Digest& name, const EnvelopeTrust& trust) try {
  if (head.size() < kEnvelopeHeadBytes) return kTooShort;
  return open_head(head.first(kEnvelopeHeadBytes), std::nullopt, name, trust).reason;
} catch (const MissingError& error) {
  return error.what();
}

EnvelopeResult open_envelope(std::span<const std::byte> bytes, const Digest& name, const EnvelopeTrust& trust) try {
  if (bytes.size() < kEnvelopeHeadBytes) return {std::nullopt, kTooShort};
  const auto head = bytes.first(kEnvelopeHeadBytes), entry = bytes.subspan(kEnvelopeHeadBytes);
  HeadResult opened = open_head(head, entry.size(), name, trust);
  if (!opened.envelope) return {std::nullopt, std::move(opened.reason)};
  if (!has_digest(head.subspan(kEntryDigestAt), sha256(entry))) return {std::nullopt, "was altered"};
  opened.envelope->entry = entry;
  return {opened.envelope, ""};
} catch (const MissingError& error) {
  return {std::nullopt, error.what()};
}

}  // namespace kernelwright
