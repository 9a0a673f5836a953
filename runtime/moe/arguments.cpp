// The rules of a layer's arguments. Its kernels have most of them, under names of their own: these are mapped.
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "kernelwright/generator/problem/epilogue.h"
#include "kernelwright/runtime/gemm/arguments.h"
#include "kernelwright/runtime/launch/matrix.h"
#include "kernelwright/runtime/launch/rules.h"
#include "kernelwright/runtime/moe/calls.h"

namespace kernelwright::detail {
namespace {

/// A field of a kernel's arguments, and the layer's field that it is. Fields that are not listed lie in the workspace.
struct Renamed {
  std::string_view part, layer;
};
constexpr Renamed kRoute[] = {{"logits", "logits"}, {"logits_stride", "logits_stride"},
                              {"bias", "bias"},     {"local_ids", "local_ids"},
                              {"ids", "ids"},       {"weights", "weights"},
                              {"tokens", "tokens"}, {"factor", "factor"},
                              {"pdl", "pdl"}};
constexpr Renamed kQuantizeX[] = {{"x", "x"}, {"x_stride", "x_stride"}, {"rows", "tokens"}};
constexpr Renamed kGateUp[] = {{"a", "x"},
                               {"a_stride", "x_stride"},
                               {"b", "gate_up"},
                               {"scale_b", "gate_up_scale"},
                               {"scale_b_stride", "gate_up_scale"},
                               {"bias", "gate_up_bias"},
                               {"m", "tokens"}};
constexpr Renamed kDown[] = {
    {"b", "down"}, {"scale_b", "down_scale"}, {"scale_b_stride", "down_scale"}, {"bias", "down_bias"}, {"m", "tokens"}};
constexpr Renamed kCombine[] = {{"residual", "residual"}, {"residual_stride", "residual_stride"},
                                {"out", "out"},           {"out_stride", "out_stride"},
                                {"weights", "weights"},   {"num_rows", "tokens"},
                                {"tokens", "tokens"}};

class MoeRules : public ArgumentRules {
 public:
  MoeRules(const MoeProblem& problem, const MoeTensors& t) : problem_(problem), t_(t) {}

  bool tokens_hold() {
    const std::int64_t most = most_tokens(problem_);
    const bool wrong = t_.tokens < 0 || t_.tokens > most;
    bad(wrong, "/tokens", [&] { return fmt::format("{} is outside [0, {}]", t_.tokens, most); });
    return !wrong;
  }
  void factor() {
    bad(t_.factor && problem_.route.is_given(), "/factor",
        [] { return std::string("is given, and so are the weights, which it does not reach; leave it out"); });
  }
  void own_workspace(std::uint64_t needed) {
    workspace(t_.workspace, t_.workspace_bytes, needed,
              [&] { return fmt::format("for {} tokens; see MoeKernel::workspace_bytes()", t_.tokens); });
  }
  /// What is written overlaps nothing else. But the result may take the place of x, which is read before, and of the
  /// residual, whose rule the kernel of the sums has.
  void overlaps(std::uint64_t workspace_bytes);

 private:
  struct Array {
    const char* name;
    Matrix of;
    bool written;
  };

