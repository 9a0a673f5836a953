#include "kernelwright/verify/formats/made_scales.h"

#include <algorithm>
#include <cmath>

#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/rows_verdict.h"

namespace kernelwright {

float made_scale(DType format, float largest, bool power_of_two) {
  constexpr float kSmallestScale = 0x1p-126f;  // the smallest normal f32
  const float scale = std::max(largest / static_cast<float>(float_format(format).largest), kSmallestScale);
  if (!power_of_two) return scale;
  int exponent = 0;
  return std::frexp(scale, &exponent) == 0.5f ? scale : std::ldexp(1.f, exponent);
}

float made_scale_at(DType format, double largest, bool power_of_two, int direction) {
  const float magnitude = direction == 0  ? static_cast<float>(largest)
                          : direction < 0 ? below(largest)
                                          : above(largest);
  return made_scale(format, std::max(magnitude, 0.f), power_of_two);
}

}  // namespace kernelwright
