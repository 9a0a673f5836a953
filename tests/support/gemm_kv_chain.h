/// A GEMM that writes a cache, as the two calls that it stands for.
#pragma once

#include <utility>
#include <vector>

#include "kernelwright/verify/gemm/case.h"

namespace kernelwright::test {

/// The GEMM by itself, whose rows have queries, keys and values.
inline GemmCase product_of(const GemmCase& call) {
  GemmCase product = call;
  product.problem.kv_write.reset(), product.kv.reset();
  product.problem.dtype.d = call.problem.kv_write->dtype.in;
  product.d_stride = product.problem.n;
  return product;
}

/// The kv_write behind it, of the rows that it makes.
inline KvWriteCase steps_of(const GemmCase& call, std::vector<std::byte> rows) {
  KvWriteCase steps = *call.kv;
  steps.q = std::move(rows);
  steps.packed_rows = true;
  steps.q_strides = steps.k_strides = steps.v_strides = {0, call.problem.n, call.problem.kv_write->head_dim.qk};
  return steps;
}

}  // namespace kernelwright::test
