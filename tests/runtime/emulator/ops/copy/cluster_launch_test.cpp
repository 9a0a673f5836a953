// Blackwell's additions to launches and tensor copies: clusterlaunchcontrol, gather4 and scatter4, and copies that
// complete on an mbarrier of the other CTA of a pair.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernelwright/runtime/emulator/machine/tensor_map.h"
#include "runtime/emulator/ptx_kernel.h"

namespace kernelwright::emulator {
namespace {

using testing::Each;
using testing::Eq;
using testing::HasSubstr;
using testing::IsEmpty;

std::string all_texts(const LaunchReport& report) {
  std::string all = report.fault;
  for (const HazardReport& hazard : report.hazards) all += "\n" + hazard.text();
  return all;
}

/// Each cluster goes on with the work of those that it cancels; out[ctaid] counts how often a CTA's work was done. The
/// response is at data + 16, its mbarrier at data.
const std::string kWorkQueue = R"({ .reg .b128 %q;
      mov.u32 %r10, data; mov.u32 %r20, %ctaid.x; mov.u32 %r21, 0; setp.ne.u32 %p1, %r2, 0;
      @!%p1 mbarrier.init.shared::cta.b64 [%r10], 1;
      @!%p1 fence.mbarrier_init.release.cluster;
      barrier.cluster.arrive.release.aligned;
      barrier.cluster.wait.acquire.aligned;
    LOOP:
      @%p1 bra RESPONSE;
      mbarrier.arrive.expect_tx.shared::cta.b64 %rd9, [%r10], 16;
      setp.ne.u32 %p2, %r3, 0;
      @!%p2 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster::all.b128 [%r10+16], [%r10];
      mul.wide.u32 %rd5, %r20, 4; add.u64 %rd5, %rd5, %rd0;
      red.global.add.u32 [%rd5], 1;
    RESPONSE:
      mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r10], %r21;
      @!%p3 bra RESPONSE;
      xor.b32 %r21, %r21, 1;
      ld.shared.b128 %q, [%r10+16];
      clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p4, %q;
      @!%p4 bra DONE;
      clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r20, %q;
      clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r22, %r23, %r24, _}, %q;
      add.u32 %r20, %r22, %r3;
      fence.proxy.async.shared::cta;
      barrier.cluster.arrive.release.aligned;
      barrier.cluster.wait.acquire.aligned;
      bra LOOP;
    DONE:
      barrier.cluster.arrive.release.aligned;
      barrier.cluster.wait.acquire.aligned;
    })";

TEST(ClusterLaunchControl, GivesEveryClustersWorkToOne) {
  for (const std::uint32_t ctas : {1u, 2u})
    for (const Completion completion : {Completion::kEager, Completion::kLazy, Completion::kRandom})
      for (const std::uint64_t seed : {1, 2}) {
        const auto run = test::run_ptx(
            kWorkQueue, {.grid = {12}, .block = {32}, .cluster = {ctas}, .dynamic_shared_bytes = 64},
            {.hazards = true, .completion = completion, .seed = seed, .shuffle = seed > 1}, {}, 12, "sm_100a");
        EXPECT_THAT(all_texts(run.report), IsEmpty());
        EXPECT_THAT(run.out, Each(Eq(1u)));
      }
}

TEST(ClusterLaunchControl, AsksForAnAnswerWhereOneWasReadBehindAProxyFence) {
  std::string unfenced = kWorkQueue;
  const std::string fence = "fence.proxy.async.shared::cta;";
  unfenced.erase(unfenced.find(fence), fence.size());
  for (const std::uint32_t ctas : {1u, 2u}) {
    const auto run =
        test::run_ptx(unfenced, {.grid = {12}, .block = {32}, .cluster = {ctas}, .dynamic_shared_bytes = 64},
                      {.hazards = true}, {}, 12, "sm_100a");
    ASSERT_FALSE(run.report.hazards.empty());
    for (const HazardReport& hazard : run.report.hazards) {
      EXPECT_EQ(hazard.kind, HazardKind::kProxyFence) << hazard.text();
      EXPECT_THAT(hazard.text(), HasSubstr("clusterlaunchcontrol.try_cancel"));
      EXPECT_THAT(hazard.text(), HasSubstr("ld.shared.b128"));
    }
  }
}

