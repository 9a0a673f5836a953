#include "kernelwright/generator/json/config_json.h"

#include <gtest/gtest.h>

#include "support/expect_message.h"

namespace kernelwright {
namespace {

/// A valid attention config with `problem` added to its problem and `rest` to its top level.
std::string attention(const std::string& problem = "", const std::string& rest = "") {
  return R"({"version": 1, "kind": "attention", "name": "t", "problem": {"head_dim": {"qk": 128, "v": 128}, "heads": {"q": 8, "kv": 2})" +
         problem + "}" + rest + "}";
}
std::string scheduled(const std::string& schedule) { return attention("", R"(, "schedule": )" + schedule); }
std::string shaped(const std::string& shapes) { return attention("", R"(, "shapes": )" + shapes); }

/// The error of read_config for `json`; "" if there is none.
std::string complaint(const std::string& json) {
  try {
    read_config(json);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

constexpr const char* kScheduleFields =
    "arch, family, block_m, block_n, block_k, warp_n, num_stages, staging, token_gen, num_warps, q_stages, "
    "num_kv_stages, "
    "num_qk_stages, "
    "num_mma_stages, kv_ring, num_q, math_warpgroups, overlap, swizzle, cta_group, cluster, scheduler, pack_gqa, "
    "splits, "
    "merge, rescale, pv_promote, pv_buffers, exp2_emulated";

TEST(ConfigJson, ReadsEveryKindOfField) {
  const auto config = std::get<AttentionConfig>(read_config(attention(
      R"(, "dtype": {"q": "f16", "kv": "e4m3", "out": "f32"}, "mask": {"kind": "and", "operands": [{"kind": "causal"},
          {"kind": "sliding_window", "window": {"left": 127, "right": 0}}]}, "score_mod": {"kind": "softcap", "cap": 30},
          "rope": {"width": 64, "dtype": "f16"}, "sinks": true, "scales": "per_head", "max_q_len": 9)",
      R"(, "schedule": {"arch": "sm_90a", "block_m": 64, "token_gen": false, "cluster": [2, 1], "splits": "auto",
          "exp2_emulated": 0.25}, "shapes": [{"name": "s", "batch": 2, "kv_lens": [3, 0], "check": true}])")));
  EXPECT_EQ(config.problem.dtype, (AttentionDTypes{DType::kF16, DType::kE4m3, DType::kF32}));
  ASSERT_EQ(config.problem.mask.operands.size(), 2u);
  EXPECT_EQ(config.problem.mask.operands[1].window, (Window{127, 0}));
  EXPECT_EQ(config.problem.score_mod.cap, 30.0);
  EXPECT_EQ(config.problem.rope, (Rope{64, DType::kF16}));
  EXPECT_TRUE(config.problem.sinks);
  EXPECT_EQ(config.problem.max_q_len, 9);
  EXPECT_EQ(config.schedule.arch.value(), Arch::kSm90a);
  EXPECT_EQ(config.schedule.block_m.value(), 64);
  EXPECT_FALSE(config.schedule.token_gen.value());
  EXPECT_EQ(config.schedule.cluster.value(), (ClusterShape{2, 1}));
  EXPECT_TRUE(config.schedule.splits.is_auto());
  EXPECT_TRUE(config.schedule.block_n.is_auto());
  EXPECT_EQ(config.schedule.exp2_emulated.value(), 0.25);
  ASSERT_EQ(config.shapes.size(), 1u);
  EXPECT_EQ(config.shapes[0].kv_lens, (std::vector<int>{3, 0}));
  EXPECT_TRUE(config.shapes[0].check);
}

TEST(ConfigJson, TakesAutoForTheWholeSchedule) {
  EXPECT_EQ(read_config(scheduled(R"("auto")")), read_config(attention()));
  EXPECT_EQ(read_config(scheduled("{}")), read_config(attention()));
}

TEST(ConfigJson, NamesThePathOfABadField) {
  EXPECT_THROW_MESSAGE(read_config(scheduled(R"({"num_stages": 40})")), ConfigError,
                       "/schedule/num_stages: 40 is outside [1, 32]");
}

TEST(ConfigJson, ReportsAllViolationsAtOnce) {
  EXPECT_EQ(
      complaint(R"({"version": 2, "kind": "attention", "nmae": "x", "problem": {"heads": {"q": 30, "kv": 8},
            "sinks": 1, "kv_layout": {"kind": "paged"}}, "schedule": {"block_m": 100, "num_stages": 0}})"),
      "/nmae: is not a field here (did you mean \"name\"?); the fields are version, kind, name, problem, schedule, "
      "shapes\n"
      "/version: 2 is not a version that this library reads; it reads version 1\n"
      "/name: is missing; a config has a name for reports and file names\n"
      "/problem/head_dim: is missing and has no default (head sizes)\n"
      "/problem/sinks: 1 does not fit; it takes true or false\n"
      "/schedule/block_m: 100 is not in [16, 256] in steps of 16\n"
      "/schedule/num_stages: 0 is outside [1, 32]\n"
      "/problem/heads/q: 30 query heads do not share 8 key/value heads evenly; it takes a multiple of 8\n"
      "/problem/kv_layout/page_size: is missing for kind \"paged\"; it takes 1 to 65536");
}

