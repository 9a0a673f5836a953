/// Sizes, strides and extents that callers give, multiplied and added without ever wrapping around.
///
/// A number that has left its type's range stays "out of range" through every later step. So a formula reads as plain
/// arithmetic. The code checks its result once, before it uses it.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "kernelwright/generator/error.h"

namespace kernelwright {

template <class T>
class Checked {
 public:
  constexpr Checked(T value) noexcept : value_(value) {}

  /// False if any step left the range of T.
  constexpr bool in_range() const noexcept { return in_range_; }
  /// The number, or `otherwise` where a step left the range.
  constexpr T value_or(T otherwise) const noexcept { return in_range_ ? value_ : otherwise; }
  /// The number, or the largest that T has.
  constexpr T or_most() const noexcept { return value_or(std::numeric_limits<T>::max()); }
  /// Whether it is in range and at most `most`.
  constexpr bool at_most(T most) const noexcept { return in_range_ && value_ <= most; }

  friend constexpr Checked operator+(Checked a, Checked b) noexcept {
    Checked sum(a, b);
    sum.in_range_ &= !__builtin_add_overflow(a.value_, b.value_, &sum.value_);
    return sum;
  }
  friend constexpr Checked operator-(Checked a, Checked b) noexcept {
    Checked difference(a, b);
    difference.in_range_ &= !__builtin_sub_overflow(a.value_, b.value_, &difference.value_);
    return difference;
  }
  friend constexpr Checked operator*(Checked a, Checked b) noexcept {
    Checked product(a, b);
    product.in_range_ &= !__builtin_mul_overflow(a.value_, b.value_, &product.value_);
    return product;
  }
  constexpr Checked& operator+=(Checked other) noexcept { return *this = *this + other; }
  constexpr Checked& operator*=(Checked other) noexcept { return *this = *this * other; }

 private:
  constexpr Checked(const Checked& a, const Checked& b) noexcept : in_range_(a.in_range_ && b.in_range_) {}

  T value_ = 0;
  bool in_range_ = true;
};

using CheckedInt = Checked<std::int64_t>;
using CheckedSize = Checked<std::uint64_t>;

/// More bytes than any device or host can have from one address on: 2^56, half of 57 bits of virtual addresses, because
/// a program has half of them. A larger number has wrapped around, or was never meant.
inline constexpr std::int64_t kMostBytes = std::int64_t{1} << 56;

/// Tensor maps take strides of fewer bytes (cuTensorMapEncodeTiled).
inline constexpr std::int64_t kTensorMapStrideBytes = std::int64_t{1} << 40;

/// Whether `bytes` bytes from `address` on are at most kMostBytes and end where 64-bit addresses do, or before.
constexpr bool is_span(std::uint64_t address, std::uint64_t bytes) noexcept {
  return bytes <= static_cast<std::uint64_t>(kMostBytes) && bytes <= ~address;
}

/// Throws ConfigError("/bytes") unless is_span(). Devices call it before they do anything.
inline void require_span(std::uint64_t address, std::uint64_t bytes) {
  if (is_span(address, bytes)) return;
  throw ConfigError("/bytes", std::to_string(bytes) + " bytes are more than " +
                                  (bytes > static_cast<std::uint64_t>(kMostBytes)
                                       ? "any memory has; " + std::to_string(kMostBytes) + " are the most"
                                       : "follow that address; 64 bits hold no address behind them"));
}

}  // namespace kernelwright
