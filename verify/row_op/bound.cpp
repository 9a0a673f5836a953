#include "kernelwright/verify/row_op/bound.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "contract/block_scales.h"
#include "kernelwright/verify/error_bound.h"
#include "kernelwright/verify/formats/block_formats.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/formats/made_scales.h"
#include "kernelwright/verify/row_op/reference.h"

namespace kernelwright {
namespace {

constexpr std::size_t kBlockOfScales = 128;  // elements of per_block

/// The largest magnitude of some values, and how far f32 may be off. NaN if one is NaN.
struct Largest {
  double value = 0, error = 0;
};
Largest largest_of(const RowOpRow& row, std::size_t first, std::size_t count) {
  Largest largest;
  for (std::size_t i = first; i < first + count; ++i) {
    if (std::isnan(row.value[i])) return {row.value[i], 0};
    largest.value = std::max(largest.value, std::fabs(row.value[i]));
    largest.error = std::max(largest.error, row.error[i]);
  }
  return largest;
}

class RowComparison : public RowsComparison {
 public:
  RowComparison(const RowOpCase& call, const RowOpOutput& output, RowOpVerdict& verdict)
      : RowsComparison(verdict, call.problem.dtype.out), call_(call), output_(output), out_(call.problem.dtype.out) {}

  void row(std::int64_t row) {
    const RowOpRow right = reference_row(call_, row);
    if (call_.adds()) sums(row, right.sum);
    for (std::size_t head = 0; head < right.lse.size(); ++head) lse(row, head, right.lse[head], right.lse_error[head]);
    const std::size_t width = right.value.size();
    std::vector<double> found(width);
    const std::size_t row_bytes = bytes_of(out_, static_cast<std::size_t>(call_.out_stride));
    decode_row(out_, output_.out.data() + static_cast<std::size_t>(row) * row_bytes, width, found.data());
    const std::size_t group = call_.has_atoms()          ? static_cast<std::size_t>(scale_vector(out_))
                              : call_.scale_blocks() > 0 ? kBlockOfScales
                                                         : width;
    for (std::size_t first = 0; first < width; first += group) {
      const double scale = call_.has_atoms() ? block_scale(row, first, right) : scale_of(row, first, group, right);
      const bool scaled = call_.has_atoms() || call_.problem.scales.kind != ScaleKind::kNone;
      for (std::size_t i = first; i < first + group; ++i) {
        if (call_.has_atoms() && (std::isnan(scale) || scale == 0))
          exact([&] { return fmt::format("out[{}, {}] of a block without numbers", row, i); }, found[i], 0);
        else
          scaled_element(row, i, found[i], right.value[i] / scale, right.error[i] / scale, scaled);
      }
    }
  }

  /// Scales past the end, in whole atoms.
  void no_scales_past_the_end() {
    const int vector = scale_vector(out_), atoms = contract::scale_atoms_of_row(call_.problem.width, vector);
    const std::int64_t rows =
        (call_.rows + contract::kScaleAtomRows - 1) / contract::kScaleAtomRows * contract::kScaleAtomRows;
    for (std::int64_t row = 0; row < rows; ++row)
      for (int scale = 0; scale < atoms * contract::kScaleAtomScales; ++scale) {
        if (row < call_.rows && scale < call_.problem.width / vector) continue;
        const auto at = static_cast<std::size_t>(contract::block_scale_offset(atoms, row, scale));
        if (output_.scale[at] != std::byte{0})
          fail(fmt::format("scale [{}, {}] is past the end, and not 0", row, scale));
      }
  }

 private:
  void lse(std::int64_t row, std::size_t head, double right, double error) {
    float found;
    std::memcpy(&found, output_.lse_out.data() + 4 * call_.lse_at(row, head), sizeof found);
    const auto place = [&] { return fmt::format("lse_out[{}, {}]", head, row); };
    if (!std::isfinite(right)) return exact(place, found, right);
    if (!(std::fabs(found - right) <= error))
      fail(fmt::format("{}: {} where {} +- {} is right", place(), found, right, error));
  }
  void sums(std::int64_t row, const std::vector<float>& right) {
    std::vector<double> found(right.size());
    const DType in = call_.problem.dtype.in;
    decode_row(in,
               output_.residual_out.data() + static_cast<std::size_t>(row * call_.residual_out_stride) * bytes_of(in),
               found.size(), found.data());
    for (std::size_t i = 0; i < found.size(); ++i)
      exact([&] { return fmt::format("residual_out[{}, {}]", row, i); }, found[i], right[i]);
  }

  /// `right` and `error` in units of the scale.
  void scaled_element(std::int64_t row, std::size_t i, double found, double right, double error, bool scaled) {
    if (scaled) error += 4 * kUnit * std::fabs(right) + 0x1p-149;  // the scale's reciprocal, and the product with it
    element([&] { return fmt::format("out[{}, {}]", row, i); }, found, right, error);
  }

