/// What the bounds of all kinds share.
#pragma once

namespace kernelwright {

constexpr double kUnit = 0x1p-24;  // of fp32, round to nearest

/// Bounds the relative error of a sum of `terms` terms in any order (Higham, Accuracy and Stability, 3.1).
inline double gamma(double terms, double unit) { return terms * unit / (1 - terms * unit); }

/// Largest error of one element of a result, and its standard deviation for random data.
struct ErrorBound {
  double limit, sigma;
};

}  // namespace kernelwright
