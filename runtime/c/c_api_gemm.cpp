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

/// Calls what(tensors) while the tensors of a cache exist, if there are any.
template <class What>
void with_tensors(const kernelwright_gemm_tensors* given, const What& what) {
  GemmTensors tensors = tensors_of(given);
  const auto c = read_struct(given, "gemm_tensors", kGemmTensors1);
  if (!c.kv_write) return what(tensors);
  const KvWriteTensors kv_write = tensors_of(c.kv_write);
  tensors.kv_write = &kv_write;
  what(tensors);
}

const char* use_of(const GemmKernel&) {
  return "computes a gemm; kernelwright_launch_gemm() launches it, and kernelwright_gemm_workspace_bytes() tells its "
         "workspace";
}

}  // namespace kernelwright

using namespace kernelwright;

kernelwright_status kernelwright_launch_gemm(const kernelwright_kernel* kernel,
                                             const kernelwright_gemm_tensors* tensors, void* stream) {
  return guarded([&] {
    const GemmKernel& of = kernel_of<GemmKernel>(kernel);
    with_tensors(tensors, [&](const GemmTensors& t) { of.launch(t, static_cast<Stream>(stream)); });
  });
}

kernelwright_status kernelwright_gemm_workspace_bytes(const kernelwright_kernel* kernel,
                                                      const kernelwright_gemm_tensors* tensors, uint64_t* bytes) {
  return guarded([&] {
    uint64_t& out = not_null(bytes, "bytes");
    out = kernel_of<GemmKernel>(kernel).workspace_bytes(tensors_of(tensors).m);
  });
}
