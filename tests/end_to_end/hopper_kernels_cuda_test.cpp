// Tests of the Hopper kernels with which the emulator is tested. They must compile without a warning if there is a
// compiler, and be right on a GPU of compute capability 9.0 if there is one. Skipped by name elsewhere.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <ostream>

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

class HopperKernels : public testing::TestWithParam<const HopperCase*> {
 protected:
  void SetUp() override {
    if (compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }
};

// Spills and serialised wgmma are errors of compile_hopper(). The instructions are those of the plain PTX.
TEST_P(HopperKernels, CompileWithoutAWarningAndToTheSameInstructionsWithLineInfo) {
  const Binary plain = test::compile_hopper(compiler(), *GetParam());
  EXPECT_EQ(plain.usage.spill_stores + plain.usage.spill_loads + plain.usage.stack, 0);
  const Binary lined = test::compile_hopper(compiler(), *GetParam(), /*line_info=*/true);
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
  EXPECT_NE(instructions(plain.ptx).find("ret;"), std::string::npos);
  EXPECT_EQ(instructions(plain.ptx), instructions(lined.ptx));
}

TEST_P(HopperKernels, MatchTheReferenceOnCuda) {
  if (!Gpu::get().backend) GTEST_SKIP() << "no GPU: " << Gpu::get().missing;
  Device& device = Gpu::get().backend->device(0);
  const Binary binary = test::compile_hopper(compiler(), *GetParam());
  const KernelImage image = test::hopper_image(device, *GetParam(), binary);
  for (const std::uint64_t seed : {1, 2, 3}) {
    const HopperOutcome first = GetParam()->run(device, image, seed);
    EXPECT_EQ(first.failure, "") << "seed " << seed;
    const HopperOutcome second = GetParam()->run(device, image, seed);
    EXPECT_EQ(first.output, second.output) << "two launches differ, seed " << seed;
    RecordProperty("worst_over_bound", std::to_string(first.worst_ratio));
  }
}

/// Host memory, where a launch runs `kernel` or nothing.
class MemoryDevice final : public Device {
 public:
  std::function<void(const LaunchConfig&)> kernel = [](const LaunchConfig&) {};
  std::vector<std::pair<std::byte*, std::size_t>> allocated;

  const DeviceInfo& info() const override { return info_; }
  int ordinal() const override { return 0; }
  DevicePtr allocate(std::size_t bytes) override {
    allocated.emplace_back(new std::byte[bytes], bytes);
    return reinterpret_cast<DevicePtr>(allocated.back().first);
  }
  void free(DevicePtr address) noexcept override {
    std::erase_if(allocated, [&](const auto& one) { return reinterpret_cast<DevicePtr>(one.first) == address; });
    delete[] reinterpret_cast<std::byte*>(address);
  }
  void copy_to_device(DevicePtr to, const void* from, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  }
  void copy_to_host(void* to, DevicePtr from, std::size_t bytes) override {
    std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  }
  void fill(DevicePtr address, std::uint8_t byte, std::size_t bytes, Stream) override {
    std::memset(reinterpret_cast<void*>(address), byte, bytes);
  }
  std::unique_ptr<LoadedKernel> load(const KernelImage&, const std::string&, std::uint32_t) override {
    struct Nothing final : LoadedKernel {
      std::size_t loaded_bytes() const override { return 0; }
    };
    return std::make_unique<Nothing>();
  }
  void launch(const LoadedKernel&, const LaunchConfig& config, const void*, std::size_t, Stream) override {
    kernel(config);
  }
  int max_ctas_per_sm(const LoadedKernel&, std::uint32_t, std::uint32_t) override { return 1; }
  TensorMap encode_tensor_map(const TensorMapRequest&) override { return {}; }
  Stream create_stream() override { return nullptr; }
  void destroy_stream(Stream) noexcept override {}
  void synchronize(Stream) override {}
  CaptureState capture_state(Stream) override { return CaptureState::kNone; }
  DeviceEvent* create_event() override { return nullptr; }
  void destroy_event(DeviceEvent*) noexcept override {}
  void record(DeviceEvent*, Stream) override {}
  float elapsed_ms(DeviceEvent*, DeviceEvent*) override { return 0; }
  void begin_capture(Stream) override {}
  std::unique_ptr<Graph> end_capture(Stream) override { return nullptr; }

 private:
  DeviceInfo info_;
};

const KernelImage kNoImage{std::string_view()};

// Otherwise a case that compares nothing would pass everywhere.
class HopperCases : public testing::TestWithParam<const HopperCase*> {};

TEST_P(HopperCases, NoticeADeviceThatWritesNothing) {
  MemoryDevice device;
  const HopperOutcome outcome = GetParam()->run(device, kNoImage, 1);
  EXPECT_NE(outcome.failure.find(" should be "), std::string::npos) << outcome.failure;
  EXPECT_FALSE(outcome.output.empty());
  EXPECT_TRUE(device.allocated.empty()) << "not freed";
}

TEST_P(HopperCases, NoticeAByteBesideAnOutput) {
  MemoryDevice device;
  device.kernel = [&](const LaunchConfig&) {
    for (auto& [memory, bytes] : device.allocated) memory[bytes - 1] = std::byte{0};
  };
  const HopperOutcome outcome = GetParam()->run(device, kNoImage, 1);
  EXPECT_NE(outcome.failure.find(" was written"), std::string::npos) << outcome.failure;
}

INSTANTIATE_TEST_SUITE_P(All, HopperCases, testing::ValuesIn(test::pointers_to_hopper_cases()),
                         [](const auto& info) { return info.param->name; });
INSTANTIATE_TEST_SUITE_P(All, HopperKernels, testing::ValuesIn(test::pointers_to_hopper_cases()),
                         [](const auto& info) { return info.param->name; });

}  // namespace
}  // namespace kernelwright
