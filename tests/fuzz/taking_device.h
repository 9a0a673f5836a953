/// A device that accepts every launch, and ends the process where a call reaches it that no driver takes.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "kernelwright/generator/checked.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/runtime/c/c_api.h"
#include "kernelwright/runtime/device/backend.h"
#include "kernelwright/runtime/emulator/machine/tensor_map.h"

namespace kernelwright::fuzz {

/// Ends the process: the library has broken a promise.
[[noreturn]] inline void broken(const std::string& what) {
  std::fprintf(stderr, "c_abi_calls: %s\nlast error: %s\n", what.c_str(), kernelwright_last_error());
  std::abort();
}

inline std::uint64_t launches_taken = 0;

struct TakenKernel final : LoadedKernel {
  std::size_t loaded_bytes() const override { return 1000; }
};

/// Accepts every launch and reads nothing. Checks that launches keep to the sizes that a driver accepts.
class TakingDevice final : public Device {
 public:
  explicit TakingDevice(Arch arch) {
    const ArchInfo& row = arch_info(arch);
    info_ = {.name = "taking",
             .compute_major = row.major,
             .compute_minor = row.minor,
             .arch = arch,
             .num_sms = 132,
             .memory_bytes = std::size_t{80} << 30,
             .shared_bytes_per_cta = row.shared_bytes_per_cta};
  }
  const DeviceInfo& info() const override { return info_; }
  int ordinal() const override { return 0; }
  DevicePtr allocate(std::size_t bytes) override {
    require_span(0, bytes);
    if (bytes > info_.memory_bytes) throw DeviceError("cuMemAlloc: 2 (out of memory)", 2);
    return bytes ? 0x7000'0000 : 0;
  }
  void free(DevicePtr) noexcept override {}
  void copy_to_device(DevicePtr to, const void*, std::size_t bytes) override { require_span(to, bytes); }
  void copy_to_host(void*, DevicePtr from, std::size_t bytes) override { require_span(from, bytes); }
  void fill(DevicePtr address, std::uint8_t, std::size_t bytes, Stream) override {
    if (!is_span(address, bytes)) broken(fmt::format("{} bytes at {:#x} are filled", bytes, address));
  }
  std::unique_ptr<LoadedKernel> load(const KernelImage&, const std::string&, std::uint32_t) override {
    return std::make_unique<TakenKernel>();
  }
  void launch(const LoadedKernel&, const LaunchConfig& config, const void* params, std::size_t params_bytes,
              Stream) override {
    ++launches_taken;
    if (config.grid[0] == 0 || config.grid[0] > 0x7fffffff || config.grid[1] == 0 || config.grid[1] > 65535 ||
        config.grid[2] != 1 || config.block == 0 || config.block > 1024)
      broken(fmt::format("a grid of {} x {} x {} CTAs of {} threads is launched", config.grid[0], config.grid[1],
                         config.grid[2], config.block));
    for (std::size_t i = 0; i < params_bytes; ++i) sum_ = sum_ + static_cast<const unsigned char*>(params)[i];
  }
  int max_ctas_per_sm(const LoadedKernel&, std::uint32_t, std::uint32_t) override { return 1; }
  TensorMap encode_tensor_map(const TensorMapRequest& request) override {
    try {
      return emulator::encode_tensor_map(emulator::describe(request));
    } catch (const ConfigError& error) {
      broken(fmt::format("a tensor map reaches the driver that no driver takes: {}", error.what()));
    }
  }
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
  volatile unsigned sum_ = 0;
};

class TakingBackend final : public Backend {
 public:
  explicit TakingBackend(Arch arch) : device_(arch) {}
  std::string_view name() const override { return "taking"; }
  int device_count() const override { return 1; }
  Device& device(int ordinal) override {
    if (ordinal != 0) throw MissingError("there is device 0 alone");
    return device_;
  }

 private:
  TakingDevice device_;
};

}  // namespace kernelwright::fuzz
