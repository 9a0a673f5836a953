/// The C++ side of the C handles: for c_api*.cpp, and for tests that bring their own Engine.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <variant>
#include <vector>

#include "kernelwright/runtime/c/c_api.h"
#include "kernelwright/runtime/engine/engine.h"

namespace kernelwright {

/// The struct of a launch in C++. Throws ConfigError for one that cannot be read.
AttentionTensors tensors_of(const kernelwright_attention_tensors* given);
GemmTensors tensors_of(const kernelwright_gemm_tensors* given);
QuantizeTensors tensors_of(const kernelwright_quantize_tensors* given);
KvWriteTensors tensors_of(const kernelwright_kv_write_tensors* given);
RowOpTensors tensors_of(const kernelwright_row_op_tensors* given);
RouteTensors tensors_of(const kernelwright_route_tensors* given);
MoeCombineTensors tensors_of(const kernelwright_moe_combine_tensors* given);
MoeTensors tensors_of(const kernelwright_moe_tensors* given);

}  // namespace kernelwright

struct kernelwright_kernel {
  using Kernel = std::variant<kernelwright::AttentionKernel, kernelwright::GemmKernel, kernelwright::QuantizeKernel,
                              kernelwright::KvWriteKernel, kernelwright::RowOpKernel, kernelwright::RouteKernel,
                              kernelwright::MoeCombineKernel, kernelwright::MoeKernel>;
  explicit kernelwright_kernel(Kernel made) : kernel(std::move(made)) {}

  Kernel kernel;
};

struct kernelwright_engine {
  explicit kernelwright_engine(kernelwright::EngineOptions options) : engine(std::move(options)) {}

  /// One C handle per C++ handle.
  kernelwright_kernel* handle(const kernelwright_kernel::Kernel& kernel) {
    std::lock_guard lock(mutex);
    for (const auto& known : kernels)
      if (known->kernel == kernel) return known.get();
    return kernels.emplace_back(std::make_unique<kernelwright_kernel>(kernel)).get();
  }

  kernelwright::Engine engine;
  std::mutex mutex;
  std::vector<std::unique_ptr<kernelwright_kernel>> kernels;
};
