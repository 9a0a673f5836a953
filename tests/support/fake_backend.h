/// A backend that computes nothing and records everything: what was loaded, what was launched with which arguments, and
/// what was asked of a capturing stream. Its behaviour is set per device. Any number of threads may use it.
#pragma once

#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/device/backend.h"

namespace kernelwright::test {

/// An architecture on which every problem belongs to the portable family. Tests of another family set info().arch.
inline constexpr Arch kFakeArch = Arch::kSm120a;

struct FakeKernel final : LoadedKernel {
  std::string entry;
  int device = 0;
  std::uint32_t max_shared_bytes = 0;
  std::size_t loaded_bytes() const override { return 1000; }
};

struct FakeLaunch {
  const FakeKernel* kernel;
  LaunchConfig config;
  Stream stream;
  std::size_t params_bytes;
  std::array<std::byte, 2048> params;
  template <class Params>
  Params as() const {
    Params value;
    static_assert(sizeof value <= std::tuple_size_v<decltype(params)>);
    EXPECT_EQ(params_bytes, sizeof value);
    std::memcpy(&value, params.data(), sizeof value);
    return value;
  }
};

/// Space for launches and tensor maps is reserved in advance, so that they allocate nothing.
class FakeDevice final : public Device {
 public:
  explicit FakeDevice(int ordinal) : ordinal_(ordinal) {
    info_ = {.name = "fake " + std::to_string(ordinal),
             .compute_major = 12,
             .compute_minor = 0,
             .arch = kFakeArch,
             .num_sms = 132,
             .memory_bytes = std::size_t{80} << 30,
             .l2_bytes = std::size_t{50} << 20,
             .shared_bytes_per_cta = arch_info(kFakeArch).shared_bytes_per_cta,
             .clock_khz = 1'980'000};
    launches_.reserve(1024);
    tensor_maps_.reserve(1024);
  }

  std::atomic<CaptureState> capturing{CaptureState::kNone};
  std::atomic<bool> refuse_loads{false};
  std::atomic<int> refuse_launch{-1};  // the number of the launch that fails
  std::atomic<int> loads{0}, loads_in_capture{0};

  DeviceInfo& mutable_info() { return info_; }
  std::vector<FakeLaunch> launches() const {
    std::lock_guard lock(mutex_);
    return launches_;
  }
  /// The request from which a launch's tensor map was encoded.
  TensorMapRequest tensor_map(const void* map) const {
    std::size_t number = 0;
    std::memcpy(&number, map, sizeof number);
    std::lock_guard lock(mutex_);
    return tensor_maps_.at(number);
  }
  void forget_launches() {
    std::lock_guard lock(mutex_);
    launches_.clear();
    tensor_maps_.clear();
  }

  /// The last fill, and how many launches were queued ahead of it.
  struct Fill {
    DevicePtr address = 0;
    std::uint8_t byte = 0xff;
    std::size_t bytes = 0, launches_before = 0;
  };
  Fill last_fill() const {
    std::lock_guard lock(mutex_);
    return last_fill_;
  }

  const DeviceInfo& info() const override { return info_; }
  int ordinal() const override { return ordinal_; }
  DevicePtr allocate(std::size_t bytes) override { return bytes ? 0x7000'0000 : 0; }
  void free(DevicePtr) noexcept override {}
  void copy_to_device(DevicePtr, const void*, std::size_t) override {}
  void copy_to_host(void* to, DevicePtr, std::size_t bytes) override { std::memset(to, 0, bytes); }
  void fill(DevicePtr address, std::uint8_t byte, std::size_t bytes, Stream) override {
    std::lock_guard lock(mutex_);
    last_fill_ = {address, byte, bytes, launches_.size()};
  }

  std::unique_ptr<LoadedKernel> load(const KernelImage&, const std::string& entry,
                                     std::uint32_t max_shared_bytes) override {
    if (capturing != CaptureState::kNone) ++loads_in_capture;
    if (refuse_loads) throw DeviceError("cuLibraryLoadData: 200 (invalid image), loading " + entry, 200);
    ++loads;
    auto kernel = std::make_unique<FakeKernel>();
    kernel->entry = entry;
    kernel->device = ordinal_;
    kernel->max_shared_bytes = max_shared_bytes;
    return kernel;
  }
  void launch(const LoadedKernel& kernel, const LaunchConfig& config, const void* params, std::size_t params_bytes,
              Stream stream) override {
    std::lock_guard lock(mutex_);
    if (static_cast<int>(launches_.size()) == refuse_launch) throw DeviceError("cuLaunchKernelEx: 1 (refused)", 1);
    FakeLaunch& launch = launches_.emplace_back();
    launch.kernel = static_cast<const FakeKernel*>(&kernel);
    launch.config = config;
    launch.stream = stream;
    launch.params_bytes = params_bytes;
    std::memcpy(launch.params.data(), params, params_bytes);
  }
  int max_ctas_per_sm(const LoadedKernel&, std::uint32_t, std::uint32_t) override { return 1; }
  /// The map holds the index of its request in tensor_maps().
  TensorMap encode_tensor_map(const TensorMapRequest& request) override {
    std::lock_guard lock(mutex_);
    const std::size_t number = tensor_maps_.size();
    tensor_maps_.push_back(request);
    TensorMap map{};
    std::memcpy(map.bytes, &number, sizeof number);
    return map;
  }
  Stream create_stream() override { return nullptr; }
  void destroy_stream(Stream) noexcept override {}
  void synchronize(Stream) override {}
  CaptureState capture_state(Stream) override { return capturing; }
  DeviceEvent* create_event() override { return nullptr; }
  void destroy_event(DeviceEvent*) noexcept override {}
  void record(DeviceEvent*, Stream) override {}
  float elapsed_ms(DeviceEvent*, DeviceEvent*) override { return 0; }
  void begin_capture(Stream) override { capturing = CaptureState::kActive; }
  std::unique_ptr<Graph> end_capture(Stream) override {
    capturing = CaptureState::kNone;
    return nullptr;
  }

 private:
  const int ordinal_;
  DeviceInfo info_;
  mutable std::mutex mutex_;
  std::vector<FakeLaunch> launches_;
  std::vector<TensorMapRequest> tensor_maps_;
  Fill last_fill_;
};

class FakeBackend final : public Backend {
 public:
  explicit FakeBackend(int devices = 1, ImageKind wants = ImageKind::kCubin) {
    for (int i = 0; i < devices; ++i) devices_.emplace_back(i).mutable_info().wants = wants;
  }
  std::string_view name() const override { return "fake"; }
  int device_count() const override { return static_cast<int>(devices_.size()); }
  FakeDevice& device(int ordinal) override {
    if (ordinal < 0 || ordinal >= device_count())
      throw MissingError("device " + std::to_string(ordinal) + ": there are " + std::to_string(device_count()));
    return devices_[static_cast<std::size_t>(ordinal)];
  }

 private:
  std::deque<FakeDevice> devices_;
};

}  // namespace kernelwright::test
