// The SM clock, from a library that may be missing.
#include "kernelwright/runtime/cuda/nvml.h"

#include <gtest/gtest.h>

namespace kernelwright {
namespace {

TEST(Nvml, TellsTheClockOfTheGpuThatIsNamed) {
  EXPECT_EQ(nvml_sm_clock_mhz("0000:3b:00.0", KERNELWRIGHT_STUB_NVML), 1755);
  EXPECT_EQ(nvml_sm_clock_mhz("0000:00:00.0", KERNELWRIGHT_STUB_NVML), std::nullopt);
}

TEST(Nvml, AMachineWithoutItGetsUnknown) {
  EXPECT_EQ(nvml_sm_clock_mhz("0000:3b:00.0", "/nonexistent/libnvidia-ml.so.1"), std::nullopt);
  EXPECT_EQ(nvml_sm_clock_mhz("0000:3b:00.0", KERNELWRIGHT_STUB_CUDA), std::nullopt) << "a library without the calls";
}

}  // namespace
}  // namespace kernelwright
