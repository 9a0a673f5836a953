/// Transposes of the small matrices that a warp's registers hold, in registers of the host where it has SSE.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace kernelwright::emulator {

/// to[c][r] = from[r][c] for an 8x8 matrix of 16-bit elements: row r is the 16 bytes at from[r], the result is
/// contiguous. `to` may be one of the rows' memory.
inline void transpose_8x8_b16(const std::byte* const (&from)[8], void* to) {
#if defined(__SSE2__)
  __m128i rows[8], pairs[8], quads[8];
  for (int r = 0; r < 8; ++r) rows[r] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from[r]));
  for (int i = 0; i < 4; ++i) {  // pairs[i]: columns 0-3 of rows 2i and 2i + 1, side by side; pairs[4 + i]: columns 4-7
    pairs[i] = _mm_unpacklo_epi16(rows[2 * i], rows[2 * i + 1]);
    pairs[4 + i] = _mm_unpackhi_epi16(rows[2 * i], rows[2 * i + 1]);
  }
  for (int i = 0; i < 4; ++i) {  // two columns of four rows: the upper half of the rows where i is odd
    quads[2 * i] = _mm_unpacklo_epi32(pairs[2 * i], pairs[2 * i + 1]);
    quads[2 * i + 1] = _mm_unpackhi_epi32(pairs[2 * i], pairs[2 * i + 1]);
  }
  auto* result = static_cast<__m128i*>(to);
  for (int i = 0; i < 4; ++i) {
    const int low = (i / 2) * 4 + i % 2;  // columns 2i and 2i + 1 of rows 0-3; rows 4-7: two further
    _mm_storeu_si128(result + 2 * i, _mm_unpacklo_epi64(quads[low], quads[low + 2]));
    _mm_storeu_si128(result + 2 * i + 1, _mm_unpackhi_epi64(quads[low], quads[low + 2]));
  }
#else
  std::uint16_t result[8][8];
  for (int r = 0; r < 8; ++r) {
    std::uint16_t row[8];
    std::memcpy(row, from[r], sizeof row);
    for (int c = 0; c < 8; ++c) result[c][r] = row[c];
  }
  std::memcpy(to, result, sizeof result);
#endif
}

/// to[c * 8 + r] = from[r * stride + c] for a matrix of 8 rows and `columns` floats (a multiple of 4).
inline void transpose_8_rows(const float* from, int stride, int columns, float* to) {
#if defined(__SSE2__)
  for (int c = 0; c < columns; c += 4)
    for (int r = 0; r < 8; r += 4) {
      const float* at = from + r * stride + c;
      const __m128 row0 = _mm_loadu_ps(at), row1 = _mm_loadu_ps(at + stride);
      const __m128 row2 = _mm_loadu_ps(at + 2 * stride), row3 = _mm_loadu_ps(at + 3 * stride);
      const __m128 low01 = _mm_unpacklo_ps(row0, row1), high01 = _mm_unpackhi_ps(row0, row1);
      const __m128 low23 = _mm_unpacklo_ps(row2, row3), high23 = _mm_unpackhi_ps(row2, row3);
      float* result = to + c * 8 + r;
      _mm_storeu_ps(result, _mm_movelh_ps(low01, low23));
      _mm_storeu_ps(result + 8, _mm_movehl_ps(low23, low01));
      _mm_storeu_ps(result + 16, _mm_movelh_ps(high01, high23));
      _mm_storeu_ps(result + 24, _mm_movehl_ps(high23, high01));
    }
#else
  for (int c = 0; c < columns; ++c)
    for (int r = 0; r < 8; ++r) to[c * 8 + r] = from[r * stride + c];
#endif
}

}  // namespace kernelwright::emulator
