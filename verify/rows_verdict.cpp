#include "kernelwright/verify/rows_verdict.h"

#include <algorithm>
#include <limits>

#include "kernelwright/verify/device/device_memory.h"
#include "kernelwright/verify/formats/float_formats.h"

namespace kernelwright {

float below(double value) { return std::nextafter(static_cast<float>(value), -std::numeric_limits<float>::infinity()); }
float above(double value) { return std::nextafter(static_cast<float>(value), std::numeric_limits<float>::infinity()); }

void RowsComparison::untouched(const char* of, const std::vector<std::byte>& bytes, std::size_t row_bytes,
                               std::size_t stride_bytes) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i % stride_bytes < row_bytes || bytes[i] == DeviceMemory::kGuardByte) continue;
    if (verdict_.strayed++ == 0) fail(fmt::format("byte {} of {} is no row's, and was written", i, of));
  }
}

RowsComparison::Range RowsComparison::compare(double found, double right, double error) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  ++verdict_.elements;
  const float nearest = round_to(dtype_, static_cast<float>(right));
  if (std::isnan(right) || std::isinf(right))
    return {found == nearest || (std::isnan(found) && std::isnan(nearest)), nearest, nearest};
  const float low = error == 0 ? nearest : round_to(dtype_, below(right - error));
  const float high = error == 0 ? nearest : round_to(dtype_, above(right + error));
  verdict_.apart += found != nearest;
  const double off = std::fabs(found - right);
  const double most = std::max(std::fabs(low - right), std::fabs(high - right));
  if (std::isfinite(off)) verdict_.max_error = std::max(verdict_.max_error, off);
  const double ratio = found == nearest ? 0.0 : most > 0 ? off / most : kInf;
  if (!(ratio <= verdict_.worst_ratio)) verdict_.worst_ratio = std::isnan(ratio) ? kInf : ratio;
  return {found >= low && found <= high, low, high};
}

}  // namespace kernelwright
