#include "kernelwright/verify/gemm/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernelwright/verify/error_bound.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/gemm/scaled.h"

namespace kernelwright {
namespace {

float f32_at(const std::vector<std::byte>& bytes, std::size_t index) {
  float value;
  std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
  return value;
}

/// A row of d as numbers, and how far each may be from the value that it was rounded from.
class ResultRow {
 public:
  ResultRow(const GemmCase& call, const GemmOutput& output)
      : call_(call), output_(output), format_(float_format(call.problem.dtype.d)) {}

  void read(int row) {
    const auto width = static_cast<std::size_t>(call_.d_columns());
    const DType dtype = call_.problem.dtype.d;
    values.resize(width), errors.resize(width);
    decode_row(dtype, output_.d.data() + bytes_of(dtype, width) * static_cast<std::size_t>(row), width, values.data());
    for (std::size_t i = 0; i < width; ++i) {
      double& value = values[i];
      // A magnitude at the end of a format may have been larger, by a seventh or a third if scales are powers of two.
      const bool saturates = call_.epilogue.makes_blocks() && std::fabs(value) == format_.largest;
      double error = (saturates ? 0.34 : format_.unit_roundoff) * std::fabs(value) * 1.01 + format_.half_smallest;
      if (call_.epilogue.quantizes) {
        const double scale =
            scale_of_d(call_, output_, row, static_cast<int>(i)) * static_cast<double>(call_.tensor_scale);
        // A block whose scale rounds to 0 has lost its values.
        const double lost = call_.epilogue.makes_blocks() && scale == 0 ? 6 * 0x1p-10 * call_.tensor_scale : 0;
        value *= scale, error = error * scale + lost;
      }
      errors[i] = error;
    }
  }

  std::vector<double> values, errors;

 private:
  const GemmCase& call_;
  const GemmOutput& output_;
  const FloatFormat format_;
};

std::string judge_squares(const GemmCase& call, const GemmOutput& output, int row, const ResultRow& of) {
  for (std::int64_t group = 0; group < call.squares_rows(); ++group) {
    const auto first = static_cast<std::size_t>(group * kQuantizedGroup);
    const std::size_t end = std::min(first + kQuantizedGroup, of.values.size());
    double sum = 0, error = 0;
    for (std::size_t i = first; i < end; ++i) {
      sum += of.values[i] * of.values[i];
      error += of.errors[i] * (2 * std::fabs(of.values[i]) + of.errors[i]);
    }
    const double limit = error + gamma(kQuantizedGroup + 8, kUnit) * (sum + error) + 0x1p-126;
    const float found = f32_at(output.squares, static_cast<std::size_t>(group * call.m + row));
    const bool right = std::isfinite(sum) ? std::fabs(found - sum) <= limit : !std::isfinite(found);
    if (!right)
      return fmt::format("squares[{}, {}]: {:.9g} where {:.9g} +- {:.3g} is right", group, row, found, sum, limit);
  }
  return "";
}

}  // namespace

std::string judge_statistics(const GemmCase& call, const GemmOutput& output) {
  if (!call.epilogue.measures() || call.problem.groups.any()) return "";
  ResultRow of(call, output);
  double low = 0, high = 0;
  bool finite = true;
  for (int row = 0; row < call.m; ++row) {
    of.read(row);
    for (std::size_t i = 0; i < of.values.size(); ++i) {
      finite = finite && std::isfinite(of.values[i]);
      low = std::max(low, std::fabs(of.values[i]) - of.errors[i]);
      high = std::max(high, std::fabs(of.values[i]) + of.errors[i]);
    }
    if (std::string wrong = judge_squares(call, output, row, of); !wrong.empty()) return wrong;
  }
  if (!call.epilogue.amax || call.m == 0) return "";
  const float found = f32_at(output.amax, 0);
  const bool right = finite ? found >= low && found <= high : !std::isfinite(found);
  return right ? "" : fmt::format("amax: {:.9g} where {:.9g} to {:.9g} is right", found, low, high);
}

}  // namespace kernelwright
