// What lies in device memory and does not fit: it is told by token and value, and harms nothing else. And launches of
// thousands of tokens, and far positions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernelwright/generator/kv_write/rope_table.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "support/emulated_kv_write.h"
#include "support/ptx_store.h"

namespace kernelwright::kv_write_data_test {
namespace {

using test::expect_right;
using test::run_checked;
using test::small_kv_write;
using testing::Contains;
using testing::ElementsAre;

/// What an engine with check_data tells of the launches of one case, as on a GPU: without hazards.
class KvWriteData : public test::OnTheEmulator<int> {
 protected:
  KvWriteData() : engine_(options()) {}

  std::vector<std::string> told_of(const KvWriteCase& call) {
    told_.clear();
    KvWriteDeviceCase on_device(engine_.device(0), call, engine_.prepare(call.problem));
    on_device.poison();
    on_device.launch();
    expect_right(call, on_device.download());
    EXPECT_TRUE(on_device.guards_are_intact());
    return told_;
  }

 private:
  EngineOptions options() {
    EngineOptions options;
    options.backend = test::tests_run_on_cuda() ? "cuda" : "emulator";
    options.check_data = true;
    if (!test::tests_run_on_cuda()) options.custom_store = test::ptx_store();
    options.sink = [this](const Event& event) {
      if (event.kind == EventKind::kBadData) told_.push_back(event.name + ": " + event.detail);
    };
    return options;
  }
  std::vector<std::string> told_;
  Engine engine_;
};
INSTANTIATE_TEST_SUITE_P(, KvWriteData, testing::Values(0));

TEST_P(KvWriteData, OfSlotsIsToldByTokenAndValue) {
  KvWriteProblem problem = small_kv_write();
  problem.rope = {.style = RopeStyle::kNeox, .width = 64};
  KvWriteCase call = make_kv_write_inputs(problem, {.name = "drawn", .tokens = 5, .pages = 4});
  EXPECT_THAT(told_of(call), ElementsAre());
  call.slot_mapping = {3, -1, 16, std::int64_t{1} << 40, 0};
  call.positions = {-1, 99, 2, 3, 10};
  EXPECT_THAT(
      told_of(call),
      ElementsAre(
          "kv_write: slot_mapping[2] is 16, and the cache has slots 0 to 15; the token is not written",
          "kv_write: slot_mapping[3] is 1099511627776, and the cache has slots 0 to 15; the token is not written",
          "kv_write: positions[0] is -1, and cos_sin has 10 rows; it is read as row 0",
          "kv_write: positions[4] is 10, and cos_sin has 10 rows; it is read as row 9"))
      << "the second token is skipped, so its position is no mistake";
}

TEST_P(KvWriteData, OfPlacesIsToldByTokenAndValue) {
  KvWriteProblem problem = small_kv_write();
  problem.index = CacheIndex::kPositions;
  KvWriteCase call = make_kv_write_inputs(problem, {.name = "drawn", .tokens = 6}, {.position_bytes = 8});
  EXPECT_THAT(told_of(call), ElementsAre());
  call.batch = 2, call.page_table_stride = 3;
  ASSERT_EQ(call.num_pages, 16);
  call.page_table = {4, -2, 16, 7, 1, 0};
  call.batch_indices = {0, 0, 0, 2, 1, -1};
  call.positions = {0, 5, 11, 0, 12, 0};
  EXPECT_THAT(
      told_of(call),
      ElementsAre("kv_write: page_table[0, 1] is -2, which is no page; token 1 is not written",
                  "kv_write: page_table[0, 2] is 16, and there are pages 0 to 15; token 2 is not written",
                  "kv_write: batch_indices[3] is 2, and there are sequences 0 to 1; the token is not written",
                  "kv_write: positions[4] is 12, and a sequence of the cache has 12 keys; the token is not written"));
}

TEST_P(KvWriteData, OfManyTokensEndsWithTheirNumber) {
  KvWriteCase call = make_kv_write_inputs(small_kv_write(), {.name = "drawn", .tokens = 40, .pages = 1});
  for (std::int64_t& slot : call.slot_mapping) slot = 4;
  const std::vector<std::string> told = told_of(call);
  ASSERT_EQ(told.size(), 16u);
  EXPECT_EQ(told.back(), "kv_write: and 25 more");
}

/// On an engine with hazards, which looks at data too. A GPU writes the same bytes, and tells nothing.
class KvWriteFaults : public test::OnTheEmulator<int> {
 protected:
  template <class Matcher>
  void expect_told(const Matcher& matcher) {
    std::vector<std::string> told;
    for (const auto& [name, report] : test::take_reports(engine_)) {
      EXPECT_EQ(report.kind, emulator::HazardKind::kData) << report.text();
      told.push_back(report.what);
    }
    if (!test::tests_run_on_cuda()) EXPECT_THAT(told, matcher);
  }
  KvWriteOutput run(const KvWriteCase& call, const test::KvWriteChange& change = {}) {
    KvWriteDeviceCase on_device(engine_.device(0), call, engine_.prepare(call.problem));
    if (change) change(on_device.tensors());
    on_device.poison();
    on_device.launch();
    const KvWriteOutput output = on_device.download();
    EXPECT_TRUE(on_device.guards_are_intact());
    return output;
  }
  Engine engine_ = test::make_checking_engine(4, emulator::Completion::kRandom, 1);
};
INSTANTIATE_TEST_SUITE_P(, KvWriteFaults, testing::Values(0));

TEST_P(KvWriteFaults, ScalesThatAreNoNumbersAboveZeroAreTold) {
  KvWriteProblem problem = small_kv_write();
  problem.dtype.kv = DType::kE4m3;
  problem.scales.k = problem.scales.v = ScaleKind::kPerHead;
  const KvWriteCase good = make_kv_write_inputs(problem, {.name = "drawn", .tokens = 3});
  const KvWriteOutput right = run(good);
  expect_told(ElementsAre());
  KvWriteCase bad = good;
  bad.k_scale[0] = 0;
  bad.v_scale = {-1, std::numeric_limits<float>::infinity()};
  const KvWriteOutput output = run(bad);
  expect_told(ElementsAre("k_scale[0] is 0; a scale is finite and above 0",
                          "v_scale[0] is -1; a scale is finite and above 0",
                          "v_scale[1] is inf; a scale is finite and above 0"));
  for (std::int64_t token = 0; token < 3; ++token) {  // the head beside it, and the queries, are as before
    const std::size_t first = bad.cache_byte(HeadsOf::kK, bad.slot_of(token), 1);
    EXPECT_EQ(std::memcmp(output.cache.data() + first, right.cache.data() + first, 64), 0);
  }
  EXPECT_EQ(output.q_out, right.q_out);
  bad.k_scale[0] = std::numeric_limits<float>::quiet_NaN();
  run(bad);
  expect_told(Contains("k_scale[0] is nan; a scale is finite and above 0"));
}

TEST_P(KvWriteFaults, OneOfTwoTokensOfASlotStays) {
  KvWriteCase call = make_kv_write_inputs(small_kv_write(), {.name = "drawn", .tokens = 6});
  call.slot_mapping[4] = call.slot_mapping[1];
  const KvWriteOutput output = run(call);
  expect_told(ElementsAre("tokens 1 and 4 have one place of the cache; either may stay"));
  const auto written_alone = [&](std::int64_t token) {
    KvWriteCase one = call;
    for (std::int64_t other = 0; other < 6; ++other)
      if (other != token) one.slot_mapping[static_cast<std::size_t>(other)] = -1;
    return run(one).cache;
  };
  const std::vector<std::byte> first_token = written_alone(1), second_token = written_alone(4);
  bool all_first = true, all_second = true;
  for (const HeadsOf of : {HeadsOf::kK, HeadsOf::kV})
    for (int head = 0; head < 2; ++head)
      for (int element = 0; element < 64; ++element) {
        const std::size_t at = call.cache_byte(of, call.slot_mapping[1], head, element);
        const auto is_of = [&](const std::vector<std::byte>& cache) {
          return std::memcmp(output.cache.data() + at, cache.data() + at, 2) == 0;
        };
        all_first = all_first && is_of(first_token), all_second = all_second && is_of(second_token);
        EXPECT_TRUE(is_of(first_token) || is_of(second_token)) << "head " << head << ", element " << element;
      }
  // On a GPU the warps of both tokens write at once, so that parts of both may stay.
  if (!test::tests_run_on_cuda()) EXPECT_TRUE(all_first || all_second);
  test::take_reports(engine_);
}

TEST_P(KvWriteFaults, KeysBehindTheSlotsAreLeftAlone) {
  const KvWriteCase call = make_kv_write_inputs(small_kv_write(), {.name = "drawn", .tokens = 9});
  KvWriteCase shorter = call;
  shorter.slot_mapping.resize(5);
  for (int i = 0; i < 4; ++i) shorter.slot_mapping.push_back(-1);  // what the outputs of 5 tokens are
  const KvWriteOutput wanted = run(shorter), found = run(call, [](KvWriteTensors&t) { t.tokens = 5; });
  EXPECT_EQ(found.cache, wanted.cache);
  const std::size_t rows = 5 * 4 * 64 * 2;
  EXPECT_TRUE(std::equal(found.q_out.begin(), found.q_out.begin() + rows, wanted.q_out.begin()));
  for (std::size_t i = rows; i < found.q_out.size(); ++i) ASSERT_EQ(found.q_out[i], DeviceMemory::kGuardByte);
  expect_told(ElementsAre());
}

TEST_P(KvWriteFaults, ThousandsOfTokensAreWritten) {
  KvWriteProblem problem = small_kv_write();
  problem.heads = {2, 1};
  problem.kv_layout.page_size = 16;
  problem.rope = {.style = RopeStyle::kNeox, .width = 64};
  problem.dtype.kv = DType::kE4m3;
  problem.scales.k = problem.scales.v = ScaleKind::kPerToken;
  const KvWriteCase call = make_kv_write_inputs(problem, {.name = "drawn", .tokens = 8192});
  expect_right(call, run_checked(engine_, call));
}

TEST_P(KvWriteFaults, FarPositionsHaveTheAnglesOfTheTable) {
  KvWriteProblem problem = small_kv_write();
  problem.rope = {.style = RopeStyle::kGptj, .width = 8};
  for (const std::int64_t far : {std::int64_t{1} << 20, (std::int64_t{1} << 20) + 12345}) {
    KvWriteCase call = make_kv_write_inputs(problem, {.name = "drawn", .tokens = 3}, {.position_bytes = 8});
    call.cos_sin_rows = static_cast<int>(far) + 8;
    call.cos_sin = rope_table({.width = 8}, 0, call.cos_sin_rows);
    call.positions = {far, far + 7, 5};
    expect_right(call, run_checked(engine_, call));
    for (int pair = 0; pair < 4; ++pair) {  // the table itself: f32 of the exact angle
      const long double angle = static_cast<long double>(far + 7) * std::pow(10000.0L, -2.0L * pair / 8);
      const float* row = call.cos_sin.data() + (far + 7) * 8;
      EXPECT_NEAR(row[pair], static_cast<double>(std::cos(angle)), 1e-7);
      EXPECT_NEAR(row[4 + pair], static_cast<double>(std::sin(angle)), 1e-7);
    }
  }
}

}  // namespace
}  // namespace kernelwright::kv_write_data_test