TEST(ConfigJson, CountsWhatItDoesNotShow) {
  std::string keys;
  for (int i = 0; i < 1000; ++i) keys += ", \"unknown" + std::to_string(i) + "\": 0";
  try {
    read_config(attention(keys));
    FAIL() << "unknown keys were read";
  } catch (const ConfigError& error) {
    ASSERT_EQ(error.violations().size(), 65u);
    EXPECT_EQ(error.violations().back().message, "and 936 more");
  }
}

struct BadInput {
  const char* name;
  std::string json, complaint;
};
void PrintTo(const BadInput& input, std::ostream* out) { *out << input.name; }

class ConfigJsonRefuses : public testing::TestWithParam<BadInput> {};
TEST_P(ConfigJsonRefuses, WithPlaceAndReason) { EXPECT_EQ(complaint(GetParam().json), GetParam().complaint); }

INSTANTIATE_TEST_SUITE_P(
    Text, ConfigJsonRefuses,
    testing::ValuesIn(std::vector<BadInput>{
        {"Empty", "", "/: the text is empty; a config is an object"},
        {"Blank", " \n\t", "/: the text is empty; a config is an object"},
        {"Truncated", "{\"version\": 1,\n \"kind\": \"atten", "line 2, column 16: the JSON ends before it is complete"},
        {"OpenArray", "[1, 2", "line 1, column 6: the JSON ends before it is complete"},
        {"Number", "3", "/: 3 is no config; a config is an object"},
        {"Null", "null", "/: null is no config; a config is an object"},
        {"Array", "[1]", "/: an array of 1 is no config; a config is an object"},
        {"TrailingComma", "{\"a\": 1,\n}", "line 2, column 1: \"}\" does not belong here; drop the comma before it"},
        {"TrailingText", "{} x", "line 1, column 4: \"x\" does not belong here; expected end of input"},
        {"NoColon", R"({"a" 1})", "line 1, column 6: \"1\" does not belong here; expected ':'"},
        {"LeadingZero", R"({"a": 01})", "line 1, column 8: \"01\" does not belong here; expected '}'"},
        {"SingleQuotes", "{'a': 1}", "line 1, column 2: \"'\" does not belong here; text goes in double quotes"},
        {"Comment", "// c\n{}", "line 1, column 1: \"/\" does not belong here; JSON has no comments"},
        {"NaN", R"({"a": NaN})", "line 1, column 7: \"NaN\" does not belong here; a number is finite"},
        {"Infinity", R"({"a": -Infinity})", "line 1, column 8: \"-Infinity\" does not belong here; a number is finite"},
        {"BigWord", R"({"a": True})",
         "line 1, column 7: \"True\" does not belong here; the only words without quotes are true, false and null"},
        {"HugeNumber", R"({"a": 1e999})", "line 1, column 11: \"1e999\" is too large for a number"},
        {"LineBreakInText", "{\"a\n\": 1}",
         "line 1, column 4: a text with a fault: control character U+000A (LF) must be escaped to \\u000A or \\n"},
        {"BadEscape", R"({"\q": 1})", "line 1, column 4: a text with a fault: forbidden character after backslash"},
        {"LoneSurrogate", R"({"\ud800": 1})",
         "line 1, column 9: a text with a fault: surrogate U+D800..U+DBFF must be followed by U+DC00..U+DFFF"},
        {"InvalidUtf8", "{\"\xC3\xA9\": \"\xFF\"}",
         "line 1, column 8: a byte that is not UTF-8; save the file as UTF-8"},
        {"OverlongUtf8", "{\"\xC0\xAF\": 1}", "line 1, column 3: a byte that is not UTF-8; save the file as UTF-8"},
        {"ByteOrderMark", "\xEF\xBB\xBF{}", "line 1, column 1: a byte order mark; save the file as UTF-8 without one"},
        {"Utf16", std::string("\xFF\xFE{\0}\0", 6),
         "line 1, column 1: a byte that is not UTF-8; save the file as UTF-8"},
        {"DeepArrays", std::string(100000, '['), "line 1, column 65: arrays and objects nest more than 64 deep here"},
        {"TooLarge", std::string(1048577, ' '), "/: is 1048577 bytes; a config has at most 1048576"},
    }),
    [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Envelope, ConfigJsonRefuses,
    testing::ValuesIn(std::vector<BadInput>{
        {"NothingInside", "{}",
         "/version: is missing; this library reads version 1\n/name: is missing; a config has a name for reports and "
         "file "
         "names\n/kind: is missing; it takes one of attention, gemm, kv_write, row_op, route, moe_combine"},
        {"UnknownKind", R"({"version": 1, "kind": "attn", "name": "t"})",
         "/kind: \"attn\" is not a kind; it takes one of attention, gemm, kv_write, row_op, route, moe_combine"},
        {"NoProblem", R"({"version": 1, "kind": "gemm", "name": "t"})",
         "/problem: is missing; it says what to compute"},
        {"RepeatedKey", attention("", R"(, "name": "u")"), "/name: is given twice; an object has each field once"},
        {"RepeatedDeepKey", shaped(R"([{"name": "a"}, {"name": "b", "batch": 1, "batch": 2}])"),
         "/shapes/1/batch: is given twice; an object has each field once"},
        {"PathAsName", R"({"version": 1, "kind": "gemm", "name": "../x", "problem": {"n": 8, "k": 8}})",
         "/name: \"../x\" is not a name; a name is 1 to 64 letters, digits, '.', '_' or '-', and not dots alone"},
        {"QuotesInName", R"({"version": 1, "kind": "gemm", "name": "a\"b", "problem": {"n": 8, "k": 8}})",
         "/name: \"a\\\"b\" is not a name; a name is 1 to 64 letters, digits, '.', '_' or '-', and not dots alone"},
        {"NumberAsName", R"({"version": 1, "kind": "gemm", "name": 7, "problem": {"n": 8, "k": 8}})",
         "/name: 7 does not fit; it takes text"},
        {"SlashAndQuotesInKey", attention(R"(, "a/b~\"\n": 1)"),
         "/problem/a~1b~0\\\"\\n: is not a field here; the fields are dtype, head_dim, heads, q_layout, kv_layout, "
         "v_layout, mask, "
         "score_mod, sinks, lse, rope, scales, kv_offsets, kv_starts, cache_length, max_q_len, deterministic, "
         "batch_invariant"},
    }),
    [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Fields, ConfigJsonRefuses,
    testing::ValuesIn(std::vector<BadInput>{
        {"MisspeltField", scheduled(R"({"stages": 4})"),
         std::string("/schedule/stages: is not a field here (did you mean \"num_stages\"?); the fields are ") +
             kScheduleFields},
        {"ScheduleWord", scheduled(R"("fast")"), "/schedule: \"fast\" does not fit; it takes an object or \"auto\""},
        {"ScheduleNull", scheduled("null"), "/schedule: null does not fit; it takes an object or \"auto\""},
        {"TextForNumber", scheduled(R"({"num_stages": "4"})"),
         "/schedule/num_stages: \"4\" does not fit; it takes a whole number in [1, 32] or \"auto\""},
        {"Fraction", scheduled(R"({"num_stages": 4.0})"),
         "/schedule/num_stages: 4.0 does not fit; it takes a whole number in [1, 32] or \"auto\""},
        {"HugeForWhole", scheduled(R"({"num_stages": 1e308})"),
         "/schedule/num_stages: 1e+308 does not fit; it takes a whole number in [1, 32] or \"auto\""},
        {"TwoTo63", scheduled(R"({"num_stages": 9223372036854775808})"),
         "/schedule/num_stages: 9223372036854775808 is outside [1, 32]"},
        {"Wraps32Bits", scheduled(R"({"num_stages": 4294967298})"),
         "/schedule/num_stages: 4294967298 is outside [1, 32]"},
        {"NumberForBool", scheduled(R"({"token_gen": 1})"),
         "/schedule/token_gen: 1 does not fit; it takes true or false or \"auto\""},
        {"OutsideReal", scheduled(R"({"exp2_emulated": 1.5})"), "/schedule/exp2_emulated: 1.5 is outside [0, 1]"},
        {"MisspeltWord", scheduled(R"({"family": "hoper"})"),
         "/schedule/family: \"hoper\" is no family (did you mean \"hopper\"?); it takes one of portable, hopper, "
         "blackwell "
         "or \"auto\""},
        {"ClusterOfThree", scheduled(R"({"cluster": [2, 1, 1]})"),
         "/schedule/cluster: an array of 3 does not fit; it takes two numbers, [m, n] or \"auto\""},
        {"HugeCluster", scheduled(R"({"cluster": [2, 99]})"), "/schedule/cluster/1: 99 is outside [1, 16]"},
        {"MaskAsWord", attention(R"(, "mask": "causal")"),
         "/problem/mask: \"causal\" does not fit; it takes an object"},
        {"MaskWithoutKind", attention(R"(, "mask": {})"),
         "/problem/mask/kind: is missing and has no default (which keys a query sees)"},
        {"OperandsAsObject", attention(R"(, "mask": {"kind": "and", "operands": {}})"),
         "/problem/mask/operands: an object does not fit; it takes an array"},
        {"ControlCharacter", attention(R"(, "score_mod": {"kind": "source", "type": "a\u0007"})"),
         "/problem/score_mod/type: \"a\\u0007\" holds a control character; it takes plain text"},
        {"LongText", attention(R"(, "score_mod": {"kind": "source", "type": ")" + std::string(5000, 'x') + R"("})"),
         "/problem/score_mod/type: is 5000 bytes long; 256 are the most that fit"},
        {"NegativeLength", shaped(R"([{"name": "a", "kv_lens": [-1]}])"),
         "/shapes/0/kv_lens/0: -1 is outside [0, 16777216]"},
        {"TooManyShapes",
         shaped("[{}" +
                [] {
                  std::string more;
                  for (int i = 0; i < 1024; ++i) more += ", {}";
                  return more;
                }() +
                "]"),
         "/shapes: an array of 1025 does not fit; it takes at most 1024"},
        {"ShapesAsObject", shaped("{}"), "/shapes: an object does not fit; it takes an array"},
        {"ShapeWithoutName", shaped(R"([{"batch": 2}])"),
         "/shapes/0/name: is missing and has no default (name for --shape)"},
    }),
    [](const auto& info) { return std::string(info.param.name); });

