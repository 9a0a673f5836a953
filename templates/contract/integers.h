/// Fixed-width integers on both sides, because NVRTC has no <cstdint>.
#pragma once

#ifdef __CUDACC_RTC__
using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long long;
using uint64_t = unsigned long long;
using uint16_t = unsigned short;
using uint8_t = unsigned char;
#else
#include <cstdint>
#endif
