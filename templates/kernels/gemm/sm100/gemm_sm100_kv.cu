/// gemm_sm100 of columns that are queries, keys and values: they are rotated, and keys and values go to a cache.
#include "kernels/gemm/sm100/gemm_sm100_kv.cuh"

#include "kernels/gemm/sm100/gemm_sm100.cu"
