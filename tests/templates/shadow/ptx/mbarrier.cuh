/// What stands in for templates/ptx/mbarrier.cuh when the host compiles templates/pipeline/: each function notes what
/// the device would do, in templates/pipeline_model.h's terms.
#pragma once

#include <cstdint>

#include "templates/pipeline_model.h"

#define __device__
#define __forceinline__ inline

namespace kernelwright::ptx {

inline void mbarrier_init(uint32_t barrier, uint32_t arrivals) { model::Recorder::init(barrier, arrivals); }
inline void fence_mbarrier_init() {}
inline void mbarrier_arrive(uint32_t barrier) { model::Recorder::arrive(barrier); }
inline void mbarrier_arrive_remote(uint32_t barrier) { model::Recorder::arrive(barrier); }
inline void mbarrier_arrive_remote(uint32_t barrier, uint32_t rank) {
  model::Recorder::arrive(barrier % model::kCtaBytes + rank * model::kCtaBytes);
}
inline void mbarrier_arrive_cluster(uint32_t barrier, uint32_t rank) { mbarrier_arrive_remote(barrier, rank); }
inline void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes) { model::Recorder::arm(barrier, bytes); }
inline void cp_async_mbarrier_arrive_noinc(uint32_t barrier) { model::Recorder::arrive_with_copies(barrier); }
inline void mbarrier_wait_parity(uint32_t barrier, uint32_t parity) { model::Recorder::wait(barrier, parity); }
inline bool mbarrier_test_wait_parity(uint32_t barrier, uint32_t parity) {
  return model::Recorder::test(barrier, parity);
}
inline void fence_proxy_async_shared() {}
inline void mbarrier_wait_parity_cluster(uint32_t barrier, uint32_t parity) { model::Recorder::wait(barrier, parity); }

}  // namespace kernelwright::ptx

inline void __syncwarp() {}
