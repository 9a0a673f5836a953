#include "kernelwright/runtime/launch/rules.h"

#include <fmt/format.h>

#include "kernelwright/generator/checked.h"
#include "kernelwright/generator/problem/arch.h"

namespace kernelwright::detail {

void ArgumentRules::not_negative(std::string_view path, std::int64_t value) {
  bad(value < 0, path, [&] { return fmt::format("{} is negative", value); });
}

void ArgumentRules::sm_budget(int budget) {
  bad(budget < 0, "/sm_budget", [&] { return fmt::format("{} is negative; 0 takes all SMs", budget); });
}

void ArgumentRules::pdl(bool wanted, bool has_pdl, Arch arch) {
  bad(wanted && !has_pdl, "/pdl", [&] {
    return fmt::format("is true, and {} has no programmatic dependent launch, which begins with sm_90; leave it false",
                       arch_info(arch).name);
  });
}

void ArgumentRules::not_null(std::string_view path, DevicePtr address) {
  bad(!address, path, [] { return std::string("is null; give a device address"); });
}

void ArgumentRules::aligned(std::string_view path, DevicePtr address, int bytes) {
  bad(address % static_cast<DevicePtr>(bytes) != 0, path,
      [&] { return fmt::format("address {:#x} is not a multiple of {}; give an aligned one", address, bytes); });
}

void ArgumentRules::row_holds(std::string_view stride_path, const Matrix& matrix) {
  bad(matrix.stride < matrix.columns, stride_path,
      [&] { return fmt::format("{} is less than the {} elements of a row", matrix.stride, matrix.columns); });
}

void ArgumentRules::within_memory(std::string_view stride_path, const Matrix& matrix) {
  const auto check = [&](bool broken, std::string_view path, std::int64_t stride, const char* of, std::int64_t count) {
    bad(broken, path, [&] {
      return fmt::format(
          "{} elements of {} from one {} to the next bring {} {}s at {:#x} behind what 64-bit addresses "
          "reach, or to more than {} bytes",
          stride, to_string(matrix.dtype), of, count, of, matrix.address, kMostBytes);
    });
  };
  Matrix one = matrix;
  one.count = 1;
  const bool holds_rows = matrix.stride >= matrix.columns, one_fits = one.fits_memory();
  check(holds_rows && !one_fits, stride_path, matrix.stride, "row", matrix.rows);
  const std::string_view operand = stride_path.substr(0, stride_path.rfind("_stride"));
  check(holds_rows && one_fits && !matrix.fits_memory(), fmt::format("{}_batch_stride", operand), matrix.batch_stride,
        "group", matrix.count);
}

void ArgumentRules::matrix(const std::string& path, const Matrix& matrix, int alignment) {
  const std::string stride_path = path + "_stride";
  not_null(path, matrix.address);
  aligned(path, matrix.address, alignment);
  row_holds(stride_path, matrix);
  within_memory(stride_path, matrix);
}

void ArgumentRules::rows_of(const std::string& path, const Matrix& of, int alignment) {
  matrix(path, of, alignment);
  const int step = alignment * 8 / bits_of(of.dtype);
  bad(of.rows > 1 && of.stride % step != 0, path + "_stride", [&] {
    return fmt::format("{} elements of {} put rows off their {}-byte boundaries; it takes a multiple of {}", of.stride,
                       to_string(of.dtype), alignment, step);
  });
}

void ArgumentRules::span_within_memory(std::string_view path, DevicePtr address, std::uint64_t bytes) {
  bad(!is_span(address, bytes), path,
      [&] { return fmt::format("{} bytes at {:#x} end behind what 64-bit addresses reach", bytes, address); });
}

std::string ArgumentRules::too_small_workspace(std::uint64_t given, std::uint64_t needed, const std::string& purpose) {
  return fmt::format("{} bytes are given and {} are needed {}", given, needed, purpose);
}

}  // namespace kernelwright::detail
