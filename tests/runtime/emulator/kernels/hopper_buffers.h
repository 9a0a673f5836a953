/// Device memory of one run of a case: inputs, outputs between guards, launches.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kernelwright/runtime/device/backend.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/random.h"
#include "runtime/emulator/kernels/hopper_params.h"

namespace kernelwright::test {

/// An allocation that is filled, read back and freed.
class DeviceBuffer {
 public:
  /// A copy of `bytes` at `from`.
  DeviceBuffer(Device& device, const void* from, std::size_t bytes) : DeviceBuffer(device, bytes) {
    device_.copy_to_device(address(), from, bytes);
  }
  template <class T>
  DeviceBuffer(Device& device, const std::vector<T>& values)
      : DeviceBuffer(device, values.data(), values.size() * sizeof(T)) {}
  /// All bytes 0xff: NaN in every float format.
  DeviceBuffer(Device& device, std::size_t bytes)
      : device_(device), bytes_(bytes), base_(device.allocate(bytes + 2 * kGuardBytes)) {
    std::vector<std::byte> fill(bytes + 2 * kGuardBytes, kGuard);
    std::fill_n(fill.begin() + kGuardBytes, bytes, std::byte{0xff});
    device_.copy_to_device(base_, fill.data(), fill.size());
  }
  ~DeviceBuffer() { device_.free(base_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  DevicePtr address() const { return base_ + kGuardBytes; }
  template <class T>
  T* pointer() const {
    return reinterpret_cast<T*>(address());
  }
  std::vector<std::byte> read() const {
    std::vector<std::byte> values(bytes_);
    device_.copy_to_host(values.data(), address(), bytes_);
    return values;
  }
  template <class T>
  std::vector<T> read_as() const {
    std::vector<T> values(bytes_ / sizeof(T));
    device_.copy_to_host(values.data(), address(), values.size() * sizeof(T));
    return values;
  }
  /// "" if nothing was written beside the buffer.
  std::string guards() const {
    std::vector<std::byte> all(bytes_ + 2 * kGuardBytes);
    device_.copy_to_host(all.data(), base_, all.size());
    for (std::size_t i = 0; i < all.size(); ++i)
      if ((i < kGuardBytes || i >= kGuardBytes + bytes_) && all[i] != kGuard)
        return "byte " + std::to_string(static_cast<long long>(i) - static_cast<long long>(kGuardBytes)) +
               " of an output of " + std::to_string(bytes_) + " was written";
    return {};
  }

 private:
  static constexpr std::size_t kGuardBytes = 1024;  // keeps the alignment of 256 and more
  static constexpr std::byte kGuard{0xa5};
  Device& device_;
  std::size_t bytes_;
  DevicePtr base_;
};

/// `dims` innermost first. The tensor is dense except where `strides_bytes` says otherwise.
inline TensorMap tensor_map(Device& device, const TensorMapRequest& request) {
  const kernelwright::TensorMap encoded = device.encode_tensor_map(request);
  TensorMap map;
  static_assert(sizeof map == sizeof encoded.bytes);
  std::memcpy(&map, encoded.bytes, sizeof map);
  return map;
}

/// A row-major [rows][columns] matrix.
inline TensorMap matrix_map(Device& device, DevicePtr address, DType dtype, int rows, int columns, int box_rows,
                            int box_columns, Swizzle swizzle = Swizzle::k128B) {
  TensorMapRequest request;
  request.address = address;
  request.dtype = dtype;
  request.rank = 2;
  request.dims[0] = static_cast<std::uint64_t>(columns), request.dims[1] = static_cast<std::uint64_t>(rows);
  request.strides_bytes[0] = static_cast<std::uint64_t>(columns) * bytes_of(dtype);
  request.box[0] = static_cast<std::uint32_t>(box_columns), request.box[1] = static_cast<std::uint32_t>(box_rows);
  request.swizzle = swizzle;
  return tensor_map(device, request);
}

/// Loads, launches once and waits.
template <class Params>
void launch(Device& device, const KernelImage& image, const std::string& entry, const LaunchConfig& config,
            const Params& params) {
  const auto kernel = device.load(image, entry, config.shared_bytes);
  device.launch(*kernel, config, &params, sizeof params, nullptr);
  device.synchronize(nullptr);
}

inline float bf16_value(std::uint16_t bits) { return decode_float(DType::kBf16, bits); }

/// `count` bf16 values: normal, or integers in [-limit, limit], of which half are 0.
inline std::vector<std::uint16_t> random_bf16(Random& random, std::size_t count, int integer_limit = 0) {
  std::vector<std::uint16_t> values(count);
  for (std::size_t i = 0; i < count; i += 2) {
    float pair[2];
    random.normal_pair(pair[0], pair[1]);
    for (std::size_t j = i; j < std::min(i + 2, count); ++j) {
      float value = pair[j - i];
      if (integer_limit > 0) {
        const auto span = static_cast<std::uint64_t>(2 * integer_limit + 1);
        value = random.below(2) ? static_cast<float>(static_cast<int>(random.below(span)) - integer_limit) : 0.0f;
      }
      values[j] = static_cast<std::uint16_t>(encode_float(DType::kBf16, value));
    }
  }
  return values;
}

}  // namespace kernelwright::test
