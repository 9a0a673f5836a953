/// What a launch of attention_sm100 passes to the device: its tensor maps, and numbers by value.
#include "contract/attention_sm100.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/runtime/attention/tensor_maps.h"
#include "kernelwright/runtime/engine/notes.h"
#include "runtime/engine/engine_fixture.h"

namespace kernelwright::test {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

using detail::AttentionTensorMaps;

AttentionSchedule blackwell(bool packs = false) {
  AttentionSchedule schedule;
  schedule.family = Family::kBlackwell;
  schedule.pack_gqa = packs;
  return schedule;
}

/// The tensor maps of some_tensors() (batch 2, q_len 100, kv_len 300; heads 8 and 2).
AttentionTensorMaps maps_of(const AttentionProblem& problem, const AttentionSchedule& schedule) {
  const AttentionTensors tensors = some_tensors();
  const detail::LoadedAttention kernel =
      detail::describe(problem, plan_attention(problem, schedule, Arch::kSm100a), DeviceInfo{.num_sms = 148});
  return detail::tensor_maps_of(kernel, tensors, detail::resolve_strides(kernel, tensors));
}

std::vector<std::uint64_t> dims(const TensorMapRequest& map) { return {map.dims, map.dims + map.rank}; }
std::vector<std::uint32_t> box(const TensorMapRequest& map) { return {map.box, map.box + map.rank}; }

TEST(BlackwellTensorMaps, HaveABoxOfOneQueryTile) {
  for (const int num_q : {1, 2}) {
    AttentionSchedule schedule = blackwell();
    schedule.num_q = num_q;
    const AttentionTensorMaps maps = maps_of(prefill_problem(), schedule);
    EXPECT_THAT(dims(maps.q), ElementsAre(128, 100, 8, 2));
    EXPECT_THAT(box(maps.q), ElementsAre(64, 128, 1, 1)) << "not block_m";
    EXPECT_THAT(dims(maps.k), ElementsAre(128, 300, 2, 2));
    EXPECT_THAT(box(maps.k), ElementsAre(64, 128, 1, 1));
    EXPECT_THAT(box(maps.v), ElementsAre(64, 128, 1, 1));
    EXPECT_EQ(maps.q.swizzle, Swizzle::k128B);
  }
}

TEST(BlackwellTensorMaps, OfPackedHeadsTakeAGroupBesideItsTokens) {
  const AttentionTensorMaps maps = maps_of(prefill_problem(), blackwell(true));
  EXPECT_THAT(dims(maps.q), ElementsAre(128, 4, 100, 2, 2));
  EXPECT_THAT(box(maps.q), ElementsAre(64, 4, 32, 1, 1)) << "128 rows: 32 tokens of 4 heads";
}

TEST(BlackwellTensorMaps, HaveBoxesAsWideAsTheSwizzle) {
  AttentionProblem problem = prefill_problem();
  problem.dtype = {DType::kE4m3, DType::kE4m3, DType::kBf16};
  problem.head_dim = {64, 64};
  const AttentionTensorMaps maps = maps_of(problem, blackwell());
  EXPECT_EQ(maps.q.swizzle, Swizzle::k64B) << "a row is 64 bytes";
  EXPECT_THAT(box(maps.q), ElementsAre(64, 128, 1, 1));
  AttentionSchedule schedule = blackwell();
  schedule.swizzle = Swizzle::k32B;
  EXPECT_THAT(box(maps_of(problem, schedule).v), ElementsAre(32, 128, 1, 1));
}

TEST(BlackwellTensorMaps, OfARotaryPartAreFour) {
  AttentionProblem problem = prefill_problem();
  problem.dtype = {DType::kE4m3, DType::kE4m3, DType::kBf16};
  problem.head_dim = {192, 128};
  problem.rope = {64, DType::kF16};
  AttentionTensors tensors = some_tensors();
  tensors.q_rope = 0x70000, tensors.k_rope = 0x80000;
  const detail::LoadedAttention kernel =
      detail::describe(problem, plan_attention(problem, blackwell(true), Arch::kSm100a), DeviceInfo{.num_sms = 148});
  const auto maps_of_tensors = [&] {
    return detail::tensor_maps_of(kernel, tensors, detail::resolve_strides(kernel, tensors));
  };
  AttentionTensorMaps maps = maps_of_tensors();
  EXPECT_THAT(dims(maps.q), ElementsAre(128, 4, 100, 2, 2));
  EXPECT_THAT(box(maps.q), ElementsAre(128, 4, 32, 1, 1)) << "128 bytes";
  EXPECT_THAT(dims(maps.q_rope), ElementsAre(64, 4, 100, 2, 2));
  EXPECT_THAT(box(maps.q_rope), ElementsAre(64, 4, 32, 1, 1));
  EXPECT_EQ(maps.q_rope.dtype, DType::kF16);
  EXPECT_EQ(maps.q_rope.address, 0x70000u);
  EXPECT_THAT(dims(maps.k), ElementsAre(128, 300, 2, 2));
  EXPECT_THAT(dims(maps.k_rope), ElementsAre(64, 300, 2, 2));
  EXPECT_FALSE(maps.one_rope);
  tensors.k_rope_strides = {300 * 64, 64, 0};
  maps = maps_of_tensors();
  EXPECT_THAT(dims(maps.k_rope), ElementsAre(64, 300, 1, 2)) << "one for all heads";
  EXPECT_TRUE(maps.one_rope);
}

struct BlackwellLaunchTest : EngineTest {
  BlackwellLaunchTest() : engine(options()) {
    DeviceInfo& info = device().mutable_info();
    info.compute_major = 10;
    info.arch = Arch::kSm100a;
  }
  Engine engine;
};

TEST_F(BlackwellLaunchTest, PassesMapsAndNumbersByValue) {
  const AttentionKernel kernel = engine.prepare(prefill_problem(), blackwell());
  EXPECT_EQ(kernel.workspace_bytes(kernel.extent(some_tensors())), 0u);
  kernel.launch(some_tensors(), some_stream());
  ASSERT_THAT(device().launches(), SizeIs(1));
  const FakeLaunch launch = device().launches()[0];
  EXPECT_TRUE(launch.kernel->entry.starts_with("attention_sm100_"));
  const auto params = launch.as<contract::BlackwellAttentionParams>();
  const AttentionTensorMaps expected = maps_of(prefill_problem(), blackwell());
  EXPECT_EQ(device().tensor_map(&params.q), expected.q);
  EXPECT_EQ(device().tensor_map(&params.k), expected.k);
  EXPECT_EQ(device().tensor_map(&params.v), expected.v);
  EXPECT_EQ(params.attention.num_m_blocks, 1);
  EXPECT_EQ(params.attention.num_splits, 1);
  EXPECT_EQ(params.attention.kv_len, 300);
  EXPECT_EQ(params.attention.o, reinterpret_cast<void*>(0x40000));
  EXPECT_EQ(launch.config.grid[0], 16u) << "a CTA for each head of each sequence";
  EXPECT_EQ(launch.config.block, 512u);
  EXPECT_EQ(launch.config.shared_bytes, launch.kernel->max_shared_bytes);
}

TEST_F(BlackwellLaunchTest, IsWhatAPrefillGetsUnasked) {
  engine.prepare(prefill_problem()).launch(some_tensors(), some_stream());
  EXPECT_TRUE(device().launches().at(0).kernel->entry.starts_with("attention_sm100_"));
}

TEST_F(BlackwellLaunchTest, RefusesInputsThatBroadcast) {
  AttentionTensors tensors = some_tensors();
  tensors.k_strides = {.batch = 0, .token = 256, .head = 128};
  const AttentionKernel kernel = engine.prepare(prefill_problem(), blackwell());
  EXPECT_EQ(message_of<ConfigError>([&] { kernel.launch(tensors, some_stream()); }),
            "/tensors/k_strides: strides [batch 0, token 256, head 128] broadcast, which attention_sm100 does not: it "
            "reads through tensor maps; copy the operand, or prepare the problem with \"family\": \"portable\"");
  EXPECT_THAT(device().launches(), SizeIs(0));
}

TEST(BlackwellNotes, NameEveryWarp) {
  const AttentionSpec spec = plan_attention(prefill_problem(), blackwell(), Arch::kSm100a).main;
  const KernelNotes notes = notes_of(spec);
  std::uint32_t next = 0;
  std::vector<std::string> names;
  for (const auto& role : notes.roles) {
    EXPECT_EQ(role.first_warp, next) << role.name;
    next += role.num_warps;
    names.push_back(role.name);
  }
  EXPECT_EQ(next, 16u);
  EXPECT_THAT(names, ElementsAre("softmax 0", "softmax 1", "correction", "mma", "load", "clean", "idle"));
  EXPECT_EQ(notes.shared[1].name, "keys and values");
  EXPECT_EQ(notes.shared[1].stage_bytes, 128u * 128 * 2);
}

}  // namespace
}  // namespace kernelwright::test
