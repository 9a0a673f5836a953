/// The C ABI of writing a cache.
#include <algorithm>
#include <vector>

#include "kernelwright/generator/kv_write/rope_table.h"
#include "kernelwright/runtime/c/c_api_guard.h"

namespace kernelwright {
namespace {

constexpr std::size_t kKvWriteTensors1 = KERNELWRIGHT_END_OF(kernelwright_kv_write_tensors, eps);
constexpr std::size_t kRope1 = KERNELWRIGHT_END_OF(kernelwright_rope, num_factors);
constexpr std::uint64_t kMostFactors = 4096;

void set(double& to, double given) {
  if (given != 0) to = given;
}

RopeTable rope_of(const kernelwright_rope* given) {
  const auto c = read_struct(&not_null(given, "rope"), "rope", kRope1);
  RopeTable rope{.width = c.width};
  read_word(c.scaling, "/rope/scaling", rope.scaling);
  set(rope.theta, c.theta);
  set(rope.factor, c.factor);
  set(rope.original_positions, c.original_positions);
  set(rope.low, c.low);
  set(rope.high, c.high);
  set(rope.beta_fast, c.beta_fast);
  set(rope.beta_slow, c.beta_slow);
  set(rope.mscale, c.mscale);
  set(rope.mscale_all, c.mscale_all);
  set(rope.share, c.share);
  rope.truncate = c.no_truncate == 0;
  if (c.attention_factor != 0) rope.attention_factor = c.attention_factor;
  if (c.num_factors > kMostFactors)
    throw ConfigError("/rope/num_factors", fmt::format("{} is more than {}", c.num_factors, kMostFactors));
  if (c.num_factors > 0) rope.factors.assign(&not_null(c.factors, "rope/factors"), c.factors + c.num_factors);
  return rope;
}

}  // namespace

KvWriteTensors tensors_of(const kernelwright_kv_write_tensors* given) {
  const auto c = read_struct(&not_null(given, "kv_write_tensors"), "kv_write_tensors", kKvWriteTensors1);
  auto tensors = read_fields<KvWriteTensors>(c, "kv_write_tensors");
  if (tensors.position_bytes == 0) tensors.position_bytes = 4;  // left out
  return tensors;
}

const char* use_of(const KvWriteKernel&) { return "writes a cache; kernelwright_launch_kv_write() launches it"; }

}  // namespace kernelwright

using namespace kernelwright;

kernelwright_status kernelwright_launch_kv_write(const kernelwright_kernel* kernel,
                                                 const kernelwright_kv_write_tensors* tensors, void* stream) {
  return guarded([&] { kernel_of<KvWriteKernel>(kernel).launch(tensors_of(tensors), static_cast<Stream>(stream)); });
}

kernelwright_status kernelwright_rope_table(const kernelwright_rope* rope, int64_t first, int64_t rows, float* table) {
  return guarded([&] {
    const std::vector<float> made = rope_table(rope_of(rope), first, rows);
    if (!made.empty()) std::copy(made.begin(), made.end(), &not_null(table, "table"));
  });
}
