// The cache that a launch of a GEMM writes: its arguments, their rules, and a look at what lies in device memory.
#include <string>

#include "kernelwright/runtime/gemm/rules.h"
#include "kernelwright/runtime/kv_write/data.h"

namespace kernelwright::detail {

KvWriteTensors kv_tensors_of(const LoadedGemm& kernel, const GemmTensors& tensors, const Matrix& d) {
  KvWriteTensors t = *tensors.kv_write;
  t.tokens = tensors.m;
  t.q_out = d.address;
  t.q_out_strides = {0, d.stride, kernel.kv->spec.head_dim_qk};
  return resolved(kernel.kv->spec, t);
}

void GemmRules::kv_write() {
  const auto left_out = [&](const char* path, bool is_given, const char* why) {
    bad(is_given, path, [&] { return std::string("is given, and ") + why; });
  };
  if (!kernel_.kv) return left_out("/kv_write", tensors_.kv_write != nullptr, "the problem has no kv_write");
  bad(!tensors_.kv_write, "/kv_write", [] { return std::string("is null, and the problem writes a cache"); });
  if (!tensors_.kv_write) return;
  const KvWriteTensors& given = *tensors_.kv_write;
  constexpr const char* kMade = "the product has these rows; leave it out";
  left_out("/kv_write/q", given.q != 0, kMade);
  left_out("/kv_write/k", given.k != 0, kMade);
  left_out("/kv_write/v", given.v != 0, kMade);
  left_out("/kv_write/q_out", given.q_out != 0, "d has the queries; leave it out");
  const auto strides = [&](const char* path, const TensorStrides& of, const char* why) {
    left_out(path, (of.batch | of.token | of.head) != 0, why);
  };
  strides("/kv_write/q_strides", given.q_strides, kMade);
  strides("/kv_write/k_strides", given.k_strides, kMade);
  strides("/kv_write/v_strides", given.v_strides, kMade);
  strides("/kv_write/q_out_strides", given.q_out_strides, "d_stride says where queries lie; leave it out");
  bad(given.tokens != 0 && given.tokens != tensors_.m, "/kv_write/tokens", [&] {
    return std::to_string(given.tokens) + " are not the rows of a, m = " + std::to_string(tensors_.m) +
           "; leave it out";
  });
  left_out("/kv_write/pdl", given.pdl, "pdl of the GEMM says it; leave it out");
  constexpr std::string_view kTensors = "/tensors";
  const OtherOperand others[] = {{"a", of_.a}, {"b", of_.b}, {"d", of_.d}};
  for (const Violation& violation : broken_cache_rules(*kernel_.kv, kv_tensors_of(kernel_, tensors_, of_.d), others))
    bad(true, "/kv_write" + violation.path.substr(kTensors.size()), [&] { return violation.message; });
}

std::vector<std::string> find_bad_data(const LoadedGemm& kernel, const GemmTensors& tensors, Stream stream) {
  if (!kernel.kv || tensors.m <= 0) return {};
  const GemmSpec& spec = kernel.variant_for(tensors).spec;
  const GemmMatrices of = matrices_of(kernel, spec, tensors);
  if (!broken_rules(kernel, spec, tensors, of).empty()) return {};  // launch() has the words
  if (kernel.device->capture_state(stream) != CaptureState::kNone) return {};
  kernel.device->synchronize(stream);
  LoadedKvWrite kv = *kernel.kv;
  kv.device = kernel.device;
  return find_bad_places(kv, kv_tensors_of(kernel, tensors, of.d));
}

}  // namespace kernelwright::detail
