/// The C ABI of quantising.
#include <fmt/format.h>

#include "kernelwright/runtime/c/c_api_guard.h"

namespace kernelwright {
namespace {

constexpr std::size_t kQuantizeTensors1 = KERNELWRIGHT_END_OF(kernelwright_quantize_tensors, tensor_scale);

}  // namespace

QuantizeTensors tensors_of(const kernelwright_quantize_tensors* given) {
  const auto c = read_struct(&not_null(given, "quantize_tensors"), "quantize_tensors", kQuantizeTensors1);
  auto tensors = read_fields<QuantizeTensors>(c, "quantize_tensors");
  if (tensors.tensor_scale == 0) tensors.tensor_scale = 1;  // left out
  return tensors;
}

const char* use_of(const QuantizeKernel&) { return "quantises; kernelwright_launch_quantize() launches it"; }

}  // namespace kernelwright

using namespace kernelwright;

kernelwright_status kernelwright_prepare_quantize(kernelwright_engine* engine, const char* from, const char* to,
                                                  const kernelwright_prepare_options* options,
                                                  kernelwright_kernel** kernel) {
  return guarded([&] {
    kernelwright_kernel*& out = not_null(kernel, "kernel");
    kernelwright_engine& owner = not_null(engine, "engine");
    QuantizeProblem problem;
    read_word(&not_null(from, "from"), "/from", problem.from);
    read_word(&not_null(to, "to"), "/to", problem.to);
    out = owner.handle(owner.engine.prepare(problem, options_of(options)));
  });
}

kernelwright_status kernelwright_quantize_scale_bytes(const char* to, int64_t rows, int32_t k, uint64_t* bytes) {
  return guarded([&] {
    uint64_t& out = not_null(bytes, "bytes");
    DType format{};
    read_word(&not_null(to, "to"), "/to", format);
    if (!is_block_scaled(format)) throw ConfigError("/to", fmt::format("\"{}\" has no scales of blocks", to));
    out = static_cast<uint64_t>(quantize_scale_bytes(format, rows, k));
  });
}

kernelwright_status kernelwright_launch_quantize(const kernelwright_kernel* kernel,
                                                 const kernelwright_quantize_tensors* tensors, void* stream) {
  return guarded([&] { kernel_of<QuantizeKernel>(kernel).launch(tensors_of(tensors), static_cast<Stream>(stream)); });
}
