/// Deliberate mistakes in attention_sm100: the name of each, the edit that makes it, and the finding that it must
/// cause.
#pragma once

#include <gmock/gmock.h>

#include "end_to_end/attention/cases/attention_cases.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "support/kernel_faults.h"

namespace kernelwright {

using test::after, test::before, test::change, test::drop, test::replace;

/// The kernel in which the mistake is made. All have several key tiles, scores whose maxima move, a last tile with keys
/// past the sequence's end, and two slabs of 64 columns.
enum class BlackwellForm {
  kTwoQueryTiles,  // one ring for K and V
  kOneQueryTile,   // a ring each, K in two chunks
  kQueued,         // two query tiles, and a CTA that goes on with other items
  kQueuedOne,      // the same with one query tile
  kGathered,       // two query tiles, and pages whose rows are gathered
  kPair,           // of CTAs, two query tiles in each, one ring
  kParts,          // of keys, one query tile: the CTA that arrives last merges them in the workspace
  kCluster,        // of two CTAs, each with a part of the keys of one query tile
  kNarrow,         // two query tiles, 8 bits, a scale for each head
  kStages,         // two query tiles, one ring whose slots have two sub-stages
  kRotary,         // two query tiles, 8 bits, a rotary part of 16, scales for each token
};

struct BlackwellFault {
  const char* name;
  BlackwellForm form;
  std::vector<test::TemplateEdit> edits;
  const char* found;  // "deadlock", "race", ..: must be among the findings
};

inline CudaCase call_of(BlackwellForm form) {
  CudaCase test;
  test.problem = heads(default_problem(), 1, 1);
  test.schedule.family = Family::kBlackwell;
  test.schedule.block_n = 64;
  test.shape = lists({}, {300, 320});  // after the first sequence's keys, its tensor holds NaN
  if (form == BlackwellForm::kQueued || form == BlackwellForm::kQueuedOne) {
    test.schedule.scheduler = Scheduler::kQueued;
    test.shape = lists({}, {300, 320, 300, 300});
  }
  if (form == BlackwellForm::kGathered) test.problem = paged(test.problem, 3);
  if (form == BlackwellForm::kPair) test.schedule.cta_group = 2;
  const bool parts = form == BlackwellForm::kParts || form == BlackwellForm::kCluster;
  if (parts) {
    test.problem = with_sinks(test.problem);
    test.shape = lists({}, {300, 60});  // one part has all keys of the second sequence
  }
  if (form == BlackwellForm::kParts) test.schedule.splits = 3, test.schedule.merge = Merge::kInKernel;
  if (form == BlackwellForm::kCluster) test.schedule.cluster = ClusterShape{1, 2};
  if (form == BlackwellForm::kNarrow || form == BlackwellForm::kRotary)
    test.problem.dtype = {DType::kE4m3, DType::kE4m3, DType::kBf16};
  if (form == BlackwellForm::kNarrow) {
    test.problem = with_sinks(heads(test.problem, 2, 2));
    test.problem.scales = ScaleKind::kPerHead;
  }
  if (form == BlackwellForm::kRotary) {
    test.problem.head_dim.qk = 192;
    test.problem.rope.width = 64;
    test.problem = with_sinks(test.problem);
    test.problem.scales = ScaleKind::kPerToken;
  }
  if (form != BlackwellForm::kOneQueryTile && form != BlackwellForm::kQueuedOne && !parts) {
    test.shape.q_len = form == BlackwellForm::kPair ? 500 : 240;
    test.schedule.num_q = 2;
    test.schedule.kv_ring = KvRing::kShared;
    test.schedule.num_kv_stages = 3;
    if (form == BlackwellForm::kStages) test.schedule.num_mma_stages = 2;
  } else {
    test.shape.q_len = 100;
    test.schedule.num_q = 1;
    test.schedule.kv_ring = KvRing::kSplit;
    test.schedule.num_kv_stages = 2;
    test.schedule.num_qk_stages = 2;
  }
  test.schedule.rescale = Rescale::kAlways;
  // Tiles are walked from the last to the first: maxima move into the second and the fourth, and nowhere else.
  test.change = [](AttentionCase& call) {
    // Beside probabilities of 8 bits, a sink weighs as much as all keys: less would hide in their rounding.
    if (call.problem.dtype.q == DType::kE4m3)
      for (float& sink : call.sinks) sink += 7;
    constexpr float kMagnitudes[] = {0.25f, 1.75f, 0.25f, 1.4f, 1};
    for (int sequence = 0; sequence < call.batch; ++sequence)
      for (int j = 0; j < call.kv_lens[static_cast<std::size_t>(sequence)]; ++j) {
        std::byte* const at = call.k_row(sequence, j, 0);
        double values[128];
        decode_row(call.k.dtype, at, 128, values);
        std::vector<float> row;
        for (const double value : values) row.push_back(static_cast<float>(value) * kMagnitudes[j / 64]);
        encode_row(call.k.dtype, row, at);
      }
  };
  return test;
}

class BlackwellFaults : public testing::TestWithParam<BlackwellFault> {
 protected:
  void SetUp() override {
    if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }
};

inline test::Findings findings_of(const BlackwellFault& fault) {
  return test::run_with_edits("attention_sm100", call_of(fault.form), fault.edits, Arch::kSm100a);
}

inline void PrintTo(const BlackwellFault& fault, std::ostream* out) { *out << fault.name; }
inline std::string name_of_fault(const testing::TestParamInfo<BlackwellFault>& info) { return info.param.name; }

}  // namespace kernelwright