TEST(ClusterLaunchControl, RefusesToReadWhatIsNoResponse) {
  const auto run = test::run_ptx(R"({ .reg .b128 %q; .reg .b64 %lo, %hi;
      mov.b64 %lo, 1; mov.b64 %hi, 2; mov.b128 %q, {%lo, %hi};
      clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p4, %q; })",
                                 {.block = {32}}, {}, {}, 16, "sm_100a");
  EXPECT_THAT(run.report.fault, HasSubstr("which no try_cancel has written"));
}

/// A tensor of 16 rows of 32 words, row * 100 + column, and two tensor maps for the kernel's `in`: of it, and of a copy
/// that begins as zeros. Boxes are 8 words wide.
struct TensorRun {
  LaunchReport report;
  std::vector<std::uint32_t> out, stored;
};
TensorRun run_tensor(const std::string& body, const LaunchShape& shape, Options options, Swizzle swizzle) {
  constexpr std::uint32_t kRows = 16, kWidth = 32;
  Emulator emulator(options);
  const auto module = emulator.load(test::ptx_kernel(body, "sm_100a"));
  const std::uint64_t out = emulator.memory().allocate(4096), from = emulator.memory().allocate(kRows * kWidth * 4),
                      to = emulator.memory().allocate(kRows * kWidth * 4), maps = emulator.memory().allocate(256);
  auto* words = reinterpret_cast<std::uint32_t*>(from);
  for (std::uint32_t i = 0; i < kRows * kWidth; ++i) words[i] = i / kWidth * 100 + i % kWidth;
  std::memset(reinterpret_cast<void*>(to), 0, kRows * kWidth * 4);
  std::memset(reinterpret_cast<void*>(out), 0, 4096);
  for (int i = 0; i < 2; ++i) {
    TensorMapDescription map;
    map.address = i == 0 ? from : to;
    map.element = TensorElement::kU32;
    map.dims[0] = kWidth, map.dims[1] = kRows;
    map.strides_bytes[0] = kWidth * 4;
    map.box[0] = 8;
    map.swizzle = swizzle;
    const TensorMap encoded = encode_tensor_map(map);
    std::memcpy(reinterpret_cast<std::byte*>(maps) + i * 128, encoded.bytes, 128);
  }
  const std::uint64_t arguments[] = {out, maps};
  TensorRun run;
  run.report = emulator.launch(*module, "test", shape, std::as_bytes(std::span(arguments)));
  run.out.assign(reinterpret_cast<const std::uint32_t*>(out), reinterpret_cast<const std::uint32_t*>(out) + 64);
  run.stored.assign(reinterpret_cast<const std::uint32_t*>(to),
                    reinterpret_cast<const std::uint32_t*>(to) + kRows * kWidth);
  return run;
}

