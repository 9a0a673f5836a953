// The fp64 reference. Work comes in chunks of rows that share a KV head, so that a tile of keys is decoded once for all
// of them. Scores are stored whole, because this softmax is the plain one: it has no running maximum and shares no code
// with a kernel.
#include "kernelwright/verify/attention/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/parallel.h"
#include "kernelwright/verify/random.h"
#include "kernelwright/verify/wide.h"

namespace kernelwright {
namespace {

constexpr int kTile = 64;          // keys decoded at a time
constexpr int kRowsPerChunk = 16;  // rows that share a decoded tile
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// score[j] = sum_i q[i] k[i][j] and magnitude[j] = sum_i |q[i] k[i][j]| for the tile's keys; k is [head_dim][kTile].
KERNELWRIGHT_WIDE void multiply_keys(const double* q, const double* k, int head_dim, double* score, double* magnitude) {
  constexpr int kLanes = 8;
  for (int from = 0; from < kTile; from += kLanes) {
    double sum[kLanes] = {}, abs_sum[kLanes] = {};
    for (int i = 0; i < head_dim; ++i) {
      const double* keys = k + static_cast<std::ptrdiff_t>(i) * kTile + from;
      for (int lane = 0; lane < kLanes; ++lane) {
        const double product = q[i] * keys[lane];
        sum[lane] += product;
        abs_sum[lane] += std::fabs(product);
      }
    }
    for (int lane = 0; lane < kLanes; ++lane) score[from + lane] = sum[lane], magnitude[from + lane] = abs_sum[lane];
  }
}

// Adds keys [first, last) of a tile to the four sums of a row; v is [kTile][head_dim], padded to whole lanes.
KERNELWRIGHT_WIDE void add_values(const double* p, const double* c, const double* v, int stride, int first, int last,
                                  double* o, double* abs_pv, double* score_shift, double* square_pv) {
  constexpr int kLanes = 8;
  for (int from = 0; from < stride; from += kLanes) {
    double sum[kLanes] = {}, abs_sum[kLanes] = {}, shift[kLanes] = {}, square[kLanes] = {};
    for (int j = first; j < last; ++j) {
      const double* values = v + static_cast<std::ptrdiff_t>(j) * stride + from;
      for (int lane = 0; lane < kLanes; ++lane) {
        const double product = p[j] * values[lane], magnitude = std::fabs(values[lane]);
        sum[lane] += product;
        abs_sum[lane] += p[j] * magnitude;
        shift[lane] += c[j] * magnitude;
        square[lane] += product * product;
      }
    }
    for (int lane = 0; lane < kLanes; ++lane) {
      o[from + lane] += sum[lane];
      abs_pv[from + lane] += abs_sum[lane];
      score_shift[from + lane] += shift[lane];
      square_pv[from + lane] += square[lane];
    }
  }
}

constexpr double kNegligible = 104;  // exp(-104) is less than half of the smallest f32

// The state of a row while its chunk is computed.
struct RowState {
  ReferenceRow row;
  AttentionCase::Range range{};
  std::vector<double> q;
  double largest_q = 0;
  double scale = 1;                  // of the query
  std::vector<double> score, error;  // [range], then probability and c_j
  std::vector<double> noise;         // [range], ReferenceRow's score_noise by key
};

class Chunk {
 public:
  Chunk(const AttentionCase& call, const ScoreErrorModel& model, std::span<const RowId> rows)
      : call_(call), model_(model), kv_head_(rows[0].head / call.problem.group()), sequence_(rows[0].sequence) {
    first_ = std::numeric_limits<int>::max();
    for (const RowId& id : rows) {
      RowState& state = rows_.emplace_back();
      state.row.id = id;
      state.range = call.visible(id.sequence, id.query);
      state.row.visible = state.range.size();
      state.q.resize(static_cast<std::size_t>(call.problem.head_dim.qk));
      call.decode_query(id.sequence, id.query, id.head, state.q.data());
      for (const double element : state.q) state.largest_q = std::max(state.largest_q, std::fabs(element));
      if (call.has_query_scales()) state.scale = call.q_scale[call.q_scale_index(id.sequence, id.query, id.head)];
      state.score.resize(static_cast<std::size_t>(state.range.size()));
      state.error.resize(state.score.size());
      state.noise.resize(state.score.size());
      if (!state.range.size()) continue;
      first_ = std::min(first_, state.range.first);
      last_ = std::max(last_, state.range.last);
    }
    for (int j = first_; j < last_; ++j) value_scales_.push_back(call.v_scale_of(sequence_, j, kv_head_));
  }

