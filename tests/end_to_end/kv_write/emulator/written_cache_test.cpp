// Decode and prefill over one cache that kv_write has written, with scales of tokens: queued behind each other, without
// a copy in between. Each launch is compared with what the fp64 reference makes of the bytes that the launch has read.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "kernelwright/verify/random.h"
#include "support/written_cache.h"

namespace kernelwright::written_cache_test {
namespace {

using test::expect_right;

struct Chain {
  std::string name;
  CacheOrder order;
  DType q;
  VLayout v_layout = VLayout::kRows;
};
void PrintTo(const Chain& chain, std::ostream* out) { *out << chain.name; }

std::vector<Chain> chains() {
  std::vector<Chain> all;
  const struct {
    const char* name;
    CacheOrder order;
  } orders[] = {{"nhd", CacheOrder::kNhd},
                {"hnd", CacheOrder::kHnd},
                {"packed_tokens", CacheOrder::kPackedTokens},
                {"packed_heads", CacheOrder::kPackedHeads}};
  for (const DType q : {DType::kBf16, DType::kE4m3})
    for (const auto& [name, order] : orders) all.push_back({fmt::format("{}_{}", name, to_string(q)), order, q});
  all.push_back({"columns", CacheOrder::kNhd, DType::kE4m3, VLayout::kColumns});
  return all;
}

/// Scales lie as keys and values do: heads ahead of keys or behind them, and those of a key and its value side by side
/// where these are.
struct ScalePlaces {
  TensorStrides strides;
  DevicePtr value;  // elements from a key's scale to that of its value
};
ScalePlaces places_of(const KvWriteCase& call, CacheOrder order) {
  const std::int64_t heads = call.problem.heads.kv, keys = call.problem.kv_layout.page_size;
  const bool packed = order == CacheOrder::kPackedTokens || order == CacheOrder::kPackedHeads;
  const bool heads_first = order == CacheOrder::kHnd || order == CacheOrder::kPackedHeads;
  const std::int64_t each = packed ? 2 : 1;
  ScalePlaces places{{heads * keys * each, heads * each, each}, static_cast<DevicePtr>(call.slots() * heads)};
  if (heads_first) places.strides = {heads * keys * each, each, keys * each};
  if (packed) places.value = 1;
  return places;
}

/// What lies at `places` of `memory`, in the order of a contiguous array.
std::vector<std::byte> gathered(const std::vector<float>& memory, const ScalePlaces& places, const KvWriteCase& call,
                                DevicePtr first) {
  const std::int64_t keys = call.problem.kv_layout.page_size;
  std::vector<float> scales;
  for (std::int64_t slot = 0; slot < call.slots(); ++slot)
    for (int head = 0; head < call.problem.heads.kv; ++head)
      scales.push_back(
          memory[static_cast<std::size_t>(first) +
                 static_cast<std::size_t>(slot / keys * places.strides.batch + slot % keys * places.strides.token +
                                          head * places.strides.head)]);
  const auto bytes = std::as_bytes(std::span(scales));
  return {bytes.begin(), bytes.end()};
}

class WrittenCache : public test::OnTheEmulator<Chain> {
 protected:
  Engine engine_ = test::make_checking_engine(4, emulator::Completion::kRandom, 1);
};

TEST_P(WrittenCache, IsReadByDecodeAndPrefillWhereItLies) {
  const Chain& chain = GetParam();
  Device& device = engine_.device(0);
  KvWriteProblem problem = test::small_kv_write();
  problem.kv_layout.page_size = 16;
  problem.v_layout = chain.v_layout;
  problem.index = CacheIndex::kPositions;
  problem.dtype.q = chain.q, problem.dtype.kv = DType::kE4m3;
  problem.rope = {.style = RopeStyle::kNeox, .width = 64};
  problem.qk_norm.kind = NormKind::kRms;
  problem.hadamard = problem.hadamard_signs = true;
  problem.scales.k = problem.scales.v = ScaleKind::kPerToken;
  if (is_fp8(chain.q)) problem.scales.q = ScaleKind::kPerToken;
  KvWriteCase cache = make_kv_write_inputs(problem, {.name = "drawn", .tokens = 75}, {.order = chain.order});
  test::make_one_sequence(cache);
  KvWriteDeviceCase writing(device, cache, engine_.prepare(problem));
  const ScalePlaces places = places_of(cache, chain.order);
  // Those of slots that no token has keep what the verdict expects there.
  std::vector<float> scales(static_cast<std::size_t>(cache.slots() * problem.heads.kv * 2));
  std::ranges::fill(std::as_writable_bytes(std::span(scales)), DeviceMemory::kGuardByte);
  DeviceMemory memory(device);
  KvWriteTensors& written = writing.tensors();
  written.k_scale = memory.upload(scales), written.v_scale = written.k_scale + places.value * sizeof(float);
  written.k_scale_strides = written.v_scale_strides = places.strides;

  AttentionProblem attention;
  attention.dtype = {chain.q, DType::kE4m3, DType::kBf16};
  attention.head_dim = problem.head_dim;
  attention.heads = problem.heads;
  attention.kv_layout = problem.kv_layout;
  attention.v_layout = problem.v_layout;
  attention.scales = ScaleKind::kPerToken;
  attention.mask.kind = MaskKind::kCausal;
  attention.lse = true;
  constexpr int kRows[] = {1, 70};  // a decode, and a prefill
  AttentionProblem problems[] = {attention, attention};
  problems[0].max_q_len = 1;
  EXPECT_EQ(plan_attention(problems[0], {}, Arch::kSm90a).main.form(), AttentionForm::kHopperDecode);
  EXPECT_EQ(plan_attention(problems[1], {}, Arch::kSm90a).main.form(), AttentionForm::kHopperPrefill);
  const AttentionCase layouts[] = {test::attention_over(cache, problems[0], kRows[0]),
                                   test::attention_over(cache, problems[1], kRows[1])};
  std::unique_ptr<DeviceCase> reading[2];
  for (int i = 0; i < 2; ++i) {
    reading[i] = std::make_unique<DeviceCase>(device, layouts[i], engine_.prepare(problems[i]));
    reading[i]->use(writing.stream());
    test::read_where_it_lies(*reading[i], writing, problems[i], kRows[i]);
    reading[i]->tensors().pdl = true;
    reading[i]->poison();
  }
  writing.poison();
  writing.launch();
  for (const auto& one : reading) one->launch();

  KvWriteOutput found = writing.download();
  device.copy_to_host(scales.data(), written.k_scale, scales.size() * sizeof(float));
  found.k_scale = gathered(scales, places, cache, 0), found.v_scale = gathered(scales, places, cache, places.value);
  expect_right(cache, found);
  EXPECT_TRUE(writing.guards_are_intact());
  for (int i = 0; i < 2; ++i) {
    SCOPED_TRACE(i == 0 ? "decode" : "prefill");
    expect_right(test::attention_over(cache, problems[i], kRows[i], &found), reading[i]->download());
    EXPECT_TRUE(reading[i]->guards_are_intact());
  }
  test::expect_no_reports(engine_);
}

INSTANTIATE_TEST_SUITE_P(, WrittenCache, testing::ValuesIn(chains()), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace kernelwright::written_cache_test
