// The timelines of the Hopper kernels: roles, waits, copies, wgmma, and the barriers that order them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "kernelwright/runtime/emulator/trace/trace.h"
#include "kernelwright/runtime/engine/emulated_machine.h"
#include "runtime/emulator/kernels/hopper_cases.h"
#include "runtime/emulator/trace/trace_checks.h"

namespace kernelwright {
namespace {

using emulator::SliceKind;
using emulator::Trace;
using emulator::TraceFlow;
using emulator::TraceSlice;
using emulator::TraceTrack;

/// Also written to the folder that KERNELWRIGHT_TRACES names, to be looked at; docs/pipeline.svg is one of them.
Trace trace_of(Compiler& compiler, const test::HopperCase& test, const emulator::SvgOptions& options) {
  const Binary binary = test::compile_hopper(compiler, test);
  const auto backend = make_emulator_backend({.timeline = true});
  EXPECT_EQ(test.run(backend->device(0), test::hopper_image(backend->device(0), test, binary), 1).failure, "");
  const auto traces = backend->take_traces();
  if (traces.empty()) throw Error("no trace was kept");
  EXPECT_EQ(backend->take_traces().size(), 0u);
  if (const char* folder = std::getenv("KERNELWRIGHT_TRACES")) {
    std::ofstream svg(std::string(folder) + "/" + test.name + ".svg"),
        json(std::string(folder) + "/" + test.name + ".json");
    write_svg(svg, *traces.back(), options);
    write_chrome_trace(json, std::span(traces.back().get(), 1));
  }
  return *traces.back();
}

class HopperTrace : public testing::Test {
 protected:
  void SetUp() override {
    if (compiler_.path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }
  Compiler compiler_;
};

/// The barriers, such as "full", for which the roles wait.
std::set<std::string> waits_of(const Trace& trace, const std::string& role) {
  std::set<std::string> names;
  for (const TraceSlice& slice : trace.slices)
    if (slice.kind == SliceKind::kWait && trace.tracks[slice.track].role == role)
      names.insert(slice.name.substr(0, slice.name.find('[')));
  return names;
}

std::size_t count_flows(const Trace& trace, SliceKind from, const std::string& to_name) {
  std::size_t count = 0;
  for (const TraceFlow& flow : trace.flows)
    count += trace.slices[flow.from].kind == from && trace.slices[flow.to].name.starts_with(to_name + "[");
  return count;
}

TEST_F(HopperTrace, OfTheGemmHasItsRolesWaitsAndFlows) {
  test::HopperGemm gemm;
  gemm.variant.mma_in_flight = 1;
  gemm.m = 256, gemm.n = 256, gemm.k = 512, gemm.ctas = 1;
  const Trace trace = trace_of(compiler_, test::hopper_gemm("gemm_pipeline", gemm), {});
  EXPECT_EQ(emulator::test::problems_of(trace), "");
  EXPECT_THAT(waits_of(trace, "load"), testing::Contains("empty"));
  for (const char* math : {"math 0", "math 1"}) {
    EXPECT_THAT(waits_of(trace, math), testing::Contains("full")) << math;
    EXPECT_THAT(waits_of(trace, math), testing::Contains("wgmma")) << math;
  }
  EXPECT_GT(count_flows(trace, SliceKind::kCopy, "full"), 0u);
  EXPECT_GT(count_flows(trace, SliceKind::kArrive, "empty"), 0u);
  // One CTA multiplies it all: 2048 products a cycle, and as many wgmma as there are.
  EXPECT_EQ(trace.units.at(0).tensor, 256u * 256 * 512 / 2048);
  std::uint64_t multiplies = 0, loaded = 0, stored = 0;
  for (const TraceSlice& slice : trace.slices) {
    if (slice.kind == SliceKind::kMma) multiplies += slice.amount;
    if (slice.kind == SliceKind::kCopy) loaded += slice.amount;
    if (slice.kind == SliceKind::kStore) stored += slice.amount;
  }
  EXPECT_EQ(multiplies, 256u * 256 * 512 / (64 * 128 * 16));
  EXPECT_EQ(loaded, 4u * (512 / 64) * (128 + 128) * 64 * 2);  // four tiles
  EXPECT_EQ(stored, 256u * 256 * 2);
  std::ostringstream json, svg;
  write_chrome_trace(json, std::span(&trace, 1));
  EXPECT_EQ(emulator::test::problems_of_json(json.str()), "");
  write_svg(svg, trace);
  EXPECT_EQ(emulator::test::problems_of_svg(svg.str()), "");
}

TEST_F(HopperTrace, OfAClusterShowsBothCtas) {
  test::HopperGemm gemm;
  gemm.variant.cluster = 2;
  gemm.m = 256, gemm.n = 128, gemm.k = 256, gemm.ctas = 2;
  const Trace trace = trace_of(compiler_, test::hopper_gemm("gemm_cluster_pipeline", gemm), {});
  EXPECT_EQ(emulator::test::problems_of(trace), "");
  ASSERT_EQ(trace.units.size(), 2u);
  EXPECT_EQ(trace.units[0].tensor, 128u * 128 * 256 / 2048);
  EXPECT_EQ(trace.units[1].tensor, trace.units[0].tensor);
  std::size_t across = 0;
  for (const TraceFlow& flow : trace.flows)
    across += trace.tracks[trace.slices[flow.from].track].cta != trace.tracks[trace.slices[flow.to].track].cta;
  EXPECT_GT(across, 0u);  // slots that the other CTA releases, tiles that it loads
}

TEST_F(HopperTrace, OfTheAttentionKernelHasItsLoop) {
  test::HopperAttention attention;
  attention.variant = {.head_dim = 128, .block_n = 128, .stages = 2, .causal = false, .overlap = true};
  attention.batch_heads = 1, attention.q_len = 128, attention.kv_len = 1024;
  const Trace trace = trace_of(compiler_, test::hopper_attention("attention_pipeline", attention),
                               {.title = "One CTA of an attention kernel for Hopper, as the emulator sees it",
                                .subtitle = "sm_90a, head dim 128, bf16: one thread loads K and V by TMA, two "
                                            "warpgroups multiply and take the softmax",
                                .end = 13000});
  EXPECT_EQ(emulator::test::problems_of(trace), "");
  EXPECT_GT(trace.units.at(0).tensor, 0u);
  EXPECT_LT(trace.units.at(0).tensor, trace.cycles);
  EXPECT_FALSE(trace.flows.empty());
}

}  // namespace
}  // namespace kernelwright
