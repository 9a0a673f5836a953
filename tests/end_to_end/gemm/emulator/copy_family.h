/// A toy family of GEMM kernels, for tests alone: it takes square right operands that hold the identity, and copies the
/// left operand. All of it is this file: what it takes, its one tile, what it costs, its roles, its template and its
/// row.
#pragma once

#include <string>
#include <vector>

#include "kernelwright/generator/digest.h"
#include "kernelwright/generator/gemm/family.h"
#include "kernelwright/generator/template_library.h"

namespace kernelwright::test {

/// A number that no word has: the schedule leaves the family open, and the row is offered the problem.
inline constexpr Family kCopyFamily = static_cast<Family>(64);

/// What a launch takes.
struct CopyParams {
  const void* a;
  void* d;
  int m, n;
};

inline constexpr std::string_view kCopyTemplate = R"(
#include "spec.h"

namespace kernelwright {

struct CopyParams {
  const unsigned short* a;
  unsigned short* d;
  int m, n;
};

/// A CTA copies one tile.
extern "C" __global__ void KERNELWRIGHT_ENTRY(const CopyParams params) {
  const int tiles_of_a_row = (params.n + spec::kBlockN - 1) / spec::kBlockN;
  const int first_row = blockIdx.x / tiles_of_a_row * spec::kBlockM;
  const int first_column = blockIdx.x % tiles_of_a_row * spec::kBlockN;
  for (int at = threadIdx.x; at < spec::kBlockM * spec::kBlockN; at += blockDim.x) {
    const int row = first_row + at / spec::kBlockN, column = first_column + at % spec::kBlockN;
    if (row < params.m && column < params.n) params.d[row * params.n + column] = params.a[row * params.n + column];
  }
}

}  // namespace kernelwright
)";

/// The template and the header of words that its spec.h includes.
inline TemplateClosure copy_closure() {
  TemplateClosure closure = template_closure("contract/words.h");
  closure.files.insert(closure.files.begin(), {"kernels/toy_copy.cu", kCopyTemplate, sha256(kCopyTemplate)});
  closure.digest = sha256(kCopyTemplate);
  return closure;
}

inline void check_copy(const GemmProblem& problem, const GemmSchedule&, std::optional<Arch>,
                       std::vector<Violation>& violations) {
  if (problem.n != problem.k) violations.push_back({"/problem/n", "differs from k; the copy takes square operands"});
  if (bits_of(problem.dtype.a) != 16 || problem.dtype.d != problem.dtype.a || problem.epilogue != "acc")
    violations.push_back({"/problem/dtype/d", "is not a's 16 bits; the copy changes nothing"});
}

inline void check_copy_tile(const GemmSpec& spec, const ArchInfo&, std::vector<Violation>& violations) {
  if (spec.block_m > 64) violations.push_back({"/schedule/block_m", "a CTA copies 64 rows at most; 64 would do"});
}

inline std::vector<detail::GemmTile> copy_tiles(const GemmSpec& base, const GemmProblem&,
                                                const GemmSchedule& schedule) {
  GemmSpec spec = base;
  spec.kernel = "toy_copy";
  spec.block_m = schedule.block_m.value_or(32);
  spec.block_n = schedule.block_n.value_or(64);
  spec.math_warpgroups = 0;
  return {{spec}};
}

inline void explain_copy(const GemmSpec& spec, const GemmSchedule& schedule, const std::string& why,
                         std::vector<Choice>& choices) {
  detail::Resolver resolve(choices);
  resolve("block_m", schedule.block_m, spec.block_m, why);
}

inline double copy_us(const GemmSpec&, const GemmExtent& extent, int) { return 1e-6 * extent.m * extent.n; }

inline constexpr detail::GemmFamily kCopyRow = {
    .family = kCopyFamily,
    .check = check_copy,
    .check_tile = check_copy_tile,
    .tiles = copy_tiles,
    .explain = explain_copy,
    .cost_us = copy_us,
    .shared_bytes = [](const GemmSpec&) { return std::uint32_t{0}; },
    .shared_map = [](const GemmSpec&) { return std::vector<SharedRegion>{}; },
    .roles =
        [](const GemmSpec&) {
          return std::vector<KernelRole>{{4, "copy"}};
        },
    .workers = [](const GemmSpec&) { return std::string("4 warps"); },
    .one_tile_a_cta = true};

}  // namespace kernelwright::test
