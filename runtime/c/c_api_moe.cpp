/// The C ABI of a whole layer of experts.
#include "kernelwright/runtime/c/c_api_guard.h"

namespace kernelwright {
namespace {

constexpr std::size_t kMoeTensors1 = KERNELWRIGHT_END_OF(kernelwright_moe_tensors, factor);

}  // namespace

MoeTensors tensors_of(const kernelwright_moe_tensors* given) {
  const auto c = read_struct(&not_null(given, "moe_tensors"), "moe_tensors", kMoeTensors1);
  return read_fields<MoeTensors>(c, "moe_tensors");
}

const char* use_of(const MoeKernel&) {
  return "computes a layer of experts; kernelwright_launch_moe() launches it, and kernelwright_moe_workspace_bytes() "
         "tells its workspace";
}

}  // namespace kernelwright

using namespace kernelwright;

kernelwright_status kernelwright_launch_moe(const kernelwright_kernel* kernel, const kernelwright_moe_tensors* tensors,
                                            void* stream) {
  return guarded([&] { kernel_of<MoeKernel>(kernel).launch(tensors_of(tensors), static_cast<Stream>(stream)); });
}

kernelwright_status kernelwright_moe_workspace_bytes(const kernelwright_kernel* kernel,
                                                     const kernelwright_moe_tensors* tensors, uint64_t* bytes) {
  return guarded([&] {
    uint64_t& out = not_null(bytes, "bytes");
    out = kernel_of<MoeKernel>(kernel).workspace_bytes(tensors_of(tensors).tokens);
  });
}
