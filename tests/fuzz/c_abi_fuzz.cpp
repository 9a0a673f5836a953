// Every sequence of calls of the C ABI, with any structs: each call must end in a status of the header, without a
// crash, a leak, or a number that wraps on its way to the driver. fuzz/c_abi_calls.h says what is random.
#include "fuzz/c_abi_calls.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static kernelwright::fuzz::CallCounts counts;
  kernelwright::fuzz::make_calls({data, size}, counts);
  return 0;
}
