/// The table of cosines and sines that kv_write reads, computed on the host in fp64 from the numbers of a model's
/// configuration.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernelwright/generator/problem/enums.h"

namespace kernelwright {

/// X(enumerator, word).
#define KERNELWRIGHT_ROPE_SCALINGS(X) \
  X(kDefault, "default")              \
  X(kLlama3, "llama3")                \
  X(kYarn, "yarn")                    \
  X(kLongrope, "longrope")            \
  X(kProportional, "proportional")
KERNELWRIGHT_DEFINE_ENUM(RopeScaling, "rope_scaling", KERNELWRIGHT_ROPE_SCALINGS)
KERNELWRIGHT_ENUM_TABLE(RopeScaling, "rope_scaling", KERNELWRIGHT_ROPE_SCALINGS)

/// How fast each pair of elements turns. Pair i of `width` / 2 turns by theta^(-2 i / width) a position, before
/// scaling.
struct RopeTable {
  int width = 0;  // elements that turn: the problem's rope.width
  RopeScaling scaling = RopeScaling::kDefault;
  double theta = 10000;
  /// default, proportional, llama3 and yarn: slow pairs turn so many times slower. default and proportional: all pairs.
  double factor = 1;
  /// llama3, yarn and longrope: positions that the model saw before its context grew.
  double original_positions = 0;
  /// llama3: pairs with a wavelength above original_positions / low turn slower, those below original_positions / high
  /// do not, and between the two both are blended.
  double low = 1, high = 4;
  /// yarn: rotations over original_positions between which pairs are blended. Without `truncate` the bounds stay
  /// fractions of a pair.
  double beta_fast = 32, beta_slow = 1;
  bool truncate = true;
  /// yarn: attention factor f(mscale) / f(mscale_all) with f(m) = 0.1 m ln(factor) + 1, if both are given.
  double mscale = 0, mscale_all = 0;
  /// longrope: a divisor for each pair: the model's short or long list.
  std::vector<double> factors;
  /// proportional: the share of the pairs that turn. The others stand still behind them.
  double share = 1;
  /// Multiplies cosines and sines. Absent: 1; yarn: 0.1 ln(factor) + 1, or from mscale; longrope:
  /// sqrt(1 + ln(factor) / ln(original_positions)).
  std::optional<double> attention_factor;
};

/// The turn of each pair a position, width / 2 of them. Throws ConfigError with every number that does not fit.
std::vector<double> rope_frequencies(const RopeTable& rope);
/// What multiplies cosines and sines. Throws as rope_frequencies().
double rope_attention_factor(const RopeTable& rope);

/// Rows [first, first + rows) of the table, a position each: width / 2 cosines, then as many sines. Throws as
/// rope_frequencies(), and for rows that no position of 31 bits has.
std::vector<float> rope_table(const RopeTable& rope, std::int64_t first, std::int64_t rows);

}  // namespace kernelwright