  void compute(const std::function<void(const ReferenceRow&)>& visit) {
    for (int tile = first_; tile < last_; tile += kTile) score_tile(tile, std::min(tile + kTile, last_));
    for (RowState& state : rows_) softmax(state);
    for (int tile = first_; tile < last_; tile += kTile) weigh_tile(tile, std::min(tile + kTile, last_));
    for (RowState& state : rows_) {
      ReferenceRow& row = state.row;
      for (auto* sums : {&row.o, &row.abs_pv, &row.score_shift, &row.square_pv})
        sums->resize(static_cast<std::size_t>(call_.problem.head_dim.v));
      visit(row);
    }
  }

 private:
  void score_tile(int first, int last) {
    const int head_dim = call_.problem.head_dim.qk;
    double key_scales[kTile], key_sums[kTile] = {};  // of magnitudes
    std::vector<double> key(static_cast<std::size_t>(head_dim)), keys(key.size() * kTile);
    for (int j = first; j < last; ++j) {
      call_.decode_key(sequence_, j, kv_head_, key.data());
      key_scales[j - first] = call_.k_scale_of(sequence_, j, kv_head_);
      for (int i = 0; i < head_dim; ++i) keys[static_cast<std::size_t>(i) * kTile + (j - first)] = key[i];
      if (model_.q_floor > 0)
        for (const double element : key) key_sums[j - first] += std::fabs(element);
    }
    double score[kTile], magnitude[kTile];
    for (RowState& state : rows_) {
      const int from = std::max(first, state.range.first), to = std::min(last, state.range.last);
      if (from >= to) continue;
      multiply_keys(state.q.data(), keys.data(), head_dim, score, magnitude);
      for (int j = from; j < to; ++j) {
        const double scale = call_.scale * state.scale * key_scales[j - first];
        double value = score[j - first] * scale;
        double error =
            (model_.relative * magnitude[j - first] + model_.q_floor * state.largest_q * key_sums[j - first]) *
            std::fabs(scale);
        double noise = magnitude[j - first] * std::fabs(scale) * 0x1p-23;
        if (call_.problem.score_mod.kind == ScoreModKind::kSoftcap) {
          const double cap = call_.softcap, at = std::fabs(value), height = std::tanh(at / cap);
          // tanh is steepest near zero, so the error towards zero changes it most
          error = cap * (height - std::tanh((at - error) / cap) + model_.tanh_error);
          value = cap * std::tanh(value / cap);
          noise = std::max(noise, cap * 0x1p-22);
        }
        if (call_.problem.score_mod.kind == ScoreModKind::kAlibi) {
          const double slope = call_.alibi_slope(state.row.id.head);
          const double bias =
              slope * static_cast<double>(j - call_.diagonal_key(state.row.id.sequence, state.row.id.query));
          value += bias;
          error += model_.bias_relative * std::fabs(bias) + model_.bias_step * std::fabs(slope);
          noise = std::max(noise, 0x1p-24 * std::fabs(bias));
        }
        const RowId& id = state.row.id;
        if (!call_.bias.values.empty()) {
          const double bias = call_.bias.at(id.sequence, id.query, id.head, j);
          value += bias;
          if (std::isfinite(bias)) {
            error += model_.bias_relative * std::fabs(bias);
            noise = std::max(noise, 0x1p-24 * std::fabs(bias));
          }
        }
        if (!call_.mask.values.empty() && call_.mask.at(id.sequence, id.query, id.head, j) == 0) value = -kInfinity;
        if (call_.shows || call_.modifies) ask_sources(id, j, value, error, noise);
        if (call_.has_key_scales()) {
          const double weight = std::log2(value_scale(j));  // joins the exponent
          error += model_.exp_error * (1 + std::fabs(weight));
          noise = std::max(noise, 0x1p-23 * std::fabs(weight));
        }
        if (std::isfinite(value)) value = std::max(value, -0x1p127);  // docs/policies.md: no finite score is below this
        if (value == -kInfinity) error = 0, --state.row.visible;
        state.score[static_cast<std::size_t>(j - state.range.first)] = value;
        state.error[static_cast<std::size_t>(j - state.range.first)] = error + model_.exp_error;
        state.noise[static_cast<std::size_t>(j - state.range.first)] = noise;
      }
    }
  }

