#include "kernelwright/runtime/gemm/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernelwright/generator/checked.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/runtime/gemm/rules.h"

namespace kernelwright::detail {
namespace {

/// For surely_fine(), which has bounded the rows: 2^24 of them, 2^30 elements of 4 bytes apart, are the most bytes that
/// there are.
bool fits(const Matrix& matrix, bool aligned) {
  constexpr std::int64_t kStride = std::int64_t{1} << 30;
  if (matrix.stride < matrix.columns || matrix.stride > kStride || matrix.address >> 63) return false;
  const DevicePtr low = matrix.address | static_cast<DevicePtr>(matrix.rows > 1 ? matrix.stride_bytes() : 0);
  return matrix.address && (!aligned || (low & (kRowAlignment - 1)) == 0);
}

}  // namespace

void GemmRules::numbers() {
  const int m = tensors_.m;
  not_negative("/m", m);
  bad(m > most_rows(spec_), "/m", [&] {
    return fmt::format(
        "{} is more than {} rows, 2^31 less those of a cluster's tiles, to which the kernel counts in "
        "32 bits",
        m, most_rows(spec_));
  });
  const std::int64_t items = count_items(spec_, kernel_.extent_of(tensors_));
  bad(m <= most_rows(spec_) && items > kMostItems, "/m", [&] {
    return fmt::format("{} rows and {} columns are {} tiles of {} x {}{}, and a launch has at most {}", m, kernel_.n,
                       items, spec_.swap_ab ? spec_.block_n : spec_.block_m,
                       spec_.swap_ab ? spec_.block_m : spec_.block_n,
                       spec_.split_k > 1 ? fmt::format(" in {} parts of k", spec_.split_k) : "", kMostItems);
  });
  bad(!std::isfinite(tensors_.alpha), "/alpha", [&] { return fmt::format("{} is not finite", tensors_.alpha); });
  bad(!std::isfinite(tensors_.beta), "/beta", [&] { return fmt::format("{} is not finite", tensors_.beta); });
  sm_budget(tensors_.sm_budget);
  pdl(tensors_.pdl, kernel_.has_pdl, spec_.arch);
}

void GemmRules::groups() {
  const GemmGroups& of = kernel_.groups;
  constexpr const char* kBounds = "the problem has groups with bounds";
  const bool bounded = of.has_bounds();
  optional("/bounds", tensors_.bounds, bounded, 4, kBounds);
  if (tensors_.status || !bounded) optional("/status", tensors_.status, bounded, 4, kBounds);
  optional("/gather", tensors_.gather, of.gather, 4, "the problem's groups gather rows of a");
  const bool has_sources = of.gather || of.slices_k();
  bad(has_sources ? tensors_.source_rows < 0 : tensors_.source_rows != 0, "/source_rows", [&] {
    return has_sources ? fmt::format("{} rows of a are negative", tensors_.source_rows)
                       : fmt::format("{} is given, and the problem gathers no rows; 0 would do", tensors_.source_rows);
  });
  optional("/scatter", tensors_.scatter, of.scatter, 4, "the problem's groups scatter rows of d");
  bad(of.scatter ? tensors_.result_rows < 1 : tensors_.result_rows != 0, "/result_rows", [&] {
    return of.scatter ? fmt::format("{} rows of d are too few to write any; it takes 1 or more", tensors_.result_rows)
                      : fmt::format("{} is given, and the problem scatters no rows; 0 would do", tensors_.result_rows);
  });
  const int bounds = of.count + (of.bounds == GroupBounds::kStarts ? 1 : 0);
  words("/bounds", tensors_.bounds, bounds);
  words("/gather", tensors_.gather, tensors_.m);
  words("/scatter", tensors_.scatter, tensors_.m);
  words("/status", tensors_.status, 1);
  const auto status = [&](const char* path, DevicePtr address, std::int64_t count) {
    bad(tensors_.status && address && of_words(tensors_.status, 1).overlaps(of_words(address, count)), "/status",
        [&] { return fmt::format("overlaps {}, which the kernel reads", path + 1); });
  };
  status("/bounds", tensors_.bounds, bounds);
  status("/gather", tensors_.gather, tensors_.m);
  status("/scatter", tensors_.scatter, tensors_.m);
  if (of.pointers) words("/b", tensors_.b, 2 * of.count), status("/b", tensors_.b, 2 * of.count);
  not_negative("/expected_m", tensors_.expected_m);
  bad(tensors_.expected_m > 0 && !bounded, "/expected_m", [&] {
    return fmt::format("{} is given, and the problem has no groups with bounds; 0 would do", tensors_.expected_m);
  });
  bad(of.is_even() && tensors_.m % of.count != 0, "/m", [&] {
    return fmt::format("{} rows are not the same number for each of {} groups; {} would do", tensors_.m, of.count,
                       (std::int64_t{tensors_.m} / of.count + 1) * of.count);
  });
}

/// Where the groups of a batch lie, and the matrices d of kind k.
void GemmRules::batch() {
  const auto stride = [&](const char* path, std::int64_t given, const Matrix& matrix, bool rows_aligned) {
    const bool of_d = &matrix == &of_.c || &matrix == &of_.d;
    if (!(of_d ? kernel_.groups.stacks_d() : kernel_.groups.is_batch())) {
      bad(given != 0, path,
          [&] { return fmt::format("{} is given, and the problem has no batch; 0 would do", given); });
      return;
    }
    not_negative(path, given);
    const int step = static_cast<int>(kRowAlignment) * 8 / bits_of(matrix.dtype);
    bad(rows_aligned && matrix.count > 1 && given % step != 0, path, [&] {
      return fmt::format(
          "{} elements of {} put groups off their 16-byte boundaries, from where they are copied; it "
          "takes a multiple of {}",
          given, to_string(matrix.dtype), step);
    });
    if (mapped_ && rows_aligned) mapped_stride(path, matrix.count, matrix.batch_stride_bytes(), 1);
  };
  stride("/a_batch_stride", tensors_.a_batch_stride, of_.a, true);
  stride("/b_batch_stride", tensors_.b_batch_stride, of_.b, true);
  stride("/c_batch_stride", tensors_.c_batch_stride, of_.c, false);
  stride("/d_batch_stride", tensors_.d_batch_stride, of_.d, mapped_);
  bad(tensors_.d_batch_stride >= 0 && tensors_.d_stride >= 0 && !of_.d.rows_are_apart(), "/d_batch_stride", [&] {
    return fmt::format("{} brings rows of d of two groups together: a group has {} rows of {} elements, {} apart",
                       of_.d.batch_stride, of_.d.rows, of_.d.columns, of_.d.stride);
  });
}

/// Words of the device that a launch reads or writes while it writes d.
void GemmRules::words(const char* path, DevicePtr address, std::int64_t count) {
  bad(address && tensors_.d && of_.d.overlaps(of_words(address, count)), path,
      [] { return std::string("overlaps d, which is written meanwhile"); });
}

void GemmRules::operands() {
  const bool reads_none = has_no_sources(kernel_, tensors_);
  if (kernel_.k > 0) {
    if (!reads_none) operand("/a", of_.a, true);
    const bool pointers = kernel_.groups.pointers;
    if (pointers)
      pointers_of_b();
    else if (!reads_none || !kernel_.groups.slices_k())
      operand("/b", of_.b, true);
    if (mapped_ && !pointers) mapped_matrices("/b_stride", of_.b);
    bad(of_.d.overlaps(of_.a), "/d", [] { return std::string("overlaps a, which is still read while d is written"); });
    bad(!pointers && of_.d.overlaps(of_.b), "/d",
        [] { return std::string("overlaps b, which is still read while d is written"); });
  }
  operand("/d", of_.d, mapped_ || spec_.makes_blocks() || spec_.writes_kv);
  if (mapped_) {
    if (kernel_.k > 0) mapped_rows("/a_stride", of_.a), mapped_rows("/b_stride", of_.b);
    mapped_rows("/d_stride", of_.d);
  } else if (!spec_.makes_blocks() && !spec_.writes_kv) {
    aligned("/d", tensors_.d, bits_of(spec_.d) / 8);
  }
}

/// Addresses of matrices b, which the kernel reads, and the stride of each matrix.
void GemmRules::pointers_of_b() {
  not_null("/b", tensors_.b);
  aligned("/b", tensors_.b, 8);
  row_holds("/b_stride", of_.b);
  rows_begin_aligned("/b_stride", of_.b);
}

/// `rows_aligned`: each row begins at a multiple of kRowAlignment.
void GemmRules::operand(const char* path, const Matrix& matrix, bool rows_aligned) {
  const std::string stride = std::string(path) + "_stride";
  not_null(path, matrix.address);
  if (rows_aligned) aligned(path, matrix.address, kRowAlignment);
  row_holds(stride, matrix);
  if (rows_aligned) rows_begin_aligned(stride, matrix);
  within_memory(stride, matrix);
}

void GemmRules::rows_begin_aligned(const std::string& stride, const Matrix& matrix) {
  const int step = static_cast<int>(kRowAlignment) * 8 / bits_of(matrix.dtype);
  bad(matrix.rows > 1 && matrix.stride % step != 0, stride, [&] {
    return fmt::format(
        "{} elements of {} put rows off their 16-byte boundaries, from where they are copied; "
        "pad rows to a multiple of {}",
        matrix.stride, to_string(matrix.dtype), step);
  });
}

void GemmRules::mapped_rows(const char* path, const Matrix& matrix) {
  mapped_stride(path, matrix.rows, matrix.stride_bytes(), 1);
}

/// Matrices of groups, one behind the other, which a tensor map of three dimensions has.
void GemmRules::mapped_matrices(const char* path, const Matrix& all) {
  const std::int64_t groups = kernel_.groups.count, rows = all.rows / std::max<std::int64_t>(1, groups);
  const std::int64_t apart = (CheckedInt(all.stride_bytes()) * rows).or_most();
  bad(groups > 1 && !kernel_.groups.stacks_d() && apart >= kTensorMapStrideBytes && apart <= kMostBytes, path, [&] {
    return fmt::format("brings the matrices of groups {} bytes apart, and tensor maps take less than {}; pad rows less",
                       apart, kTensorMapStrideBytes);
  });
}

/// Of what a kernel reads or writes through a tensor map.
void GemmRules::mapped_stride(const char* path, std::int64_t rows, CheckedInt stride, int bytes) {
  const std::int64_t apart = (stride * bytes).or_most();
  bad(rows > 1 && apart >= kTensorMapStrideBytes && apart <= kMostBytes, path, [&] {
    return fmt::format("brings rows {} bytes apart, and tensor maps take less than {}; pad rows less", apart,
                       kTensorMapStrideBytes);
  });
}

void GemmRules::epilogue() {
  const int element = bits_of(spec_.c) / 8;
  optional("/c", tensors_.c, spec_.adds_c, element, "the epilogue has c");
  optional("/bias", tensors_.bias, spec_.bias, element, "the epilogue has bias");
  if (!spec_.adds_c || !tensors_.c) return;
  row_holds("/c_stride", of_.c);
  within_memory("/c_stride", of_.c);
  const bool same = of_.c.address == of_.d.address && of_.c.stride_bytes() == of_.d.stride_bytes() &&
                    of_.c.batch_stride_bytes() == of_.d.batch_stride_bytes() &&
                    bits_of(of_.c.dtype) == bits_of(of_.d.dtype);
  bad(of_.d.overlaps(of_.c) && !same, "/d",
      [] { return std::string("overlaps c without being it, element for element; give one of them other memory"); });
}

void GemmRules::optional(const char* path, DevicePtr address, bool wanted, int alignment, const char* what) {
  bad(wanted && !address, path, [&] { return fmt::format("is null, and {}", what); });
  bad(!wanted && address, path, [&] { return fmt::format("is given, and nothing reads it: not so that {}", what); });
  if (wanted) aligned(path, address, alignment);
}

/// What a launch takes of the device besides its operands.
void GemmRules::whole_device() {
  bad(tensors_.sm_budget > 0 && takes_all_sms(spec_), "/sm_budget", [&] {
    return fmt::format(
        "is {}, and the kernel for {} rows takes all SMs, for {}; 0, or a schedule with {}, would do",
        tensors_.sm_budget, tensors_.m,
        spec_.split_k > 1 ? "parts of k wait for each other" : "CTAs that are done take over tiles that wait",
        spec_.family == Family::kHopper ? "split_k 1"
        : spec_.split_k > 1             ? "split_k 1 and scheduler \"persistent\""
                                        : "scheduler \"persistent\"");
  });
  if (const std::uint64_t needed = plan_workspace(spec_, kernel_.extent_of(tensors_)).bytes; needed > 0)
    workspace(tensors_.workspace, tensors_.workspace_bytes, needed,
              [&] { return fmt::format("to add {} parts of k; see GemmKernel::workspace_bytes()", spec_.split_k); });
}

bool surely_fine(const LoadedGemm& kernel, const GemmSpec& spec, const GemmTensors& t,
                 const GemmMatrices& of) noexcept {
  if ((t.m | t.sm_budget) < 0 || kernel.k == 0 || (t.pdl && !kernel.has_pdl)) return false;
  if ((t.a_batch_stride | t.b_batch_stride | t.c_batch_stride | t.d_batch_stride) != 0) return false;
  if (kernel.groups.any() || t.bounds || t.status || t.gather || t.scatter) return false;
  if ((t.expected_m | t.source_rows | t.result_rows) != 0) return false;
  // Past them kernels may run out of 32 bits: the smallest tiles have 16 x 16 elements, and 16 parts of k are the most.
  constexpr std::int64_t kRows = 1 << 24, kElements = std::int64_t{1} << 32;
  if (t.m > kRows || std::int64_t{t.m} * kernel.n > kElements) return false;
  const bool mapped = spec.family != Family::kPortable;
  if (!fits(of.a, true) || !fits(of.b, true) || !fits(of.d, mapped)) return false;
  if (spec.has_groups_of_columns() || spec.rstd || spec.writes_kv || t.tensor_scale != 1) return false;
  if (t.kv_write) return false;
  if (t.amax || t.squares || t.squares_a || t.rms_eps < 0) return false;
  if (t.d % static_cast<DevicePtr>(bits_of(spec.d) / 8) != 0) return false;
  if (of.d.overlaps(of.a) || of.d.overlaps(of.b)) return false;
  if (spec.takes_turns() || (t.sm_budget > 0 && takes_all_sms(spec))) return false;
  if (!std::isfinite(t.alpha) || !std::isfinite(t.beta)) return false;
  return !t.c && !t.bias && !t.scale_a && !t.scale_b && !t.scale_d && !spec.adds_c && !spec.bias &&
         spec.scales == ScaleKind::kNone;
}

std::vector<Violation> broken_rules(const LoadedGemm& kernel, const GemmSpec& spec, const GemmTensors& tensors,
                                    const GemmMatrices& matrices) {
  return GemmRules(kernel, spec, tensors, matrices).broken();
}

}  // namespace kernelwright::detail
