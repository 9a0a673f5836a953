/// A quantised d, compared: its scales, and elements in units of them.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "kernelwright/verify/error_bound.h"
#include "kernelwright/verify/gemm/case.h"

namespace kernelwright {

/// The scale of d[row, column] that a kernel wrote. Without masked groups.
float scale_of_d(const GemmCase& call, const GemmOutput& output, int row, int column);

/// The scales of a group's rows, as those of the dense call that it is.
std::vector<std::byte> scales_of_group(const GemmCase& call, const GemmOutput& output, int group);

/// How one element compares.
struct ScaledElement {
  double ratio = 0;                // above 1: wrong
  double error = 0, variance = 0;  // of the value that it stands for, and what is expected of the error's square
  bool has_error = false;          // else there is none to speak of
};
/// `code`: the element without its scale. `want`: the exact value, which f32 gives within `before`. The element has to
/// be what one of those values rounds to. With `exact`, f32 gives `want` itself. An element whose scale is no number
/// has to read as NaN.
ScaledElement compare_scaled(DType dtype, float scale, double code, double want, const ErrorBound& before, bool exact);

/// The same of an element of a block-scaled d. `scale` is without the tensor's.
ScaledElement compare_in_block(const GemmCase& call, float scale, double code, double want, const ErrorBound& before,
                               bool exact);

/// The largest magnitudes of the values that share a scale, as far as they have been seen.
class ScalesOfD {
 public:
  void add(const GemmCase& call, int row, int column, double want, double error);
  void add(const ScalesOfD& other);
  /// What is wrong with the first scale that no largest magnitude within the errors gives; "" if nothing is. A scale of
  /// which only some values have been seen may be larger than theirs.
  std::string judge(const GemmCase& call, const GemmOutput& output, bool exact) const;

 private:
  struct Largest {
    double low = 0, high = 0;  // of the largest magnitude
    bool finite = true;
    int count = 0;
    void add(const Largest& other);
  };
  std::string judge_block(const GemmCase& call, const GemmOutput& output, int row, int block, const Largest& largest,
                          bool exact) const;
  std::map<std::pair<int, int>, Largest> largest_;  // by row, and group of columns
};

}  // namespace kernelwright
