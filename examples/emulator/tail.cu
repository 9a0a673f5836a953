// D = A * B for one tile, for docs/emulator/check-your-kernel.md: A is [16, 64], B is [64, 8], D is [16, 8]. The rows
// of B from `rows` on count as zero, whatever memory has there. A barrier is missing on purpose; -DMENDED adds it.
constexpr int kK = 64, kN = 8, kThreads = 128;

extern "C" __global__ void __launch_bounds__(kThreads)
    multiply_tail(const float* a, const float* b, float* d, int rows) {
  __shared__ float tile[kK * kN];
#pragma unroll
  for (int i = 0; i < kK * kN; i += kThreads) tile[i + threadIdx.x] = b[i + threadIdx.x];
  __syncthreads();

  // All four warps clear the rows behind the last one.
#pragma unroll 1
  for (int i = rows * kN + threadIdx.x; i < kK * kN; i += kThreads) tile[i] = 0;
#ifdef MENDED
  __syncthreads();
#endif

  // Each warp multiplies all of the tile with four rows of A.
  const int m = threadIdx.x / kN, n = threadIdx.x % kN;
  float sum = 0;
#pragma unroll 1
  for (int k = 0; k < kK; ++k) sum += a[m * kK + k] * tile[k * kN + n];
  d[m * kN + n] = sum;
}
