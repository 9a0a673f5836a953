/// Where tests of kernels run that otherwise run on the emulator: KERNELWRIGHT_TEST_DEVICE=cuda takes the GPU.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "kernelwright/runtime/emulator/emulator_backend.h"
#include "support/cuda_engine.h"

namespace kernelwright::test {

/// Throws Error if $KERNELWRIGHT_TEST_DEVICE is a word that tests do not know.
inline bool tests_run_on_cuda() {
  const char* asked = std::getenv("KERNELWRIGHT_TEST_DEVICE");
  const std::string device = asked ? asked : "emulator";
  if (device != "cuda" && device != "emulator")
    throw Error("KERNELWRIGHT_TEST_DEVICE is " + device + ", and tests run on emulator or cuda");
  return device == "cuda";
}

/// For constructors of fixtures, which gtest then does not run: skips a test of another architecture than the GPU's.
/// Throws MissingError if there is no GPU, because somebody has asked for one.
inline void skip_unless_gpu_is(Arch arch) {
  const CudaEngine& gpu = CudaEngine::get();
  if (!gpu.engine) throw MissingError("KERNELWRIGHT_TEST_DEVICE is cuda: " + gpu.missing);
  // Memory of an engine that lives as long as the process: without it, each test would open and close the GPU's
  // context.
  [[maybe_unused]] static const DevicePtr kept = gpu.engine->device(0).allocate(256);
  const auto& info = gpu.engine->device(0).info();
  if (*info.arch != arch)
    GTEST_SKIP() << "the case is for " << to_string(arch) << ", and " << info.name << " is " << to_string(*info.arch);
}

/// What the emulator's checks found since the last call. A GPU checks nothing, so there it is empty.
inline auto take_reports(Engine& engine) {
  auto* const emulator = dynamic_cast<EmulatorBackend*>(&engine.backend());
  EXPECT_EQ(emulator == nullptr, tests_run_on_cuda()) << "the engine is on another device than the tests";
  return emulator ? emulator->take_reports() : decltype(emulator->take_reports()){};
}

}  // namespace kernelwright::test