TEST(ConfigJson, WritesWhatDiffersFromTheDefaults) {
  AttentionConfig config;
  config.name = "golden";
  config.problem.heads = {64, 8};
  config.problem.mask = {.kind = MaskKind::kSlidingWindow, .window = {127, 0}};
  config.problem.score_mod = {ScoreModKind::kSoftcap, 50};
  config.schedule.block_m = 64;
  config.schedule.token_gen = false;
  config.schedule.cluster = ClusterShape{2, 1};
  config.shapes = {{.name = "check", .batch = 2, .kv_lens = {7, 0}, .check = true}};
  EXPECT_EQ(write_config(config), R"({
  "version": 1,
  "kind": "attention",
  "name": "golden",
  "problem": {
    "head_dim": {"qk": 128, "v": 128},
    "heads": {"q": 64, "kv": 8},
    "mask": {"kind": "sliding_window", "window": {"left": 127}},
    "score_mod": {"kind": "softcap", "cap": 50.0}
  },
  "schedule": {"block_m": 64, "token_gen": false, "cluster": [2, 1]},
  "shapes": [{"name": "check", "batch": 2, "kv_lens": [7, 0], "check": true}]
}
)");
  EXPECT_EQ(read_config(write_config(config)), Config(config));
}

TEST(ConfigJson, BoundsTheNestingOfMasks) {
  std::string mask = R"({"kind": "none"})";
  for (int i = 0; i < 8; ++i) mask = R"({"kind": "or", "operands": [)" + mask + R"(, {"kind": "causal"}]})";
  EXPECT_EQ(complaint(attention(R"(, "mask": )" + mask)), "");
  mask = R"({"kind": "or", "operands": [)" + mask + R"(, {"kind": "causal"}]})";
  EXPECT_NE(complaint(attention(R"(, "mask": )" + mask)).find("/operands/0/operands: masks nest at most 8 deep"),
            std::string::npos);
}

TEST(ConfigJson, CutsLongKeysAndValuesInMessages) {
  EXPECT_LT(complaint(attention(", \"" + std::string(500000, 'k') + "\": 0")).size(), 400u);
  EXPECT_LT(complaint(attention(R"(, "q_layout": ")" + std::string(500000, 'v') + "\"")).size(), 200u);
}

}  // namespace
}  // namespace kernelwright
