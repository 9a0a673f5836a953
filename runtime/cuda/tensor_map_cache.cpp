#include "kernelwright/runtime/cuda/tensor_map_cache.h"

#include <cuda.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/cuda/driver.h"

namespace kernelwright {
namespace {

std::size_t slot_of(const TensorMapRequest& request) {
  std::uint64_t hash = request.address;
  const auto mix = [&](std::uint64_t value) { hash = (hash ^ (hash >> 29) ^ value) * 0x9e3779b97f4a7c15u; };
  mix(static_cast<std::uint64_t>(request.dtype) << 32 | static_cast<std::uint64_t>(request.swizzle) << 16 |
      static_cast<std::uint64_t>(request.rank));
  for (std::uint64_t dim : request.dims) mix(dim);
  for (std::uint64_t stride : request.strides_bytes) mix(stride);
  for (std::uint32_t extent : request.box) mix(extent);
  return (hash >> 40) % TensorMapCache::kSlots;
}

/// A tensor map copies bytes. The type decides their width alone, and what the edges are filled with: zeros for all.
CUtensorMapDataType data_type(DType dtype) {
  switch (bits_of(dtype)) {
    case 32: return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case 16: return dtype == DType::kF16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case 4: return CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B;  // two elements a byte, packed
    default: return CU_TENSOR_MAP_DATA_TYPE_UINT8;
  }
}

CUtensorMapSwizzle swizzle(Swizzle swizzle) {
  switch (swizzle) {
    case Swizzle::kNone: return CU_TENSOR_MAP_SWIZZLE_NONE;
    case Swizzle::k32B: return CU_TENSOR_MAP_SWIZZLE_32B;
    case Swizzle::k64B: return CU_TENSOR_MAP_SWIZZLE_64B;
    case Swizzle::k128B: return CU_TENSOR_MAP_SWIZZLE_128B;
  }
  return CU_TENSOR_MAP_SWIZZLE_NONE;
}

std::string words(const TensorMapRequest& request) {
  const auto list = [](const auto* values, int count) { return fmt::join(values, values + count, ", "); };
  return fmt::format("encoding a tensor map of {} [{}], strides [{}] bytes, box [{}], swizzle {}, at {:#x}",
                     to_string(request.dtype), list(request.dims, request.rank),
                     list(request.strides_bytes, request.rank - 1), list(request.box, request.rank),
                     to_string(request.swizzle), request.address);
}

}  // namespace

TensorMap encode_tensor_map(const Driver& driver, const TensorMapRequest& request) {
  static_assert(sizeof(TensorMap) == sizeof(CUtensorMap));
  if (request.rank < 1 || request.rank > 5)
    throw DeviceError(fmt::format("a tensor map has 1 to 5 dimensions, and {} were given", request.rank),
                      static_cast<int>(CUDA_ERROR_INVALID_VALUE));
  if (!driver.cuTensorMapEncodeTiled)
    throw MissingError(fmt::format(
        "the NVIDIA driver is too old for tensor maps: it supports CUDA {} and they need 12.0", driver.version_text()));
  const cuuint32_t element_strides[5] = {1, 1, 1, 1, 1};
  TensorMap map;
  driver.check(
      driver.cuTensorMapEncodeTiled(
          reinterpret_cast<CUtensorMap*>(&map), data_type(request.dtype), static_cast<cuuint32_t>(request.rank),
          reinterpret_cast<void*>(request.address), request.dims, request.strides_bytes, request.box, element_strides,
          CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle(request.swizzle),
          request.l2_promotion_bytes == 128 ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B : CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
          CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
      "cuTensorMapEncodeTiled", [&] { return words(request); });
  return map;
}

bool TensorMapCache::find(const TensorMapRequest& request, TensorMap& map) const {
  const std::size_t index = slot_of(request);
  const std::lock_guard lock(locks_[index % kLocks]);
  const Slot& slot = slots_[index];
  if (!slot.used || !(slot.request == request)) return false;
  map = slot.map;
  return true;
}

void TensorMapCache::insert(const TensorMapRequest& request, const TensorMap& map) {
  const std::size_t index = slot_of(request);
  const std::lock_guard lock(locks_[index % kLocks]);
  slots_[index] = {true, request, map};
}

}  // namespace kernelwright
