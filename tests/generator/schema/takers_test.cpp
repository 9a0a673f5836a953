// Some family supports every field of a config, and every word of an enum belongs to a field and a family.
#include "kernelwright/generator/schema/takers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "kernelwright/generator/problem/config.h"
#include "kernelwright/generator/problem/field_rules.h"

namespace kernelwright {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// The values that a field is tried with, and the enum that they are words of.
struct Field {
  std::string path;
  std::vector<std::string> values;
  std::string words_of;
};

template <class T>
struct EnumOf {
  static std::string name() {
    if constexpr (is_auto_v<T>) return EnumOf<std::remove_cvref_t<decltype(T().value())>>::name();
    if constexpr (Enum<T>) return std::string(EnumTable<T>::name);
    return "";
  }
};

template <FieldStruct T>
void add_all(T& of, const std::string& prefix, std::vector<Field>& fields) {
  visit_fields(of, [&](const char* name, auto& member, const auto& rule, const char*) {
    using Member = std::remove_cvref_t<decltype(member)>;
    if constexpr (FieldStruct<Member>)
      add_all(member, prefix + name + ".", fields);
    else if (auto values = values_tried<Member>(bare_rule(rule)); !values.empty())
      fields.push_back({prefix + name, std::move(values), EnumOf<Member>::name()});
  });
}

template <class KindOfConfig>
std::vector<Field> fields_of() {
  KindOfConfig config;
  std::vector<Field> fields;
  add_all(config.problem, "problem.", fields);
  add_all(config.schedule, "schedule.", fields);
  return fields;
}

TEST(Takers, EveryFieldAndEveryWordIsTakenSomewhere) {
  std::map<std::string, std::set<std::string>> taken, all;
  const auto look = [&](const char* kind, const std::vector<Field>& fields) {
    EXPECT_GT(fields.size(), 20u);
    for (const Field& field : fields) {
      bool any = false;
      for (const std::string& value : field.values) {
        if (!field.words_of.empty()) all[field.words_of].insert(value);
        if (families_that_take(kind, field.path, value).empty()) continue;
        any = true;
        if (!field.words_of.empty()) taken[field.words_of].insert(value);
      }
      EXPECT_TRUE(any) << kind << ": no family takes " << field.path;
    }
  };
  look("attention", fields_of<AttentionConfig>());
  look("gemm", fields_of<GemmConfig>());
  EXPECT_GT(all.size(), 12u);
  for (const auto& [name, words] : all) EXPECT_EQ(taken[name], words) << name << ": words that nothing takes";
}

TEST(Takers, AreThoseWhoseRulesSaySo) {
  const auto of = [](const char* kind, const char* path, const char* word) {
    return names_of(families_that_take(kind, path, word));
  };
  EXPECT_EQ(of("attention", "problem.mask.kind", "or"), "all families");
  EXPECT_EQ(of("attention", "problem.dtype.q", "e4m3"), "all families");
  EXPECT_EQ(of("attention", "problem.dtype.q", "nvfp4"), "no family");
  EXPECT_EQ(of("attention", "problem.scales", "per_block"), "portable, hopper");
  EXPECT_EQ(of("attention", "problem.score_mod.dtype", "f32"), "all families");
  EXPECT_EQ(of("attention", "problem.score_mod.dtype", "e4m3"), "no family");
  EXPECT_EQ(of("attention", "schedule.overlap", "both"), "hopper");
  EXPECT_EQ(of("attention", "schedule.staging", "registers"), "portable");
  EXPECT_EQ(of("attention", "schedule.num_mma_stages", "2"), "hopper, blackwell");
  EXPECT_EQ(of("attention", "schedule.arch", "sm_90a"), "portable, hopper");
  EXPECT_EQ(of("attention", "schedule.kv_ring", "split"), "hopper, blackwell");
  EXPECT_EQ(of("gemm", "problem.dtype.a", "nvfp4"), "blackwell");
  EXPECT_EQ(of("gemm", "problem.scales", "per_head"), "no family");
  EXPECT_EQ(of("gemm", "schedule.roles", "ping_pong"), "hopper");
  EXPECT_EQ(of("gemm", "schedule.cta_group", "2"), "blackwell");
}

TEST(Takers, NobodyTakesWhatIsNotThere) {
  EXPECT_THAT(families_that_take("attention", "problem.mask.kind", "oblique"), IsEmpty());
  EXPECT_THAT(families_that_take("attention", "problem.mask.colour", "causal"), IsEmpty());
  EXPECT_THAT(families_that_take("attention", "mask.kind", "causal"), IsEmpty());
  EXPECT_THAT(families_that_take("convolution", "problem.mask.kind", "causal"), IsEmpty());
  EXPECT_THAT(families_that_take("gemm", "schedule.stages", "four"), IsEmpty());
}

TEST(Takers, ProbesAreValuesOfTheRule) {
  EXPECT_THAT(probes({1, 4, 1}), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(probes({16, 64, 16}), ElementsAre(16, 32, 48, 64));
  EXPECT_THAT(probes({0, 1, 1}), ElementsAre(0, 1));
}

}  // namespace
}  // namespace kernelwright
