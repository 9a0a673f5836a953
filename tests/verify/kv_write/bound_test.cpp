// The reference of kv_write against small numbers by hand, and the comparison: it passes what is right and finds each
// kind of fault.
#include "kernelwright/verify/kv_write/bound.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "kernelwright/verify/device/device_memory.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/kv_write/reference.h"

namespace kernelwright {
namespace {

using testing::HasSubstr;

constexpr HeadsOf kAll[] = {HeadsOf::kQ, HeadsOf::kK, HeadsOf::kV};

KvWriteProblem problem() {
  KvWriteProblem problem;
  problem.head_dim = {64, 64};
  problem.heads = {2, 1};
  problem.kv_layout = {KvLayoutKind::kPaged, 4};
  problem.dtype = {DType::kBf16, DType::kBf16, DType::kE4m3};
  problem.qk_norm.kind = NormKind::kRms;
  problem.rope = {.style = RopeStyle::kNeox, .width = 32};
  problem.scales = {ScaleKind::kNone, ScaleKind::kPerToken, ScaleKind::kPerHead};
  return problem;
}

KvWriteCase drawn(const KvWriteProblem& of) {
  return make_kv_write_inputs(of, {.name = "drawn", .tokens = 9, .check = true});
}

/// What a kernel without any fault writes.
KvWriteOutput right_output(const KvWriteCase& call) {
  KvWriteOutput output;
  const auto bytes = [&](std::int64_t count) {
    return std::vector<std::byte>(static_cast<std::size_t>(count), DeviceMemory::kGuardByte);
  };
  output.q_out = bytes(call.tokens * call.heads(HeadsOf::kQ) * 64 * 2);
  output.cache = bytes(static_cast<std::int64_t>(call.cache_bytes));
  output.k_scale = bytes(call.slots() * 4);
  for (std::int64_t token = 0; token < call.tokens; ++token)
    for (const HeadsOf of : kAll)
      for (int head = 0; head < call.heads(of); ++head) {
        const std::int64_t row = of == HeadsOf::kQ ? token : call.slot_of(token);
        if (row < 0) continue;
        const KvWriteHead right = reference_head(call, of, token, head);
        double largest = 0;
        for (const double value : right.value) largest = std::max(largest, std::fabs(value));
        const float made = static_cast<float>(largest / 448);
        const double scale = of == HeadsOf::kQ   ? 1
                             : of == HeadsOf::kK ? made
                                                 : call.v_scale[static_cast<std::size_t>(head)];
        std::vector<float> values;
        for (const double value : right.value) values.push_back(static_cast<float>(value / scale));
        if (of == HeadsOf::kK) std::memcpy(output.k_scale.data() + row * 4, &made, 4);
        std::byte* to = of == HeadsOf::kQ ? output.q_out.data() + (token * call.heads(of) + head) * 128
                                          : output.cache.data() + call.cache_byte(of, row, head);
        encode_row(call.dtype_out(of), values, to);
      }
  return output;
}

TEST(KvWriteReference, TurnsAndNormalisesByTheDefinition) {
  KvWriteProblem of = problem();
  of.qk_norm.weight = false;
  of.qk_norm.eps = 0;
  KvWriteCase call = drawn(of);
  double read[64], squares = 0;
  call.decode(HeadsOf::kK, 2, 0, read);
  for (const double value : read) squares += value * value;
  const double inverse = 1 / std::sqrt(squares / 64);
  call.positions[2] = 3;
  const KvWriteHead head = reference_head(call, HeadsOf::kK, 2, 0);
  EXPECT_NEAR(head.value[0], inverse * (read[0] * std::cos(3.0) - read[16] * std::sin(3.0)), 1e-6);
  EXPECT_NEAR(head.value[16], inverse * (read[16] * std::cos(3.0) + read[0] * std::sin(3.0)), 1e-6);
  EXPECT_NEAR(head.value[40], inverse * read[40], 1e-12);
}

TEST(KvWriteReference, KeepsLengthsInAHadamardTransform) {
  KvWriteProblem of = problem();
  of.qk_norm.kind = NormKind::kNone;
  const KvWriteCase plain = drawn(of);
  of.hadamard = true;
  const KvWriteCase changed = drawn(of);
  double before = 0, after = 0, sum = 0;
  const KvWriteHead from = reference_head(plain, HeadsOf::kQ, 0, 1), to = reference_head(changed, HeadsOf::kQ, 0, 1);
  for (std::size_t i = 0; i < 64; ++i) {
    before += from.value[i] * from.value[i];
    after += to.value[i] * to.value[i];
    sum += from.value[i];
  }
  EXPECT_NEAR(before, after, 1e-9);
  EXPECT_NEAR(to.value[0], sum / 8, 1e-9);
}

TEST(KvWriteVerdict, PassesWhatIsRightAndFindsEachFault) {
  const KvWriteCase call = drawn(problem());
  const KvWriteOutput right = right_output(call);
  EXPECT_TRUE(verify(call, right).passed) << verify(call, right).text;
  const auto found = [&](const std::function<void(KvWriteOutput&)>& fault) {
    KvWriteOutput wrong = right;
    fault(wrong);
    const KvWriteVerdict verdict = verify(call, wrong);
    EXPECT_FALSE(verdict.passed);
    return verdict.text;
  };
  const std::int64_t slot = call.slot_of(0);
  const std::size_t key = call.cache_byte(HeadsOf::kK, slot, 0), value = call.cache_byte(HeadsOf::kV, slot, 0);
  EXPECT_THAT(found([](auto& o) { std::swap_ranges(o.q_out.begin(), o.q_out.begin() + 128, o.q_out.begin() + 128); }),
              HasSubstr("q["));
  EXPECT_THAT(found([&](auto& o) { o.cache[key] ^= std::byte{0x80}; }), HasSubstr("k[0, head 0, 0]"));
  EXPECT_THAT(found([&](auto& o) { o.cache[value + 63] = std::byte{0x7f}; }), HasSubstr("v[0, head 0, 63]"));
  EXPECT_THAT(found([&](auto& o) { std::swap(o.cache[key + 1], o.cache[key + 17]); }), HasSubstr("k[0"));
  EXPECT_THAT(found([&](auto& o) { o.k_scale[static_cast<std::size_t>(slot) * 4 + 2] ^= std::byte{0x20}; }),
              HasSubstr("k scale [0"));
  const auto no_token = [&] {
    for (std::int64_t row = 0;; ++row) {
      bool taken = false;
      for (std::int64_t token = 0; token < call.tokens; ++token) taken |= call.slot_of(token) == row;
      if (!taken) return row;
    }
  }();
  EXPECT_THAT(found([&](auto& o) { o.cache[call.cache_byte(HeadsOf::kK, no_token, 0) + 5] = std::byte{0}; }),
              HasSubstr("of the cache is no token's, and was written"));
  EXPECT_THAT(found([&](auto& o) { o.k_scale[static_cast<std::size_t>(no_token) * 4] = std::byte{0}; }),
              HasSubstr("of k_scale is no token's"));
}

TEST(KvWriteVerdict, FindsTheWorkOfANeighbouringStep) {
  const KvWriteOutput right = right_output(drawn(problem()));
  const auto differs = [&](const std::function<void(KvWriteCase&)>& change) {
    KvWriteCase other = drawn(problem());
    change(other);
    EXPECT_FALSE(verify(other, right).passed);
  };
  differs([](auto& c) { c.problem.rope.style = RopeStyle::kGptj; });
  differs([](auto& c) { c.problem.rope.begin = 32; });
  differs([](auto& c) { c.problem.qk_norm.before_rope = false; });
  differs([](auto& c) { c.problem.qk_norm.kind = NormKind::kL2; });
  differs([](auto& c) { c.problem.qk_norm.kind = NormKind::kRmsAllHeads, c.problem.qk_norm.weight = false; });
  differs([](auto& c) { c.problem.qk_norm.weight_offset = 1; });
  differs([](auto& c) { c.problem.hadamard = true; });
  differs([](auto& c) { c.positions[1] = (c.positions[1] + 1) % 64; });
  differs([](auto& c) { c.v_scale[0] *= 1.25f; });
  differs([](auto& c) { std::swap(c.slot_mapping[0], c.slot_mapping[1]); });
  differs([](auto& c) { c.problem.scales.power_of_two = true; });
}

}  // namespace
}  // namespace kernelwright
