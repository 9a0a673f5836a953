// Device memory of one GEMM. A constructor that throws half-way frees what it has: owned_ holds everything from the
// start.
#include "kernelwright/verify/gemm/device.h"

#include <algorithm>
#include <cstring>

#include "kernelwright/generator/error.h"
#include "kernelwright/verify/formats/float_formats.h"

namespace kernelwright {
namespace {

constexpr std::size_t kGuardBytes = 1024;  // keeps the output's alignment
constexpr std::byte kGuardByte{0xa5};
constexpr std::byte kNanByte{0xff};  // NaN in every dtype
constexpr std::size_t kLeastBytes = 256;

}  // namespace

DevicePtr GemmDeviceCase::upload(const void* data, std::size_t bytes) {
  // A call without k, or without rows, still needs an address, because a null pointer means an operand that was not
  // given.
  const DevicePtr address = device_.allocate(std::max(bytes, kLeastBytes));
  owned_.push_back(address);
  if (bytes) device_.copy_to_device(address, data, bytes);
  return address;
}

GemmDeviceCase::GemmDeviceCase(Device& device, const GemmCase& call, GemmKernel kernel)
    : device_(device), call_(call), kernel_(kernel) {
  try {
    own_stream_ = stream_ = device.create_stream();
    const auto matrix = [&](const HostMatrix& host, DevicePtr& address, std::int64_t& stride) {
      address = upload(host.bytes.data(), host.bytes.size());
      stride = host.stride;
    };
    matrix(call.a, tensors_.a, tensors_.a_stride);
    matrix(call.b, tensors_.b, tensors_.b_stride);
    if (call.epilogue.c) matrix(call.c, tensors_.c, tensors_.c_stride);
    if (call.epilogue.bias) tensors_.bias = upload(call.bias.bytes.data(), call.bias.bytes.size());
    if (is_block_scaled(call.problem.dtype.a)) {
      tensors_.scale_a = upload(call.a.scales.data(), call.a.scales.size());
      tensors_.scale_b = upload(call.b.scales.data(), call.b.scales.size());
    } else if (call.problem.scales != ScaleKind::kNone) {
      tensors_.scale_a = upload(call.scale_a.data(), call.scale_a.size() * sizeof(float));
      tensors_.scale_b = upload(call.scale_b.data(), call.scale_b.size() * sizeof(float));
    }
    if (call.has_f32_block_scales()) {
      tensors_.scale_a_stride = call.scale_a_stride;
      tensors_.scale_b_stride = call.scale_b_stride;
    }
    tensors_.m = call.m;
    if (call.epilogue.alpha) tensors_.alpha = call.alpha;
    if (call.epilogue.beta) tensors_.beta = call.beta;

    const std::size_t size = bytes_of(call.problem.dtype.d), rows = static_cast<std::size_t>(call.m);
    row_bytes_ = static_cast<std::size_t>(call.problem.n) * size;
    stride_bytes_ = static_cast<std::size_t>(call.d_stride) * size;
    poison_.assign(rows * stride_bytes_ + 2 * kGuardBytes, kGuardByte);
    for (std::size_t row = 0; row < rows; ++row)
      std::memset(poison_.data() + kGuardBytes + row * stride_bytes_, static_cast<int>(kNanByte), row_bytes_);
    d_base_ = device.allocate(poison_.size());
    owned_.push_back(d_base_);
    tensors_.d = d_base_ + kGuardBytes;
    tensors_.d_stride = call.d_stride;
    make_workspace();
  } catch (...) {
    for (const DevicePtr address : owned_) device_.free(address);
    if (own_stream_) device_.destroy_stream(own_stream_);
    throw;
  }
}

GemmDeviceCase::~GemmDeviceCase() {
  for (const DevicePtr address : owned_) device_.free(address);
  if (own_stream_) device_.destroy_stream(own_stream_);
}

void GemmDeviceCase::make_workspace() {
  const std::uint64_t bytes = kernel_ ? kernel_.workspace_bytes(call_.m) : 0;
  if (bytes <= tensors_.workspace_bytes) return;
  tensors_.workspace = device_.allocate(bytes);
  tensors_.workspace_bytes = bytes;
  owned_.push_back(tensors_.workspace);
}

void GemmDeviceCase::use(GemmKernel kernel) {
  kernel_ = kernel;
  make_workspace();
}

void GemmDeviceCase::accumulate_in_place() {
  if (!call_.epilogue.c || call_.problem.dtype.c != call_.problem.dtype.d || call_.c.stride != call_.d_stride)
    throw Error("GemmDeviceCase::accumulate_in_place: d can be c where they agree in dtype and stride");
  for (std::int64_t row = 0; row < call_.m; ++row)
    std::memcpy(poison_.data() + kGuardBytes + static_cast<std::size_t>(row) * stride_bytes_, call_.c.row(row),
                row_bytes_);
  tensors_.c = tensors_.d;
  tensors_.c_stride = tensors_.d_stride;
}

void GemmDeviceCase::poison() {
  wait();
  device_.copy_to_device(d_base_, poison_.data(), poison_.size());
  if (tensors_.workspace)
    device_.fill(tensors_.workspace, static_cast<std::uint8_t>(kNanByte), tensors_.workspace_bytes, stream_);
}

void GemmDeviceCase::launch() { kernel_.launch(tensors_, stream_); }

void GemmDeviceCase::wait() { device_.synchronize(stream_); }

std::vector<std::byte> GemmDeviceCase::read_all() {
  wait();
  std::vector<std::byte> bytes(poison_.size());
  device_.copy_to_host(bytes.data(), d_base_, bytes.size());
  return bytes;
}

GemmOutput GemmDeviceCase::download() {
  const std::vector<std::byte> bytes = read_all();
  GemmOutput output;
  output.d.resize(static_cast<std::size_t>(call_.m) * row_bytes_);
  for (std::size_t row = 0; row < static_cast<std::size_t>(call_.m); ++row)
    std::memcpy(output.d.data() + row * row_bytes_, bytes.data() + kGuardBytes + row * stride_bytes_, row_bytes_);
  return output;
}

bool GemmDeviceCase::guards_are_intact() {
  const std::vector<std::byte> bytes = read_all();
  const auto intact = [&](std::size_t first, std::size_t count) {
    return std::all_of(bytes.begin() + static_cast<std::ptrdiff_t>(first),
                       bytes.begin() + static_cast<std::ptrdiff_t>(first + count),
                       [](std::byte byte) { return byte == kGuardByte; });
  };
  if (!intact(0, kGuardBytes) || !intact(bytes.size() - kGuardBytes, kGuardBytes)) return false;
  for (std::size_t row = 0; row < static_cast<std::size_t>(call_.m); ++row)
    if (!intact(kGuardBytes + row * stride_bytes_ + row_bytes_, stride_bytes_ - row_bytes_)) return false;
  return true;
}

}  // namespace kernelwright
