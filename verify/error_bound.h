/// Shared by the bounds of all kinds.
#pragma once

namespace kernelwright {

constexpr double kUnit = 0x1p-24;  // of fp32, round to nearest

/// Bounds the relative error of a sum of `terms` terms in any order (Higham, Accuracy and Stability, 3.1).
inline double gamma(double terms, double unit) { return terms * unit / (1 - terms * unit); }

/// The largest error of one element of a result, and the standard deviation of its error for random data.
struct ErrorBound {
  double limit, sigma;
};

/// Tensor cores truncate every addend of a sum of 8-bit operands, and the running sum, at kCoreStep of the largest
/// addend of an instruction. It adds up kCoreDepth elements of k. Its sum is truncated to as few bits. That takes the
/// place of the largest addend's truncation: products have few bits, and the largest loses none.
constexpr double kCoreStep = 0x1p-13;
constexpr double kCoreDepth = 32;
/// How far such a sum of `length` elements is off, relative to the sum of magnitudes.
constexpr double core_truncation(double length) { return kCoreStep * (length + length / kCoreDepth); }

}  // namespace kernelwright
