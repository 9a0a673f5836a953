// Cases of latent attention: numbers of heads and queries, lengths, pages, parts, and values that no row may see.
#include <fmt/format.h>

#include <limits>

#include "end_to_end/attention/cases/attention_cases.h"
#include "kernelwright/verify/formats/float_formats.h"

namespace kernelwright {
namespace latent_cases_test {
namespace {

/// Keys of 576 elements whose first 512 are the values, in pages of 64 with a causal mask.
AttentionProblem latent(int heads, int queries = 1, DType dtype = DType::kBf16) {
  AttentionProblem problem = decode(causal(paged(dims(default_problem(dtype), 576, 512), 64)), queries);
  problem.heads = {heads, 1};
  problem.v_layout = VLayout::kKeyPrefix;
  return problem;
}

AttentionShape several(std::vector<int> lengths, int q_len = 1) {
  AttentionShape shape = lists({}, std::move(lengths));
  shape.q_len = q_len;
  return shape;
}

/// The same in records, which hold their scales, or in e4m3 with one scale for all.
AttentionProblem in_bytes(AttentionProblem problem, ScaleKind scales = ScaleKind::kPerBlock) {
  problem.dtype.kv = DType::kE4m3;
  problem.scales = scales;
  return problem;
}

AttentionProblem with_page(AttentionProblem problem, int keys) {
  problem.kv_layout.page_size = keys;
  return problem;
}

class List {
 public:
  explicit List(Family family) : family_(family) {}
  CudaCase& add(const std::string& name, AttentionProblem problem, AttentionShape shape, int parts = 1) {
    AttentionSchedule schedule;
    schedule.family = family_;
    schedule.splits = parts;
    cases_.push_back(
        {fmt::format("{}_latent_{}", to_string(family_), name), std::move(problem), std::move(shape), schedule});
    return cases_.back();
  }
  std::vector<CudaCase> take() { return std::move(cases_); }

