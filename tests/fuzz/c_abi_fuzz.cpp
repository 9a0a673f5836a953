// Any sequence of calls of the C ABI, with any structs, ends each in a status that the header has: no crash, no leak,
// no number that wraps on its way to the driver. fuzz/c_abi_calls.h says what is random.
#include "fuzz/c_abi_calls.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static kernelwright::fuzz::CallCounts counts;
  kernelwright::fuzz::make_calls({data, size}, counts);
  return 0;
}
