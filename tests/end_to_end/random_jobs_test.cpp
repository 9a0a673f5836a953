// Draws kernels of both kinds, and makes calls of them.
#include "end_to_end/random_jobs.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <stdexcept>

#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/json/config_json.h"
#include "kernelwright/verify/attention/bound.h"
#include "kernelwright/verify/attention/device.h"
#include "kernelwright/verify/kv_write/bound.h"
#include "kernelwright/verify/kv_write/device.h"

namespace kernelwright {
namespace {

template <class Case, class OnDevice, class Kernel, class Output>
class JobOf : public RandomJob {
 public:
  JobOf(Device& device, std::string text, Case call, const Kernel& kernel)
      : text_(std::move(text)), call_(std::move(call)), on_device_(device, call_, kernel) {}
  std::string describe() const override { return text_; }
  void launch(Stream stream, int sm_budget) override {
    on_device_.use(stream);
    if constexpr (requires { on_device_.tensors().sm_budget; }) on_device_.tensors().sm_budget = sm_budget;
    on_device_.poison();
    on_device_.launch();
  }
  bool keep() override {
    first_ = on_device_.download();
    return on_device_.guards_are_intact();
  }
  bool repeats() override { return on_device_.download() == first_; }

 protected:
  const std::string text_;
  const Case call_;
  OnDevice on_device_;
  Output first_;
};

class AttentionJob final : public JobOf<AttentionCase, DeviceCase, AttentionKernel, AttentionOutput> {
 public:
  AttentionJob(Device& device, const DrawnKernel& drawn, const DrawnCall& call, const AttentionKernel& kernel)
      : JobOf(device, kernelwright::describe(drawn, call), call.make(drawn.problem), kernel),
        seed_(call.options.seed),
        balanced_(drawn.schedule.scheduler.value_or(Scheduler::kGrid) == Scheduler::kBalanced) {}
  /// The number of SMs decides where a balanced kernel cuts keys, so that it has no budget here.
  void launch(Stream stream, int sm_budget) override { JobOf::launch(stream, balanced_ ? 0 : sm_budget); }
  std::string fault() const override {
    const Verdict verdict = verify(call_, first_, {.budget_operations = 4e6, .seed = seed_});
    if (verdict.passed) return "";
    return fmt::format("{}\nworst/bound {}, lse {}, rms {} of {}", verdict.text, verdict.worst_ratio,
                       verdict.worst_lse_ratio, verdict.rms_ratio, verdict.rms_limit);
  }

