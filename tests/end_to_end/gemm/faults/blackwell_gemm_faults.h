/// Deliberate mistakes in gemm_sm100: the name of each, the edit that makes it, and the finding that it must cause.
#pragma once

#include <gmock/gmock.h>

#include "kernelwright/verify/gemm/case.h"
#include "support/emulated_gemm.h"
#include "support/kernel_faults.h"

namespace kernelwright {

using test::after, test::before, test::change, test::drop, test::replace;

/// The kernel that the mistake is made in. All have several tiles for a CTA, more slabs than slots, and edges in every
/// extent.
enum class BlackwellGemmForm {
  kPlain,          // a CTA by itself, bf16
  kOneStore,       // f32 results, by way of one slab a warp
  kGroup,          // two slabs to a slot's barriers
  kPair,           // of CTAs
  kCluster,        // of 2 x 2 CTAs, each by itself
  kPairCluster,    // of 4 x 2 CTAs, in pairs
  kQueued,         // tiles come by cluster launch control
  kQueuedCluster,  // the same for a pair
  kScaled,         // mxfp8, tiles that begin amid an atom of scales
  kScaledFour,     // nvfp4: four atoms to a slab
  kGathered,       // mxfp4, operands swapped, scales of the columns gathered by threads
  kSlabs,          // e4m3 with f32 scales of blocks
  kParts,          // parts of k take turns
  kStrips,         // of a pair: two strips of 64 bytes of k to a slab
};

struct BlackwellGemmFault {
  const char* name;
  BlackwellGemmForm form;
  std::vector<test::TemplateEdit> edits;
  const char* found;  // "deadlock", "race", ..: must be among the findings
};

struct BlackwellGemmCall {
  GemmProblem problem;
  GemmSchedule schedule;
  int m = 200, num_sms = 2;
};

inline BlackwellGemmCall call_of(BlackwellGemmForm form) {
  using enum BlackwellGemmForm;
  BlackwellGemmCall call;
  GemmSchedule& schedule = call.schedule;
  const auto problem = [&](DType operands, int n, int k) {
    const bool blocks = operands != DType::kBf16;
    call.problem =
        test::gemm_problem(operands, DType::kBf16, n, k, "acc", blocks ? ScaleKind::kPerBlock : ScaleKind::kNone);
  };
  problem(DType::kBf16, 296, 320);
  schedule.family = Family::kBlackwell;
  schedule.block_n = 64;
  schedule.stages = 3;
  schedule.scheduler = Scheduler::kPersistent;
  schedule.cluster = ClusterShape{1, 1};
  schedule.cta_group = 1;
  const auto clusters = [&](int m, int n, int ctas) {
    schedule.cluster = ClusterShape{m, n};
    schedule.cta_group = ctas;
    call.num_sms = m * n;
  };
  switch (form) {
    case kPlain: break;
    case kOneStore:
      problem(DType::kBf16, 104, 200);
      call.problem.dtype.d = DType::kF32;
      schedule.store_stages = 1;
      break;
    case kGroup:
      problem(DType::kBf16, 104, 328);
      schedule.stages = 4;
      schedule.k_group = 2;
      break;
    case kPair: clusters(2, 1, 2); break;
    case kCluster:
    case kPairCluster:
      problem(DType::kBf16, 200, 320);
      call.m = 300;
      form == kCluster ? clusters(2, 2, 1) : clusters(4, 2, 2);
      break;
    case kQueued:
    case kQueuedCluster:
      problem(DType::kBf16, 296, 200);
      call.m = form == kQueued ? 300 : 500;
      if (form == kQueuedCluster) clusters(2, 1, 2);
      call.num_sms = form == kQueued ? 2 : 4;
      schedule.scheduler = Scheduler::kQueued;
      schedule.clc_depth = 2;
      break;
    case kScaled: problem(DType::kMxfp8, 200, 672); break;
    case kScaledFour:
      problem(DType::kNvfp4, 296, 1120);
      schedule.block_n = 128;
      break;
    case kGathered:
      problem(DType::kMxfp4, 200, 2016);
      call.m = 50;
      schedule.block_n = 32;
      schedule.stages = 4;
      schedule.swap_ab = true;
      break;
    case kSlabs:
      problem(DType::kE4m3, 200, 704);
      schedule.accumulator_stages = 2;
      break;
    case kParts:
      problem(DType::kBf16, 104, 704);
      schedule.split_k = 4;
      break;
    case kStrips:
      clusters(2, 1, 2);
      schedule.swizzle = Swizzle::k64B;
      break;
  }
  return call;
}

class BlackwellGemmFaults : public testing::TestWithParam<BlackwellGemmFault> {
 protected:
  void SetUp() override {
    if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }
};

inline test::Findings findings_of(const BlackwellGemmFault& fault) {
  const BlackwellGemmCall call = call_of(fault.form);
  GemmShape shape;
  shape.m = call.m;
  return test::run_with_edits("gemm_sm100", make_gemm_inputs(call.problem, shape, {.seed = 3}), call.schedule,
                              fault.edits, Arch::kSm100a, call.num_sms);
}

inline void PrintTo(const BlackwellGemmFault& fault, std::ostream* out) { *out << fault.name; }
inline std::string name_of_gemm_fault(const testing::TestParamInfo<BlackwellGemmFault>& info) {
  return info.param.name;
}

}  // namespace kernelwright
