// The state of a GPU, from a library that may be missing.
#include "kernelwright/runtime/cuda/nvml.h"

#include <gtest/gtest.h>

namespace kernelwright {
namespace {

TEST(Nvml, TellsTheStateOfTheGpuThatIsNamed) {
  const std::optional<GpuReading> reading = nvml_reading("0000:3b:00.0", KERNELWRIGHT_STUB_NVML);
  ASSERT_TRUE(reading);
  EXPECT_EQ(reading->sm_clock_mhz, 1755);
  EXPECT_EQ(reading->uuid, "GPU-0123");
  EXPECT_EQ(reading->limits, (std::vector<std::string>{"power cap", "thermal slowdown"}));
  EXPECT_EQ(reading->slowdowns, std::vector<std::string>{"thermal slowdown"});
  EXPECT_FALSE(nvml_reading("0000:00:00.0", KERNELWRIGHT_STUB_NVML));
}

TEST(Nvml, AMachineWithoutItGetsUnknown) {
  EXPECT_FALSE(nvml_reading("0000:3b:00.0", "/nonexistent/libnvidia-ml.so.1"));
  EXPECT_FALSE(nvml_reading("0000:3b:00.0", KERNELWRIGHT_STUB_CUDA)) << "a library without the calls";
}

}  // namespace
}  // namespace kernelwright
