// The wrappers of templates/ptx/tcgen05.cuh: ptxas accepts their PTX for sm_100a and sm_103a, and the emulator runs it
// without a report.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>

#include "fmt/format.h"
#include "kernelwright/generator/template_library.h"
#include "kernelwright/runtime/compile/compiler.h"
#include "kernelwright/runtime/emulator/emulator.h"

namespace kernelwright {
namespace {

using testing::HasSubstr;

class BlackwellWrappers : public testing::Test {
 protected:
  void SetUp() override {
    if (compiler_.path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }

  /// `body` in a kernel of [out, n] for 128 threads: `words` of shared memory have the address `data`, an mbarrier
  /// `bar`, and a word for an address, `place`, is at `result`.
  Binary compile(const std::string& body, const std::string& arch = "sm_100a") {
    SourceUnit unit;
    unit.kernel = unit.entry = "wrappers";
    unit.spec_header = unit.spec_text = "#pragma once\n";
    std::set<std::string> seen;
    for (const char* header :
         {"ptx/mbarrier.cuh", "ptx/barrier.cuh", "ptx/memory.cuh", "ptx/tcgen05.cuh", "ptx/tma.cuh"}) {
      unit.source += fmt::format("#include \"{}\"\n", header);
      for (const TemplateFile& file : template_closure(header).files)
        if (seen.insert(file.path).second) unit.headers.push_back(file);
    }
    unit.source +=
        "using namespace kernelwright;\nusing namespace kernelwright::ptx;\n"
        "extern \"C\" __global__ void __launch_bounds__(128) wrappers(uint32_t* out, uint32_t n) {\n"
        "__shared__ alignas(1024) uint32_t words[1024]; __shared__ alignas(8) uint64_t barrier; __shared__ uint32_t "
        "place;\n"
        "const uint32_t thread = threadIdx.x, data = static_cast<uint32_t>(__cvta_generic_to_shared(words)),\n"
        "bar = static_cast<uint32_t>(__cvta_generic_to_shared(&barrier)),\n"
        "result = static_cast<uint32_t>(__cvta_generic_to_shared(&place));\n" +
        body + "}\n";
    unit.arch = arch;
    unit.options = {"--gpu-architecture=" + arch, "--std=c++17", "-default-device", "--minimal"};
    return compiler_.compile(unit);
  }

  Compiler compiler_;
};

/// Thread t stores t * 1000 + i, loads it again in another order, and reads a row of a copied block.
const char* const kRoundTrip = R"(
  if (thread < 32) { tcgen05_alloc(result, 128); tcgen05_relinquish_alloc_permit(); }
  if (thread == 0) { mbarrier_init(bar, 1); fence_mbarrier_init(); }
  for (uint32_t i = thread; i < 1024; i += 128) words[i] = i;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const uint32_t first = place, mine = first + (thread / 32 << 21);
  float floats[32]; uint32_t integers[64];
  for (int i = 0; i < 32; ++i) floats[i] = static_cast<float>(thread * 1000 + i);
  for (int i = 0; i < 64; ++i) integers[i] = thread * 1000 + i;
  tcgen05_st(mine, floats);
  tcgen05_st(mine + 32, integers);
  tcgen05_wait_st();
  if (thread == 0) {
    // Rows of 16 bytes, eight of them in 128 bytes.
    tcgen05_cp_32x128b_warpx4(first + 96, uint64_t{1} << 46 | uint64_t{8} << 32 | (data & 0x3ffff) >> 4);
    tcgen05_commit(bar);
  }
  while (!mbarrier_try_wait_parity(bar, 0)) {}
  tcgen05_fence_after_thread_sync();
  float half[16]; uint32_t pair[2], copied[4];
  tcgen05_ld(mine + 16, half);
  tcgen05_ld(mine + 94, pair);
  tcgen05_ld(mine + 96, copied);
  tcgen05_wait_ld(half); tcgen05_wait_ld(pair); tcgen05_wait_ld(copied);
  float sum = 0;
  for (int i = 0; i < 16; ++i) sum += half[i];
  out[thread] = static_cast<uint32_t>(sum);
  out[128 + thread] = pair[0] + pair[1];
  out[256 + thread] = copied[3];
  tcgen05_fence_before_thread_sync();
  __syncthreads();
  tcgen05_fence_after_thread_sync();
  if (thread < 32) tcgen05_dealloc(first, 128);
)";

TEST_F(BlackwellWrappers, MoveDataThroughTensorMemory) {
  const Binary binary = compile(kRoundTrip);
  for (const emulator::Completion completion :
       {emulator::Completion::kEager, emulator::Completion::kLazy, emulator::Completion::kRandom}) {
    emulator::Emulator machine({.hazards = true, .completion = completion, .seed = 5, .shuffle = true});
    const auto module = machine.load(binary.ptx);
    struct {
      std::uint64_t out;
      std::uint32_t n;
    } arguments{machine.memory().allocate(384 * 4), 0};
    const emulator::LaunchReport report =
        machine.launch(*module, "wrappers", {.block = {128}}, std::as_bytes(std::span(&arguments, 1)));
    ASSERT_EQ(report.fault, "");
    for (const emulator::HazardReport& hazard : report.hazards) ADD_FAILURE() << hazard.text();
    std::uint32_t out[384];
    std::memcpy(out, reinterpret_cast<const void*>(arguments.out), sizeof out);
    for (std::uint32_t thread = 0; thread < 128; ++thread) {
      EXPECT_EQ(out[thread], thread * 16000 + (16 + 31) * 8);
      EXPECT_EQ(out[128 + thread], thread * 2000 + 62 + 63);
      EXPECT_EQ(out[256 + thread], thread % 32 * 4 + 3);
    }
  }
}

TEST_F(BlackwellWrappers, AreTakenByPtxasInEveryForm) {
  // A kernel keeps to one number of CTAs.
  for (const int group : {1, 2}) {
    std::string body = "float f1[1], f2[2], f4[4], f8[8], f64[64]; uint32_t u1[1], u8[8], u16[16];\n";
    for (const char* values : {"f1", "f2", "f4", "f8", "f64", "u1", "u8", "u16"})
      body += fmt::format("tcgen05_ld(n, {0}); tcgen05_wait_ld({0}); tcgen05_st(n, {0});\n", values);
    body += fmt::format(
        "tcgen05_alloc<{0}>(result, n); tcgen05_commit<{0}>(bar); tcgen05_commit_multicast<{0}>(bar, 3);\n"
        "tcgen05_cp_32x128b_warpx4<{0}>(n, n); tcgen05_cp_128x256b<{0}>(n, n); tcgen05_cp_128x128b<{0}>(n, n);\n"
        "tcgen05_relinquish_alloc_permit<{0}>(); tcgen05_dealloc<{0}>(n, 32);\n",
        group);
    if (group == 2)
      body +=
          "const TensorMap& map = *reinterpret_cast<const TensorMap*>(out);\n"
          "cp_async_bulk_tensor_4d_pair(n, map, 1, 2, 3, 4, n + 8);\n"
          "cp_async_bulk_tensor_5d_pair(n, map, 1, 2, 3, 4, 5, n + 8);\n"
          "mbarrier_arrive_cluster(n); mbarrier_arrive_cluster(bar, n); mbarrier_arrive_remote(bar, n);\n";
    for (const char* arch : {"sm_100a", "sm_103a"}) {
      const Binary binary = compile(body, arch);
      EXPECT_THAT(binary.ptx, HasSubstr("tcgen05.ld.sync.aligned.32x32b.x64.b32 {"));
      EXPECT_THAT(binary.ptx, HasSubstr(fmt::format("tcgen05.cp.cta_group::{}.32x128b.warpx4 [", group)));
      EXPECT_FALSE(binary.cubin.empty());
      for (const int rank : {4, 5})
        EXPECT_EQ(binary.ptx.find(fmt::format("cp.async.bulk.tensor.{}d.shared::cluster.global.tile.mbarrier::"
                                              "complete_tx::bytes.cta_group::2 [",
                                              rank)) != std::string::npos,
                  group == 2);
    }
  }
}

}  // namespace
}  // namespace kernelwright
