// Scales of keys that no writer of a cache made: check_data tells those that some query sees, by sequence, key and
// head. Needs NVRTC and no GPU.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "end_to_end/attention/cases/attention_cases.h"
#include "support/emulated_attention.h"

namespace kernelwright::key_scale_data_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
constexpr ScaleKind kToken = ScaleKind::kPerToken, kPage = ScaleKind::kPerPage;

/// What an engine with check_data tells of the launches of one case, as on a GPU: without hazards.
class KeyScaleData : public test::OnTheEmulator<int> {
 protected:
  KeyScaleData() : engine_(options()) {}

  std::vector<std::string> told_of(const AttentionCase& call) {
    told_.clear();
    AttentionSchedule schedule;
    schedule.family = Family::kPortable;
    DeviceCase on_device(engine_.device(0), call, engine_.prepare(call.problem, schedule));
    on_device.launch();
    on_device.wait();
    return told_;
  }

 private:
  EngineOptions options() {
    EngineOptions options;
    options.backend = "emulator";
    options.check_data = true;
    options.custom_store = test::ptx_store();
    options.sink = [this](const Event& event) {
      if (event.kind == EventKind::kBadData) told_.push_back(event.detail);
    };
    return options;
  }
  std::vector<std::string> told_;
  Engine engine_;
};

std::string told(const char* name, int sequence, int key, int head, const char* value) {
  const bool of_keys = name[0] == 'k';
  return fmt::format(
      "{} of sequence {}, key {}, head {} is {}, and a scale is finite and above 0; {}", name, sequence, key, head,
      value,
      of_keys ? "it multiplies scores all the same" : "values weigh as if it were 2^-60, or 2^100 if it is infinite");
}

AttentionProblem scaled(ScaleKind scales, AttentionProblem problem = default_problem()) {
  return fp8(heads(dims(std::move(problem), 64, 64), 4, 2), scales);
}

/// Gives a key and its value these scales.
void spoil(AttentionCase& call, int sequence, int key, int kv_head, float k_scale, float v_scale) {
  const std::size_t at = call.key_scale_index(sequence, key, kv_head);
  call.k_scale[at] = k_scale, call.v_scale[at] = v_scale;
}

TEST_F(KeyScaleData, OfPaddedKeysIsToldWhereARowSeesThem) {
  for (const bool heads_first : {false, true}) {
    AttentionShape shape = lists({}, {70, 40, 0});
    shape.q_len = 2, shape.kv_starts = {0, 11, 0};
    AttentionCase call = make_inputs(causal(left_padded(scaled(kToken))), shape,
                                     {.heads_first = heads_first, .padding_tokens = heads_first ? 2 : 0});
    EXPECT_THAT(told_of(call), IsEmpty()) << "scales of keys that no row sees are NaN";
    spoil(call, 0, 0, 1, 0, 1);
    spoil(call, 0, 69, 0, 1, -2);
    spoil(call, 1, 11, 1, kNan, kInfinity);
    spoil(call, 1, 10, 0, -1, 0);        // ahead of the first key
    spoil(call, 1, 40, 0, -1, 0);        // behind the last
    spoil(call, 2, 0, 0, kInfinity, 0);  // of a sequence without keys
    EXPECT_THAT(told_of(call), ElementsAre(told("k_scale", 0, 0, 1, "0"), told("v_scale", 0, 69, 0, "-2"),
                                           told("k_scale", 1, 11, 1, "nan"), told("v_scale", 1, 11, 1, "inf")));
  }
}

TEST_F(KeyScaleData, OfRaggedKeysIsToldWhereARowSeesThem) {
  AttentionCase call = make_inputs(windowed(ragged(scaled(kToken)), 20), lists({2, 0, 1}, {30, 50, 64}));
  EXPECT_THAT(told_of(call), IsEmpty());
  spoil(call, 0, 7, 0, 1, kNan);
  spoil(call, 0, 8, 1, -kInfinity, 1);  // the first that the first of two queries sees
  spoil(call, 1, 49, 0, 0, 0);          // of a sequence without queries
  spoil(call, 2, 42, 0, 0, 0);          // left of the window
  spoil(call, 2, 43, 1, 1, 0);
  EXPECT_THAT(told_of(call), ElementsAre(told("k_scale", 0, 8, 1, "-inf"), told("v_scale", 2, 43, 1, "0")));
}

