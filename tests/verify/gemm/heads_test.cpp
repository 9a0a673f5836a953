// The comparison of GEMMs that write a cache: it passes what is right, and finds each kind of fault.
#include "kernelwright/verify/gemm/heads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "kernelwright/verify/device/device_memory.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/kv_write/reference.h"
#include "support/gemm_kv_chain.h"
#include "support/simulated_gemm.h"

namespace kernelwright {
namespace {

using testing::HasSubstr;

constexpr int kRows = 9, kHeadDim = 64, kColumns = 4 * kHeadDim;

GemmCase drawn(int k = 96) {
  KvWriteProblem cache;
  cache.head_dim = {kHeadDim, kHeadDim};
  cache.heads = {2, 1};
  cache.kv_layout = {KvLayoutKind::kPaged, 4};
  cache.rope = {.style = RopeStyle::kNeox, .width = kHeadDim};
  GemmProblem problem;
  problem.n = kColumns, problem.k = k;
  problem.kv_write = cache;
  return make_gemm_inputs(problem, {"drawn", kRows, true}, {.seed = 3});
}

/// What a kernel without any fault writes: sums in f32 that are rounded, and kv_write's steps of them.
GemmOutput right_output(const GemmCase& call) {
  const KvWriteCase steps = test::steps_of(call, simulate_gemm(test::product_of(call)).d);
  GemmOutput output;
  output.d.resize(kRows * 2 * kHeadDim * 2);
  output.kv.cache.assign(call.kv->cache_bytes, DeviceMemory::kGuardByte);
  for (std::int64_t token = 0; token < kRows; ++token)
    for (const HeadsOf of : kAllHeads)
      for (int head = 0; head < steps.heads(of); ++head) {
        const std::int64_t row = steps.slot_of(token);
        if (of != HeadsOf::kQ && row < 0) continue;
        std::vector<float> values;
        for (const double value : reference_head(steps, of, token, head).value)
          values.push_back(static_cast<float>(value));
        std::byte* to = of == HeadsOf::kQ ? output.d.data() + (token * 2 + head) * kHeadDim * 2
                                          : output.kv.cache.data() + steps.cache_byte(of, row, head);
        encode_row(DType::kBf16, values, to);
      }
  return output;
}

std::string verdict(const GemmCase& call, const std::function<void(GemmOutput&)>& change = {}) {
  GemmOutput output = right_output(call);
  if (change) change(output);
  const GemmVerdict found = verify(call, output);
  EXPECT_EQ(found.passed, found.text.empty());
  return found.text;
}

TEST(VerifyGemmHeads, PassesWhatIsRight) {
  const GemmCase call = drawn();
  EXPECT_EQ(verdict(call), "");
  const GemmVerdict found = verify(call, right_output(call));
  EXPECT_EQ(found.rows, std::size_t{kRows});
  EXPECT_EQ(found.columns, std::size_t{kColumns});
  EXPECT_GT(found.worst_ratio, 0.1) << "a bound this loose catches nothing";
}

TEST(VerifyGemmHeads, FindsEachFault) {
  const GemmCase call = drawn();
  const auto bf16 = [](std::byte* at, float value) { encode_row(DType::kBf16, std::vector<float>(1, value), at); };
  const auto byte = [&](HeadsOf of, int token, int element) {
    return call.kv->cache_byte(of, call.kv->slot_of(token), 0, element);
  };
  EXPECT_THAT(verdict(call, [&](GemmOutput& o) { bf16(o.d.data() + (3 * 2 + 1) * 128 + 5 * 2, 99); }),
              HasSubstr("q[3, head 1, 5]"));
  EXPECT_THAT(verdict(call, [&](GemmOutput& o) { bf16(o.kv.cache.data() + byte(HeadsOf::kK, 2, 7), 99); }),
              HasSubstr("k[2, head 0, 7]"));
  EXPECT_THAT(verdict(call, [&](GemmOutput& o) { bf16(o.kv.cache.data() + byte(HeadsOf::kV, 2, 7), 99); }),
              HasSubstr("v[2, head 0, 7]"));
  std::vector<bool> taken(static_cast<std::size_t>(call.kv->slots()));
  for (int token = 0; token < kRows; ++token)
    if (call.kv->slot_of(token) >= 0) taken[static_cast<std::size_t>(call.kv->slot_of(token))] = true;
  const auto free = std::find(taken.begin(), taken.end(), false) - taken.begin();
  EXPECT_THAT(verdict(call, [&](GemmOutput& o) { o.kv.cache[call.kv->cache_byte(HeadsOf::kK, free, 0)] = {}; }),
              HasSubstr("of the cache is no token's, and was written"));
  // Steps of another position, and keys that were not turned at all.
  GemmCase other = call;
  other.kv->positions[1] += 1;
  EXPECT_NE(verify(other, right_output(call)).text, "");
  other = call;
  std::fill(other.kv->cos_sin.begin(), other.kv->cos_sin.end(), 1.f);
  EXPECT_NE(verify(other, right_output(call)).text, "");
  // A product of other rows of b.
  GemmCase moved = call;
  std::swap_ranges(moved.b.row(0), moved.b.row(1), moved.b.row(kHeadDim));
  EXPECT_NE(verify(moved, right_output(call)).text, "");
}

}  // namespace
}  // namespace kernelwright
