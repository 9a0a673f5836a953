/// Conformance cases on a GPU, through backend.h: the driver compiles the PTX.
#include <stdexcept>

#include "runtime/emulator/conformance/conformance.h"

namespace kernelwright::test {
namespace {

/// Device memory that is freed with it.
class DeviceBuffer {
 public:
  DeviceBuffer(Device& device, const std::vector<std::byte>& contents)
      : device_(&device), address_(device.allocate(contents.size())) {
    device.copy_to_device(address_, contents.data(), contents.size());
  }
  ~DeviceBuffer() {
    if (device_) device_->free(address_);
  }
  DeviceBuffer(DeviceBuffer&& other) noexcept : device_(other.device_), address_(other.address_) {
    other.device_ = nullptr;
  }
  DeviceBuffer& operator=(DeviceBuffer&&) = delete;
  DevicePtr address() const { return address_; }

 private:
  Device* device_;
  DevicePtr address_;
};

class OnCuda final : public ConformanceDevice {
 public:
  OnCuda() : backend_(make_cuda_backend()), device_(backend_->device(0)) {}
  std::string name() const override { return device_.info().name; }

  Outputs run(const ConformanceCase& test) override {
    const auto kernel = device_.load(std::string_view(test.text), "test", test.launch.shared_bytes);
    std::vector<DeviceBuffer> buffers;
    std::vector<std::uint64_t> addresses;
    for (const ConformanceBuffer& buffer : test.buffers) {
      buffers.emplace_back(device_, buffer.contents);
      addresses.push_back(buffers.back().address());
    }
    std::vector<TensorMap> maps;
    for (const ConformanceMap& map : test.maps) {
      TensorMapRequest request = map.request;
      for (std::size_t i = 0; i < test.buffers.size(); ++i)
        if (test.buffers[i].name == map.buffer) request.address = addresses[i];
      maps.push_back(device_.encode_tensor_map(request));
    }
    const std::vector<std::byte> parameters = conformance_parameters(test, addresses, maps);
    device_.launch(*kernel, test.launch, parameters.data(), parameters.size(), nullptr);
    device_.synchronize(nullptr);
    Outputs outputs;
    for (std::size_t i = 0; i < test.buffers.size(); ++i) {
      if (test.buffers[i].role == ConformanceBuffer::Role::kIn) continue;
      auto& bytes = outputs[test.buffers[i].name];
      bytes.resize(test.buffers[i].bytes());
      device_.copy_to_host(bytes.data(), addresses[i], bytes.size());
    }
    return outputs;
  }

 private:
  std::unique_ptr<Backend> backend_;
  Device& device_;
};

}  // namespace

std::unique_ptr<ConformanceDevice> make_cuda_conformance_device() { return std::make_unique<OnCuda>(); }

}  // namespace kernelwright::test
