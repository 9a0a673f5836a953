// Seeded inputs: random values where a kernel reads, NaN everywhere else.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "kernelwright/generator/kv_write/rope_table.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/kv_write/case.h"
#include "kernelwright/verify/random.h"

namespace kernelwright {
namespace {

enum Stream : std::uint64_t { kRows = 301, kWeights, kSlots, kPositions, kScales };

constexpr int kPaddingElements = 16;  // behind each row of q, k and v
constexpr int kCheckRows = 64;        // of the table of a check shape
constexpr int kMostRows = 16384;      // of any table
constexpr int kMostSequences = 4;

void lay_out_rows(KvWriteCase& call, std::int64_t padding) {
  const auto& [q, kv] = call.problem.heads;
  const std::int64_t qk_dim = call.problem.head_dim.qk, v_dim = call.problem.head_dim.v;
  const std::int64_t q_row = q * qk_dim, k_row = kv * qk_dim, v_row = kv * v_dim;
  const std::int64_t all = q_row + k_row + v_row + padding;
  call.q_strides = {0, call.packed_rows ? all : q_row + padding, qk_dim};
  call.k_strides = {0, call.packed_rows ? all : k_row + padding, qk_dim};
  call.v_strides = {0, call.packed_rows ? all : v_row + padding, v_dim};
}

void lay_out_cache(KvWriteCase& call, CacheOrder order) {
  const std::int64_t heads = call.problem.heads.kv, keys = call.keys_of_page();
  const std::int64_t pages = keys == 0 ? 0 : call.slots() / keys;
  const auto view = [&](std::int64_t head_dim) -> HeadStrides {
    if (order == CacheOrder::kHnd || order == CacheOrder::kPackedHeads)
      return {heads * keys * head_dim, head_dim, keys * head_dim};
    return {keys * heads * head_dim, heads * head_dim, head_dim};
  };
  const std::int64_t qk_dim = call.problem.head_dim.qk, v_dim = call.problem.head_dim.v;
  const bool columns = call.problem.v_layout == VLayout::kColumns;  // values lie apart from keys, whatever the order
  const std::size_t size = bytes_of(call.problem.dtype.kv);
  const auto bytes = [&](std::int64_t head_dim) {
    return static_cast<std::size_t>(pages * keys * heads * head_dim) * size;
  };
  if (columns) {
    call.k_cache = {0, view(qk_dim)};
    call.v_cache = {bytes(qk_dim), {heads * keys * v_dim, 0, keys * v_dim}};
    call.cache_bytes = bytes(qk_dim) + bytes(v_dim);
  } else if (order == CacheOrder::kPackedTokens || order == CacheOrder::kPackedHeads) {
    call.k_cache = {0, view(qk_dim + v_dim)};
    call.v_cache = {static_cast<std::size_t>(qk_dim) * size, view(qk_dim + v_dim)};
    call.cache_bytes = bytes(qk_dim + v_dim);
  } else {
    call.k_cache = {0, view(qk_dim)};
    call.v_cache = {bytes(qk_dim), view(v_dim)};
    call.cache_bytes = bytes(qk_dim) + bytes(v_dim);
  }
}

/// The sizes of the cache, so that every token has a place.
void lay_out(KvWriteCase& call, const KvWriteShape& shape, const KvWriteInputOptions& options) {
  call.tokens = shape.tokens;
  call.packed_rows = options.packed_rows;
  call.wrong_places = options.wrong_places;
  call.position_bytes = options.position_bytes;
  const std::int64_t most = std::max<std::int64_t>(call.tokens, 1);
  call.batch = static_cast<int>(std::min<std::int64_t>(most, kMostSequences));
  const std::int64_t of_sequence = (most + call.batch - 1) / call.batch;
  if (call.problem.kv_layout.kind == KvLayoutKind::kPaged) {
    const std::int64_t size = call.problem.kv_layout.page_size;
    call.page_table_stride = static_cast<int>((of_sequence + size - 1) / size + 1);
    const std::int64_t needed =
        std::max<std::int64_t>((most + size - 1) / size, std::int64_t{call.batch} * call.page_table_stride);
    call.num_pages = shape.pages > 0 ? shape.pages : static_cast<int>(2 * needed);
  } else if (call.problem.kv_layout.kind == KvLayoutKind::kPadded) {
    call.kv_len = static_cast<int>(2 * of_sequence + 3);
  } else {
    call.kv_tokens = 2 * most + 3;
  }
  if (call.problem.rope.style != RopeStyle::kNone)
    call.cos_sin_rows = shape.check ? kCheckRows : static_cast<int>(std::min<std::int64_t>(2 * most, kMostRows));
  lay_out_rows(call, kPaddingElements);
  lay_out_cache(call, options.order);
}

void fill_rows(KvWriteCase& call, std::vector<std::byte>& bytes, std::int64_t row_elements, const HeadStrides& strides,
               std::uint64_t seed, std::uint64_t number) {
  const std::size_t size = bytes_of(call.problem.dtype.in);
  bytes.resize(static_cast<std::size_t>(call.tokens * strides.token) * size);
  fill_with_nan(call.problem.dtype.in, bytes);
  std::vector<float> values(static_cast<std::size_t>(row_elements + row_elements % 2));
  for (std::int64_t token = 0; token < call.tokens; ++token) {
    Random random(seed, (static_cast<std::uint64_t>(token) * 4 + number) * 512 + kRows);
    for (std::size_t i = 0; i < values.size(); i += 2) random.normal_pair(values[i], values[i + 1]);
    encode_row(call.problem.dtype.in, std::span(values).first(static_cast<std::size_t>(row_elements)),
               bytes.data() + static_cast<std::size_t>(token * strides.token) * size);
  }
}

void fill_operands(KvWriteCase& call, std::uint64_t seed) {
  const auto& [q, kv] = call.problem.heads;
  const std::int64_t qk_dim = call.problem.head_dim.qk, v_dim = call.problem.head_dim.v;
  if (call.packed_rows) {
    fill_rows(call, call.q, q * qk_dim + kv * (qk_dim + v_dim), call.q_strides, seed, 0);
  } else {
    if (call.problem.q_out) fill_rows(call, call.q, q * qk_dim, call.q_strides, seed, 0);
    fill_rows(call, call.k, kv * qk_dim, call.k_strides, seed, 1);
    fill_rows(call, call.v, kv * v_dim, call.v_strides, seed, 2);
  }
  const QkNorm& norm = call.problem.qk_norm;
  if (norm.kind == NormKind::kNone || !norm.weight) return;
  Random random(seed, kWeights);
  const auto weights = [&](std::vector<std::byte>& bytes, int heads) {
    std::vector<float> values(static_cast<std::size_t>(qk_dim * (norm.kind == NormKind::kRmsAllHeads ? heads : 1)));
    for (float& value : values)
      value = static_cast<float>(random.uniform(0.5, 1.5)) - static_cast<float>(norm.weight_offset);
    bytes.resize(values.size() * bytes_of(call.problem.dtype.in));
    encode_row(call.problem.dtype.in, values, bytes.data());
  };
  weights(call.q_weight, q);
  weights(call.k_weight, kv);
}

/// Positions of streams that turn, and places.
void fill_places(KvWriteCase& call, bool check, std::uint64_t seed) {
  const bool wrong = call.wrong_places;
  const bool by_position = call.problem.index == CacheIndex::kPositions;
  Random random(seed, kPositions);
  call.positions.resize(static_cast<std::size_t>(call.streams() * call.tokens));
  for (std::size_t i = 0; i < call.positions.size(); ++i) {
    const auto token = static_cast<std::int64_t>(i) % std::max<std::int64_t>(call.tokens, 1);
    if (by_position)
      call.positions[i] = token / call.batch;
    else if (!check)
      call.positions[i] = token;
    else
      call.positions[i] = wrong ? static_cast<std::int64_t>(random.below(kCheckRows + 16)) - 8
                                : static_cast<std::int64_t>(random.below(kCheckRows));
  }
  const auto tokens = static_cast<std::size_t>(call.tokens);
  if (by_position) {
    call.batch_indices.resize(tokens);
    for (std::size_t t = 0; t < tokens; ++t) {
      call.batch_indices[t] = static_cast<std::int32_t>(t % static_cast<std::size_t>(call.batch));
      if (check && t % 7 == 3) call.batch_indices[t] = -1;
      if (wrong && t % 11 == 5) call.batch_indices[t] = call.batch;
      if (wrong && t % 13 == 8) call.positions[t] = std::int64_t{1} << 29;
    }
  } else {
    std::vector<std::int64_t> all(static_cast<std::size_t>(call.slots()));
    std::iota(all.begin(), all.end(), 0);
    Random order(seed, kSlots);
    for (std::size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[order.below(i)]);
    call.slot_mapping.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(std::min(tokens, all.size())));
    call.slot_mapping.resize(tokens, -1);
    for (std::size_t t = 0; t < tokens; ++t) {
      if (check && t % 7 == 3) call.slot_mapping[t] = -1;
      if (wrong && t % 11 == 5)
        call.slot_mapping[t] = call.slots() + static_cast<std::int64_t>(t) * (std::int64_t{1} << 31);
    }
  }
  if (by_position && call.problem.kv_layout.kind == KvLayoutKind::kPaged) {
    std::vector<std::int32_t> pages(static_cast<std::size_t>(call.num_pages));
    std::iota(pages.begin(), pages.end(), 0);
    Random order(seed, kSlots);
    for (std::size_t i = pages.size(); i > 1; --i) std::swap(pages[i - 1], pages[order.below(i)]);
    const auto entries = static_cast<std::size_t>(call.batch) * static_cast<std::size_t>(call.page_table_stride);
    pages.resize(entries, -1);
    if (wrong && entries > 2) pages[1] = call.num_pages, pages[2] = -1;
    call.page_table = std::move(pages);
  }
}

void fill_scales(KvWriteCase& call, std::uint64_t seed) {
  Random random(seed, kScales);
  const auto fill = [&](HeadsOf of, std::vector<float>& scales) {
    const ScaleKind kind = call.scales(of);
    if (kind != ScaleKind::kPerTensor && kind != ScaleKind::kPerHead) return;
    scales.resize(kind == ScaleKind::kPerHead ? static_cast<std::size_t>(call.heads(of)) : 1);
    for (float& scale : scales) scale = static_cast<float>(random.uniform(0.005, 0.02));
  };
  fill(HeadsOf::kQ, call.q_scale);
  fill(HeadsOf::kK, call.k_scale);
  fill(HeadsOf::kV, call.v_scale);
}

}  // namespace

void lay_out_dense(KvWriteCase& call) {
  lay_out_rows(call, 0);
  lay_out_cache(call, CacheOrder::kNhd);
}

KvWriteCase shape_only(const KvWriteProblem& problem, const KvWriteShape& shape) {
  KvWriteCase call;
  call.problem = problem;
  lay_out(call, shape, {});
  return call;
}

KvWriteCase make_kv_write_inputs(const KvWriteProblem& problem, const KvWriteShape& shape,
                                 const KvWriteInputOptions& options) {
  KvWriteCase call;
  call.problem = problem;
  lay_out(call, shape, options);
  fill_operands(call, options.seed);
  fill_places(call, shape.check, options.seed);
  fill_scales(call, options.seed);
  if (call.cos_sin_rows > 0) call.cos_sin = rope_table({.width = problem.rope.width}, 0, call.cos_sin_rows);
  return call;
}

}  // namespace kernelwright