  /// What elements are divided by: the scale that was given, or the one that the kernel wrote, which is compared.
  double scale_of(std::int64_t row, std::size_t first, std::size_t count, const RowOpRow& right) {
    const ScaleKind kind = call_.problem.scales.kind;
    if (kind == ScaleKind::kNone) return 1;
    if (kind == ScaleKind::kPerTensor) return call_.given_scale;
    const auto block = static_cast<std::int64_t>(first / kBlockOfScales);
    const std::int64_t at = kind == ScaleKind::kPerToken ? row
                            : call_.scale_columns()      ? block * call_.scale_stride + row
                                                         : row * call_.scale_stride + block;
    float found;
    std::memcpy(&found, output_.scale.data() + at * 4, sizeof found);
    const auto place = [&] { return fmt::format("scale [{}, block {}]", row, block); };
    Largest largest = largest_of(right, first, count);
    if (!std::isfinite(largest.value)) {
      exact(place, found, largest.value);
      return found;
    }
    largest.value = std::max<double>(largest.value, static_cast<float>(call_.problem.scales.least));
    const float low = scale_from(largest.value - largest.error, largest.error > 0 ? -1 : 0),
                high = scale_from(largest.value + largest.error, largest.error > 0 ? 1 : 0);
    if (!(found >= low && found <= high))
      fail(fmt::format("{}: {} where {} to {} is right", place(), found, low, high));
    if (call_.problem.scales.power_of_two && std::isfinite(found)) {
      int exponent = 0;
      if (std::frexp(found, &exponent) != 0.5) fail(fmt::format("{}: {} is no power of two", place(), found));
    }
    return found > 0 ? found : 1;
  }
  /// The f32 scale of a largest magnitude; `direction` is that of an error.
  float scale_from(double largest, int direction) const {
    return made_scale_at(out_, largest, call_.problem.scales.power_of_two, direction);
  }

  /// The scale of a block of a block-scaled format, times the tensor's. NaN for a block with something else than
  /// numbers.
  double block_scale(std::int64_t row, std::size_t first, const RowOpRow& right) {
    const int vector = scale_vector(out_), block = static_cast<int>(first) / vector;
    const int atoms = contract::scale_atoms_of_row(call_.problem.width, vector);
    const auto found = static_cast<std::uint8_t>(
        output_.scale[static_cast<std::size_t>(contract::block_scale_offset(atoms, row, block))]);
    const Largest largest = largest_of(right, first, static_cast<std::size_t>(vector));
    std::uint8_t low = nan_scale(out_), high = low;
    if (std::isfinite(largest.value)) {
      const double error = largest.error / call_.tensor_scale + (call_.tensor_scale == 1 ? 0 : kUnit * largest.value);
      low = byte_from(largest.value / call_.tensor_scale - error, error > 0 ? -1 : 0);
      high = byte_from(largest.value / call_.tensor_scale + error, error > 0 ? 1 : 0);
    }
    if (found < low || found > high)
      fail(fmt::format("scale [{}, block {}]: byte {} where {} to {} is right", row, block, found, low, high));
    if (found == nan_scale(out_)) return std::numeric_limits<double>::quiet_NaN();
    return decode_scale(out_, found) * static_cast<double>(call_.tensor_scale);
  }
  std::uint8_t byte_from(double largest, int direction) const {
    return made_scale_byte_at(out_, largest, call_.problem.scales.round == ScaleRound::kUp, direction);
  }

  const RowOpCase& call_;
  const RowOpOutput& output_;
  const DType out_;
};

}  // namespace

RowOpVerdict verify(const RowOpCase& call, const RowOpOutput& output, const RowOpVerdictOptions& options) {
  RowOpVerdict verdict;
  RowComparison comparison(call, output, verdict);
  compare_some_rows(call.rows, 100.0 * static_cast<double>(call.rows) * call.read_width(), options, verdict,
                    [&](std::int64_t row) { comparison.row(row); });
  if (call.rows == 0) return verdict;
  const auto width = static_cast<std::size_t>(call.problem.width);
  const DType in = call.problem.dtype.in, out = call.problem.dtype.out;
  comparison.untouched("out", output.out, bytes_of(out, width),
                       bytes_of(out, static_cast<std::size_t>(call.out_stride)));
  if (call.adds())
    comparison.untouched("residual_out", output.residual_out, bytes_of(in, width),
                         bytes_of(in, static_cast<std::size_t>(call.residual_out_stride)));
  if (call.merges())
    comparison.untouched(
        "lse_out", output.lse_out,
        4 * static_cast<std::size_t>(call.lse_head_stride > call.lse_stride ? call.rows : call.problem.heads),
        4 * static_cast<std::size_t>(std::max(call.lse_stride, call.lse_head_stride)));
  if (call.has_atoms()) comparison.no_scales_past_the_end();
  if (call.scale_blocks() > 0)
    comparison.untouched("scale", output.scale,
                         4 * static_cast<std::size_t>(call.scale_columns() ? call.rows : call.scale_blocks()),
                         4 * static_cast<std::size_t>(call.scale_stride));
  return verdict;
}

}  // namespace kernelwright
