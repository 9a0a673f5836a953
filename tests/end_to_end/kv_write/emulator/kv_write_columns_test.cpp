// Values that kv_write writes in columns, and attention that reads them, on the emulator with every check on.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "support/emulated_kv_write.h"

namespace kernelwright {
namespace {

using test::expect_right;
using test::make_checking_engine;
using test::run_checked;

constexpr int kTokens = 77, kQueries = 33, kDepth = 64, kNan = 0x7f;  // a NaN of e4m3 and of e5m2

/// One sequence in pages of `page` keys, heads of 64.
KvWriteCase one_sequence(int page, DType q) {
  KvWriteProblem problem;
  problem.dtype.q = q, problem.dtype.kv = DType::kE4m3;
  problem.head_dim = {kDepth, kDepth};
  problem.heads = {2, 1};
  problem.kv_layout = {KvLayoutKind::kPaged, page};
  problem.v_layout = VLayout::kColumns;
  problem.index = CacheIndex::kPositions;
  problem.rope = {.style = RopeStyle::kNeox, .width = kDepth};
  problem.scales.k = problem.scales.v = ScaleKind::kPerHead;
  KvWriteCase call = make_kv_write_inputs(problem, {.name = "drawn", .tokens = kTokens});
  call.batch = 1;
  call.page_table_stride = static_cast<int>(call.page_table.size());
  std::iota(call.positions.begin(), call.positions.end(), 0);
  std::fill(call.batch_indices.begin(), call.batch_indices.end(), 0);
  return call;
}

/// Attention of the last `queries` tokens over the cache that `written` has. What no token wrote is NaN.
AttentionCase reading(const KvWriteCase& call, const KvWriteOutput& written, int queries) {
  AttentionProblem problem;
  problem.dtype = {call.problem.dtype.q, call.problem.dtype.kv, DType::kBf16};
  problem.head_dim = call.problem.head_dim, problem.heads = call.problem.heads;
  problem.kv_layout = call.problem.kv_layout, problem.v_layout = call.problem.v_layout;
  problem.scales = ScaleKind::kPerHead;
  problem.mask.kind = MaskKind::kCausal;
  problem.lse = true;
  if (queries == 1) problem.max_q_len = 1;
  AttentionShape shape;
  shape.name = "drawn", shape.batch = 1, shape.q_len = queries, shape.kv_len = kTokens;
  AttentionCase attention = make_inputs(problem, shape);
  attention.random_values = false;
  attention.k_scale = call.k_scale, attention.v_scale = call.v_scale;
  attention.page_table = call.page_table, attention.page_table_stride = call.page_table_stride;
  const std::size_t row = call.problem.heads.q * kDepth * bits_of(problem.dtype.q) / 8;
  attention.q.buffer = std::make_shared<std::vector<std::byte>>(
      written.q_out.begin() + static_cast<std::ptrdiff_t>((kTokens - queries) * row), written.q_out.end());
  const auto cache = std::make_shared<std::vector<std::byte>>(call.cache_bytes, std::byte{kNan});
  for (int token = 0; token < kTokens; ++token)
    for (const HeadsOf of : {HeadsOf::kK, HeadsOf::kV})
      for (int element = 0; element < kDepth; ++element) {
        const std::size_t at = call.cache_byte(of, call.slot_of(token), 0, element);
        (*cache)[at] = written.cache[at];
      }
  const auto view = [&](HostTensor& tensor, const CacheView& of) {
    tensor.buffer = cache, tensor.offset_bytes = of.offset;
    tensor.strides = {of.strides.batch, of.strides.token, of.strides.head};
  };
  view(attention.k, call.k_cache);
  view(attention.v, call.v_cache);
  return attention;
}

class KvWriteColumns : public test::OnTheEmulator<int> {
 protected:
  Engine engine_ = make_checking_engine(3, emulator::Completion::kRandom, 7);
};

INSTANTIATE_TEST_SUITE_P(, KvWriteColumns, testing::Values(0));

// The writer is checked against its reference, and attention against the reference over the bytes that were written.
TEST_P(KvWriteColumns, AreWhatAttentionReads) {
  for (const int page : {16, 64}) {
    SCOPED_TRACE(fmt::format("pages of {}", page));
    const KvWriteCase call = one_sequence(page, DType::kE4m3);
    const KvWriteOutput written = run_checked(engine_, call);
    expect_right(call, written);
    const AttentionCase attention = reading(call, written, kQueries);
    const CudaCase prefill{"columns", attention.problem, {}, {}};
    test::expect_right(attention, run_checked(engine_, prefill, attention));

    const AttentionCase narrow = reading(call, written, 1);
    const CudaCase narrow_decode{"columns", narrow.problem, {}, {}};
    test::expect_right(narrow, run_checked(engine_, narrow_decode, narrow));

    const KvWriteCase in_16_bits = one_sequence(page, DType::kBf16);
    const KvWriteOutput cache = run_checked(engine_, in_16_bits);
    for (const int queries : {kQueries, 1}) {
      const AttentionCase wide = reading(in_16_bits, cache, queries);
      test::expect_right(wide, run_checked(engine_, CudaCase{"columns", wide.problem, {}, {}}, wide));
    }
  }
}

}  // namespace
}  // namespace kernelwright
