// Any bytes either are an entry or are refused with a reason, without a crash, a leak, or an allocation out of
// proportion to the input. The first byte says whether the checksum is checked; without the check, the input reaches
// the parser itself.
#include <cstdint>
#include <cstdlib>

#include "kernelwright/runtime/cache/entry.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kernelwright;
  if (size == 0) return 0;
  const std::span bytes(reinterpret_cast<const std::byte*>(data + 1), size - 1);
  const Payload payload = data[0] & 4 ? Payload::kCubinOnly : data[0] & 2 ? Payload::kSkip : Payload::kUnpack;
  const DecodeResult result = data[0] & 1 ? decode_entry(bytes, payload) : decode_entry_unchecked(bytes, payload);
  if (result.entry.has_value() != result.reason.empty()) std::abort();
  // Reading with the number of bytes that the entry says it needs, into memory that the cubin takes over, gives the
  // same verdict.
  const std::size_t needed = entry_bytes_needed(bytes, bytes.size(), payload);
  if (needed > bytes.size()) std::abort();
  const auto moved = decode_entry(std::vector<std::byte>(bytes.begin(), bytes.begin() + static_cast<long>(needed)),
                                  bytes.size(), payload);
  if (data[0] & 1 && moved.reason != result.reason) std::abort();
  if (result.entry && payload == Payload::kUnpack) {  // an entry that was read can be written, and reads the same
    const auto again = decode_entry(encode_entry(result.entry->key, result.entry->binary));
    if (!again.entry || !(again.entry->key == result.entry->key)) std::abort();
  }
  return 0;
}
