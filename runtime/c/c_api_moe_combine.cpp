/// The C ABI of sums over the rows of a token's experts.
#include "kernelwright/runtime/c/c_api_guard.h"

namespace kernelwright {
namespace {

constexpr std::size_t kMoeCombineTensors1 = KERNELWRIGHT_END_OF(kernelwright_moe_combine_tensors, pdl);

}  // namespace

MoeCombineTensors tensors_of(const kernelwright_moe_combine_tensors* given) {
  const auto c = read_struct(&not_null(given, "moe_combine_tensors"), "moe_combine_tensors", kMoeCombineTensors1);
  return read_fields<MoeCombineTensors>(c, "moe_combine_tensors");
}

const char* use_of(const MoeCombineKernel&) {
  return "adds up rows of experts; kernelwright_launch_moe_combine() launches it";
}

}  // namespace kernelwright

using namespace kernelwright;

kernelwright_status kernelwright_launch_moe_combine(const kernelwright_kernel* kernel,
                                                    const kernelwright_moe_combine_tensors* tensors, void* stream) {
  return guarded([&] { kernel_of<MoeCombineKernel>(kernel).launch(tensors_of(tensors), static_cast<Stream>(stream)); });
}
