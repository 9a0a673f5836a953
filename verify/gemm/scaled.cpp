#include "kernelwright/verify/gemm/scaled.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "contract/scale_atoms.h"
#include "kernelwright/verify/formats/block_formats.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/formats/made_scales.h"
#include "kernelwright/verify/rows_verdict.h"

namespace kernelwright {

float scale_of_d(const GemmCase& call, const GemmOutput& output, int row, int column) {
  if (call.epilogue.makes_blocks()) {
    const std::size_t index = call.scale_d_index(row, column / call.epilogue.scaled_columns());
    return decode_scale(call.problem.dtype.d, std::to_integer<std::uint8_t>(output.scale_d[index]));
  }
  float scale;
  const auto at = static_cast<std::size_t>(column / kQuantizedGroup) * static_cast<std::size_t>(call.m) +
                  static_cast<std::size_t>(row);
  std::memcpy(&scale, output.scale_d.data() + at * sizeof scale, sizeof scale);
  return scale;
}

std::vector<std::byte> scales_of_group(const GemmCase& call, const GemmOutput& output, int group) {
  std::vector<std::byte> scales;
  if (!call.epilogue.quantizes) return scales;
  const GemmCase::Rows rows = call.rows_of_group(group);
  if (call.epilogue.makes_blocks()) {
    const bool atoms = call.has_atoms_of_d();
    const std::int64_t first = atoms ? call.atom_rows_ahead(group) : rows.first,
                       count = atoms ? contract::scale_atom_rows_of_groups(rows.count(), 1) : rows.count();
    const auto from = output.scale_d.begin() + first * call.scale_d_columns();
    return {from, from + count * call.scale_d_columns()};
  }
  const bool even = call.problem.groups.is_even();
  const std::int64_t columns = call.scale_d_columns(), blocks = call.d_columns() / kQuantizedGroup;
  const std::int64_t first = even ? group * blocks * columns : rows.first;
  constexpr std::int64_t kBytes = sizeof(float);
  for (std::int64_t block = 0; block < blocks; ++block) {
    const auto from = output.scale_d.begin() + (first + block * columns) * kBytes;
    scales.insert(scales.end(), from, from + rows.count() * kBytes);
  }
  return scales;
}

ScaledElement compare_scaled(DType dtype, float scale, double code, double want, const ErrorBound& before, bool exact) {
  constexpr double kWrong = std::numeric_limits<double>::infinity();
  if (!std::isfinite(scale)) return {std::isnan(code * scale) ? 0 : kWrong};
  if (!std::isfinite(want) || !std::isfinite(code) || !(scale > 0)) return {kWrong};
  const double right = want / scale;
  const float nearest = round_to(dtype, static_cast<float>(want) * (1.f / scale));
  if (exact) return {code == nearest ? 0 : kWrong};
  // The scale's reciprocal and the product with it round.
  const double error = before.limit / scale + 4 * kUnit * std::fabs(right) + 0x1p-149;
  const float low = round_to(dtype, below(right - error)), high = round_to(dtype, above(right + error));
  const FloatFormat format = float_format(dtype);
  const double off = std::fabs(code - right);
  const double limit = error + format.unit_roundoff * (std::fabs(right) + error) + format.half_smallest;
  const double rounding = format.unit_roundoff * want;
  ScaledElement result;
  result.ratio = code == nearest ? 0 : code >= low && code <= high ? off / limit : std::max(2.0, off / limit);
  result.error = off * scale;
  result.variance = before.sigma * before.sigma + rounding * rounding / 3 + std::pow(format.half_smallest * scale, 2);
  result.has_error = true;
  return result;
}

ScaledElement compare_in_block(const GemmCase& call, float scale, double code, double want, const ErrorBound& before,
                               bool exact) {
  constexpr double kWrong = std::numeric_limits<double>::infinity();
  const DType dtype = call.problem.dtype.d;
  if (!std::isfinite(scale) || scale == 0) return {code == 0 ? 0 : kWrong};  // the scale itself is judged with others
  if (!std::isfinite(want)) return {kWrong};
  const FloatFormat format = float_format(dtype);
  const auto divided = static_cast<float>(want) / call.tensor_scale;
  const float nearest = round_to(dtype, divided / scale);
  if (exact) return {code == nearest ? 0 : kWrong};
  // Both divisions round.
  const double apart = static_cast<double>(scale) * call.tensor_scale;
  const double right = std::clamp(want / apart, -format.largest, format.largest);
  const double error = before.limit / apart + 4 * kUnit * std::fabs(want / apart) + 0x1p-149;
  const float low = round_to(dtype, below(want / apart - error)), high = round_to(dtype, above(want / apart + error));
  const double off = std::fabs(code - right), step = format.unit_roundoff * std::fabs(right);
  const double limit = error + format.unit_roundoff * (std::fabs(right) + error) + format.half_smallest;
  ScaledElement result;
  result.ratio = code == nearest ? 0 : code >= low && code <= high ? off / limit : std::max(2.0, off / limit);
  result.error = off * apart;
  result.variance =
      before.sigma * before.sigma + (step * step / 3 + format.half_smallest * format.half_smallest) * apart * apart;
  result.has_error = true;
  return result;
}

void ScalesOfD::Largest::add(const Largest& other) {
  low = std::max(low, other.low);
  high = std::max(high, other.high);
  finite = finite && other.finite;
  count += other.count;
}

void ScalesOfD::add(const GemmCase& call, int row, int column, double want, double error) {
  Largest one{0, 0, std::isfinite(want), 1};
  if (one.finite) one.low = std::fabs(want) - error, one.high = std::fabs(want) + error;
  largest_[{row, column / call.epilogue.scaled_columns()}].add(one);
}

void ScalesOfD::add(const ScalesOfD& other) {
  for (const auto& [place, largest] : other.largest_) largest_[place].add(largest);
}

std::string ScalesOfD::judge_block(const GemmCase& call, const GemmOutput& output, int row, int block,
                                   const Largest& largest, bool exact) const {
  const DType dtype = call.problem.dtype.d;
  const int found = std::to_integer<int>(output.scale_d[call.scale_d_index(row, block)]);
  const bool whole = largest.count == call.epilogue.scaled_columns(), up = call.epilogue.round_up;
  int low = nan_scale(dtype), high = low;
  if (largest.finite) {
    // The division by the tensor's scale rounds.
    const double by = call.tensor_scale, rounding = exact ? 0 : 2 * kUnit * largest.high / by;
    low = made_scale_byte_at(dtype, largest.low / by - rounding, up, exact ? 0 : -1);
    if (whole) high = made_scale_byte_at(dtype, largest.high / by + rounding, up, exact ? 0 : 1);
  }
  if (found >= low && found <= high) return "";
  return fmt::format("scale_d[{}, block {}]: byte {} where {} to {} is right", row, block, found, low, high);
}

namespace {

/// Atoms have scales past the ends of rows and columns, which are 0.
std::string judge_padding(const GemmCase& call, const GemmOutput& output) {
  if (!call.has_atoms_of_d()) return "";
  const int blocks = call.d_columns() / call.epilogue.scaled_columns(),
            rows = static_cast<int>(call.scale_d_rows()) * 128;
  const int all_blocks = static_cast<int>(call.scale_d_columns()) / 128;  // an atom of 512 bytes has four of each row
  for (int row = 0; row < rows; ++row)
    for (int block = row < call.m ? blocks : 0; block < all_blocks; ++block)
      if (const auto byte = std::to_integer<int>(output.scale_d[call.scale_d_index(row, block)]); byte != 0)
        return fmt::format("scale_d[{}, block {}]: byte {} past the end, where 0 is right", row, block, byte);
  return "";
}

}  // namespace

std::string ScalesOfD::judge(const GemmCase& call, const GemmOutput& output, bool exact) const {
  const DType dtype = call.problem.dtype.d;
  if (call.epilogue.makes_blocks()) {
    for (const auto& [place, largest] : largest_)
      if (std::string wrong = judge_block(call, output, place.first, place.second, largest, exact); !wrong.empty())
        return wrong;
    return judge_padding(call, output);
  }
  for (const auto& [place, largest] : largest_) {
    const auto [row, group] = place;
    const float found = scale_of_d(call, output, row, group * kQuantizedGroup);
    const bool whole = largest.count == kQuantizedGroup;
    if (!largest.finite || (!whole && !std::isfinite(found))) {
      if (std::isfinite(found))
        return fmt::format("scale_d[{}, {}]: {:.9g} of columns that are not all numbers", group, row, found);
      continue;
    }
    const bool power = call.epilogue.power_of_two;
    const float low = made_scale_at(dtype, largest.low, power, exact ? 0 : -1);
    const float high =
        whole ? made_scale_at(dtype, largest.high, power, exact ? 0 : 1) : std::numeric_limits<float>::max();
    if (!(found >= low && found <= high))
      return fmt::format("scale_d[{}, {}]: {:.9g} where {:.9g} to {:.9g} is right", group, row, found, low, high);
    int exponent = 0;
    if (power && std::frexp(found, &exponent) != 0.5f)
      return fmt::format("scale_d[{}, {}]: {:.9g} is no power of two", group, row, found);
  }
  return "";
}

}  // namespace kernelwright
