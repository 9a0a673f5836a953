/// Sequences of calls of the C ABI, made from bytes: c_abi_fuzz.cpp uses libFuzzer's bytes, and c_abi_calls_main.cpp
/// those of a seed.
///
/// Structs lie in memory of exactly struct_size bytes, so that a sanitizer sees every byte that is read past their end.
/// They hold random bytes, or plausible ones of which some are extreme. Device addresses are any numbers: launches end
/// in a device that accepts them and reads nothing. What the ABI cannot check is valid: pointers to host memory are
/// null or point to what the call says, handles are null or belong to a living engine, and no engine is destroyed in
/// use.
#pragma once

#include <cstdint>
#include <span>

namespace kernelwright::fuzz {

struct CallCounts {
  std::uint64_t calls = 0;
  std::uint64_t by_status[7] = {};
  std::uint64_t launched = 0;  // that reached the device
};

/// Makes the calls that `bytes` spell. Ends the process with a message if a call breaks a promise. Such cases are a
/// status that the header does not have, an internal error, and a failure without a message or with a result. Another
/// is a driver call that a driver would refuse for its sizes alone.
void make_calls(std::span<const std::uint8_t> bytes, CallCounts& counts);

}  // namespace kernelwright::fuzz
