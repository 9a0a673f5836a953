// The Hopper kernels that prove the emulator, first proved themselves: compiled without a warning where there is a
// compiler, right on a GPU of compute capability 9.0 where there is one. Skipped by name elsewhere.
#include <gtest/gtest.h>

#include "kernelwright/generator/error.h"
#include "runtime/emulator/kernels/hopper_cases.h"

namespace kernelwright {
namespace {

using test::HopperCase;
using test::HopperOutcome;

Compiler& compiler() {
  static Compiler one;
  return one;
}

/// The cuda backend of this process, or why there is none.
struct Gpu {
  std::unique_ptr<Backend> backend;
  std::string missing;
  static Gpu& get() {
    static Gpu gpu;
    return gpu;
  }

 private:
  Gpu() {
    try {
      backend = make_cuda_backend();
      const DeviceInfo& info = backend->device(0).info();
      if (info.compute_major == 9 && info.compute_minor == 0) return;
      missing = info.name + " has no compute capability 9.0";
      backend.reset();
    } catch (const MissingError& error) {
      missing = error.what();
    }
  }
};

std::span<const std::byte> image_of(const Binary& binary) { return binary.cubin; }

class HopperKernels : public testing::TestWithParam<HopperCase> {
 protected:
  void SetUp() override {
    if (compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }
};

// Spills and serialised wgmma are errors of compile_hopper(). The instructions are those of the plain PTX.
TEST_P(HopperKernels, CompileWithoutAWarningAndToTheSameInstructionsWithLineInfo) {
  const Binary plain = test::compile_hopper(compiler(), GetParam());
  EXPECT_EQ(plain.usage.spill_stores + plain.usage.spill_loads + plain.usage.stack, 0);
  const Binary lined = test::compile_hopper(compiler(), GetParam(), /*line_info=*/true);
  const auto instructions = [](const std::string& ptx) {
    std::string kept;
    for (std::size_t at = ptx.find(".visible .entry"), end; at < ptx.size(); at = end + 1) {
      end = std::min(ptx.find('\n', at), ptx.size() - 1);
      std::string line = ptx.substr(at, end - at);
      line.erase(std::min(line.find("//"), line.size()));
      if (line.find(".section") != std::string::npos) break;  // the debugger's own, after the last entry
      if (line.find(".loc") != std::string::npos || line.find(".file") != std::string::npos) continue;
      if (line.find_first_not_of(" \t") == std::string::npos) continue;
      // Labels of functions that were inlined; nothing branches to them.
      if (line.find("$L__tmp") == 0 || line.find("$L__func") == 0) continue;
      kept += line + "\n";
    }
    return kept;
  };
  EXPECT_NE(lined.ptx.find(".loc"), std::string::npos);
  EXPECT_EQ(instructions(plain.ptx), instructions(lined.ptx));
}

TEST_P(HopperKernels, MatchTheReferenceOnCuda) {
  if (!Gpu::get().backend) GTEST_SKIP() << "no GPU: " << Gpu::get().missing;
  Device& device = Gpu::get().backend->device(0);
  const Binary binary = test::compile_hopper(compiler(), GetParam());
  for (const std::uint64_t seed : {1, 2, 3}) {
    const HopperOutcome first = GetParam().run(device, image_of(binary), seed);
    EXPECT_EQ(first.failure, "") << "seed " << seed;
    const HopperOutcome second = GetParam().run(device, image_of(binary), seed);
    EXPECT_EQ(first.output, second.output) << "two launches differ, seed " << seed;
    RecordProperty("worst_over_bound", std::to_string(first.worst_ratio));
  }
}

INSTANTIATE_TEST_SUITE_P(All, HopperKernels, testing::ValuesIn(test::hopper_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace kernelwright
