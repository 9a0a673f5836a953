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

/// The power of two of each element of a panel: 1.75 * 2^e becomes 2^e. That of zero is below all of fp8.
void make_powers(const float* panel, std::size_t count, float* powers);

/// d[warp * columns / 2 + register] is that register of that warp. It covers the 8 columns from 8 (register / 4) on
/// and, of the warp's 16 rows, the 8 from 8 (register / 2 % 2) on. register % 2 is the parity of its columns.
struct FragmentProduct {
  float* const* d = nullptr;
  const float* a = nullptr;  // panels
  const float* b = nullptr;
  std::uint32_t columns = 0, depth = 0;
  bool accumulate = true;  // false: D's old values are not read
  // Panels of fp8: make_powers() of them. Otherwise null.
  const float* a_powers = nullptr;
  const float* b_powers = nullptr;
};
/// D += sum over k of A[.][k] B[k][.]. Only this function defines how the emulated wgmma sums. A NaN is stored as
/// tensor cores write it, 0x7fffffff.
///
/// fp8, as an H100 does it: addends are the old D and the products that are not zero. The power of a product is that of
/// its factors, 2^(e + f) for 1.x 2^e times 1.y 2^f. p is the largest power of all addends. Each addend is truncated
/// towards zero to a multiple of 2^-13 p. The sum of these, which is exact, is truncated to 13 bits behind its leading
/// one. With a NaN or an infinity among the addends, the sum is that of other types.
///
/// Other types: in order of k, each step rounded to nearest even in f32. The hardware instead aligns and truncates the
/// products of an instruction, with more bits.
void multiply_fragments(const FragmentProduct& product);

}  // namespace kernelwright::emulator