  /// Calls the problem's sources. To find what a modifier makes of an error, it is called on both sides of the score.
  /// The roundings of its own f32 steps are added: each step may be off by the last place of the score and of its
  /// result.
  void ask_sources(const RowId& id, int key, double& value, double& error, double& noise) const {
    const ScorePlace at{id.sequence,
                        id.query,
                        id.head,
                        key,
                        call_.q_lens[static_cast<std::size_t>(id.sequence)],
                        call_.kv_lens[static_cast<std::size_t>(id.sequence)]};
    if (call_.shows && !call_.shows(at)) value = -kInfinity;
    if (!call_.modifies || value == -kInfinity) return;
    const double modified = call_.modifies(value, at);
    if (std::isfinite(modified)) {
      const double steps =
          model_.bias_relative * (std::fabs(value) + std::fabs(modified) + std::fabs(modified - value));
      error = std::max(std::fabs(call_.modifies(value + error, at) - modified),
                       std::fabs(call_.modifies(value - error, at) - modified)) +
              steps;
      noise = std::max(noise, steps / 4);
    }
    value = modified;
  }

  void softmax(RowState& state) const {
    ReferenceRow& row = state.row;
    double top = -kInfinity, top_error = 0;
    bool has_nan = false;
    const auto consider = [&](double score, double error) {
      has_nan |= std::isnan(score);
      if (score > top) top = score, top_error = error;
    };
    for (std::size_t j = 0; j < state.score.size(); ++j) consider(state.score[j], state.error[j]);
    const bool with_sink = call_.problem.sinks;
    const double sink =
        with_sink ? static_cast<double>(call_.sinks[static_cast<std::size_t>(row.id.head)]) : -kInfinity;
    const double sink_error = std::isfinite(sink) ? std::fabs(sink) * 0x1p-21 : 0;
    if (with_sink) consider(sink, sink_error);
    // Some keys are negligible in an f32 sum, for instance with a bias of -1e9. They must not loosen the bound of the
    // keys that are not.
    const auto count = [&](double score, double error, double noise) {
      if (!std::isfinite(score) || score + error < top - top_error - kNegligible) return;
      row.max_abs_score = std::max(row.max_abs_score, std::fabs(score));
      row.score_noise = std::max(row.score_noise, noise);
    };
    for (std::size_t j = 0; j < state.score.size(); ++j) count(state.score[j], state.error[j], state.noise[j]);
    if (with_sink) count(sink, sink_error, 0);
    row.score_noise += 0x1p-22 + 0x1p-23 * row.max_abs_score;
    if (top == -kInfinity && !has_nan) {  // the row sees no key: O = 0
      row.lse = -kInfinity;
      row.sum_above_top = 1;
      std::fill(state.score.begin(), state.score.end(), 0);
      std::fill(state.error.begin(), state.error.end(), 0);
      return;
    }
    double sum = with_sink ? std::exp(sink - top) : 0;
    for (const double score : state.score) sum += std::exp(score - top);
    row.sum_above_top = sum;
    row.lse = top + std::log(sum);

    // Errors that all keys share cancel. If they are large, count them relative to the top key's error.
    const bool relative_to_top = top_error > 0.25;
    double kept = 0, grown = 0;
    const auto weigh = [&](double score, double error, double& p, double& c) {
      p = std::exp(score - top) / sum;
      const bool is_top = score == top;
      const double moved = relative_to_top ? (is_top ? 0 : error + top_error) : error;
      // A weight of zero stays zero: exp(moved) may overflow where p has underflowed.
      c = p > 0 && moved > 0 ? std::exp(score - top + moved) / sum - p : 0;
      row.shift += c;
      kept += p * std::exp(-moved);
      grown += p > 0 ? std::exp(score - top + error) / sum : 0;
      row.square_p += p * p;
    };
    if (with_sink) {
      double p, c;  // the sink's value is zero
      weigh(sink, sink_error, p, c);
    }
    for (std::size_t j = 0; j < state.score.size(); ++j) {
      double p, c;
      weigh(state.score[j], state.error[j], p, c);
      state.score[j] = p;
      // Where values have scales that differ, exponentials count from the largest product of weight and scale.
      const double scale = value_scale(state.range.first + static_cast<int>(j));
      const double below = call_.has_key_scales() ? largest_scale(state.range) / scale : 1;
      state.error[j] = c + model_.p_floor / sum * below;
    }
    row.kept = std::min(1.0, kept);
    row.lse_shift = std::log(std::max(1.0, grown));
  }

