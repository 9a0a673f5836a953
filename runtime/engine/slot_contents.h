/// What reports and comparisons of ranks read from a slot of any kind.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "kernelwright/runtime/engine/engine_state.h"

namespace kernelwright::detail {

using Binaries = std::vector<std::shared_ptr<const Binary>>;

// In the order of specs_of().
inline Binaries binaries_of(const LoadedAttention& loaded) {
  Binaries binaries{loaded.main_binary};
  if (loaded.combine) binaries.push_back(loaded.combine_binary);
  return binaries;
}
inline Binaries binaries_of(const LoadedGemm& loaded) {
  Binaries binaries;
  for (const auto& variant : loaded.variants) binaries.push_back(variant.binary);
  return binaries;
}
template <class SpecOfKind>
Binaries binaries_of(const OneKernel<SpecOfKind>& loaded) {
  return {loaded.binary};
}
inline Binaries binaries_of(const LoadedRoute& loaded) { return loaded.binaries; }

constexpr std::string_view kind_of(const KernelSlot<AttentionKind>&) { return "attention"; }
constexpr std::string_view kind_of(const KernelSlot<GemmKind>&) { return "gemm"; }
constexpr std::string_view kind_of(const KernelSlot<QuantizeKind>&) { return "quantize"; }
constexpr std::string_view kind_of(const KernelSlot<KvWriteKind>&) { return "kv_write"; }
constexpr std::string_view kind_of(const KernelSlot<RowOpKind>&) { return "row_op"; }
constexpr std::string_view kind_of(const KernelSlot<RouteKind>&) { return "route"; }
constexpr std::string_view kind_of(const KernelSlot<MoeCombineKind>&) { return "moe_combine"; }

}  // namespace kernelwright::detail
