/// The arithmetic of wgmma: 64 rows of D, in the very registers in which the four warps hold D.
///
/// A register of D is an array over lanes. Lane 4r + t has row r of the 8 rows that the register covers, and column 2t
/// or 2t + 1 of its 8 columns. So D += A B is computed on whole registers. A's panel repeats each element for the 4
/// lanes of its row. B's panel has the 4 columns of one parity together, to be repeated for the 8 rows. No accumulator
/// is ever moved to another layout.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kernelwright::emulator {

inline constexpr std::uint32_t kWgmmaRows = 64, kMaxWgmmaColumns = 256, kMaxWgmmaDepth = 32;

/// A as [8 groups of 8 rows][depth][32 lanes], from floats [64][depth] (K-major) or [depth][64] (MN-major).
void make_a_panel(const float* values, std::uint32_t depth, bool mn_major, bool negate, float* panel);
/// B as [columns / 8][depth][4 even columns, 4 odd columns], from floats [columns][depth] or [depth][columns].
void make_b_panel(const float* values, std::uint32_t columns, std::uint32_t depth, bool mn_major, float* panel);

/// d[warp * columns / 2 + register] is that register of that warp. It covers the 8 columns from 8 (register / 4) on
/// and, of the warp's 16 rows, the 8 from 8 (register / 2 % 2) on. register % 2 is the parity of its columns.
struct FragmentProduct {
  float* const* d = nullptr;
  const float* a = nullptr;  // panels
  const float* b = nullptr;
  std::uint32_t columns = 0, depth = 0;
  bool accumulate = true;  // false: D's old values are not read
};
/// D += sum over k of A[.][k] B[k][.], in order of k. Each step is rounded to nearest even in f32. A NaN is stored as
/// tensor cores write it, 0x7fffffff. Only this function defines how the emulated wgmma sums. The hardware instead
/// aligns and truncates the products of an instruction.
void multiply_fragments(const FragmentProduct& product);

}  // namespace kernelwright::emulator
