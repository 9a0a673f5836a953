// Draws problems and calls. A draw that no kernel supports is thrown away, so a new feature is drawn as soon as it
// exists.
#include "end_to_end/random_calls.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <stdexcept>

#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/json/config_json.h"
#include "kernelwright/verify/random.h"

namespace kernelwright {
namespace {

class Draw {
 public:
  Draw(std::uint64_t seed, std::uint64_t number) : random_(seed, number) {}
  bool chance(double probability) { return random_.uniform() < probability; }
  int between(int low, int high) {
    return low + static_cast<int>(random_.below(static_cast<unsigned>(high - low + 1)));
  }
  template <class T, std::size_t n>
  T one_of(const T (&list)[n]) {
    return list[random_.below(n)];
  }
  /// Short ones most often, and every other one next to a tile's end: 0, 1, around multiples of 16, up to `most`.
  int length(int most) {
    if (chance(0.04)) return 0;
    if (chance(0.08)) return std::min(1, most);
    const double share = random_.uniform();
    int length = static_cast<int>(share * share * most);
    if (chance(0.5)) length = length / 16 * 16 + between(-1, 1);
    return std::clamp(length, 1, std::max(1, most));
  }

 private:
  Random random_;
};

/// kMapped: what loads by tensor maps, of Hopper or Blackwell.
enum Form { kMappedPrefill, kPortablePrefill, kHopperDecode, kPortableDecode, kForms };

/// What is of fp8.
enum class Narrow { kNothing, kKeysAndValues, kAll };

AttentionProblem draw_problem(Draw& draw, Form form, Narrow narrow) {
  AttentionProblem problem;
  const DType dtype = draw.chance(0.5) ? DType::kBf16 : DType::kF16;
  problem.dtype = {dtype, dtype, dtype};
  const HeadDim dims[] = {{64, 64},   {64, 64},   {72, 72},   {80, 80},   {96, 96},   {112, 112},
                          {128, 128}, {128, 128}, {160, 160}, {192, 192}, {192, 128}, {256, 256}};
  problem.head_dim = draw.one_of(dims);
  const int groups[] = {1, 1, 2, 3, 4, 4, 8};
  problem.heads.kv = draw.between(1, 3);
  problem.heads.q = problem.heads.kv * draw.one_of(groups);
  switch (draw.between(0, 4)) {
    case 0: break;
    case 1:
      problem.q_layout = QLayout::kRagged;
      problem.kv_layout.kind = KvLayoutKind::kRagged;
      problem.kv_offsets = draw.chance(0.7);
      break;
    case 2:
      problem.kv_layout.kind = KvLayoutKind::kRagged;
      problem.kv_offsets = true;
      break;
    default: {
      problem.q_layout = draw.chance(0.5) ? QLayout::kRagged : QLayout::kPadded;
      const int sizes[] = {16, 64, 8, 24, 128, 1, 4, 5};
      problem.kv_layout = {KvLayoutKind::kPaged, sizes[draw.between(0, form == kHopperDecode ? 4 : 7)]};
    }
  }
  const MaskKind masks[] = {MaskKind::kNone,    MaskKind::kCausal,  MaskKind::kCausal, MaskKind::kSlidingWindow,
                            MaskKind::kChunked, MaskKind::kPadding, MaskKind::kAnd,    MaskKind::kOr};
  problem.mask.kind = draw.one_of(masks);
  if (problem.mask.kind == MaskKind::kChunked) problem.mask.chunk = draw.between(1, 200);
  if (problem.mask.kind == MaskKind::kAnd || problem.mask.kind == MaskKind::kOr) {
    Mask causal{.kind = MaskKind::kCausal}, chunked{.kind = MaskKind::kChunked, .chunk = draw.between(1, 200)};
    problem.mask.operands = {causal, chunked};
  }
  if (problem.mask.kind == MaskKind::kSlidingWindow) problem.mask.window = {draw.between(0, 150), draw.between(0, 9)};
  if (draw.chance(0.2))
    problem.score_mod = {ScoreModKind::kSoftcap, 20.0};
  else if (draw.chance(0.15))
    problem.score_mod.kind = ScoreModKind::kAlibi;
  problem.sinks = draw.chance(0.25);
  problem.lse = draw.chance(0.6);
  if (narrow != Narrow::kNothing) {
    const ScaleKind scales[] = {ScaleKind::kNone, ScaleKind::kPerTensor, ScaleKind::kPerHead, ScaleKind::kPerToken,
                                ScaleKind::kPerPage};
    problem.dtype.kv = draw.chance(0.5) ? DType::kE4m3 : DType::kE5m2;
    problem.scales = draw.one_of(scales);
    if (narrow == Narrow::kAll) problem.dtype.q = problem.dtype.kv = DType::kE4m3;
    if (problem.kv_layout.kind == KvLayoutKind::kPaged && problem.kv_layout.page_size % 16 == 0 && draw.chance(0.3))
      problem.v_layout = VLayout::kColumns;
  }
  if (form == kHopperDecode || form == kPortableDecode) problem.max_q_len = draw.chance(0.6) ? 1 : draw.between(2, 4);
  problem.kv_starts = draw.chance(0.3) && problem.kv_layout.kind != KvLayoutKind::kRagged;
  return problem;
}

AttentionSchedule draw_schedule(Draw& draw, const AttentionProblem& problem, Form form, Arch arch) {
  AttentionSchedule schedule;
  if (form == kMappedPrefill && family_exists_on(Family::kBlackwell, arch)) {
    schedule.family = Family::kBlackwell;
    return schedule;
  }
  if (form == kMappedPrefill) {
    schedule.family = Family::kHopper;
    const Scheduler orders[] = {Scheduler::kGrid, Scheduler::kPersistent, Scheduler::kLongestFirst, Scheduler::kQueued};
    if (draw.chance(0.5)) schedule.scheduler = draw.one_of(orders);
    const Overlap overlaps[] = {Overlap::kNone, Overlap::kPingPong, Overlap::kIntra, Overlap::kBoth};
    if (draw.chance(0.3)) schedule.overlap = draw.one_of(overlaps);
    if (draw.chance(0.3)) schedule.kv_ring = draw.chance(0.5) ? KvRing::kShared : KvRing::kSplit;
    if (draw.chance(0.3)) schedule.math_warpgroups = draw.between(1, 3);
    if (draw.chance(0.3)) schedule.block_n = 16 * draw.between(3, 8);
    if (problem.group() > 1 && draw.chance(0.4)) schedule.pack_gqa = true;
    if (draw.chance(0.2)) schedule.cluster = ClusterShape{draw.chance(0.8) ? 2 : 4, 1};
    return schedule;
  }
  schedule.family = form == kHopperDecode ? Family::kHopper : Family::kPortable;
  if (form != kPortablePrefill) schedule.token_gen = true;
  if (form != kPortablePrefill && draw.chance(0.4)) schedule.splits = draw.between(1, 9);
  if (form != kPortablePrefill && draw.chance(0.3)) schedule.merge = Merge::kCombine;
  return schedule;
}

/// Makes the end of each head a rotary part, in some of the kernels that take one.
void draw_rotary_part(Draw& draw, DrawnKernel& kernel, Arch arch) {
  const int widths[] = {64, 64, 32, 16, 8};
  DrawnKernel rotary = kernel;
  rotary.problem.rope = {draw.one_of(widths), kernel.problem.dtype.q};
  if (draw.chance(0.3) && is_taken({"", rotary.problem, {}, rotary.schedule}, arch)) kernel = rotary;
}

/// Makes some of the decodes of 16 bits those of latent keys, whose values are their beginnings.
void draw_latent(Draw& draw, DrawnKernel& kernel, Form form, Arch arch) {
  if ((form != kHopperDecode && form != kPortableDecode) || is_fp8(kernel.problem.dtype.kv)) return;
  const int heads[] = {1, 3, 8, 16, 63, 64, 70, 128};
  DrawnKernel latent = kernel;
  AttentionProblem& problem = latent.problem;
  const DType dtype = draw.chance(0.7) ? DType::kBf16 : DType::kF16;
  problem.dtype = {dtype, dtype, dtype};
  problem.head_dim = {draw.chance(0.8) ? 576 : 512, 512};
  problem.heads = {draw.one_of(heads), 1};
  problem.v_layout = VLayout::kKeyPrefix;
  AttentionSchedule& schedule = latent.schedule;
  schedule = {};
  const bool blackwell = form == kPortableDecode && family_exists_on(Family::kBlackwell, arch) && draw.chance(0.5);
  schedule.family = form == kHopperDecode ? Family::kHopper : blackwell ? Family::kBlackwell : Family::kPortable;
  if (form == kHopperDecode && draw.chance(0.5))
    schedule.scheduler = Scheduler::kBalanced;
  else if (draw.chance(0.5))
    schedule.splits = draw.between(1, 9);
  if (draw.chance(0.5) && is_taken({"", problem, {}, schedule}, arch)) kernel = latent;
}

/// Stores the keys of some of them in bytes.
void draw_latent_bytes(Draw& draw, DrawnKernel& kernel, Arch arch) {
  const ScaleKind scales[] = {ScaleKind::kPerBlock, ScaleKind::kPerBlock, ScaleKind::kPerTensor, ScaleKind::kNone};
  DrawnKernel bytes = kernel;
  bytes.problem.dtype.kv = DType::kE4m3;
  bytes.problem.scales = draw.one_of(scales);
  if (bytes.problem.has_records()) bytes.problem.head_dim.qk = 576;
  bytes.schedule.scheduler = {};
  const bool latent = kernel.problem.v_layout == VLayout::kKeyPrefix;
  if (draw.chance(0.5) && latent && is_taken({"", bytes.problem, {}, bytes.schedule}, arch)) kernel = bytes;
}

}  // namespace

std::vector<DrawnKernel> draw_kernels(int count, std::uint64_t seed, Arch arch) {
  std::vector<DrawnKernel> kernels;
  Draw draw(seed, 0), rotary(seed, ~std::uint64_t{0}), latent(seed, ~std::uint64_t{1}), bytes(seed, ~std::uint64_t{3});
  for (int i = 0; i < count; ++i) {
    auto form = static_cast<Form>(i % kForms);
    const bool hopper = family_exists_on(Family::kHopper, arch), blackwell = family_exists_on(Family::kBlackwell, arch);
    if (form == kMappedPrefill && !hopper && !blackwell) form = kPortablePrefill;
    if (form == kHopperDecode && !hopper) form = kPortableDecode;
    // Every second kernel of a form is of fp8. With tensor maps every second one of these has fp8 queries, and
    // Blackwell takes no others over fp8 keys.
    const int turn = i / kForms % 4;
    Narrow narrow = turn % 2 == 0 ? Narrow::kNothing : Narrow::kKeysAndValues;
    if (form == kMappedPrefill && (turn == 1 || (turn == 3 && blackwell))) narrow = Narrow::kAll;
    if ((form == kHopperDecode || form == kPortableDecode) && turn == 3) narrow = Narrow::kAll;
    for (int attempt = 0;; ++attempt) {
      if (attempt == 10000) throw std::logic_error("no problem that was drawn has a kernel: is_taken() refuses all");
      const AttentionProblem problem = draw_problem(draw, form, narrow);
      const AttentionSchedule schedule = draw_schedule(draw, problem, form, arch);
      if (!is_taken({"", problem, {}, schedule}, arch)) continue;
      kernels.push_back({problem, schedule});
      draw_rotary_part(rotary, kernels.back(), arch);
      draw_latent(latent, kernels.back(), form, arch);
      draw_latent_bytes(bytes, kernels.back(), arch);
      break;
    }
  }
  return kernels;
}

DrawnCall draw_call(const AttentionProblem& problem, const CallLimits& limits, std::uint64_t seed,
                    std::uint64_t number) {
  Draw draw(seed, number + 1);
  DrawnCall call;
  AttentionShape& shape = call.shape;
  shape.name = "drawn";
  shape.batch = draw.chance(0.3) ? 1 : draw.between(1, limits.batch);
  const int most_queries = problem.max_q_len > 0 ? std::min(problem.max_q_len, limits.queries) : limits.queries;
  const int most_keys = static_cast<int>(
      std::min<std::int64_t>(limits.keys, limits.tokens / (std::int64_t{shape.batch} * problem.heads.kv)));
  shape.q_len = draw.length(most_queries);
  shape.kv_len = draw.length(most_keys);
  const bool same_offsets = problem.kv_layout.kind == KvLayoutKind::kRagged && !problem.kv_offsets;
  for (int b = 0; b < shape.batch; ++b) {
    if (problem.q_layout == QLayout::kRagged) shape.q_lens.push_back(draw.length(most_queries));
    shape.kv_lens.push_back(same_offsets ? shape.q_lens.back() : draw.length(most_keys));
    // Keys are the cache's and the prompt's, so that each query has one of its own.
    const int queries = shape.q_lens.empty() ? shape.q_len : shape.q_lens.back();
    if (problem.cache_length == CacheLength::kPrompt) shape.kv_lens.back() = std::max(shape.kv_lens.back(), queries);
  }
  InputOptions& options = call.options;
  options.seed = seed ^ (number << 20);
  options.heads_first = draw.chance(0.2);
  options.interleave_kv = problem.head_dim.qk - problem.rope.width == problem.head_dim.v && draw.chance(0.2);
  options.padding_tokens = draw.chance(0.2) ? draw.between(1, 9) : 0;
  options.share_pages = draw.chance(0.2);
  options.one_rope = problem.rope.width > 0 && draw.chance(0.5);
  options.unused_pages = draw.between(0, 20);
  options.q_magnitude = draw.chance(0.2) ? 4 : 1;
  call.other_scale = draw.chance(0.1);
  if (problem.mask.kind == MaskKind::kSlidingWindow && draw.chance(0.5)) {
    call.other_window = true;
    call.window = {draw.between(-1, 200), draw.between(-1, 40)};
  }
  if (problem.kv_starts && draw.chance(0.9))  // any key, the first, and behind the last
    for (const int keys : shape.kv_lens) shape.kv_starts.push_back(draw.chance(0.2) ? 0 : draw.between(0, keys));
  return call;
}

AttentionCase DrawnCall::make(const AttentionProblem& problem) const {
  AttentionCase call = make_inputs(problem, shape, options);
  if (other_scale) call.scale *= 1.75f;
  if (other_window) call.window = window;
  return call;
}

std::string describe(const DrawnKernel& kernel, const DrawnCall& call) {
  const InputOptions& options = call.options;
  std::string text = write_config(AttentionConfig{"drawn", kernel.problem, kernel.schedule, {call.shape}});
  text += fmt::format("inputs: seed {}, padding_tokens {}, unused_pages {}, q_magnitude {}", options.seed,
                      options.padding_tokens, options.unused_pages, options.q_magnitude);
  if (options.heads_first) text += ", heads_first";
  if (options.interleave_kv) text += ", interleave_kv";
  if (options.share_pages) text += ", share_pages";
  if (options.one_rope) text += ", one_rope";
  if (call.other_scale) text += ", 1.75 times the scale";
  if (call.other_window) text += fmt::format(", window {} {}", call.window.left, call.window.right);
  return text;
}

namespace {

TEST(RandomCalls, AreOfEveryFamilyAndFormAndTheSameForTheSameSeed) {
  const std::vector<DrawnKernel> kernels = draw_kernels(24, 1, Arch::kSm90a);
  std::set<std::string> names;
  std::set<MaskKind> masks;
  std::set<KvLayoutKind> layouts;
  for (const DrawnKernel& kernel : kernels) {
    names.insert(kernel_name(plan_attention(kernel.problem, kernel.schedule, Arch::kSm90a).main));
    masks.insert(kernel.problem.mask.kind);
    layouts.insert(kernel.problem.kv_layout.kind);
  }
  EXPECT_EQ(names,
            (std::set<std::string>{"attention_decode_portable", "attention_decode_sm90", "attention_latent_portable",
                                   "attention_latent_sm90", "attention_portable", "attention_sm90"}))
      << "a family or form is never drawn";
  EXPECT_GE(masks.size(), 3u);
  EXPECT_EQ(layouts.size(), 3u);

  const std::vector<DrawnKernel> again = draw_kernels(24, 1, Arch::kSm90a);
  bool has_empty = false, has_long = false;
  for (std::size_t i = 0; i < 400; ++i) {
    const AttentionProblem& problem = kernels[i % kernels.size()].problem;
    EXPECT_EQ(problem, again[i % again.size()].problem);
    const DrawnCall call = draw_call(problem, {300, 3000, 6, 20000}, 1, i);
    EXPECT_EQ(call.shape, draw_call(problem, {300, 3000, 6, 20000}, 1, i).shape);
    const AttentionCase made = shape_only(problem, call.shape);
    has_empty |= std::count(made.kv_lens.begin(), made.kv_lens.end(), 0) > 0;
    has_long |= made.kv_len > 1000;
  }
  EXPECT_TRUE(has_empty && has_long) << "lengths are all alike";
}

}  // namespace
}  // namespace kernelwright
