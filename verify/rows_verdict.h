/// What comparisons of rows with a reference share: the verdict, elements within the error of f32, and bytes between
/// the rows.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "kernelwright/generator/problem/enums.h"

namespace kernelwright {

struct RowsVerdictOptions {
  double budget_operations = 1e9;  // more rows are sampled
  std::uint64_t seed = 0;
};

/// `text` has the worst place if it failed: "out[3, 17]: 0.5 where 0.25 is right".
struct RowsVerdict {
  bool passed = false;
  bool sampled = false;  // some rows were not compared
  std::size_t rows = 0, elements = 0;
  double worst_ratio = 0;  // error / the largest error of what would be right
  double max_error = 0;
  std::size_t apart = 0;    // elements that are not what fp64 rounds to, but right
  std::size_t strayed = 0;  // bytes that belong to no row, and that were written
  std::string text;         // "" if passed
};

/// The neighbours in f32 of a value in fp64.
float below(double value);
float above(double value);

/// Calls compare(row) for the rows that the budget allows, and counts them.
template <class Compare>
void compare_some_rows(std::int64_t rows, double operations, const RowsVerdictOptions& options, RowsVerdict& verdict,
                       const Compare& compare) {
  const auto step = std::max<std::int64_t>(1, static_cast<std::int64_t>(operations / options.budget_operations));
  verdict.sampled = step > 1;
  for (std::int64_t row = 0; row < rows; ++row) {
    if ((row + static_cast<std::int64_t>(options.seed % 4096)) % step != 0) continue;
    ++verdict.rows;
    compare(row);
  }
}

/// Keeps the verdict of elements that are `dtype`.
class RowsComparison {
 public:
  RowsComparison(RowsVerdict& verdict, DType dtype) : verdict_(verdict), dtype_(dtype) { verdict.passed = true; }

  /// Bytes that no row has: `bytes` are rows of `row_bytes` bytes, each with a gap up to `stride_bytes`.
  void untouched(const char* of, const std::vector<std::byte>& bytes, std::size_t row_bytes, std::size_t stride_bytes);

 protected:
  void fail(std::string text) {
    verdict_.passed = false;
    if (verdict_.text.empty()) verdict_.text = std::move(text);
  }
  /// `place()` makes the name of what is compared.
  template <class Place>
  void exact(const Place& place, double found, double right) {
    if (found == right || (std::isnan(found) && std::isnan(right))) return;
    fail(fmt::format("{}: {} where {} is right", place(), found, right));
  }
  /// `found` has to be what a value within `error` of `right` rounds to. NaN and infinity have to be exact.
  template <class Place>
  void element(const Place& place, double found, double right, double error) {
    const Range range = compare(found, right, error);
    if (range.is_right) return;
    if (std::isnan(right) || std::isinf(right)) return exact(place, found, range.low);
    fail(fmt::format("{}: {} where {} is right, from {} to {}", place(), found, right, range.low, range.high));
  }

 private:
  struct Range {
    bool is_right;
    float low, high;
  };
  Range compare(double found, double right, double error);

  RowsVerdict& verdict_;
  const DType dtype_;
};

}  // namespace kernelwright
