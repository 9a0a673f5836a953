// Rows as files: what is read, what is written, and what is refused.
#include "kernelwright/generator/tuned/row.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/json/document.h"
#include "support/expect_message.h"
#include "support/tuned_rows.h"

namespace kernelwright {
namespace {

using test::paged_decode;
using test::prefill_of;
using test::row_for;
using ::testing::HasSubstr;

/// The row's JSON with one member changed.
std::string changed(const std::string& key, JsonValue value) {
  JsonValue json = JsonValue::parse(write_tuned_row(row_for(prefill_of())));
  return json.set(key, std::move(value)).dump();
}

std::string refusal(const std::string& json) {
  try {
    read_tuned_row(json);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(TunedRow, ReadsBackWhatItWrote) {
  TunedRow row = row_for(paged_decode());
  row.schedule.block_n = 128;
  row.provenance.compiler = "NVRTC 13.0";
  row.provenance.runner_up.num_stages = 3;
  row.provenance.clock_mhz = 1755;
  EXPECT_EQ(read_tuned_row(write_tuned_row(row)), AnyTunedRow(row));
}

TEST(TunedRow, RefusesAnUnknownFieldAndAMissingOneAtOnce) {
  JsonValue json = JsonValue::parse(changed("blok_n", 3));
  JsonValue rest = JsonValue::object();
  for (const auto& [key, value] : json.members())
    if (key != "provenance") rest.set(key, value);
  const std::string message = refusal(rest.dump());
  EXPECT_THAT(message, HasSubstr("/blok_n: is not a field here"));
  EXPECT_THAT(message, HasSubstr("/provenance: is missing"));
}

TEST(TunedRow, RefusesAClassThatIsNotTheProblems) {
  EXPECT_THAT(
      refusal(changed("class", "f16 64/64 padded none prefill")),
      HasSubstr("/class: \"f16 64/64 padded none prefill\" is not the problem's; it takes \"bf16 128/128 padded "
                "causal prefill\""));
}

TEST(TunedRow, RefusesARowWithoutADeviceOrWithOneOfAnotherArchitecture) {
  JsonValue rest = JsonValue::object();
  const JsonValue json = JsonValue::parse(write_tuned_row(row_for(prefill_of())));
  for (const auto& [key, value] : json.members())
    if (key != "device") rest.set(key, value);
  EXPECT_THAT(refusal(rest.dump()), HasSubstr("/device: is missing"));
  EXPECT_THAT(refusal(changed("device", "h10")), HasSubstr("/device: \"h10\" is no device"));
  EXPECT_THAT(refusal(changed("device", "a100")), HasSubstr("/device: a100 is a device of sm_80, and /arch is sm_90a"));
}

TEST(TunedRow, RefusesAScheduleWithoutAFamilyOrWithAnArch) {
  EXPECT_THAT(refusal(changed("schedule", JsonValue::object().set("block_n", 64))),
              HasSubstr("/schedule/family: is missing"));
  EXPECT_THAT(refusal(changed("schedule", JsonValue::object().set("family", "portable").set("arch", "sm_90a"))),
              HasSubstr("/schedule/arch: has no meaning in a row"));
}

TEST(TunedRow, RefusesAnotherVersionAndAnotherKind) {
  EXPECT_THAT(refusal(changed("version", 2)), HasSubstr("/version: 2 is not a version that this library reads"));
  EXPECT_THAT(refusal(changed("kind", "grouped")),
              HasSubstr("/kind: \"grouped\" rows are not read; it takes attention or gemm"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("an array of 1 is no tuned row"));
  EXPECT_THAT(refusal("{\"version\": 1"), HasSubstr("the JSON ends before it is complete"));
}

TEST(TuningClass, TellsApartWhatMayNotShareRows) {
  EXPECT_EQ(tuning_class(paged_decode()), "bf16 128/128 paged causal decode");
  AttentionProblem fp8 = prefill_of();
  fp8.dtype.kv = DType::kE4m3;
  fp8.scales = ScaleKind::kPerHead;
  EXPECT_EQ(tuning_class(fp8), "bf16 e4m3 128/128 padded causal per_head prefill");
  AttentionProblem joined = prefill_of();
  joined.mask = {.kind = MaskKind::kAnd};
  joined.mask.operands.resize(2);
  joined.mask.operands[0].kind = MaskKind::kCausal;
  joined.mask.operands[1].kind = MaskKind::kChunked;
  EXPECT_EQ(tuning_class(joined), "bf16 128/128 padded and(causal,chunked) prefill");
}

TEST(CanonicalText, IsEqualForEqualProblemsAlone) {
  EXPECT_EQ(canonical_text(prefill_of()), canonical_text(prefill_of()));
  EXPECT_NE(canonical_text(prefill_of(8, 2)), canonical_text(prefill_of(8, 4)));
  EXPECT_EQ(canonical_text(AttentionSchedule{}), "{}");
}

}  // namespace
}  // namespace kernelwright
