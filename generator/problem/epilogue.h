/// The function that a GEMM applies to its sums before it stores them.
#pragma once

#include <string>
#include <string_view>

#include "kernelwright/generator/problem/enums.h"

namespace kernelwright {

/// activation(alpha * acc + bias) + beta * c. A part is absent if the text does not have it.
///
///   epilogue   = inner [ "+" [ "beta" "*" ] "c" ]
///   inner      = linear | activation "(" linear ")"
///   linear     = [ "alpha" "*" ] "acc" [ "+" "bias" ]
///   activation = "relu" | "silu" | "gelu" | "gelu_tanh"
///
/// alpha and beta are numbers of a launch, bias is [n], c is [m, n]. gelu is the exact one, x/2 (1 + erf(x/sqrt 2)).
struct Epilogue {
  bool alpha = false, bias = false, c = false, beta = false;
  Activation activation = Activation::kNone;
  bool operator==(const Epilogue&) const = default;
};

/// Blanks do not matter. Throws ConfigError at "/problem/epilogue" that quotes the place of the fault.
Epilogue parse_epilogue(std::string_view text);

}  // namespace kernelwright
