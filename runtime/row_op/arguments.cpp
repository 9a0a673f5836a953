// The rules of a launch's arguments, each with its words. Rules that hold make no text.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "contract/block_scales.h"
#include "contract/row_op.h"
#include "kernelwright/runtime/launch/matrix.h"
#include "kernelwright/runtime/launch/rules.h"
#include "kernelwright/runtime/row_op/launch.h"

namespace kernelwright::detail {
namespace {

constexpr int kVectorBytes = 16;

class RowOpRules : public ArgumentRules {
 public:
  RowOpRules(const RowOpSpec& spec, const RowOpTensors& t)
      : spec_(spec),
        t_(t),
        x_{t.x, spec.in, t.rows, read_width(spec), t.x_stride},
        residual_{t.residual, spec.in, t.rows, spec.width, t.residual_stride},
        residual_out_{t.residual_out, spec.in, t.rows, spec.width, t.residual_out_stride},
        out_{t.out, spec.out, t.rows, spec.width, t.out_stride} {}

  /// Must hold before any arithmetic on rows.
  bool rows_hold() {
    const bool wrong = t_.rows < 0 || t_.rows > most_rows(spec_);
    bad(wrong, "/rows", [&] { return fmt::format("{} is outside [0, {}]", t_.rows, most_rows(spec_)); });
    return !wrong;
  }

  void operands() {
    rows_of("/x", x_, kVectorBytes);
    if (spec_.adds || spec_.merges) rows_of("/residual", residual_, kVectorBytes);
    if (spec_.adds) rows_of("/residual_out", residual_out_, kVectorBytes);
    rows_of("/out", out_, std::min(kVectorBytes, spec_.vector * bits_of(spec_.out) / 8));
    if (spec_.norm_weight) {
      not_null("/weight", t_.weight);
      aligned("/weight", t_.weight, kVectorBytes);
      span_within_memory("/weight", t_.weight, static_cast<std::uint64_t>(spec_.width * bits_of(spec_.in) / 8));
    }
  }

  void overlaps() {
    const bool in_place = t_.out == t_.x && t_.out_stride == t_.x_stride && spec_.out == spec_.in && spec_.pairs == 0;
    bad(!in_place && out_.shares_rows_with(x_), "/out", [&] {
      return std::string(spec_.pairs > 0 ? "overlaps x, whose gates and ups are still read while rows are written"
                                         : "overlaps x, and is not x itself with its dtype and stride");
    });
    if (spec_.merges) {
      const bool is_residual = t_.out == t_.residual && t_.out_stride == t_.residual_stride && spec_.out == spec_.in;
      bad(!is_residual && out_.shares_rows_with(residual_), "/out",
          [] { return std::string("overlaps residual, and is not residual itself with its dtype and stride"); });
    }
    if (!spec_.adds) return;
    const bool same = t_.residual_out == t_.residual && t_.residual_out_stride == t_.residual_stride;
    bad(!same && residual_out_.shares_rows_with(residual_), "/residual_out",
        [] { return std::string("overlaps residual, and is not residual itself with its stride"); });
    bad(residual_out_.shares_rows_with(x_), "/residual_out",
        [] { return std::string("overlaps x, which is still read while rows are written"); });
    bad(out_.shares_rows_with(residual_), "/out",
        [] { return std::string("overlaps residual, which is still read while rows are written"); });
    bad(!same && out_.shares_rows_with(residual_out_), "/out",
        [] { return std::string("overlaps residual_out, which is written too"); });
  }

  void scales() {
    if (spec_.has_atoms()) {
      const auto bytes = contract::block_scale_bytes(t_.rows, spec_.width, scale_vector(spec_.out));
      return scale(Matrix{t_.scale, DType::kE4m3, 1, bytes, bytes}, kVectorBytes);
    }
    if (spec_.scales == ScaleKind::kNone) return;
    Matrix of{t_.scale, DType::kF32, 1, 1, 1};
    if (spec_.scales == ScaleKind::kPerToken) of.columns = of.stride = t_.rows;
    if (spec_.scales == ScaleKind::kPerBlock) {
      const std::int64_t blocks = spec_.width / contract::kRowScaleBlock;
      of = spec_.scale_columns ? Matrix{t_.scale, DType::kF32, blocks, t_.rows, t_.scale_stride}
                               : Matrix{t_.scale, DType::kF32, t_.rows, blocks, t_.scale_stride};
      row_holds("/scale_stride", of);
      if (of.stride < of.columns) return;
    }
    scale(of, 4);
  }

