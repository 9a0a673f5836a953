/// The C ABI of a GEMM.
#include "kernelwright/runtime/c/c_api_guard.h"

namespace kernelwright {
namespace {

constexpr std::size_t kGemmTensors1 = KERNELWRIGHT_END_OF(kernelwright_gemm_tensors, constant_b);

}  // namespace

GemmTensors tensors_of(const kernelwright_gemm_tensors* given) {
  const auto c = read_struct(&not_null(given, "gemm_tensors"), "gemm_tensors", kGemmTensors1);
  auto tensors = read_fields<GemmTensors>(c, "gemm_tensors");
  if (tensors.tensor_scale == 0) tensors.tensor_scale = 1;  // left out
  return tensors;
}

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
