/// Problems that write a cache, drawn at random, for tests of fields that no person thought of together.
#pragma once

#include <type_traits>

#include "kernelwright/generator/kv_write/plan.h"
#include "kernelwright/verify/kv_write/case.h"
#include "kernelwright/verify/random.h"

namespace kernelwright::test {

/// A problem, and the memory that its launches work on.
struct DrawnKvWrite {
  KvWriteProblem problem;
  KvWriteInputOptions options;
};

class KvWriteDraw {
 public:
  explicit KvWriteDraw(Random& random) : random_(random) {}

  /// Of fields that may contradict each other.
  DrawnKvWrite draw() {
    DrawnKvWrite drawn;
    layouts(drawn.problem);
    elements(drawn.problem);
    steps(drawn.problem);
    drawn.options = {.order = coin() ? CacheOrder::kNhd : CacheOrder::kPackedTokens,
                     .packed_rows = coin() && drawn.problem.q_out,
                     .position_bytes = coin() ? 4 : 8};
    if (drawn.problem.v_layout == VLayout::kColumns || drawn.problem.head_dim.qk != drawn.problem.head_dim.v)
      drawn.options.order = CacheOrder::kNhd;  // values lie apart from keys
    return drawn;
  }

 private:
  template <class... Values>
  auto one_of(Values... values) {
    const std::common_type_t<Values...> list[] = {values...};
    return list[random_.below(sizeof...(values))];
  }
  bool coin() { return random_.below(2) == 1; }

  void layouts(KvWriteProblem& problem) {
    const int head_dim = one_of(64, 80, 96, 128, 192, 256);
    problem.head_dim = {head_dim, coin() ? head_dim : one_of(64, 128)};
    problem.heads.kv = one_of(1, 2, 3);
    problem.heads.q = problem.heads.kv * one_of(1, 2, 5);
    const KvLayoutKind kind =
        one_of(KvLayoutKind::kPaged, KvLayoutKind::kPaged, KvLayoutKind::kPadded, KvLayoutKind::kRagged);
    problem.kv_layout = {kind, kind == KvLayoutKind::kPaged ? one_of(1, 3, 16) : 0};
    problem.index = one_of(CacheIndex::kSlots, CacheIndex::kPositions);
    if (random_.below(4) == 0) problem.v_layout = VLayout::kColumns;
  }
  void elements(KvWriteProblem& problem) {
    problem.dtype.in = one_of(DType::kF16, DType::kBf16);
    problem.dtype.q = one_of(DType::kF16, DType::kBf16, DType::kE4m3, DType::kE5m2);
    problem.dtype.kv = one_of(DType::kF16, DType::kBf16, DType::kE4m3, DType::kE5m2);
    const auto scales = [&](DType dtype) {
      return is_fp8(dtype) ? one_of(ScaleKind::kNone, ScaleKind::kPerTensor, ScaleKind::kPerHead, ScaleKind::kPerToken)
                           : ScaleKind::kNone;
    };
    problem.scales = {scales(problem.dtype.q), scales(problem.dtype.kv), scales(problem.dtype.kv), coin()};
    problem.scales.ue8m0 = problem.scales.power_of_two && coin();
    if (random_.below(4) == 0) problem.scales.least = 0.75;
    problem.q_out = random_.below(4) != 0, problem.v_out = random_.below(8) != 0;
  }
  void steps(KvWriteProblem& problem) {
    problem.qk_norm.kind = one_of(NormKind::kNone, NormKind::kRms, NormKind::kRmsAllHeads, NormKind::kL2);
    problem.qk_norm.weight = coin(), problem.qk_norm.before_rope = coin(), problem.qk_norm.v = coin();
    problem.qk_norm.weight_offset = problem.qk_norm.weight ? one_of(0, 1) : 0;
    problem.rope.style = one_of(RopeStyle::kNone, RopeStyle::kNeox, RopeStyle::kGptj);
    if (problem.rope.style != RopeStyle::kNone) {
      problem.rope.width = one_of(16, 32, 64), problem.rope.begin = one_of(0, 8, 16);
      if (const int pairs = problem.rope.width / 2; coin()) {
        problem.rope.sections = {pairs - 2 * (pairs / 3), pairs / 3, pairs / 3};
        problem.rope.interleaved = coin();
      }
    }
    problem.hadamard = coin(), problem.hadamard_signs = problem.hadamard && coin();
  }
  Random& random_;
};

/// One that a kernel of `arch` takes.
inline DrawnKvWrite draw_kv_write(Random& random, Arch arch) {
  for (;;) {
    const DrawnKvWrite drawn = KvWriteDraw(random).draw();
    if (validate(KvWriteConfig{"drawn", drawn.problem, {}, {}}, arch).empty()) return drawn;
  }
}

}  // namespace kernelwright::test
