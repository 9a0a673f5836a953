/// A kernel's arithmetic on the host: fp32 sums over tiles of keys, a running maximum, P rounded to 16 bits. It stands
/// in for a GPU in tests of the bound, and makes the mistakes that the bound must catch.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernelwright/verify/attention/case.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/parallel.h"

namespace kernelwright {

struct SimulatedFaults {
  int dropped_key = -1;           // this key is left out
  float scale_factor = 1;         // the scale is wrong by this factor
  bool sixteen_bit_sums = false;  // O is kept in the output's dtype between tiles
};

inline AttentionOutput simulate_attention(const AttentionCase& call, const SimulatedFaults& faults = {}) {
  constexpr int kTile = 64;
  const AttentionProblem& problem = call.problem;
  const float infinity = std::numeric_limits<float>::infinity(), log2e = 1.4426950408889634f;
  AttentionOutput output;
  output.o.resize(call.o_elems() * bytes_of(problem.dtype.out));
  fill_with_nan(problem.dtype.out, output.o);
  if (problem.lse) output.lse.assign(call.lse_elems(), std::numeric_limits<float>::quiet_NaN());
  const std::size_t d = problem.head_dim.qk, dv = problem.head_dim.v;
  std::vector<std::pair<int, int>> rows;
  for (int b = 0; b < call.batch; ++b)
    for (int i = 0; i < call.q_lens[b]; ++i) rows.emplace_back(b, i);
  parallel_for(rows.size() * problem.heads.q, [&](std::size_t item) {
    const auto [b, i] = rows[item / problem.heads.q];
    const int h = static_cast<int>(item % problem.heads.q), kv = h / problem.group();
    std::vector<double> q(d), k(d), v(dv);
    decode_row(problem.dtype.q, call.q_row(b, i, h), d, q.data());
    const auto range = call.visible(b, i);
    const float query = call.has_query_scales() ? call.q_scale[call.q_scale_index(b, i, h)] : 1;
    const float scale = call.scale * query * faults.scale_factor;
    std::vector<float> o(dv, 0.f);
    float top = problem.sinks ? call.sinks[h] : -infinity, sum = std::isfinite(top) ? 1.f : 0.f;
    for (int first = range.first; first < range.last; first += kTile) {
      const int last = std::min(first + kTile, range.last);
      float scores[kTile], new_top = top;
      for (int j = first; j < last; ++j) {
        decode_row(problem.dtype.kv, call.k_row(b, j, kv), d, k.data());
        float score = 0;
        for (std::size_t e = 0; e < d; ++e) score += static_cast<float>(q[e]) * static_cast<float>(k[e]);
        score *= scale * static_cast<float>(call.k_scale_of(b, j, kv));
        if (problem.score_mod.kind == ScoreModKind::kSoftcap) score = call.softcap * std::tanh(score / call.softcap);
        if (problem.score_mod.kind == ScoreModKind::kAlibi)
          score += static_cast<float>(call.alibi_slope(h)) * static_cast<float>(j - call.diagonal_key(b, i));
        if (j == faults.dropped_key) score = -infinity;
        scores[j - first] = score;
        new_top = std::max(new_top, score);
      }
      const bool has_nan = std::any_of(scores, scores + (last - first), [](float score) { return std::isnan(score); });
      if (new_top == -infinity && !has_nan) continue;
      if (new_top == -infinity) new_top = 0;  // max drops a NaN; the sum keeps it
      const float keep = std::exp2((top - new_top) * log2e);
      sum *= keep;
      for (float& value : o) value *= keep;
      top = new_top;
      for (int j = first; j < last; ++j) {
        const float p = std::exp2((scores[j - first] - top) * log2e), rounded = round_to(problem.dtype.q, p);
        sum += p;
        decode_row(problem.dtype.kv, call.v_row(b, j, kv), dv, v.data());
        const float weight = rounded * static_cast<float>(call.v_scale_of(b, j, kv));
        for (std::size_t e = 0; e < dv; ++e) o[e] += weight * static_cast<float>(v[e]);
      }
      if (faults.sixteen_bit_sums)
        for (float& value : o) value = round_to(problem.dtype.out, value);
    }
    for (float& value : o) value = sum == 0 ? 0 : value / sum;
    encode_row(problem.dtype.out, o, output.o.data() + call.o_index(b, i, h) * bytes_of(problem.dtype.out));
    if (problem.lse) output.lse[call.lse_index(b, i, h)] = sum == 0 ? -infinity : top + std::log(sum);
  });
  return output;
}

}  // namespace kernelwright
