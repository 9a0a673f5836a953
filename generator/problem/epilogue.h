/// The function that a GEMM applies to its sums before it stores them, and the form in which it stores the values.
#pragma once

#include <string>
#include <string_view>

#include "kernelwright/generator/problem/enums.h"
#include "kernelwright/generator/problem/problem.h"

namespace kernelwright {

/// activation(alpha * acc + bias) + beta * c. A part is absent if the text does not have it.
///
///   epilogue   = inner [ "+" [ "beta" "*" ] "c" ] | gated | clamped
///   inner      = linear | activation "(" linear ")"
///   linear     = [ "alpha" "*" ] [ "rstd" "*" ] "acc" [ "+" "bias" ]
///   activation = "relu" | "silu" | "gelu" | "gelu_tanh"
///
/// alpha and beta are numbers of a launch, bias is [n], c is [m, n]. gelu is the exact one, x/2 (1 + erf(x/sqrt 2)).
///
/// With gates, columns of the sums are gates and ups in turn, kGatePairs of each, and d has a column for each pair.
/// bias is [n] still: each sum has its own.
///
///   gated      = ( factor(gate) | activation "(" line(gate) ")" ) "*" factor(up)
///   clamped    = "(" "clamp" "(" line(up) "," "-" limit "," limit ")" "+" "1" ")"
///                "*" least "*" "sigmoid" "(" steepness "*" least ")"
///   least      = "min" "(" line(gate) "," limit ")"
///   factor(x)  = x | "(" line(x) ")"
///   line(x)    = [ "alpha" "*" ] [ "rstd" "*" ] x [ "+" "bias" ]
///
/// clamped is what gpt-oss has between its GEMMs, with limit 7 and steepness 1.702.
///
/// The values of any of these may be quantised, with scales that the kernel makes of them and writes to an operand of
/// its own, s (GemmTensors::scale_d):
///
///   program    = value | [ name "=" value ";" ] output { ";" output } [ ";" ]
///   output     = "d" "=" ( name | quantised ) | "amax" "=" "amax" "(" name ")"
///                | "squares" "=" "sum" "(" name "*" name "," "over" "=" "n" ")"
///   quantised  = "quantize" "(" ( name | value ) "," format { "," option } ")"
///   value      = epilogue
///   format     = "e4m3" | "e5m2" | "mxfp8" | "mxfp4" | "nvfp4"
///   option     = "per" "=" "token_group" "(" columns ")" | "scale" "=" "s" | "round" "=" rounding
///                | "layout" "=" ( "atoms" | "rows" )
///   rounding   = "power_of_two" | "ocp" | "up"
///
/// per and scale are needed. The columns are those that share a scale in the format: 128, 32 of mxfp8 and mxfp4, or 16
/// of nvfp4. A scale of e4m3 and e5m2 is the largest magnitude of these columns of a row of d, over the format's
/// largest number. With power_of_two it is the next power of two that is no smaller.
///
/// A scale of mxfp8 and mxfp4 is a power of two. With ocp, the default, the largest magnitude gets the largest exponent
/// that the format has, and may saturate. With up, the scale is the smallest with which no element saturates. nvfp4 has
/// one rounding, and scales of e4m3. layout says how the scales of these three lie: in atoms, as a GEMM reads them
/// (contract/scale_atoms.h), or a row of scales for each row of d.
///
/// The name is any word that the expressions do not have.
///
/// amax is the largest magnitude of all values. squares are the sums of squares of each row, of 128 columns each. rstd
/// is a factor of each row, 1 / sqrt(mean + eps), where the mean is over the k squares whose sums of 128 each a launch
/// gives. So squares of one GEMM make the RMS norm of the next one's a.
struct Epilogue {
  bool alpha = false, bias = false, c = false, beta = false;
  Activation activation = Activation::kNone;
  bool gated = false, clamped = false;
  float limit = 0, steepness = 0;  // of clamped
  bool quantizes = false, power_of_two = false;
  DType to = DType::kE4m3;                        // of a quantised result
  bool round_up = false, rows_of_scales = false;  // of a block-scaled format
  bool amax = false, squares = false;             // outputs beside d
  bool rstd = false;                              // a factor of each row
  bool operator==(const Epilogue&) const = default;

  /// Whether the kernel makes anything of its values beside d's elements.
  bool measures() const { return amax || squares; }
  /// Whether the result is in a block-scaled format.
  bool makes_blocks() const { return quantizes && is_block_scaled(to); }
  /// Columns of d that share a scale, where the epilogue quantises.
  int scaled_columns() const;
};

/// Columns of d that share an f32 scale, where the epilogue quantises. A tile has whole groups of as many in any
/// format.
inline constexpr int kQuantizedGroup = 128;
/// Of a block-scaled result, columns of d that rows of 16 bytes and whole blocks have.
inline constexpr int kBlocksOfResult = 32;

inline int Epilogue::scaled_columns() const { return makes_blocks() ? scale_vector(to) : kQuantizedGroup; }

/// Neighbouring columns that are gates, ahead of as many that are ups.
inline constexpr int kGatePairs = 8;

/// Blanks do not matter. Throws ConfigError at "/problem/epilogue" that quotes the place of the fault.
Epilogue parse_epilogue(std::string_view text);

/// Rows of scale_b of a group, where blocks have scales: one for 128 columns of b. With gates, one for 128 gates,
/// behind them one for 128 ups. So they are the scales of all gates' weights with those of all ups' behind them, as a
/// model has them, although the weights themselves are interleaved.
constexpr int scale_rows_of_b(int n, bool gated) { return gated ? 2 * ((n / 2 + 127) / 128) : (n + 127) / 128; }

/// Columns of d: n, or with gates half of them, or with kv_write those of queries. An epilogue has gates if it names
/// one, whether or not it parses.
int result_columns(const GemmProblem& problem);
/// Whether the epilogue quantises, whether or not it parses.
bool quantizes(const GemmProblem& problem);
/// Whether it has outputs beside d, whether or not it parses.
bool measures(const GemmProblem& problem);

}  // namespace kernelwright
