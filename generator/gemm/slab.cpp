// How much of k a slot of a GEMM's ring has, and how it is swizzled: which values exist, which one is planned, and why.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "contract/shared_slab.h"
#include "kernelwright/generator/gemm/family.h"
#include "kernelwright/generator/plan/validate_rules.h"

namespace kernelwright::detail {
namespace {

constexpr int kWhole = 128;                 // bytes of k that are planned
constexpr int kBytes[] = {32, 64, kWhole};  // an instruction takes 32

/// The widest swizzle that divides a row of a slab. With k innermost, a row has so many bytes.
Swizzle widest_of(int slab_bytes) {
  return slab_bytes >= 128 ? Swizzle::k128B : slab_bytes >= 64 ? Swizzle::k64B : Swizzle::k32B;
}
bool has_rows_along_k(OperandLayout layout) { return layout != OperandLayout::kTn; }

/// Whether scales belong to 128 bytes of k: such problems take whole slabs alone.
bool scales_slabs(const GemmProblem& problem) {
  return is_block_scaled(problem.dtype.a) || problem.scales == ScaleKind::kPerBlock;
}

}  // namespace

void check_slab(const GemmProblem& problem, const GemmSchedule& schedule, std::vector<Violation>& violations) {
  const int bits = bits_of(problem.dtype.a);
  const auto elements = [&](int bytes) { return bytes * 8 / bits; };
  int slab_bytes = kWhole;
  if (!schedule.block_k.is_auto()) {
    const int asked = schedule.block_k.value();
    std::vector<int> built;
    for (const int bytes : kBytes)
      if ((bytes == kWhole || !scales_slabs(problem)) && elements(bytes) >= 16) built.push_back(elements(bytes));
    if (std::find(built.begin(), built.end(), asked) == built.end()) {
      const int nearest = *std::min_element(built.begin(), built.end(),
                                            [&](int a, int b) { return std::abs(a - asked) < std::abs(b - asked); });
      violations.push_back({"/schedule/block_k",
                            scales_slabs(problem)
                                ? fmt::format("{} is not the {} of \"{}\" that have scales of their own; {} would do",
                                              asked, nearest, to_string(problem.dtype.a), nearest)
                                : fmt::format("{} of \"{}\" are not 32, 64 or 128 bytes of k; {} would do", asked,
                                              to_string(problem.dtype.a), nearest)});
      return;
    }
    slab_bytes = asked * bits / 8;
  }
  if (schedule.swizzle.is_auto()) return;
  const Swizzle swizzle = schedule.swizzle.value();
  if (is_block_scaled(problem.dtype.a) && swizzle != Swizzle::k128B)
    violations.push_back({"/schedule/swizzle", fmt::format("\"{}\": operands with scales of blocks lie in rows of 128 "
                                                           "bytes; \"128B\" would do",
                                                           to_string(swizzle))});
  else if (has_rows_along_k(problem.layout) && bytes_of(swizzle) > slab_bytes)
    violations.push_back(
        {"/schedule/swizzle",
         fmt::format("\"{}\" does not divide the {} bytes of k that block_k {} has; \"{}\" would do",
                     to_string(swizzle), slab_bytes, elements(slab_bytes), to_string(widest_of(slab_bytes)))});
}

void plan_slab(const GemmProblem& problem, const GemmSchedule& schedule, GemmSpec& spec) {
  if (!schedule.block_k.is_auto()) spec.slab_bytes = schedule.block_k.value() * bits_of(problem.dtype.a) / 8;
  spec.swizzle =
      schedule.swizzle.value_or(has_rows_along_k(problem.layout) ? widest_of(spec.slab_bytes) : Swizzle::k128B);
}

void check_shares(const GemmSpec& spec, TileSide side, int sharers, std::vector<Violation>& violations) {
  const contract::SharedSlab slab = shared_slab(spec, side);
  if (!slab.mn_major || slab.depth() / sharers % 8 == 0) return;  // else CTAs share rows, and block_n is what fits
  violations.push_back(
      {"/schedule/block_k", fmt::format("{}: {} CTAs load shares of k of layout \"{}\", whole groups of 8; {} would do",
                                        slab.depth(), sharers, to_string(spec.layout), 8 * sharers)});
}

void explain_slab(const GemmSpec& spec, const GemmSchedule& schedule, std::vector<Choice>& choices) {
  Resolver resolve(choices);
  resolve("block_k", schedule.block_k, spec.slab_bytes * 8 / bits_of(spec.a),
          "128 bytes of k: a row of the widest swizzle, and a barrier for the most products");
  resolve("swizzle", schedule.swizzle, spec.swizzle,
          has_rows_along_k(spec.layout)
              ? fmt::format("the widest that divides {} bytes of k: the fewest copies", spec.slab_bytes)
              : "the widest: rows of m and n are longer");
}

}  // namespace kernelwright::detail
