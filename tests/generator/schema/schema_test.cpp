#include "kernelwright/generator/schema/schema.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "kernelwright/generator/json/document.h"
#include "support/paths.h"

namespace kernelwright {
namespace {

std::string shipped(const char* path) {
  std::ifstream file(test::source_dir() / path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ConfigSchema, IsShippedAsItIsGenerated) {
  EXPECT_EQ(shipped("configs/kernelwright.schema.json"), json_schema()) << "run kernelwright_generate_docs";
}

TEST(ConfigMarkdown, IsShippedAsItIsGenerated) {
  EXPECT_EQ(shipped("docs/config.md"), config_markdown()) << "run kernelwright_generate_docs";
}

TEST(ConfigSchema, StatesTheRuleOfEachField) {
  const JsonValue schema = JsonValue::parse(json_schema());
  const JsonValue& attention = schema.at("/$defs/attention/properties");
  EXPECT_EQ(attention.at("/schedule/anyOf/1/properties/block_m/anyOf/1").dump(-1),
            R"({"type":"integer","minimum":16,"maximum":256,"multipleOf":16})");
  EXPECT_EQ(attention.at("/schedule/anyOf/1/properties/merge/enum").dump(-1), R"(["auto","in_kernel","combine"])");
  EXPECT_EQ(attention.at("/problem/required").dump(-1), R"(["head_dim","heads"])");
  EXPECT_EQ(attention.at("/problem/properties/mask/$ref").as_string(), "#/$defs/mask");
  EXPECT_EQ(schema.at("/$defs/mask/properties/operands/items/$ref").as_string(), "#/$defs/mask");
  EXPECT_FALSE(schema.at("/$defs/gemm/properties/problem/additionalProperties").as_bool());
  EXPECT_EQ(schema.at("/$defs/gemm/properties/schedule/anyOf/1/properties/cluster/anyOf/1/maxItems").as_int(), 2);
}

}  // namespace
}  // namespace kernelwright
