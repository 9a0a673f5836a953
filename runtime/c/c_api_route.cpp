/// The C ABI of the choice of experts.
#include "kernelwright/runtime/c/c_api_guard.h"

namespace kernelwright {
namespace {

constexpr std::size_t kRouteTensors1 = KERNELWRIGHT_END_OF(kernelwright_route_tensors, factor);

}  // namespace

RouteTensors tensors_of(const kernelwright_route_tensors* given) {
  const auto c = read_struct(&not_null(given, "route_tensors"), "route_tensors", kRouteTensors1);
  return read_fields<RouteTensors>(c, "route_tensors");
}

const char* use_of(const RouteKernel&) {
  return "chooses experts; kernelwright_launch_route() launches it, and kernelwright_route_workspace_bytes() tells its "
         "workspace";
}

}  // namespace kernelwright

using namespace kernelwright;

kernelwright_status kernelwright_launch_route(const kernelwright_kernel* kernel,
                                              const kernelwright_route_tensors* tensors, void* stream) {
  return guarded([&] { kernel_of<RouteKernel>(kernel).launch(tensors_of(tensors), static_cast<Stream>(stream)); });
}

kernelwright_status kernelwright_route_workspace_bytes(const kernelwright_kernel* kernel,
                                                       const kernelwright_route_tensors* tensors, uint64_t* bytes) {
  return guarded([&] {
    uint64_t& out = not_null(bytes, "bytes");
    out = kernel_of<RouteKernel>(kernel).workspace_bytes(tensors_of(tensors).tokens);
  });
}