 private:
  Family family_;
  std::vector<CudaCase> cases_;
};

/// Writes NaN to every key that no query sees: behind the sequence in its last page, and in unused pages.
void hide_nan(AttentionCase& call) {
  std::vector<bool> used(static_cast<std::size_t>(call.num_pages()) *
                         static_cast<std::size_t>(call.problem.kv_layout.page_size));
  const int page = call.problem.kv_layout.page_size;
  const auto place = [&](int b, int key) {
    return static_cast<std::size_t>(
               call.page_table[static_cast<std::size_t>(b * call.page_table_stride + key / page)]) *
               page +
           key % page;
  };
  for (int b = 0; b < call.batch; ++b)
    for (int key = call.first_key(b); key < call.kv_lens[static_cast<std::size_t>(b)]; ++key)
      used[place(b, key)] = true;
  const std::vector<float> nan(static_cast<std::size_t>(call.k.head_dim), std::numeric_limits<float>::quiet_NaN());
  const std::size_t row_bytes = static_cast<std::size_t>(call.k.strides.token) * bytes_of(call.k.dtype);
  for (std::size_t i = 0; i < used.size(); ++i)
    if (!used[i]) encode_row(call.k.dtype, nan, call.k.buffer->data() + call.k.offset_bytes + i * row_bytes);
}

/// CTAs that share key tiles evenly. Their number decides where keys are cut: these cases are for machines of a few
/// SMs.
void add_balanced(List& list) {
  const auto add = [&](const char* name, AttentionProblem problem, AttentionShape shape) -> CudaCase& {
    CudaCase& made = list.add(fmt::format("balanced_{}", name), std::move(problem), std::move(shape));
    made.schedule.splits = {};
    made.schedule.scheduler = Scheduler::kBalanced;
    return made;
  };
  add("lengths", latent(16), several({0, 1, 63, 700, 64, 65, 129, 1500, 3}));
  add("one", latent(8), several({2000}));
  add("whole", latent(8), several({130, 128, 129, 127, 150, 140}));
  add("teams", latent(128), several({900, 300, 1100}));  // of two CTAs
  add("rows", latent(70, 2), several({700, 65, 2, 1000}, 2)).problem.lse = true;
  add("many", latent(4), several(std::vector<int>(400, 0))).shape.kv_lens[123] = 1300;  // more than the CTA has threads
  add("sinks", with_sinks(latent(8, 2)), several({900, 65, 0}, 2)).problem.lse = true;
  CudaCase& nan = add("nan", latent(16, 2), several({1170, 129, 3}, 2));
  nan.change = hide_nan;
  nan.problem.kv_layout.page_size = 16;
  AttentionProblem rows = latent(8, 3);
  rows.q_layout = QLayout::kRagged;
  add("ragged_queries", rows, lists({3, 0, 1, 2}, {1030, 7, 65, 900}));
}

/// Keys of 8 bits (c66). Few kernels, each with many features: to compile one takes longer than to run it.
void add_bytes(List& list, Family family) {
  AttentionProblem parts = with_sinks(with_page(in_bytes(latent(65, 2)), 8));
  parts.lse = true;
  list.add("c66_records_parts", parts, several({300, 64, 0, 2, 700}, 2), 3).schedule.merge = Merge::kInKernel;
  CudaCase& window =
      list.add("c66_records_window", capped(left_padded(windowed(with_page(in_bytes(latent(16, 2)), 256), 90, 0)), 20),
               several({170, 129, 3, 400}, 2));
  window.shape.kv_starts = {150, 0, 0, 330};
  window.change = hide_nan;
  const ScaleKind tensor = ScaleKind::kPerTensor;
  list.add("c66_tensor_negative", in_bytes(latent(16), tensor), several({330, 64, 0, 1}), 2).change =
      [](AttentionCase& call) {
        call.scale = -call.scale;
        hide_nan(call);
      };
  AttentionProblem extend = ragged(dims(in_bytes(latent(4, 1, DType::kF16), ScaleKind::kNone), 512, 512));
  extend.kv_layout.page_size = 0;
  extend.max_q_len = 0;
  list.add("c66_no_scale_ragged", extend, lists({20, 1, 0}, {133, 70, 9}));
  if (family == Family::kHopper) return;
  list.add("c66_records_page5", with_page(in_bytes(latent(17, 1, DType::kF16)), 5), several({75, 7, 0, 1}));
  list.add("c66_tensor_tall", in_bytes(latent(32), tensor), several({75, 7}));
}

}  // namespace

std::vector<CudaCase> cases_on(Family family) {
  List list(family);
  for (const int heads : {1, 3, 8, 16, 63, 64, 65, 128})
    list.add(fmt::format("c61_h{}", heads), latent(heads), several({200, 64}));
  for (const int queries : {2, 3, 4})
    list.add(fmt::format("c61_q{}", queries), latent(queries == 3 ? 33 : 16, queries), several({130, 5, 3}, queries));
  list.add("c61_short", latent(8, 4), several({1, 2, 3, 4, 0}, 4));  // some queries see no key
  list.add("c62_lengths", latent(8), several({0, 1, 63, 64, 65, 127, 128, 129, 192, 193, 700}));
  list.add("c62_empty", latent(8), several({0, 0}));
  for (const int page : {8, 16, 32, 128, 256})
    list.add(
        fmt::format("c63_page{}", page),
        [&] {
          AttentionProblem problem = latent(8);
          problem.kv_layout.page_size = page;
          return problem;
        }(),
        several({300, 7, 64}));
  if (family == Family::kPortable)
    for (const int page : {1, 5})
      list.add(
          fmt::format("c63_page{}", page),
          [&] {
            AttentionProblem problem = latent(8);
            problem.kv_layout.page_size = page;
            return problem;
          }(),
          several({75, 7}));
  list.add("c63_shared", latent(8), shape_of(3, 1, 300)).options.share_pages = true;
  list.add("c64_parts", latent(20), several({700, 65, 0, 1}), 5);  // some parts have no tile
  list.add("c64_parts_in_kernel", latent(70, 2), several({700, 65, 2}, 2), 3).schedule.merge = Merge::kInKernel;
  list.add("c67_nan", latent(16, 2), several({70, 129, 3}, 2)).change = hide_nan;
  list.add("c67_nan_window", windowed(latent(16, 2), 40, 0), several({170, 129, 3}, 2)).change = hide_nan;
  list.add("f16", latent(8, 1, DType::kF16), several({130, 65}));
  list.add("depth_512", dims(latent(8), 512, 512), several({130, 65}));
  list.add("sinks", with_sinks(latent(8, 2)), several({130, 65, 0}, 2), 2);
  list.add("softcap", capped(latent(8), 20), several({130, 65}));
  list.add("starts", left_padded(latent(8, 2)), several({200, 64, 100}, 2)).shape.kv_starts = {70, 64, 0};
  if (family != Family::kBlackwell) add_bytes(list, family);
  AttentionProblem rows = latent(8, 3);
  rows.q_layout = QLayout::kRagged;
  list.add("ragged_queries", rows, lists({3, 0, 1, 2}, {130, 7, 65, 2}));
  AttentionProblem extend = ragged(latent(4));
  extend.kv_layout.page_size = 0;
  extend.max_q_len = 0;
  list.add("ragged", extend, lists({90, 1, 0, 33}, {133, 70, 9, 33}));
  list.add("scale_negative", latent(8), several({130, 65})).change = [](AttentionCase& call) {
    call.scale = -call.scale;
  };
  if (family != Family::kPortable) {
    list.add("pair", latent(128), several({200, 64, 0, 129, 1})).schedule.cluster = ClusterShape{2, 1};
    list.add("pair_parts", latent(70, 2), several({700, 65, 2}, 2), 3).schedule.cluster = ClusterShape{2, 1};
    CudaCase& both = list.add("pair_page16", latent(65), several({300, 7, 64}), 2);
    both.problem.kv_layout.page_size = 16;
    both.schedule.cluster = ClusterShape{2, 1};
    both.schedule.merge = Merge::kInKernel;
    if (family == Family::kHopper) add_balanced(list);
  } else {
    list.add("stages", latent(16), several({200, 64, 0, 129, 1})).schedule.num_stages = 3;
    list.add(
        "f32",
        [] {
          AttentionProblem problem = latent(16);
          problem.dtype.out = DType::kF32;
          return problem;
        }(),
        several({200, 64, 0, 129, 1}), 2);
  }
  return list.take();
}

}  // namespace latent_cases_test

std::vector<CudaCase> latent_cases(Family family) { return latent_cases_test::cases_on(family); }

}  // namespace kernelwright
