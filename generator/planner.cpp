// The portable family's choices. Numbers come from the register counts that ptxas reports and from bench/results/.
#include "kernelwright/generator/planner.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/launch_plan.h"
#include "kernelwright/generator/validate.h"

namespace kernelwright {
namespace {

/// Takes the schedule's value or the planner's, and keeps the reason.
class Resolver {
 public:
  explicit Resolver(std::vector<Choice>& choices) : choices_(choices) {}

  template <class T>
  T operator()(const char* field, const Auto<T>& asked, T planned, std::string reason) {
    const T value = asked.value_or(planned);
    choices_.push_back({field, text_of(value), asked.is_auto() ? std::move(reason) : "the schedule says so"});
    return value;
  }
  template <class T>
  void derived(const char* field, T value, std::string reason) {
    choices_.push_back({field, text_of(value), std::move(reason)});
  }

 private:
  static std::string text_of(int value) { return std::to_string(value); }
  static std::string text_of(bool value) { return value ? "true" : "false"; }
  template <Enum E>
  static std::string text_of(E value) {
    return std::string(to_string(value));
  }
  std::vector<Choice>& choices_;
};

void choose_prefill_tile(AttentionSpec& spec, const AttentionSchedule& schedule, const ArchInfo& arch,
                         Resolver& resolve) {
  const int depth = std::max(spec.head_dim_qk, spec.head_dim_v);
  // A warp with two row tiles reads each fragment of K and V once for 32 rows. Its accumulators take head_dim.v
  // registers, its scores block_n: 128 + 64 leave just enough of 255.
  const bool two_row_tiles = depth <= 128 && !spec.register_staged;
  const bool roomy = arch.shared_bytes_per_cta >= 128 * 1024;
  const int rows = depth > 192 && !roomy ? 64 : 128;
  spec.num_warps = resolve("num_warps", schedule.num_warps, two_row_tiles ? 4 : rows / 16,
                           two_row_tiles ? "32 rows a warp: each fragment of K and V serves twice"
                                         : "16 rows a warp: 32 would not leave registers for their accumulators");
  spec.block_m = resolve("block_m", schedule.block_m, two_row_tiles ? 128 : rows,
                         rows == 128 ? "128 rows share each key tile" : "64 rows, so that the tile fits shared memory");
  // A window's lower limits and a softcap's constants need the registers that 16 more keys of scores would take.
  const bool crowded =
      depth > 96 && two_row_tiles && (spec.mask == MaskKind::kSlidingWindow || spec.score_mod != ScoreModKind::kNone);
  const int keys = depth > 192 && !roomy ? 32 : crowded ? 48 : 64;
  spec.block_n = resolve("block_n", schedule.block_n, keys,
                         fmt::format("{} keys of scores fit the registers beside the accumulators", keys));
  // Measured on an H100: two stages are worth 5 % at head dim 64 and cost 3 % at 128, where their registers are
  // missing.
  const bool two_stages = depth <= 64 && !spec.register_staged;
  spec.num_stages = resolve(
      "num_stages", schedule.num_stages, two_stages ? 2 : 1,
      two_stages ? "a whole tile ahead: one barrier a tile"
                 : "one slot each for K and V: V lands behind Q K^T, the next K behind P V, and two CTAs fit an SM");
  spec.min_ctas = spec.num_warps <= 4 ? 2 : 1;
  resolve.derived("min_ctas", spec.min_ctas, "eight warps an SM may use 255 registers each");
}

void choose_decode_tile(AttentionSpec& spec, const AttentionSchedule& schedule, const ArchInfo& arch, int max_rows,
                        Resolver& resolve) {
  const int depth = std::max(spec.head_dim_qk, spec.head_dim_v);
  spec.block_m = resolve("block_m", schedule.block_m, max_rows > 16 && depth <= 128 ? 32 : 16,
                         fmt::format("{} rows: the query heads of one KV head{}", max_rows,
                                     max_rows > 16 ? ", in m16 tiles" : " fill one m16 tile"));
  const auto fits = [&](int ctas) {
    return static_cast<int>(shared_bytes(spec)) + arch.reserved_shared_bytes_per_cta <=
               arch.shared_bytes_per_sm / ctas &&
           static_cast<int>(shared_bytes(spec)) <= arch.shared_bytes_per_cta;
  };
  const auto warps = [&] { return schedule.num_warps.value_or(4); };
  spec.num_warps = warps();
  spec.block_n = schedule.block_n.value_or(16 * spec.num_warps);
  spec.num_stages = schedule.num_stages.value_or(spec.register_staged ? 1 : 2);
  if (!fits(1) && schedule.num_warps.is_auto() && schedule.block_n.is_auto()) {
    spec.num_warps = 2;
    spec.block_n = 32;
  }
  spec.num_warps = resolve("num_warps", schedule.num_warps, spec.num_warps, "each warp walks keys of its own");
  spec.block_n = resolve("block_n", schedule.block_n, spec.block_n, "16 keys a warp");
  if (schedule.num_stages.is_auto() && !spec.register_staged) {
    spec.num_stages = 4;
    while (spec.num_stages > 2 && !fits(1)) --spec.num_stages;
  }
  spec.num_stages =
      resolve("num_stages", schedule.num_stages, spec.num_stages,
              spec.register_staged ? "the next tile waits in registers"
                                   : "three tiles in flight hide the memory's latency; deeper gains nothing");
  spec.min_ctas = 1;
  resolve.derived("min_ctas", spec.min_ctas, "shared memory bounds the CTAs of an SM");
}

/// What no rule on single fields can see: the tile against the machine.
void check_tile(const AttentionSpec& spec, const ArchInfo& arch, std::vector<Violation>& violations) {
  const auto refuse = [&](const char* field, std::string message) {
    violations.push_back({std::string("/schedule/") + field, std::move(message)});
  };
  const int row_tile = spec.token_gen ? 16 : 16 * spec.num_warps;
  if (spec.block_m % row_tile != 0)
    refuse("block_m", fmt::format("{} is no multiple of {}, the 16 rows of {}", spec.block_m, row_tile,
                                  spec.token_gen ? "an MMA" : fmt::format("each of {} warps", spec.num_warps)));
  const int row_tiles = std::max(1, spec.block_m / row_tile);
  if (row_tiles * std::max(spec.head_dim_v, spec.head_dim_qk) > 256)
    refuse("block_m",
           fmt::format("{} rows on {} warps need {} accumulator registers a thread; at most {} rows would fit",
                       spec.block_m, spec.num_warps, row_tiles * spec.head_dim_v / 2,
                       256 / std::max(spec.head_dim_v, spec.head_dim_qk) * row_tile));
  const int key_step = spec.token_gen ? 16 * spec.num_warps : 16;
  if (spec.block_n % key_step != 0)
    refuse("block_n", fmt::format("{} is no multiple of {}, 16 keys {}", spec.block_n, key_step,
                                  spec.token_gen ? fmt::format("for each of {} warps", spec.num_warps)
                                                 : std::string("of an MMA step")));
  if (spec.head_dim_qk % spec.block_k != 0)
    refuse("block_k", fmt::format("{} does not divide head_dim.qk, {}", spec.block_k, spec.head_dim_qk));
  if (spec.register_staged && spec.num_stages != 1)
    refuse("num_stages",
           fmt::format("{} stages, but keys that are converted on the way pass through one slot; 1 would do",
                       spec.num_stages));
  if (spec.token_gen && !spec.register_staged && spec.num_stages < 2)
    refuse("num_stages", "1 stage, but the decode form fills one slot while it reads another; 2 would do");
  if (spec.token_gen && !spec.pack_gqa)
    refuse("pack_gqa", "false, but the decode form packs the heads of a group; true would do");
  if (!violations.empty()) return;
  const auto bytes = shared_bytes(spec);
  if (static_cast<int>(bytes) > arch.shared_bytes_per_cta) {
    AttentionSpec smaller = spec;
    std::string nearest;
    while (smaller.num_stages > (spec.token_gen ? 2 : 1) && nearest.empty()) {
      --smaller.num_stages;
      if (static_cast<int>(shared_bytes(smaller)) <= arch.shared_bytes_per_cta)
        nearest = fmt::format("; {} stage{} would fit", smaller.num_stages, smaller.num_stages == 1 ? "" : "s");
    }
    while (smaller.block_n > key_step && nearest.empty()) {
      smaller.block_n -= key_step;
      if (static_cast<int>(shared_bytes(smaller)) <= arch.shared_bytes_per_cta)
        nearest = fmt::format("; block_n {} would fit", smaller.block_n);
    }
    refuse(nearest.find("block_n") == std::string::npos ? "num_stages" : "block_n",
           fmt::format("{}: needs {} shared bytes and {} has {}{}", kernel_name(spec), bytes, arch.name,
                       arch.shared_bytes_per_cta, nearest));
  }
}

}  // namespace

AttentionPlan plan_by_model(const AttentionProblem& problem, const AttentionSchedule& schedule, Arch arch) {
  if (auto violations = validate(AttentionConfig{"", problem, schedule, {}}, arch); !violations.empty())
    throw ConfigError(std::move(violations));
  const ArchInfo& machine = arch_info(arch);
  AttentionPlan plan;
  Resolver resolve(plan.choices);
  AttentionSpec& spec = plan.main;
  spec.arch = arch;
  resolve.derived("arch", arch, "the device, or --arch");
  spec.q = problem.dtype.q, spec.kv = problem.dtype.kv, spec.out = problem.dtype.out;
  spec.head_dim_qk = problem.head_dim.qk, spec.head_dim_v = problem.head_dim.v;
  spec.group = problem.group();
  spec.q_layout = problem.q_layout;
  spec.kv_layout = problem.kv_layout.kind, spec.page_size = problem.kv_layout.page_size;
  spec.mask = problem.mask.kind, spec.score_mod = problem.score_mod.kind;
  spec.sinks = problem.sinks, spec.lse = problem.lse, spec.scales = problem.scales;
  spec.register_staged = problem.dtype.kv != problem.dtype.q;
  resolve.derived("register_staged", spec.register_staged,
                  spec.register_staged ? "keys are converted on the way, which only a pass through registers can do"
                                       : "keys are used as they lie: cp.async moves them");

  const int max_rows = problem.max_q_len * spec.group;
  spec.token_gen = resolve("token_gen", schedule.token_gen, problem.max_q_len > 0 && max_rows <= 64,
                           problem.max_q_len > 0 ? fmt::format("at most {} rows a KV head: {}", max_rows,
                                                               max_rows <= 64 ? "bandwidth decides" : "products decide")
                                                 : "any number of queries may come");
  spec.pack_gqa =
      resolve("pack_gqa", schedule.pack_gqa, spec.token_gen,
              spec.token_gen ? "the group's heads read the same keys" : "tiles of one head store whole rows");
  spec.swizzle = resolve("swizzle", schedule.swizzle, Swizzle::k128B, "no bank conflicts");
  spec.rescale =
      resolve("rescale", schedule.rescale, Rescale::kLazy, "most tiles leave the row maximum nearly as it was");
  // A chunk as wide as the swizzle changes no byte of the tile's layout, but a row's pointer then serves every chunk.
  const bool chunked = problem.head_dim.qk % 64 == 0;
  spec.block_k =
      resolve("block_k", schedule.block_k, chunked ? 64 : problem.head_dim.qk,
              chunked ? "one swizzle wide: a thread keeps one row pointer for all chunks of K" : "K arrives whole");
  if (spec.token_gen) {
    choose_decode_tile(spec, schedule, machine, std::max(1, max_rows), resolve);
    plan.splits = schedule.splits.value_or(0);
    resolve.derived("splits", plan.splits, plan.splits > 0 ? "the schedule says so" : "0: from the shape, at launch");
    if (plan.splits != 1) plan.combine = CombineSpec{arch, spec.out, spec.head_dim_v, spec.lse};
  } else {
    choose_prefill_tile(spec, schedule, machine, resolve);
    plan.splits = 1;
  }

  std::vector<Violation> violations;
  check_tile(spec, machine, violations);
  if (!spec.token_gen && schedule.splits.value_or(1) != 1)
    violations.push_back(
        {"/schedule/splits",
         fmt::format("{}: only the decode form splits keys; 1, or token_gen true, would do", schedule.splits.value())});
  if (!violations.empty()) throw ConfigError(std::move(violations));
  return plan;
}

}  // namespace kernelwright
