/// gemm_portable of columns that are queries, keys and values: they are rotated, and keys and values go to a cache.
#include "kernels/gemm/portable/gemm_portable_kv.cuh"

#include "kernels/gemm/portable/gemm_portable.cu"