  void weigh_tile(int first, int last) {
    const int head_dim = call_.problem.head_dim.v, stride = (head_dim + 7) / 8 * 8;
    std::vector<double> values(static_cast<std::size_t>(stride) * kTile);
    double largest = 0;
    for (int j = first; j < last; ++j) {
      double* to = values.data() + static_cast<std::ptrdiff_t>(j - first) * stride;
      call_.decode_value(sequence_, j, kv_head_, to);
      const double scale = value_scale(j);
      for (int i = 0; i < head_dim; ++i) largest = std::max(largest, std::fabs(to[i])), to[i] *= scale;
    }
    for (RowState& state : rows_) {
      ReferenceRow& row = state.row;
      for (auto* sums : {&row.o, &row.abs_pv, &row.score_shift, &row.square_pv})
        sums->resize(static_cast<std::size_t>(stride));
      const int from = std::max(first, state.range.first), to = std::min(last, state.range.last);
      if (from >= to) continue;
      // An upper bound: may count a neighbour's key.
      row.max_abs_v = std::max(row.max_abs_v, largest * largest_scale(state.range));
      const std::ptrdiff_t shift = first - state.range.first;
      add_values(state.score.data() + shift, state.error.data() + shift, values.data(), stride, from - first,
                 to - first, row.o.data(), row.abs_pv.data(), row.score_shift.data(), row.square_pv.data());
    }
  }

  /// A value's scale; and the largest magnitude of those of `keys`.
  double value_scale(int key) const { return value_scales_[static_cast<std::size_t>(key - first_)]; }
  double largest_scale(const AttentionCase::Range& keys) const {
    if (!call_.has_key_scales()) return std::fabs(value_scale(keys.first));
    return *std::max_element(value_scales_.begin() + (keys.first - first_),
                             value_scales_.begin() + (keys.last - first_));
  }

  const AttentionCase& call_;
  const ScoreErrorModel& model_;
  const int kv_head_, sequence_;
  int first_ = 0, last_ = 0;
  std::vector<double> value_scales_;  // of [first_, last_)
  std::vector<RowState> rows_;
};

void sample_head(const AttentionCase& call, int sequence, int head, std::size_t count, Random& random,
                 std::vector<RowId>& rows) {
  const int queries = call.q_lens[static_cast<std::size_t>(sequence)];
  std::set<int> chosen{0, queries - 1};
  constexpr int kBlocks[] = {16, 64, 128};
  for (int attempt = 0; chosen.size() < count && attempt < static_cast<int>(8 * count); ++attempt) {
    int query = static_cast<int>(random.below(static_cast<std::uint64_t>(queries)));
    if (attempt % 2) {
      const int block = kBlocks[random.below(3)];
      query = query / block * block + (random.below(2) ? block - 1 : 0);
    }
    if (query < queries) chosen.insert(query);
  }
  for (const int query : chosen) rows.push_back({sequence, query, head});
}

}  // namespace

std::vector<RowId> choose_rows(const AttentionCase& call, double budget_operations, std::uint64_t seed) {
  const double share = budget_operations / std::max(1.0, call.operations());
  std::vector<RowId> rows;
  for (int b = 0; b < call.batch; ++b) {
    const int queries = call.q_lens[static_cast<std::size_t>(b)];
    if (!queries) continue;
    const auto wanted = static_cast<std::size_t>(std::max(4.0, share * queries));
    for (int h = 0; h < call.problem.heads.q; ++h) {
      Random random(seed, static_cast<std::uint64_t>(b) * 4096 + static_cast<std::uint64_t>(h));
      if (share >= 1 || wanted >= static_cast<std::size_t>(queries))
        for (int i = 0; i < queries; ++i) rows.push_back({b, i, h});
      else
        sample_head(call, b, h, wanted, random, rows);
    }
  }
  return rows;
}

void compute_reference(const AttentionCase& call, std::vector<RowId> rows, const ScoreErrorModel& model,
                       const std::function<void(const ReferenceRow&)>& visit) {
  const int group = call.problem.group();
  const auto order = [group](const RowId& row) {
    return std::tuple(row.sequence, row.head / group, row.query, row.head);
  };
  std::sort(rows.begin(), rows.end(), [&](const RowId& a, const RowId& b) { return order(a) < order(b); });
  std::vector<std::pair<std::size_t, std::size_t>> chunks;
  for (std::size_t from = 0, to; from < rows.size(); from = to) {
    to = from + 1;
    while (to < rows.size() && to - from < kRowsPerChunk && rows[to].sequence == rows[from].sequence &&
           rows[to].head / group == rows[from].head / group)
      ++to;
    chunks.emplace_back(from, to);
  }
  parallel_for(chunks.size(), [&](std::size_t i) {
    const auto [from, to] = chunks[i];
    Chunk(call, model, std::span(rows).subspan(from, to - from)).compute(visit);
  });
}

}  // namespace kernelwright
