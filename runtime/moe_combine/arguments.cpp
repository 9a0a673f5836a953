// The rules of a launch's arguments, each with its words. Rules that hold make no text.
#include <fmt/format.h>

#include <string>
#include <utility>

#include "contract/moe_combine.h"
#include "kernelwright/runtime/launch/matrix.h"
#include "kernelwright/runtime/launch/rules.h"
#include "kernelwright/runtime/moe_combine/launch.h"

namespace kernelwright::detail {
namespace {

using contract::kVectorBytes;

class MoeCombineRules : public ArgumentRules {
 public:
  MoeCombineRules(const MoeCombineSpec& spec, const MoeCombineTensors& t)
      : spec_(spec),
        t_(t),
        rows_{t.rows, spec.in, t.num_rows, spec.width, t.rows_stride},
        residual_{t.residual, spec.in, t.tokens, spec.width, t.residual_stride},
        out_{t.out, spec.out, t.tokens, spec.width, t.out_stride} {}

  /// Must hold before any arithmetic on rows.
  bool numbers_hold() {
    const auto outside = [&](const char* path, std::int64_t value, std::int64_t most) {
      bad(value < 0 || value > most, path, [&] { return fmt::format("{} is outside [0, {}]", value, most); });
      return value < 0 || value > most;
    };
    const bool tokens = outside("/tokens", t_.tokens, kMostCombinedTokens);
    return !outside("/num_rows", t_.num_rows, kMostExpertRows) && !tokens;
  }

  void operands() {
    rows_of("/out", out_, kVectorBytes);
    if (t_.num_rows > 0) {
      rows_of("/rows", rows_, kVectorBytes);
      apart(rows_, "rows");
    }
    slots("/positions", t_.positions);
    if (spec_.weighted) slots("/weights", t_.weights);
    if (!spec_.adds) return;
    rows_of("/residual", residual_, kVectorBytes);
    const bool in_place = t_.out == t_.residual && t_.out_stride == t_.residual_stride && spec_.out == spec_.in;
    bad(!in_place && out_.shares_rows_with(residual_), "/out",
        [] { return std::string("overlaps residual, and is not residual itself with its dtype and stride"); });
  }

  using ArgumentRules::pdl;

 private:
  void slots(const char* path, DevicePtr address) {
    const std::int64_t count = t_.tokens * spec_.top_k;
    not_null(path, address);
    aligned(path, address, 4 * contract::slots_of_load(spec_.top_k));
    span_within_memory(path, address, static_cast<std::uint64_t>(count) * 4);
    if (address) apart({address, DType::kF32, 1, count, count}, path + 1);
  }
  /// What is written overlaps nothing that other threads read.
  void apart(const Matrix& other, const char* name) {
    bad(out_.shares_rows_with(other), "/out",
        [&] { return fmt::format("overlaps {}; give one of them other memory", name); });
  }

  const MoeCombineSpec& spec_;
  const MoeCombineTensors& t_;
  const Matrix rows_, residual_, out_;
};

}  // namespace

std::vector<Violation> broken_rules(const LoadedMoeCombine& kernel, const MoeCombineTensors& t) {
  MoeCombineRules rules(kernel.spec, t);
  if (rules.numbers_hold() && t.tokens > 0) rules.operands();
  rules.pdl(t.pdl, kernel.has_pdl, kernel.spec.arch);
  return std::move(rules).broken();
}

}  // namespace kernelwright::detail
