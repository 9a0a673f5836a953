/// Sequences of calls of the C ABI, made of bytes: what c_abi_fuzz.cpp feeds to libFuzzer's, and c_abi_calls_main.cpp
/// to those of a seed.
///
/// Structs lie in memory of exactly struct_size bytes, so that a sanitizer sees every byte that is read behind them,
/// and hold random bytes, or plausible ones of which some are extreme. Device addresses are any numbers: launches end
/// in a device that takes them and reads nothing. What the ABI cannot check is sound: pointers to host memory are null
/// or point to what the call says is there, handles are null or of a living engine, and no engine is destroyed in use.
#pragma once

#include <cstdint>
#include <span>

namespace kernelwright::fuzz {

struct CallCounts {
  std::uint64_t calls = 0;
  std::uint64_t by_status[7] = {};
  std::uint64_t launched = 0;  // that reached the device
};

/// Makes the calls that `bytes` spell. Ends the process with a message where one breaks a promise: a status that the
/// header does not have, an internal error, a failure without words or with a result, or a driver call that a driver
/// would refuse for its sizes alone.
void make_calls(std::span<const std::uint8_t> bytes, CallCounts& counts);

}  // namespace kernelwright::fuzz