  void lses() {
    if (!spec_.merges) return;
    bad(t_.lse_head_stride < 1, "/lse_head_stride",
        [&] { return fmt::format("{} is no distance from one head to the next", t_.lse_head_stride); });
    bad(t_.lse_stride < 1, "/lse_stride",
        [&] { return fmt::format("{} is no distance from one row to the next", t_.lse_stride); });
    if (t_.lse_head_stride < 1 || t_.lse_stride < 1) return;
    const Matrix made = lse_of(t_.lse_out);
    row_holds(heads_lie_apart() ? "/lse_head_stride" : "/lse_stride", made);
    if (made.stride < made.columns) return;
    const auto holds = [&](const char* path, const Matrix& lse) {
      not_null(path, lse.address);
      aligned(path, lse.address, 4);
      within_memory(path, lse);
    };
    holds("/lse", lse_of(t_.lse));
    holds("/residual_lse", lse_of(t_.residual_lse));
    holds("/lse_out", made);
    const auto apart = [&](const char* name, const Matrix& other) {
      bad(made.overlaps(other), "/lse_out",
          [&] { return fmt::format("overlaps {}; give one of them other memory", name); });
    };
    apart("lse", lse_of(t_.lse));
    apart("residual_lse", lse_of(t_.residual_lse));
    apart("x", x_);
    apart("residual", residual_);
    apart("out", out_);
    bad(out_.overlaps(lse_of(t_.lse)) || out_.overlaps(lse_of(t_.residual_lse)), "/out",
        [] { return std::string("overlaps an LSE, which is still read while rows are written"); });
  }

  void numbers() {
    const auto not_below_zero = [&](const char* path, const std::optional<float>& value) {
      bad(value && (!(*value >= 0) || std::isinf(*value)), path,
          [&] { return fmt::format("{} is no finite number from 0 on", *value); });
    };
    not_below_zero("/eps", t_.eps);
    not_below_zero("/gate_alpha", t_.gate_alpha);
    not_below_zero("/gate_limit", t_.gate_limit);
    bad(!(t_.tensor_scale > 0) || std::isinf(t_.tensor_scale), "/tensor_scale",
        [&] { return fmt::format("{} does not divide; give a finite number above 0", t_.tensor_scale); });
    bad(t_.tensor_scale != 1 && !spec_.has_atoms(), "/tensor_scale", [&] {
      return fmt::format("{} is for rows of mxfp8, mxfp4 and nvfp4; leave it out, or give a scale per tensor",
                         t_.tensor_scale);
    });
  }

  using ArgumentRules::pdl;

 private:
  /// Whether the LSEs of a head lie side by side, as [heads, rows].
  bool heads_lie_apart() const { return t_.lse_head_stride > t_.lse_stride; }
  Matrix lse_of(DevicePtr address) const {
    const CheckedInt row = t_.lse_stride, head = t_.lse_head_stride;
    if (heads_lie_apart())
      return {address, DType::kF32, spec_.heads, (row * (t_.rows - 1) + 1).or_most(), t_.lse_head_stride};
    return {address, DType::kF32, t_.rows, (head * (spec_.heads - 1) + 1).or_most(), t_.lse_stride};
  }

  void scale(const Matrix& of, int alignment) {
    not_null("/scale", of.address);
    aligned("/scale", of.address, alignment);
    within_memory("/scale", of);
    if (spec_.scales == ScaleKind::kPerTensor) return;
    const auto apart = [&](const char* name, const Matrix& other) {
      bad(of.overlaps(other), "/scale",
          [&] { return fmt::format("overlaps {}; give one of them other memory", name); });
    };
    apart("x", x_);
    apart("out", out_);
    if (spec_.adds || spec_.merges) apart("residual", residual_);
    if (spec_.adds) apart("residual_out", residual_out_);
    if (!spec_.merges) return;
    if (t_.lse_stride < 1 || t_.lse_head_stride < 1) return;
    apart("lse", lse_of(t_.lse));
    apart("residual_lse", lse_of(t_.residual_lse));
    apart("lse_out", lse_of(t_.lse_out));
  }

  const RowOpSpec& spec_;
  const RowOpTensors& t_;
  const Matrix x_, residual_, residual_out_, out_;
};

}  // namespace

std::vector<Violation> broken_rules(const LoadedRowOp& kernel, const RowOpTensors& t) {
  RowOpRules rules(kernel.spec, t);
  if (rules.rows_hold() && t.rows > 0) {
    rules.operands();
    rules.overlaps();
    rules.scales();
    rules.lses();
  }
  rules.numbers();
  rules.pdl(t.pdl, kernel.has_pdl, kernel.spec.arch);
  return std::move(rules).broken();
}

}  // namespace kernelwright::detail
