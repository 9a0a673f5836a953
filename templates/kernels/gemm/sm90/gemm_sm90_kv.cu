/// gemm_sm90 of columns that are queries, keys and values: they are rotated, and keys and values go to a cache.
#include "kernels/gemm/sm90/gemm_sm90_kv.cuh"

#include "kernels/gemm/sm90/gemm_sm90.cu"