TEST_F(KeyScaleData, OfPagedKeysIsToldWhereARowSeesThem) {
  AttentionShape shape = lists({}, {40, 17, 5});
  shape.q_len = 1;
  AttentionCase call = make_inputs(windowed(paged(scaled(kToken), 16), 25), shape);
  EXPECT_THAT(told_of(call), IsEmpty());
  spoil(call, 0, 13, 0, 0, 0);  // left of the window, in a page that a row sees
  spoil(call, 0, 14, 1, 0, 1);
  spoil(call, 0, 39, 0, 1, kInfinity);
  spoil(call, 0, 40, 0, 0, 0);  // behind the last, in its page
  spoil(call, 1, 16, 1, kNan, -0.f);
  EXPECT_THAT(told_of(call), ElementsAre(told("k_scale", 0, 14, 1, "0"), told("v_scale", 0, 39, 0, "inf"),
                                         told("k_scale", 1, 16, 1, "nan"), told("v_scale", 1, 16, 1, "-0")));
}

TEST_F(KeyScaleData, OfPagesIsToldOncePerPageByItsFirstKeyThatARowSees) {
  AttentionShape shape = lists({}, {40, 17, 5});
  shape.q_len = 1;
  AttentionCase call = make_inputs(windowed(paged(scaled(kPage), 16), 20), shape);
  EXPECT_THAT(told_of(call), IsEmpty()) << "scales of pages that no row sees are NaN";
  spoil(call, 0, 0, 0, 0, 0);  // the page left of the window
  spoil(call, 0, 16, 1, kNan, 1);
  spoil(call, 0, 32, 0, 1, -3);
  spoil(call, 2, 0, 1, kInfinity, 0);
  EXPECT_THAT(told_of(call), ElementsAre(told("k_scale", 0, 19, 1, "nan"), told("v_scale", 0, 32, 0, "-3"),
                                         told("k_scale", 2, 0, 1, "inf"), told("v_scale", 2, 0, 1, "0")));
  call.page_table[2] = -1;  // sequence 0 loses its last page, and that page's scales
  EXPECT_THAT(told_of(call),
              ElementsAre(testing::StartsWith("page_table[0, 2] is -1"), told("k_scale", 0, 19, 1, "nan"),
                          told("k_scale", 2, 0, 1, "inf"), told("v_scale", 2, 0, 1, "0")));
}

TEST_F(KeyScaleData, OfRecordsIsToldWhereARowSeesThem) {
  AttentionProblem problem = decode(windowed(paged(dims(default_problem(), 576, 512), 16), 25), 1);
  problem.heads = {2, 1}, problem.v_layout = VLayout::kKeyPrefix;
  problem.dtype.kv = DType::kE4m3, problem.scales = ScaleKind::kPerBlock;
  AttentionShape shape = lists({}, {40, 17});
  shape.q_len = 1;
  AttentionCase call = make_inputs(problem, shape);
  EXPECT_THAT(told_of(call), IsEmpty());
  const auto spoil_record = [&](int sequence, int key, int block, float scale) {
    std::memcpy(call.k_row(sequence, key, 0) + 512 + block * 4, &scale, 4);
  };
  spoil_record(0, 13, 0, 0);  // left of the window, in a page that the row sees
  spoil_record(0, 14, 3, -1);
  spoil_record(0, 39, 1, kInfinity);
  spoil_record(1, 16, 2, kNan);
  const auto told_of_record = [](int sequence, int key, int block, const char* value) {
    return fmt::format(
        "k of sequence {}, key {}: scale {} of its record is {}, and a scale is finite and above 0; it multiplies "
        "latents all the same",
        sequence, key, block, value);
  };
  EXPECT_THAT(told_of(call), ElementsAre(told_of_record(0, 14, 3, "-1"), told_of_record(0, 39, 1, "inf"),
                                         told_of_record(1, 16, 2, "nan")));
}

}  // namespace
}  // namespace kernelwright::key_scale_data_test