TEST(TensorGather, TakesFourRowsAndScattersThemAgain) {
  const std::string body = R"(
      mov.u32 %r10, data; add.u32 %r11, %r10, 1024; setp.ne.u32 %p1, %r2, 0;
      @%p1 bra LOADED;
      mbarrier.init.shared::cta.b64 [%r10], 1;
      fence.mbarrier_init.release.cluster;
      mbarrier.arrive.expect_tx.shared::cta.b64 %rd9, [%r10], 128;
      mov.u32 %r20, 4; mov.u32 %r21, 9; mov.u32 %r22, 3; mov.u32 %r23, 16; mov.u32 %r24, 0;
      cp.async.bulk.prefetch.tensor.2d.L2.global.tile::gather4 [%rd1, {%r20, %r21, %r22, %r23, %r24}];
      cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes [%r11], [%rd1, {%r20, %r21, %r22, %r23, %r24}], [%r10];
    LOADED:
      bar.warp.sync 0xffffffff;
    WAIT:
      mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r10], 0;
      @!%p3 bra WAIT;
      shl.b32 %r12, %r2, 2; add.u32 %r13, %r11, %r12; ld.shared.u32 %r14, [%r13];
      cvt.u64.u32 %rd5, %r12; add.u64 %rd6, %rd0, %rd5; st.global.u32 [%rd6], %r14;
      @%p1 bra DONE;
      add.u64 %rd7, %rd1, 128; mov.u32 %r25, 8; mov.u32 %r26, 5; mov.u32 %r27, 2; mov.u32 %r28, 7; mov.u32 %r29, 20;
      cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [%rd7, {%r25, %r26, %r27, %r28, %r29}], [%r11];
      cp.async.bulk.commit_group;
      cp.async.bulk.wait_group 0;
    DONE:
    )";
  for (const Swizzle swizzle : {Swizzle::kNone, Swizzle::k32B})  // which leaves the first four rows where they are
    for (const Completion completion : {Completion::kEager, Completion::kLazy}) {
      const TensorRun run = run_tensor(body, {.block = {32}, .dynamic_shared_bytes = 4096},
                                       {.hazards = true, .completion = completion}, swizzle);
      ASSERT_THAT(all_texts(run.report), IsEmpty());
      const std::uint32_t rows[] = {9, 3, 16, 0};  // the tensor has no row 16
      for (std::uint32_t i = 0; i < 4; ++i)
        for (std::uint32_t column = 0; column < 8; ++column) {
          const std::uint32_t expected = rows[i] == 16 ? 0 : rows[i] * 100 + 4 + column;
          EXPECT_EQ(run.out[i * 8 + column], expected);
        }
      const std::uint32_t to[] = {5, 2, 7};
      for (std::uint32_t row = 0; row < 16; ++row)
        for (std::uint32_t column = 0; column < 32; ++column) {
          std::uint32_t expected = 0;
          for (std::uint32_t i = 0; i < 3; ++i)
            if (row == to[i] && column >= 8 && column < 16 && rows[i] != 16) expected = rows[i] * 100 + column - 4;
          EXPECT_EQ(run.stored[row * 32 + column], expected) << row << " " << column;
        }
    }
}

TEST(TensorCopyOfAPair, SignalsTheCtaThatTheMbarriersAddressNames) {
  // Both CTAs load a box into their own memory, and both loads complete on the even CTA's mbarrier.
  const std::string body = R"(
      mov.u32 %r10, data; add.u32 %r11, %r10, 1024; setp.ne.u32 %p1, %r2, 0; setp.ne.u32 %p2, %r3, 0;
      and.b32 %r15, %r10, 0xfeffffff;
      or.pred %p3, %p1, %p2;
      @%p3 bra READY;
      mbarrier.init.shared::cta.b64 [%r10], 1;
      fence.mbarrier_init.release.cluster;
      mbarrier.arrive.expect_tx.shared::cta.b64 %rd9, [%r10], 64;
    READY:
      barrier.cluster.arrive.release.aligned;
      barrier.cluster.wait.acquire.aligned;
      @%p1 bra LOADED;
      mov.u32 %r20, 8; add.u32 %r21, %r3, 2;
      cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2 [%r11], [%rd1, {%r20, %r21}], [%r15];
    LOADED:
      @%p2 bra WAITED;
    WAIT:
      mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r10], 0;
      @!%p4 bra WAIT;
    WAITED:
      barrier.cluster.arrive.release.aligned;
      barrier.cluster.wait.acquire.aligned;
      setp.gt.u32 %p5, %r2, 7;
      @%p5 bra DONE;
      shl.b32 %r12, %r2, 2; add.u32 %r13, %r11, %r12; ld.shared.u32 %r14, [%r13];
      shl.b32 %r16, %r3, 5; add.u32 %r12, %r12, %r16;
      cvt.u64.u32 %rd5, %r12; add.u64 %rd6, %rd0, %rd5; st.global.u32 [%rd6], %r14;
    DONE:
    )";
  for (const Completion completion : {Completion::kEager, Completion::kLazy, Completion::kRandom}) {
    const TensorRun run = run_tensor(body, {.grid = {2}, .block = {32}, .cluster = {2}, .dynamic_shared_bytes = 4096},
                                     {.hazards = true, .completion = completion}, Swizzle::kNone);
    ASSERT_THAT(all_texts(run.report), IsEmpty());
    for (std::uint32_t i = 0; i < 16; ++i) EXPECT_EQ(run.out[i], (2 + i / 8) * 100 + 8 + i % 8);
  }
}

}  // namespace
}  // namespace kernelwright::emulator
