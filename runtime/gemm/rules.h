/// The rules of a GEMM launch's arguments. arguments.cpp has those of operands, rules_scales.cpp those of scales.
#pragma once

#include <string>

#include "kernelwright/generator/checked.h"
#include "kernelwright/runtime/gemm/launch.h"
#include "kernelwright/runtime/gemm/matrices.h"
#include "kernelwright/runtime/launch/rules.h"

namespace kernelwright::detail {

class GemmRules : public ArgumentRules {
 public:
  GemmRules(const LoadedGemm& kernel, const GemmSpec& spec, const GemmTensors& tensors, const GemmMatrices& matrices)
      : kernel_(kernel), spec_(spec), tensors_(tensors), of_(matrices) {
    numbers();
    groups();
    batch();
    operands();
    epilogue();
    scales();
    result_scales();
    statistics();
    kv_write();
    whole_device();
  }

 private:
  void numbers();
  void groups();
  void batch();
  void words(const char* path, DevicePtr address, std::int64_t count);
  static Matrix of_words(DevicePtr address, std::int64_t count) { return {address, DType::kF32, 1, count, count}; }
  void operands();
  void operand(const char* path, const Matrix& matrix, bool aligned);
  void pointers_of_b();
  void rows_begin_aligned(const std::string& stride, const Matrix& matrix);
  void mapped_rows(const char* path, const Matrix& matrix);
  void mapped_matrices(const char* path, const Matrix& all);
  void mapped_stride(const char* path, std::int64_t rows, CheckedInt stride, int bytes);
  void epilogue();
  void optional(const char* path, DevicePtr address, bool wanted, int alignment, const char* what);
  void scales();
  void block_scales();
  void atom_scales();
  void result_scales();
  void statistics();
  void kv_write();
  void scales_fit(const char* path, DevicePtr address, std::int64_t rows, std::int64_t stride, int bytes);
  void whole_device();

  const LoadedGemm& kernel_;
  const GemmSpec& spec_;
  const GemmTensors& tensors_;
  const GemmMatrices& of_;
  const bool mapped_ = spec_.family != Family::kPortable;  // that family stores elements
};

}  // namespace kernelwright::detail
