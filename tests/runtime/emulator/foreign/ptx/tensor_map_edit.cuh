/// Tensor maps that a kernel edits (PTX ISA 8.3, sm_90a): tensormap.replace, and the fences of the tensormap proxy.
#pragma once

#include "contract/integers.h"
#include "contract/tensor_map.h"

namespace kernelwright::ptx {

using contract::TensorMap;

// The instructions exist for both state spaces; their text differs in one word and in the size of an address.
#define KERNELWRIGHT_MAP_EDITS(name, space, type, constraint)                                                          \
  __device__ __forceinline__ void tensormap_replace_address##name(type map, uint64_t address) {                        \
    asm volatile("tensormap.replace.tile.global_address." space ".b1024.b64 [%0], %1;" ::constraint(map), "l"(address) \
                 : "memory");                                                                                          \
  }                                                                                                                    \
  template <int kDimension>                                                                                            \
  __device__ __forceinline__ void tensormap_replace_dim##name(type map, uint32_t size) {                               \
    asm volatile("tensormap.replace.tile.global_dim." space ".b1024.b32 [%0], %1, %2;" ::constraint(map),              \
                 "n"(kDimension), "r"(size)                                                                            \
                 : "memory");                                                                                          \
  }                                                                                                                    \
  template <int kDimension>                                                                                            \
  __device__ __forceinline__ void tensormap_replace_stride##name(type map, uint64_t bytes) {                           \
    asm volatile("tensormap.replace.tile.global_stride." space ".b1024.b64 [%0], %1, %2;" ::constraint(map),           \
                 "n"(kDimension), "l"(bytes)                                                                           \
                 : "memory");                                                                                          \
  }
KERNELWRIGHT_MAP_EDITS(_shared, "shared::cta", uint32_t, "r")
KERNELWRIGHT_MAP_EDITS(_global, "global", uint64_t, "l")
#undef KERNELWRIGHT_MAP_EDITS

/// The whole warp copies a map from shared to global memory, with the release of the tensormap proxy.
__device__ __forceinline__ void tensormap_cp_fenceproxy(TensorMap* to, uint32_t from) {
  asm volatile(
      "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;" ::"l"(
          to),
      "r"(from)
      : "memory");
}
__device__ __forceinline__ void fence_proxy_tensormap_release() {
  asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");
}
__device__ __forceinline__ void fence_proxy_tensormap_acquire(const TensorMap* map) {
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}

}  // namespace kernelwright::ptx
