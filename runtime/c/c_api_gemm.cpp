/// The C ABI of a GEMM.
#include <fmt/format.h>

#include "kernelwright/runtime/c/c_api_guard.h"

namespace kernelwright {
namespace {

constexpr std::size_t kGemmTensors1 = KERNELWRIGHT_END_OF(kernelwright_gemm_tensors, constant_b);

GemmTensors tensors_of(const kernelwright_gemm_tensors* given) {
  const auto c = read_struct(&not_null(given, "gemm_tensors"), "gemm_tensors", kGemmTensors1);
  GemmTensors tensors{.a = c.a,
                      .b = c.b,
                      .d = c.d,
                      .c = c.c,
                      .bias = c.bias,
                      .scale_a = c.scale_a,
                      .scale_b = c.scale_b,
                      .m = c.m,
                      .a_stride = c.a_stride,
                      .b_stride = c.b_stride,
                      .c_stride = c.c_stride,
                      .d_stride = c.d_stride,
                      .scale_a_stride = c.scale_a_stride,
                      .scale_b_stride = c.scale_b_stride,
                      .sm_budget = c.sm_budget,
                      .pdl = c.pdl != 0,
                      .constant_b = c.constant_b != 0,
                      .workspace = c.workspace,
                      .workspace_bytes = c.workspace_bytes};
  if (c.overrides & ~3u)
    throw ConfigError("/gemm_tensors/overrides", fmt::format("{:#x} has bits that mean nothing here", c.overrides));
  if (c.overrides & KERNELWRIGHT_SET_ALPHA) tensors.alpha = c.alpha;
  if (c.overrides & KERNELWRIGHT_SET_BETA) tensors.beta = c.beta;
  return tensors;
}

}  // namespace

const char* use_of(const GemmKernel&) {
  return "computes a gemm; kernelwright_launch_gemm() launches it, and kernelwright_gemm_workspace_bytes() tells its "
         "workspace";
}

}  // namespace kernelwright

using namespace kernelwright;

kernelwright_status kernelwright_launch_gemm(const kernelwright_kernel* kernel,
                                             const kernelwright_gemm_tensors* tensors, void* stream) {
  return guarded([&] { kernel_of<GemmKernel>(kernel).launch(tensors_of(tensors), static_cast<Stream>(stream)); });
}

kernelwright_status kernelwright_gemm_workspace_bytes(const kernelwright_kernel* kernel,
                                                      const kernelwright_gemm_tensors* tensors, uint64_t* bytes) {
  return guarded([&] {
    uint64_t& out = not_null(bytes, "bytes");
    out = kernel_of<GemmKernel>(kernel).workspace_bytes(tensors_of(tensors).m);
  });
}
