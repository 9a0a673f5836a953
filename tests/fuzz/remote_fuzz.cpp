// Any bytes of a server are a reply or a broken one, and an envelope or a refusal, without a crash, a leak, or an
// allocation out of proportion to the limit. The first byte says which reader gets the rest: of replies, of envelopes,
// or of addresses. For replies, the second byte is the size of the pieces in which they arrive. Of HTTP nothing is read
// here but the address: libcurl reads replies, and HttpFaults.AnyBytesAreAReplyOrAFault has altered ones.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/cache/envelope.h"
#include "kernelwright/runtime/cache/remote/address.h"
#include "kernelwright/runtime/cache/remote/resp.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kernelwright;
  if (size < 2) return 0;
  std::span bytes(reinterpret_cast<const std::byte*>(data + 2), size - 2);
  if (data[0] % 3 == 0) {
    const std::size_t piece = data[1] + std::size_t{1}, limit = 4096;
    const RespReply reply =
        read_resp_reply({.receive =
                             [&](std::span<std::byte> into, std::string&) {
                               const std::size_t count = std::min({piece, into.size(), bytes.size()});
                               std::ranges::copy(bytes.first(count), into.begin());
                               bytes = bytes.subspan(count);
                               return count;
                             }},
                        limit);
    if (reply.bytes.size() > limit) std::abort();
  } else if (data[0] % 3 == 1) {
    // An unsigned envelope that opens is what make_envelope() makes; no such bytes pass for signed ones.
    const Digest name = sha256("name");
    const EnvelopeResult result = open_envelope(bytes, name, {{}, true});
    if (result.envelope.has_value() != result.reason.empty()) std::abort();
    if (result.envelope && bytes[12] == std::byte{0} &&
        !std::ranges::equal(make_envelope(name, result.envelope->entry, result.envelope->created_s, nullptr), bytes))
      std::abort();
    if (open_envelope(bytes, name, {{}, false}).envelope) std::abort();
    if (fault_of_head(bytes, name, {{}, false}).empty()) std::abort();
    if (result.envelope && !fault_of_head(bytes, name, {{}, true}).empty()) std::abort();
  } else {
    try {
      const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      const RemoteAddress address = parse_remote_address(text, "/remote");
      if (address.name.find('@') != std::string::npos && address.scheme != RemoteScheme::kRedisUnix) std::abort();
      // What is put into a URL, as it is.
      constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~:/";
      if (address.is_http() && (address.host + address.path).find_first_not_of(kPlain) != std::string::npos)
        std::abort();
    } catch (const ConfigError&) {
    }
  }
  return 0;
}
