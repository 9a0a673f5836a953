// Cases for attention_sm100 beside the list that all families share: every tile, ring and schedule, lengths around its
// tiles of 128 rows, keys in pages, and errors that rescaling an output could cause.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "end_to_end/attention/cases/attention_cases.h"
#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/verify/formats/float_formats.h"

namespace kernelwright {
namespace {

AttentionSchedule blackwell() {
  AttentionSchedule schedule;
  schedule.family = Family::kBlackwell;
  return schedule;
}
AttentionProblem small(int depth = 64, DType dtype = DType::kBf16) {
  return heads(dims(default_problem(dtype), depth, depth), 2, 1);
}

AttentionProblem to(AttentionProblem problem, DType out) {
  problem.dtype.out = out;
  return problem;
}

class List {
 public:
  CudaCase& add(std::string name, AttentionProblem problem, AttentionShape shape,
                AttentionSchedule schedule = blackwell()) {
    cases_.push_back({"sm100_" + std::move(name), std::move(problem), std::move(shape), schedule});
    return cases_.back();
  }
  std::vector<CudaCase> take() { return std::move(cases_); }

 private:
  std::vector<CudaCase> cases_;
};

AttentionShape lengths_of(int q_len, std::vector<int> kv_lens) {
  AttentionShape shape = lists({}, std::move(kv_lens));
  shape.q_len = q_len;
  return shape;
}

void lengths(List& list) {
  for (const int num_q : {1, 2}) {
    AttentionSchedule schedule = blackwell();
    schedule.num_q = num_q;
    const std::string form = fmt::format("{}q", num_q);
    list.add("rows_" + form, ragged(small()),
             lists({1, 127, 128, 129, 0, 255, 256, 257}, {130, 128, 1, 127, 5, 129, 0, 60}), schedule);
    list.add("keys_" + form, small(), lengths_of(40, {1, 127, 128, 129, 255, 256, 257, 384, 385, 0, 600}), schedule);
    list.add("causal_" + form, causal(small(128)), lengths_of(300, {300, 40, 0, 513}), schedule);
    list.add("window_" + form, windowed(small(), 100, 3), lengths_of(300, {700, 200}), schedule);
    list.add("empty_rows_" + form, causal(small()), lengths_of(400, {3, 100, 0}), schedule);
    list.add("sinks_" + form, causal(with_sinks(small())), lengths_of(200, {200, 1, 0, 333}), schedule);
  }
}

/// Scores that grow along the keys: the maximum moves with almost every tile, and outputs are rescaled.
void rescales(List& list) {
  for (const int num_q : {1, 2})
    for (const Rescale rescale : {Rescale::kLazy, Rescale::kAlways}) {
      AttentionSchedule schedule = blackwell();
      schedule.num_q = num_q;
      schedule.rescale = rescale;
      list.add(fmt::format("rising_{}q_{}", num_q, to_string(rescale)), small(), shape_of(1, 200, 900), schedule)
          .change = [](AttentionCase& call) {
        // The last keys are walked first.
        for (int j = 0; j < 900; ++j) {
          double values[64];
          decode_row(call.k.dtype, call.k_row(0, j, 0), 64, values);
          std::vector<float> row;
          for (const double value : values)
            row.push_back(static_cast<float>(value) * (1 + static_cast<float>(900 - j) / 30));
          encode_row(call.k.dtype, row, call.k_row(0, j, 0));
        }
      };
    }
}

void schedules(List& list) {
  int i = 0;
  for (const int num_q : {1, 2})
    for (const KvRing ring : {KvRing::kShared, KvRing::kSplit})
      for (const int depth : {64, 128})
        for (const int keys : {64, 96, 128}) {
          AttentionSchedule schedule = blackwell();
          schedule.num_q = num_q;
          schedule.kv_ring = ring;
          schedule.block_n = keys;
          schedule.num_kv_stages = ring == KvRing::kShared ? 2 + i % 3 : 2;
          schedule.num_qk_stages = ring == KvRing::kSplit && depth == 128 ? 1 + i % 2 : 1;
          if (depth == 128) {
            const bool shared = ring == KvRing::kShared;
            schedule.num_mma_stages = shared ? 1 + i % 2 : keys == 96 ? 3 : keys == 64 ? 4 : 2;
            if (shared) schedule.num_qk_stages = schedule.num_mma_stages;
          }
          schedule.exp2_emulated = i % 4 * 0.125;
          schedule.scheduler = i % 2 ? Scheduler::kLongestFirst : Scheduler::kGrid;
          AttentionProblem problem = small(depth, i % 5 == 0 ? DType::kF16 : DType::kBf16);
          list.add(fmt::format("schedule{}", i), i % 3 == 1 ? causal(problem) : problem, lengths_of(270, {333, 40}),
                   schedule);
          ++i;
        }
}

void operands(List& list) {
  for (const int page : {8, 16, 64, 128, 256})
    list.add(fmt::format("page{}", page), causal(paged(small(), page)), lengths_of(65, {700, 1, 257, 64, 0}));
  for (const int num_q : {1, 2})
    for (const KvRing ring : {KvRing::kShared, KvRing::kSplit}) {
      AttentionSchedule gathers = blackwell();
      gathers.num_q = num_q;
      gathers.kv_ring = ring;
      gathers.num_kv_stages = ring == KvRing::kShared ? 2 + num_q : 2;
      const int chunks = ring == KvRing::kSplit && num_q == 1 ? 2 : 1;
      gathers.num_qk_stages = gathers.num_mma_stages = chunks;
      const int page = num_q == 1 ? (ring == KvRing::kShared ? 3 : 1) : ring == KvRing::kShared ? 4 : 12;
      list.add(fmt::format("gathered{}_{}q", page, num_q), causal(heads(paged(small(64 * chunks), page), 4, 1)),
               lists({1, 90, 0, 33, 300, 7}, {200, 90, 40, 33, 433, 0}), gathers)
          .problem.q_layout = QLayout::kRagged;
      list.add(fmt::format("gathered{}_window_{}q", page, num_q), windowed(with_sinks(paged(small(), page)), 150, 3),
               lengths_of(90, {400, 17, 0}), gathers)
          .schedule.num_qk_stages = 1;
    }
  for (const int depth : {72, 128})
    list.add(fmt::format("gathered_d{}", depth), paged(small(depth, DType::kF16), 1), lengths_of(40, {300, 129}));
  for (const int depth : {16, 72, 80, 96, 112, 120})
    list.add(fmt::format("d{}", depth), causal(small(depth, depth % 16 == 0 ? DType::kF16 : DType::kBf16)),
             shape_of(1, 150, 260));
  list.add("d128_64", small(128), shape_of(1, 100, 200)).problem.head_dim.v = 64;
  list.add("d192", causal(dims(small(), 192, 128)), lengths_of(270, {400, 70, 0}));
  list.add("d192_paged", dims(paged(small(), 64), 192, 128), lengths_of(140, {400, 70, 0})).schedule.num_mma_stages = 3;
  list.add("d192_1q", dims(decode(small(), 100), 192, 128), lengths_of(90, {500, 70}));
  list.add("d192_64", dims(with_sinks(ragged(small())), 192, 64), lists({1, 140, 0, 7}, {200, 7, 33, 300}));
  AttentionSchedule chunks_of_k = blackwell();
  chunks_of_k.kv_ring = KvRing::kSplit;
  chunks_of_k.num_qk_stages = 3;
  list.add("d192_chunks", windowed(dims(small(), 192, 128)), lengths_of(270, {400, 70}), chunks_of_k);
  list.add("d136", causal(dims(small(), 136, 104)), lengths_of(130, {200, 70}));
  AttentionSchedule packed = blackwell();
  packed.pack_gqa = true;
  list.add("packed", causal(heads(ragged(small()), 8, 2)), lists({1, 0, 33, 90}, {200, 7, 33, 300}), packed);
  list.add("packed_window_paged", windowed(with_sinks(heads(paged(small(), 16), 8, 1))), lengths_of(90, {400, 17}),
           packed);
  list.add("chunked", masked(small(), chunks(80)), shape_of(1, 300, 300));
}

/// Keys in parts: those that no row sees, none at all, more parts than tiles, and rows that see keys in some alone.
void parts_of(List& list, const std::string& form, const AttentionSchedule& schedule) {
  list.add(form + "_ragged", causal(ragged(small())), lists({1, 130, 0, 60, 70}, {450, 130, 5, 0, 400}), schedule);
  list.add(form + "_empty_rows", causal(with_sinks(small())), lengths_of(140, {3, 100, 0, 700}), schedule);
  list.add(form + "_window", windowed(with_sinks(small(128)), 200, 3), lengths_of(70, {700, 60}), schedule);
  list.add(form + "_page64", causal(heads(paged(small(80), 64), 8, 2)), lengths_of(40, {650, 1, 257}), schedule);
}

void parts(List& list) {
  for (const int num_q : {1, 2})
    for (const Merge merge : {Merge::kCombine, Merge::kInKernel}) {
      AttentionSchedule schedule = blackwell();
      schedule.num_q = num_q;
      schedule.merge = merge;
      schedule.splits = num_q == 1 ? 3 : 5;
      parts_of(list, fmt::format("split_{}q_{}", num_q, to_string(merge)), schedule);
    }
  for (const int ctas : {2, 4, 8}) {
    AttentionSchedule schedule = blackwell();
    schedule.cluster = ClusterShape{1, ctas};
    parts_of(list, fmt::format("cluster_of_{}", ctas), schedule);
  }
}

/// Whose keys they are, how many of them count, and how many queries may come.
void sequences(List& list) {
  for (const int num_q : {1, 2}) {
    AttentionSchedule schedule = blackwell();
    schedule.num_q = num_q;
    const std::string form = fmt::format("{}q", num_q);
    // Keys of their own, fewer than queries or more.
    list.add("cross_ragged_" + form, ragged(small()), lists({130, 0, 3, 270, 1}, {7, 50, 300, 129, 0}), schedule);
    AttentionProblem cross = ragged(small());
    cross.q_layout = QLayout::kPadded;
    list.add("cross_padded_" + form, cross, lengths_of(140, {90, 0, 257}), schedule);
    AttentionProblem self = causal(ragged(small()));
    self.kv_offsets = false;
    list.add("self_" + form, self, lists({130, 0, 3, 270, 1}, {130, 0, 3, 270, 1}), schedule);
    list.add("lengths_" + form, paged(small(), 32), lengths_of(40, {1, 0, 31, 32, 33, 300}), schedule);
    // The keys of the cache, and after them the queries' own keys.
    AttentionProblem prompt = causal(small());
    prompt.cache_length = CacheLength::kPrompt;
    list.add("prompt_padded_" + form, prompt, lengths_of(40, {40, 41, 300}), schedule);
    prompt.q_layout = QLayout::kRagged;
    list.add("prompt_ragged_" + form, prompt, lists({130, 0, 3, 1}, {130, 7, 300, 129}), schedule);
    list.add("prompt_paged_" + form, paged(prompt, num_q == 1 ? 64 : 12), lists({130, 0, 3, 1}, {140, 7, 300, 64}),
             schedule);
  }
  for (const int q_len : {1, 5, 32}) {
    AttentionSchedule schedule = blackwell();
    schedule.splits = 1 + q_len % 2;
    AttentionProblem problem = decode(causal(heads(small(128), 8, 2)), 32);
    list.add(fmt::format("bounded_{}_of_32", q_len), problem, lengths_of(q_len, {400, 40, 0}), schedule);
  }
  AttentionSchedule whole = blackwell();
  whole.splits = 1;
  list.add("bounded_decode", decode(heads(small(), 8, 1)), lengths_of(1, {1, 0, 129, 500}), whole);
  list.add("bounded_ragged", decode(causal(ragged(small())), 200), lists({200, 0, 129}, {300, 4, 129}), whole);
}

/// Left padding. Sequences begin in the middle of a tile, at its end, behind their last key, and with key 0. With
/// pages, the tile that holds the start is cleaned, in every form that walks tiles in its own way.
void starts(List& list) {
  const AttentionProblem problem = left_padded(causal(small()));
  AttentionShape shape = lengths_of(70, {300, 130, 64, 77, 200});
  shape.kv_starts = {70, 128, 64, 1, 0};
  const auto add = [&](const char* name, const AttentionProblem& taken, auto&& change) {
    AttentionSchedule schedule = blackwell();
    schedule.block_n = 64;
    change(schedule);
    list.add(name, taken, shape, schedule);
  };
  const AttentionProblem pages = paged(problem, 32);
  add("starts_padded", problem, [](AttentionSchedule&) {});
  add("starts_chunks", masked(problem, chunks(48)), [](AttentionSchedule&) {});
  add("starts_paged", pages, [](AttentionSchedule&) {});
  add("starts_paged_stages", dims(pages, 128, 128), [](AttentionSchedule& s) { s.num_mma_stages = 2; });
  add("starts_small_pages", paged(problem, 5), [](AttentionSchedule&) {});
  add("starts_paged_one_query_tile", pages, [](AttentionSchedule& s) { s.num_q = 1, s.kv_ring = KvRing::kShared; });
  add("starts_paged_split_ring", pages, [](AttentionSchedule& s) { s.num_q = 1, s.kv_ring = KvRing::kSplit; });
  add("starts_queued", pages, [](AttentionSchedule& s) { s.scheduler = Scheduler::kQueued; });
  add("starts_pair", pages, [](AttentionSchedule& s) { s.cta_group = 2; });
  add("starts_parts", decode(pages, 70), [](AttentionSchedule& s) { s.num_q = 1, s.splits = 3; });
  add("starts_cluster", pages, [](AttentionSchedule& s) { s.num_q = 1, s.cluster = ClusterShape{1, 2}; });
}

AttentionProblem narrow(AttentionProblem problem, ScaleKind scales = ScaleKind::kNone, DType out = DType::kBf16) {
  problem.dtype = {DType::kE4m3, DType::kE4m3, out};
  problem.scales = scales;
  return problem;
}

void types(List& list) {
  const AttentionShape odd = lengths_of(150, {300, 0, 129});
  for (const int num_q : {1, 2}) {
    AttentionSchedule schedule = blackwell();
    schedule.num_q = num_q;
    const std::string form = fmt::format("_{}q", num_q);
    for (const int depth : {64, 128}) {
      const std::string name = fmt::format("f32out_d{}", depth) + form;
      list.add(name, to(causal(small(depth)), DType::kF32), odd, schedule);
      for (const DType out : {DType::kF16, DType::kE4m3, DType::kF32})
        list.add(fmt::format("fp8_d{}_{}", depth, to_string(out)) + form,
                 narrow(causal(small(depth)), ScaleKind::kPerTensor, out), odd, schedule);
    }
    list.add("f32out_d72" + form, to(small(72, DType::kF16), DType::kF32), odd, schedule);
    list.add("fp8_d80" + form, narrow(dims(small(), 80, 48), ScaleKind::kPerHead, DType::kF32), odd, schedule);
    list.add("fp8_sinks" + form, narrow(with_sinks(causal(small(128)))), odd, schedule);
    schedule.rescale = Rescale::kAlways;
    list.add("fp8_always" + form, narrow(with_sinks(windowed(small(128), 100, 3))), odd, schedule);
  }
  for (const int keys : {64, 96}) {
    AttentionSchedule schedule = blackwell();
    schedule.block_n = keys;
    schedule.kv_ring = keys == 64 ? KvRing::kShared : KvRing::kSplit;
    list.add(fmt::format("fp8_keys{}", keys), narrow(causal(small(128))), odd, schedule);
  }
  list.add("fp8_chunked", narrow(masked(small(128), chunks(80))), shape_of(1, 300, 300));
  list.add("fp8_joined", narrow(masked(small(128), all_of({chunks(96), window(40)}))), shape_of(1, 200, 300));
  list.add("fp8_alibi", narrow(with_alibi(small(128)), ScaleKind::kPerHead), odd);
  list.add("fp8_softcap", narrow(capped(small(128), 20), ScaleKind::kPerTensor), odd);
  list.add("fp8_ragged", narrow(heads(ragged(causal(small(128))), 8, 2), ScaleKind::kPerHead),
           lists({1, 0, 33, 90}, {200, 7, 33, 300}));
  list.add("fp8_paged", narrow(causal(heads(paged(small(128), 64), 4, 2)), ScaleKind::kPerHead),
           lengths_of(65, {300, 1, 257, 64, 0}));
  list.add("fp8_negative", narrow(causal(small(128)), ScaleKind::kPerTensor), odd).change = [](AttentionCase& call) {
    call.k_scale[0] = -call.k_scale[0];
  };
}

/// 8 bits in every form that 16 have: parts, pairs, gathered pages; and parts of a wider output.
void narrow_forms(List& list) {
  const AttentionShape odd = lengths_of(150, {500, 0, 129});
  const auto with_lse = [](AttentionProblem problem) { return with_sinks(causal(problem)); };
  for (const int num_q : {1, 2})
    for (const Merge merge : {Merge::kCombine, Merge::kInKernel}) {
      AttentionSchedule schedule = blackwell();
      schedule.num_q = num_q;
      schedule.merge = merge;
      schedule.splits = 3;
      const std::string form = fmt::format("_{}q_{}", num_q, to_string(merge));
      list.add("fp8_split" + form, narrow(with_lse(small(128)), ScaleKind::kPerHead), odd, schedule);
      list.add("fp8_split_e4m3" + form, narrow(causal(dims(small(), 80, 48)), ScaleKind::kPerTensor, DType::kE4m3), odd,
               schedule);
      list.add("f32out_split" + form, to(with_lse(small(72)), DType::kF32), odd, schedule);
    }
  for (const int ctas : {2, 8}) {
    AttentionSchedule schedule = blackwell();
    schedule.cluster = ClusterShape{1, ctas};
    const std::string form = fmt::format("_of_{}", ctas);
    list.add("fp8_cluster" + form, narrow(with_lse(small(128)), ScaleKind::kPerHead, DType::kE4m3), odd, schedule);
    list.add("f32out_cluster" + form, to(causal(small(80)), DType::kF32), odd, schedule);
  }
  AttentionSchedule pair = blackwell();
  pair.cta_group = 2;
  for (const KvRing ring : {KvRing::kShared, KvRing::kSplit}) {
    pair.kv_ring = ring;
    const std::string form = fmt::format("_{}", to_string(ring));
    list.add("fp8_pair" + form, narrow(with_lse(small(128)), ScaleKind::kPerHead), lengths_of(300, {500, 0, 129}),
             pair);
    list.add("fp8_pair_paged" + form, narrow(windowed(paged(small(128), 64), 200, 3), ScaleKind::kPerTensor),
             lists({1, 0, 520, 90}, {200, 7, 530, 300}), pair)
        .problem.q_layout = QLayout::kRagged;
    list.add("fp8_pair_d80" + form, narrow(dims(small(), 80, 48)), lengths_of(260, {300, 70}), pair);
  }
  for (const int num_q : {1, 2}) {
    AttentionSchedule schedule = blackwell();
    schedule.num_q = num_q;
    const std::string form = fmt::format("_{}q", num_q);
    list.add("fp8_gathered" + form, narrow(causal(heads(paged(small(128), 5), 4, 2)), ScaleKind::kPerHead),
             lengths_of(65, {300, 1, 257, 64, 0}), schedule);
    list.add("fp8_gathered_d80" + form, narrow(windowed(dims(paged(small(), 1), 80, 48), 100, 3)), odd, schedule);
  }
}

/// DeepSeek's: 128 columns of 8 bits and 64 rotary ones of 16, and a scale for every token.
AttentionProblem latent(AttentionProblem problem) {
  return rotary(narrow(dims(std::move(problem), 192, 128), ScaleKind::kPerToken));
}

void rotary_parts(List& list) {
  const AttentionShape odd = lengths_of(150, {300, 0, 129});
  for (const int num_q : {1, 2}) {
    AttentionSchedule schedule = blackwell();
    schedule.num_q = num_q;
    const std::string form = fmt::format("_{}q", num_q);
    list.add("mla" + form, causal(latent(small())), odd, schedule);
    list.add("mla_ragged" + form, latent(heads(ragged(causal(small())), 4, 2)),
             lists({1, 0, 33, 190}, {200, 7, 33, 600}), schedule);
    list.add("mla_paged" + form, latent(causal(heads(paged(small(), 64), 2, 2))), lengths_of(65, {700, 1, 64, 0}),
             schedule);
    list.add("rope_bf16" + form, causal(rotary(dims(small(), 96, 64), 32)), odd, schedule);
  }
  AttentionSchedule shared = blackwell();
  shared.kv_ring = KvRing::kShared;
  list.add("mla_shared_ring", latent(with_sinks(windowed(small(), 100, 3))), odd, shared);
  AttentionSchedule packed = blackwell();
  packed.pack_gqa = true;
  list.add("mla_packed", latent(heads(ragged(causal(small())), 8, 2)), lists({1, 0, 33, 90}, {200, 7, 33, 300}),
           packed);
  list.add("mla_softcap", latent(capped(small(), 20)), odd);
  list.add("mla_alibi", latent(with_alibi(small())), odd);
  // One rotary part for all heads, and tokens with negative or zero scales.
  list.add("mla_one_rope", latent(heads(small(), 4, 2)), odd).options.one_rope = true;
  list.add("mla_signs", latent(causal(small())), odd).change = [](AttentionCase& call) {
    for (std::size_t i = 0; i < call.q_scale.size(); i += 3) call.q_scale[i] = -call.q_scale[i];
    for (std::size_t i = 1; i < call.q_scale.size(); i += 7) call.q_scale[i] = 0;
    for (std::size_t i = 0; i < call.k_scale.size(); i += 5) call.k_scale[i] = -call.k_scale[i];
  };
  list.add("rope_fp8_f16", rotary(narrow(dims(small(), 160, 64), ScaleKind::kPerHead, DType::kF32), 32, DType::kF16),
           odd);
  list.add("rope_d40", rotary(dims(small(40, DType::kF16), 40, 24), 16, DType::kF16), odd);
  list.add("token_scales_d128", narrow(causal(small(128)), ScaleKind::kPerToken), odd);
  AttentionSchedule pair = blackwell();
  pair.cta_group = 2;
  list.add("mla_pair", latent(causal(small())), lengths_of(300, {500, 0, 129}), pair);
  list.add("rope_pair", rotary(dims(ragged(small()), 96, 64), 32), lists({1, 0, 520, 90}, {200, 7, 530, 300}), pair);
  for (const int num_q : {1, 2}) {
    AttentionSchedule parts = blackwell();
    parts.num_q = num_q;
    parts.splits = 3;
    list.add(fmt::format("mla_split_{}q", num_q), latent(causal(small())), lengths_of(150, {500, 0, 129}), parts);
  }
  AttentionSchedule cluster = blackwell();
  cluster.cluster = ClusterShape{1, 2};
  list.add("mla_cluster", latent(causal(small())), lengths_of(100, {500, 0, 129}), cluster);
}

/// Scales of keys and values that differ by token or by page, in every layout and wherever a sink joins a sum.
void key_scales(List& list) {
  constexpr auto kToken = ScaleKind::kPerToken, kPage = ScaleKind::kPerPage;
  const AttentionShape odd = lengths_of(150, {300, 0, 129}), few = lengths_of(40, {500, 0, 129});
  const auto add = [&](const std::string& name, const AttentionProblem& problem, const AttentionShape& shape,
                       const std::function<void(AttentionSchedule&)>& change = {}) -> CudaCase& {
    AttentionSchedule schedule = blackwell();
    if (change) change(schedule);
    return list.add("scales_" + name, problem, shape, schedule);
  };
  for (const int num_q : {1, 2}) {
    const auto parts = [num_q](AttentionSchedule& schedule) {
      schedule.num_q = num_q, schedule.splits = 3;
      schedule.merge = num_q == 1 ? Merge::kInKernel : Merge::kCombine;
    };
    add(fmt::format("split_{}q", num_q), narrow(with_sinks(paged(small(), 64)), kPage), few, parts);
  }
  add("token_1q", narrow(causal(with_sinks(small())), kToken), odd,
      [](AttentionSchedule& schedule) { schedule.num_q = 1; });
  add("page", narrow(with_sinks(windowed(paged(small(), 16), 100, 3)), kPage), odd);
  add("ragged", narrow(heads(ragged(causal(with_sinks(small()))), 4, 2), kToken),
      lists({1, 0, 33, 190}, {200, 7, 33, 400}))
      .options = {.heads_first = true, .padding_tokens = 3};
  add("token_paged", narrow(capped(with_sinks(paged(small(), 8)), 20), kToken, DType::kF32), odd,
      [](AttentionSchedule& schedule) { schedule.exp2_emulated = 0.25, schedule.rescale = Rescale::kAlways; });
  add("page_alibi", narrow(left_padded(with_alibi(paged(heads(small(), 4, 2), 64))), kPage), odd).options.heads_first =
      true;
  add("cluster", narrow(with_sinks(small(128)), kToken), few, [](AttentionSchedule& schedule) {
    schedule.cluster = ClusterShape{1, 2};
  });
  add("pair", narrow(causal(with_sinks(paged(small(128), 128))), kPage), lengths_of(300, {400, 0, 129}),
      [](AttentionSchedule& schedule) { schedule.cta_group = 2; });
  add("tensor", narrow(masked(with_sinks(small()), {MaskKind::kTensor, {}, 0, {}}), kToken), odd).change =
      [](AttentionCase& call) {
        for (std::size_t i = 0; i < call.q_scale.size(); i += 3) call.q_scale[i] = -call.q_scale[i];
      };
  // Values of scale 0, and some far above the others.
  add("extreme", narrow(with_sinks(small()), kToken, DType::kF32), odd).change = [](AttentionCase& call) {
    for (std::size_t i = 0; i < call.v_scale.size(); i += 3) call.v_scale[i] = 0;
    for (std::size_t i = 1; i < call.v_scale.size(); i += 50) call.v_scale[i] = 0x1p6f;
    for (std::size_t i = 0; i < call.k_scale.size(); i += 5) call.k_scale[i] = -call.k_scale[i];
    call.scale = -call.scale;
  };
}

/// Narrower swizzles than 128B, and none: for each size of element, with everything that lies in slabs or is stored
/// through them.
void swizzles(List& list) {
  const auto add = [&](Swizzle swizzle, const char* name, const AttentionProblem& problem, const AttentionShape& shape,
                       const std::function<void(AttentionSchedule&)>& change = {}) {
    AttentionSchedule schedule = blackwell();
    schedule.swizzle = swizzle;
    if (change) change(schedule);
    list.add(fmt::format("swizzle_{}_{}", to_string(swizzle), name), problem, shape, schedule);
  };
  const AttentionShape odd = lengths_of(150, {300, 0, 129});
  const auto planned = [&](const char* name, const AttentionProblem& problem, const AttentionShape& shape,
                           const AttentionSchedule& schedule = blackwell()) {
    list.add(fmt::format("swizzle_planned_{}", name), problem, shape, schedule);
  };
  AttentionSchedule cluster = blackwell();
  cluster.cluster = ClusterShape{1, 2};
  planned("d16_f32_cluster", to(small(16, DType::kF16), DType::kF32), lengths_of(60, {500, 0, 129}), cluster);
  planned("d32_split", decode(causal(small(32)), 5), lengths_of(5, {500, 0, 129}));
  planned("d64_fp8", narrow(causal(small(64)), ScaleKind::kPerTensor), odd);
  add(Swizzle::k64B, "pair", causal(dims(small(), 96, 64)), lengths_of(300, {213, 0, 333}),
      [](AttentionSchedule& schedule) { schedule.cta_group = 2; });
  add(Swizzle::k64B, "rope", rotary(paged(dims(small(), 96, 64), 64), 32), odd);
  add(Swizzle::k64B, "page3", windowed(paged(dims(small(), 96, 32), 3), 100, 3), odd);
  add(Swizzle::k64B, "queued", causal(ragged(with_sinks(small(32)))), lists({130, 1, 66}, {333, 65, 66}),
      [](AttentionSchedule& schedule) { schedule.scheduler = Scheduler::kQueued; });
  add(Swizzle::k32B, "f32", to(causal(small(48)), DType::kF32), odd);
  add(Swizzle::k32B, "fp8_chunks", narrow(dims(small(), 96, 96), ScaleKind::kPerHead), odd,
      [](AttentionSchedule& schedule) { schedule.kv_ring = KvRing::kSplit, schedule.num_qk_stages = 3; });
  add(Swizzle::k32B, "split", decode(small(112), 5), lengths_of(5, {500, 0, 129}),
      [](AttentionSchedule& schedule) { schedule.splits = 3, schedule.merge = Merge::kInKernel; });
  for (const Swizzle swizzle : {Swizzle::k32B, Swizzle::kNone})
    add(swizzle, "slots_of_odd_lines", causal(dims(small(), 80, 48)), odd,
        [](AttentionSchedule& schedule) { schedule.block_n = 80; });
  add(Swizzle::kNone, "d72_40", causal(dims(small(), 72, 40)), odd);
  add(Swizzle::kNone, "fp8", narrow(dims(paged(small(), 5), 48, 16), ScaleKind::kPerTensor, DType::kF32), odd);
}

}  // namespace

std::vector<CudaCase> blackwell_cases() {
  List list;
  lengths(list);
  rescales(list);
  schedules(list);
  operands(list);
  parts(list);
  sequences(list);
  starts(list);
  types(list);
  narrow_forms(list);
  rotary_parts(list);
  key_scales(list);
  swizzles(list);
  return list.take();
}

namespace {

TEST(BlackwellCases, HaveNamesOfTheirOwnAndKernels) {
  std::set<std::string> names;
  for (const CudaCase& test : blackwell_cases()) {
    EXPECT_TRUE(names.insert(test.name).second) << test.name;
    ASSERT_TRUE(is_taken(test, Arch::kSm100a)) << test.name;
    EXPECT_EQ(plan_attention(test.problem, test.schedule, Arch::kSm100a).main.family, Family::kBlackwell) << test.name;
    EXPECT_NO_THROW(shape_only(test.problem, test.shape)) << test.name;
  }
}

}  // namespace
}  // namespace kernelwright
