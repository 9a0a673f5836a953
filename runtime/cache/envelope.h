/// What a remote cache has under a name: an entry, and whose it is. docs/fleet.md has it byte by byte. A key names what
/// goes into a compile and not what comes out, so only the builder's signature says that a binary is the right one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernelwright/generator/digest.h"
#include "kernelwright/runtime/cache/signature.h"

namespace kernelwright {

inline constexpr std::size_t kEnvelopeHeadBytes = 192;

struct EnvelopeTrust {
  std::vector<PublicKey> keys;  // one of them has signed the envelope
  bool allow_unsigned = false;  // without keys, any envelope is taken. With keys, one that is not signed is taken too
};

struct OpenedEnvelope {
  std::optional<PublicKey> builder;  // nothing: it is not signed
  std::int64_t created_s = 0;        // Unix time of the builder's clock. For people: nothing is decided by it
  std::span<const std::byte> entry;  // in the bytes that were opened
};

struct EnvelopeResult {
  std::optional<OpenedEnvelope> envelope;
  std::string reason;  // why there is none: "is signed by none of the keys that are trusted"
};

/// The bytes of an envelope, signed if there is a key. `name` is the digest that the envelope is found by. Throws
/// MissingError if there is a key and no libsodium.
std::vector<std::byte> make_envelope(const Digest& name, std::span<const std::byte> entry, std::int64_t created_s,
                                     const SigningKey* key);

/// "", or why nothing that begins with `head` would be opened under `name`. A head of kEnvelopeHeadBytes or more proves
/// that a trusted key has signed it, and proves nothing of the entry behind it.
std::string fault_of_head(std::span<const std::byte> head, const Digest& name, const EnvelopeTrust& trust);

/// Opens any bytes. Every byte is proved: the head by the signature, the entry by its SHA-256 in the head.
EnvelopeResult open_envelope(std::span<const std::byte> bytes, const Digest& name, const EnvelopeTrust& trust);

}  // namespace kernelwright
