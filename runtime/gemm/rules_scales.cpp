// Rules of scales: those that a launch of a GEMM reads, and those of a quantised result.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "contract/block_scales.h"
#include "kernelwright/generator/problem/epilogue.h"
#include "kernelwright/runtime/gemm/rules.h"

namespace kernelwright::detail {

namespace {

/// Rows of atoms of a's scales, which with gather are those of a matrix.
std::int64_t atom_rows_of_a(const LoadedGemm& kernel, const GemmTensors& tensors) {
  return kernel.groups.gather ? contract::scale_atom_rows_of_groups(tensors.source_rows, 1)
                              : scale_atom_rows(kernel.groups, tensors.m);
}

}  // namespace

void GemmRules::scales() {
  const bool per_block = spec_.scales == ScaleKind::kPerBlock && kernel_.k > 0;
  const bool scaled = per_block || spec_.scales == ScaleKind::kPerTensor || spec_.scales == ScaleKind::kPerToken;
  if (scaled || spec_.scales == ScaleKind::kNone) {  // of no block at all they may be given
    if (!has_no_sources(kernel_, tensors_) || spec_.scales == ScaleKind::kPerTensor)
      optional("/scale_a", tensors_.scale_a, scaled, 4, "the operands have scales");
    optional("/scale_b", tensors_.scale_b, scaled, 4, "the operands have scales");
  }
  if (!per_block) return;
  if (is_block_scaled(spec_.a))
    atom_scales();
  else
    block_scales();
}

void GemmRules::block_scales() {
  const std::int64_t k_blocks = (kernel_.k + 127) / 128, rows = scaled_rows(kernel_, tensors_.m, tensors_.source_rows);
  const std::int64_t of_a = own_scales(kernel_) ? kernel_.groups.count : 1;
  if (!has_no_sources(kernel_, tensors_))
    scales_fit("/scale_a_stride", tensors_.scale_a, k_blocks * of_a, of_.scale_a_stride, 4);
  scales_fit("/scale_b_stride", tensors_.scale_b,
             std::int64_t{scale_rows_of_b(kernel_.n, spec_.gated)} * kernel_.groups.count, of_.scale_b_stride, 4);
  bad(of_.scale_a_stride < rows || of_.scale_a_stride % 4 != 0, "/scale_a_stride", [&] {
    return fmt::format("{} does not hold {} rows of a in a multiple of 4; {} would do", of_.scale_a_stride, rows,
                       (rows + 3) / 4 * 4);
  });
  aligned("/scale_a", tensors_.scale_a, kRowAlignment);
  bad(of_.scale_b_stride < k_blocks, "/scale_b_stride", [&] {
    return fmt::format("{} is less than the {} blocks of 128 that k = {} has", of_.scale_b_stride, k_blocks, kernel_.k);
  });
}

void GemmRules::atom_scales() {
  const std::int64_t needed = scale_atoms_of_row(kernel_.k, spec_.a);
  constexpr int kBytes = contract::kScaleAtomBytes;
  const std::int64_t atoms_of_a = atom_rows_of_a(kernel_, tensors_);
  if (!has_no_sources(kernel_, tensors_))
    scales_fit("/scale_a_stride", tensors_.scale_a, atoms_of_a, of_.scale_a_stride, kBytes);
  scales_fit("/scale_b_stride", tensors_.scale_b, scale_atom_rows_of_b(kernel_.groups, kernel_.n), of_.scale_b_stride,
             kBytes);
  const auto atoms = [&](const std::string& path, DevicePtr address, std::int64_t stride) {
    aligned(path, address, kRowAlignment);
    bad(stride < needed, path + "_stride", [&] {
      return fmt::format("{} is less than the {} atoms of scales, of {} elements each, that k = {} has", stride, needed,
                         contract::kScaleAtomScales * scale_vector(spec_.a), kernel_.k);
    });
  };
  atoms("/scale_a", tensors_.scale_a, of_.scale_a_stride);
  atoms("/scale_b", tensors_.scale_b, of_.scale_b_stride);
}

/// Of a quantised d.
void GemmRules::result_scales() {
  const bool blocks_of_d = spec_.makes_blocks(), atoms = blocks_of_d && !spec_.rows_of_scales;
  optional("/scale_d", tensors_.scale_d, spec_.quantizes,
           atoms         ? kRowAlignment
           : blocks_of_d ? 1
                         : 4,
           "the epilogue quantises");
  bad(blocks_of_d ? !(tensors_.tensor_scale > 0) || !std::isfinite(tensors_.tensor_scale) : tensors_.tensor_scale != 1,
      "/tensor_scale", [&] {
        return blocks_of_d
                   ? fmt::format("{} does not divide; it takes a finite number above 0", tensors_.tensor_scale)
                   : fmt::format("{} is given, and d is in no block-scaled format; 1 would do", tensors_.tensor_scale);
      });
  if (!spec_.quantizes || !tensors_.scale_d) return;
  const Matrix& written = of_.scale_d;
  if (atoms)
    bad(written.stride < written.columns, "/scale_d_stride", [&] {
      return fmt::format("{} is less than the {} atoms of scales that {} columns of d have", of_.scale_d_stride,
                         written.columns / contract::kScaleAtomBytes, kernel_.d_columns);
    });
  else
    row_holds("/scale_d_stride", written);
  within_memory("/scale_d_stride", written);
  const auto apart = [&](const Matrix& other, const char* name) {
    bad(other.address && written.overlaps(other), "/scale_d",
        [&] { return fmt::format("overlaps {}, and is written while the kernel uses that", name); });
  };
  const std::int64_t groups = kernel_.groups.count;
  const std::int64_t k_blocks = (kernel_.k + 127) / 128, of_masked = own_scales(kernel_) ? groups : 1;
  const bool blocks = spec_.scales == ScaleKind::kPerBlock && !is_block_scaled(spec_.a),
             tokens = spec_.scales == ScaleKind::kPerToken;
  const std::int64_t rows_of_a = kernel_.groups.gather ? tensors_.source_rows : tensors_.m;
  apart(of_.d, "d");
  if (kernel_.k > 0) apart(of_.a, "a");
  if (kernel_.k > 0) apart(kernel_.groups.pointers ? of_words(tensors_.b, 2 * groups) : of_.b, "b");
  if (spec_.adds_c) apart(of_.c, "c");
  apart({tensors_.bias, spec_.c, groups, kernel_.n, kernel_.n}, "bias");
  if (blocks) {
    apart({tensors_.scale_a, DType::kF32, k_blocks * of_masked, scaled_rows(kernel_, tensors_.m, tensors_.source_rows),
           of_.scale_a_stride},
          "scale_a");
    apart(
        {tensors_.scale_b, DType::kF32, scale_rows_of_b(kernel_.n, spec_.gated) * groups, k_blocks, of_.scale_b_stride},
        "scale_b");
  } else if (is_block_scaled(spec_.a)) {
    const auto atoms_of = [&](DevicePtr address, std::int64_t rows, std::int64_t stride) {
      const std::int64_t bytes = scale_atoms_of_row(kernel_.k, spec_.a) * contract::kScaleAtomBytes;
      return Matrix{address, DType::kE4m3, rows, bytes, (CheckedInt(stride) * contract::kScaleAtomBytes).or_most()};
    };
    apart(atoms_of(tensors_.scale_a, atom_rows_of_a(kernel_, tensors_), of_.scale_a_stride), "scale_a");
    apart(atoms_of(tensors_.scale_b, scale_atom_rows_of_b(kernel_.groups, kernel_.n), of_.scale_b_stride), "scale_b");
  } else {
    apart(of_words(tensors_.scale_a, tokens ? rows_of_a : 1), "scale_a");
    apart(of_words(tensors_.scale_b, groups * (tokens ? kernel_.n : 1)), "scale_b");
  }
  apart(of_words(tensors_.bounds, groups + (kernel_.groups.bounds == GroupBounds::kStarts ? 1 : 0)), "bounds");
  apart(of_words(tensors_.gather, tensors_.m), "gather");
  apart(of_words(tensors_.status, 1), "status");
}

/// Outputs beside d, and the sums that give rows their factors.
void GemmRules::statistics() {
  optional("/amax", tensors_.amax, spec_.amax, 4, "the epilogue has amax");
  optional("/squares", tensors_.squares, spec_.squares, 4, "the epilogue has squares");
  optional("/squares_a", tensors_.squares_a, spec_.rstd, 4, "the epilogue has rstd");
  bad(!(tensors_.rms_eps >= 0) || std::isinf(tensors_.rms_eps), "/rms_eps",
      [&] { return fmt::format("{} does not fit; it takes a finite number from 0 on", tensors_.rms_eps); });
  const auto sums = [&](const char* path, const Matrix& of) {
    if (!of.address) return;
    row_holds(path, of);
    within_memory(path, of);
  };
  sums("/squares_stride", of_.squares), sums("/squares_a_stride", of_.squares_a);
  const Matrix amax = of_words(tensors_.amax, 1);
  const std::pair<const char*, const Matrix*> operands[] = {{"a", &of_.a},
                                                            {"b", &of_.b},
                                                            {"c", &of_.c},
                                                            {"d", &of_.d},
                                                            {"scale_d", &of_.scale_d},
                                                            {"squares_a", &of_.squares_a}};
  const auto apart = [&](const char* path, const Matrix& written, const char* name, const Matrix& other) {
    bad(written.address && other.address && written.overlaps(other), path,
        [&] { return fmt::format("overlaps {}, which the kernel uses", name); });
  };
  for (const auto& [name, matrix] : operands) {
    apart("/squares", of_.squares, name, *matrix);
    if (spec_.amax) apart("/amax", amax, name, *matrix);
  }
  if (spec_.amax) apart("/amax", amax, "squares", of_.squares);
  apart("/d", of_.d, "squares_a", of_.squares_a);
}

void GemmRules::scales_fit(const char* path, DevicePtr address, std::int64_t rows, std::int64_t stride, int bytes) {
  const CheckedInt apart = CheckedInt(stride) * bytes;
  const auto all = static_cast<std::uint64_t>((apart * std::max<std::int64_t>(rows, 1)).or_most());
  bad(stride > 0 && !is_span(address, all), path, [&] {
    return fmt::format(
        "{} brings {} rows of scales at {:#x} behind what 64-bit addresses reach, or to more than {} "
        "bytes",
        stride, rows, address, kMostBytes);
  });
  if (mapped_) mapped_stride(path, rows, stride, bytes);
}

}  // namespace kernelwright::detail