 private:
  const std::uint64_t seed_;
  const bool balanced_;
};

class KvWriteJob final : public JobOf<KvWriteCase, KvWriteDeviceCase, KvWriteKernel, KvWriteOutput> {
 public:
  using JobOf::JobOf;
  std::string fault() const override {
    const KvWriteVerdict verdict = verify(call_, first_, {.budget_operations = 4e6});
    return verdict.passed ? "" : fmt::format("{}\nworst/bound {}", verdict.text, verdict.worst_ratio);
  }
};

std::string kind_of(const DrawnKernel& drawn, Arch arch) {
  const AttentionProblem& problem = drawn.problem;
  std::string kind = fmt::format("{}, q {}, kv {}", kernel_name(plan_attention(problem, drawn.schedule, arch).main),
                                 to_string(problem.dtype.q), to_string(problem.dtype.kv));
  if (is_fp8(problem.dtype.kv)) kind += fmt::format(", scales {}", to_string(problem.scales));
  if (const int page = problem.kv_layout.page_size; page > 0 && page < 16) kind += ", pages below 16 keys";
  if (problem.rope.width > 0) kind += ", a rotary part";
  if (drawn.schedule.scheduler.value_or(Scheduler::kGrid) == Scheduler::kBalanced) kind += ", balanced";
  return kind;
}

std::string kind_of(const KvWriteProblem& problem) {
  const auto written = [](DType dtype, ScaleKind scales) {
    return is_fp8(dtype) ? fmt::format("{} {}", to_string(dtype), to_string(scales)) : "of 16 bits";
  };
  return fmt::format("kv_write, q {}, k {}, v {}",
                     problem.q_out ? written(problem.dtype.q, problem.scales.q) : "not written",
                     written(problem.dtype.kv, problem.scales.k),
                     problem.v_out ? written(problem.dtype.kv, problem.scales.v) : "not written");
}

}  // namespace

RandomKernels::RandomKernels(Engine& engine, int attention_kernels, std::uint64_t seed, const std::string& kind)
    : device_(engine.device(0)), seed_(seed) {
  const Arch arch = *device_.info().arch;
  PrepareOptions background;
  background.background = true;
  for (const DrawnKernel& drawn : draw_kernels(attention_kernels, seed, arch)) {
    if (kind_of(drawn, arch).find(kind) == std::string::npos) continue;
    attention_.push_back({drawn, engine.prepare(drawn.problem, drawn.schedule, background)});
    kinds_.push_back(kind_of(drawn, arch));
  }
  Random random(seed, ~std::uint64_t{0});
  for (int i = 0; i < attention_kernels / 4; ++i) {
    const test::DrawnKvWrite drawn = test::draw_kv_write(random, arch);
    if (kind_of(drawn.problem).find(kind) == std::string::npos) continue;
    kv_write_.push_back({drawn, engine.prepare(drawn.problem, {}, background)});
    kinds_.push_back(kind_of(drawn.problem));
  }
  if (kinds_.empty()) throw std::invalid_argument("no kernel that was drawn is of kind \"" + kind + "\"");
  for (const Attention& made : attention_) made.kernel.wait();
  for (const KvWrite& made : kv_write_) made.kernel.wait();
  drawn_.resize(kinds_.size());
}

std::unique_ptr<RandomJob> RandomKernels::draw(const CallLimits& limits, std::uint64_t number) {
  Random random(seed_, number + 1);
  std::size_t which = random.below(kinds_.size());
  ++drawn_[which];
  if (which < attention_.size()) {
    const Attention& made = attention_[which];
    const DrawnCall call = draw_call(made.drawn.problem, limits, seed_, number);
    return std::make_unique<AttentionJob>(device_, made.drawn, call, made.kernel);
  }
  const KvWrite& made = kv_write_[which - attention_.size()];
  KvWriteInputOptions options = made.drawn.options;
  options.seed = seed_ ^ (number << 20), options.wrong_places = random.below(2) == 1;
  const KvWriteShape shape{.name = "drawn", .tokens = static_cast<int>(random.below(limits.queries)), .check = true};
  const KvWriteConfig config{"drawn", made.drawn.problem, {}, {shape}};
  return std::make_unique<KvWriteJob>(device_,
                                      fmt::format("{}inputs: seed {}{}", write_config(config), options.seed,
                                                  options.wrong_places ? ", places that do not exist" : ""),
                                      make_kv_write_inputs(made.drawn.problem, shape, options), made.kernel);
}

std::string RandomKernels::counts() const {
  std::map<std::string, std::uint64_t> counts;
  for (std::size_t i = 0; i < kinds_.size(); ++i) counts[kinds_[i]] += drawn_[i];
  std::string text;
  for (const auto& [kind, count] : counts) text += fmt::format("{:6} launches: {}\n", count, kind);
  return text;
}

namespace {

TEST(RandomKernels, SayWhatTheyAreOf) {
  std::set<std::string> kinds;
  for (const DrawnKernel& drawn : draw_kernels(128, 1, Arch::kSm90a)) kinds.insert(kind_of(drawn, Arch::kSm90a));
  for (const char* kind :
       {"attention_sm90, q e4m3, kv e4m3, scales per_head", "attention_sm90, q bf16, kv e5m2, scales per_head",
        "attention_decode_sm90, q bf16, kv e4m3, scales none", "attention_decode_sm90, q e4m3, kv e4m3, scales none",
        "attention_portable, q bf16, kv bf16, pages below 16 keys", "attention_sm90, q e4m3, kv e4m3, scales per_token",
        "attention_decode_sm90, q e4m3, kv e4m3, scales per_page",
        "attention_portable, q f16, kv e4m3, scales per_token", "attention_sm90, q bf16, kv bf16, a rotary part",
        "attention_portable, q f16, kv f16, a rotary part", "attention_latent_sm90, q bf16, kv bf16, balanced",
        "attention_latent_portable, q f16, kv f16", "attention_latent_sm90, q f16, kv e4m3, scales per_block",
        "attention_decode_portable, q e4m3, kv e4m3, scales per_page"})
    EXPECT_TRUE(kinds.contains(kind)) << kind << " is not drawn:\n" << fmt::format("{}", fmt::join(kinds, "\n"));

  std::set<std::string> of_blackwell;
  for (const DrawnKernel& drawn : draw_kernels(128, 1, Arch::kSm100a))
    of_blackwell.insert(kind_of(drawn, Arch::kSm100a));
  for (const char* kind :
       {"attention_sm100, q e4m3, kv e4m3, scales per_token", "attention_latent_sm100, q bf16, kv bf16"})
    EXPECT_TRUE(of_blackwell.contains(kind)) << kind << " is not drawn:\n"
                                             << fmt::format("{}", fmt::join(of_blackwell, "\n"));

  Random random(1, 2);
  std::set<std::string> written;
  bool columns = false, signs = false, small_pages = false, no_q = false, no_v = false;
  for (int i = 0; i < 150; ++i) {
    const KvWriteProblem problem = test::draw_kv_write(random, Arch::kSm90a).problem;
    for (const auto& [dtype, scales] :
         {std::pair{problem.dtype.q, problem.scales.q}, std::pair{problem.dtype.kv, problem.scales.k}})
      written.insert(fmt::format("{} {}", to_string(dtype), to_string(scales)));
    columns |= problem.v_layout == VLayout::kColumns, signs |= problem.hadamard_signs;
    small_pages |= problem.kv_layout.page_size > 0 && problem.kv_layout.page_size < 16;
    no_q |= !problem.q_out, no_v |= !problem.v_out;
  }
  EXPECT_EQ(written.size(), 10u) << fmt::format("{}", fmt::join(written, "\n"));  // 2 of 16 bits, 2 x 4 of fp8
  EXPECT_TRUE(columns && signs && small_pages && no_q && no_v) << "a field is never drawn";
}

}  // namespace
}  // namespace kernelwright