  const MoeProblem& problem_;
  const MoeTensors& t_;
};

void MoeRules::overlaps(std::uint64_t workspace_bytes) {
  const std::int64_t own = problem_.own_experts(), all = problem_.route.experts, hidden = problem_.hidden;
  const std::int64_t wide = problem_.intermediate, pairs = t_.tokens * problem_.route.top_k;
  const bool quantised = problem_.scales == ScaleKind::kPerBlock, chosen = !problem_.route.is_given();
  const DType of_weights = quantised ? DType::kE4m3 : problem_.dtype;
  const auto flat = [](DevicePtr address, DType dtype, std::int64_t count) {
    return Matrix{address, dtype, 1, count, count};
  };
  const auto matrix = [&](DevicePtr address, std::int64_t stride) {
    return Matrix{address, problem_.dtype, t_.tokens, hidden, stride};
  };
  const Array arrays[] = {
      {"workspace", flat(t_.workspace, DType::kE4m3, static_cast<std::int64_t>(workspace_bytes)), true},
      {"out", matrix(t_.out, t_.out_stride), true},
      {"ids", flat(t_.ids, DType::kF32, pairs), chosen},
      {"weights", flat(t_.weights, DType::kF32, pairs), chosen},
      {"x", matrix(t_.x, t_.x_stride), false},
      {"residual", matrix(t_.residual, t_.residual_stride), false},
      {"logits", {t_.logits, problem_.route.dtype, t_.tokens, all, t_.logits_stride}, false},
      {"bias", flat(t_.bias, DType::kF32, all), false},
      {"local_ids", flat(t_.local_ids, DType::kF32, all), false},
      {"gate_up", flat(t_.gate_up, of_weights, own * 2 * wide * hidden), false},
      {"gate_up_scale",
       flat(t_.gate_up_scale, DType::kF32, own * scale_rows_of_b(2 * problem_.intermediate, true) * (hidden / 128)),
       false},
      {"gate_up_bias", flat(t_.gate_up_bias, problem_.dtype, own * 2 * wide), false},
      {"down", flat(t_.down, of_weights, own * hidden * wide), false},
      {"down_scale", flat(t_.down_scale, DType::kF32, own * (hidden / 128) * (wide / 128)), false},
      {"down_bias", flat(t_.down_bias, problem_.dtype, own * hidden), false},
  };
  const std::string_view result = "out";
  for (const Array& one : arrays)
    for (const Array& other : arrays) {
      if (&other == &one || !one.written || (other.written && &other < &one)) continue;
      if (one.name == result && (other.name == std::string_view("x") || other.name == std::string_view("residual")))
        continue;
      bad(one.of.address && other.of.address && one.of.overlaps(other.of), std::string("/") + one.name,
          [&] { return fmt::format("overlaps {}; give one of them other memory", other.name); });
    }
}

/// Collects what kernels say of fields of the layer, one sentence for each field and kernel.
class Collected {
 public:
  explicit Collected(std::vector<Violation> own) : found_(std::move(own)) {}

  void add(const char* part, std::span<const Renamed> names, std::vector<Violation> violations) {
    constexpr std::string_view kRoot = "/tensors/";
    for (Violation& violation : violations) {
      const std::string_view field = std::string_view(violation.path).substr(kRoot.size());
      const auto row = std::find_if(names.begin(), names.end(), [&](const Renamed& of) { return of.part == field; });
      if (row == names.end()) {
        unnamed_.push_back({fmt::format("/{}{}", part, violation.path), std::move(violation.message)});
        continue;
      }
      Violation renamed{std::string(kRoot).append(row->layer), std::move(violation.message)};
      if (std::none_of(found_.begin(), found_.end(), [&](const Violation& of) { return of.path == renamed.path; }))
        found_.push_back(std::move(renamed));
    }
  }
  /// What lies in the workspace breaks a rule only where an argument does.
  std::vector<Violation> take() && { return found_.empty() ? std::move(unnamed_) : std::move(found_); }

 private:
  std::vector<Violation> found_, unnamed_;
};

std::vector<Violation> broken_rules(const LoadedGemm& kernel, const GemmTensors& t) {
  const GemmSpec& spec = kernel.variant_for(t).spec;
  return broken_rules(kernel, spec, t, matrices_of(kernel, spec, t));
}

}  // namespace

void require_numbers(const MoeProblem& problem, const MoeTensors& t) {
  MoeRules rules(problem, t);
  if (!rules.tokens_hold()) throw ConfigError(std::move(rules).broken());
}

std::vector<Violation> broken_rules(const MoeProblem& problem, const LoadedMoe& loaded, const MoeTensors& given,
                                    const MoeWorkspace& at) {
  MoeRules rules(problem, given);
  rules.own_workspace(at.bytes);
  rules.factor();
  rules.overlaps(at.bytes);
  MoeTensors t = given;
  constexpr DevicePtr kStandIn = 1 << 12;  // for a workspace that is missing, so that the other arguments are judged
  if (!t.workspace) t.workspace = kStandIn;
  const MoeCalls calls = calls_of(problem, t, at, loaded.route->has_pdl);
  Collected found(std::move(rules).broken());
  found.add("route", kRoute, broken_rules(*loaded.route, calls.route));
  if (loaded.quantize_x)
    found.add("quantize_x", kQuantizeX,
              broken_rules(*loaded.quantize_x, resolved(loaded.quantize_x->spec, calls.quantize_x)));
  found.add("gate_up", kGateUp, broken_rules(*loaded.gate_up, calls.gate_up));
  if (loaded.quantize_rows)
    found.add("quantize_rows", {},
              broken_rules(*loaded.quantize_rows, resolved(loaded.quantize_rows->spec, calls.quantize_rows)));
  found.add("down", kDown, broken_rules(*loaded.down, calls.down));
  found.add("combine", kCombine, broken_rules(*loaded.combine, calls.combine));
  return std::move(found).take();
}

}  // namespace kernelwright::detail
