/// As mbarrier.cuh beside it, for templates/ptx/cluster.cuh: shared memory of CTA r starts at r * kCtaBytes.
#pragma once

#include "ptx/mbarrier.cuh"

namespace kernelwright::ptx {

inline uint32_t mapa(uint32_t address, uint32_t rank) { return address % model::kCtaBytes + rank * model::kCtaBytes; }

}  // namespace kernelwright::ptx
