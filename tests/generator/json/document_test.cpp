#include "kernelwright/generator/json/document.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/expect_message.h"

namespace kernelwright {
namespace {

TEST(JsonValue, KeepsTheOrderOfItsMembers) {
  JsonValue value = JsonValue::object();
  value.set("z", 1).set("a", JsonValue::array({1.5, true, JsonValue()})).set("z", "again");
  EXPECT_EQ(value.dump(-1), R"({"z":"again","a":[1.5,true,null]})");
}

TEST(JsonValue, WritesNumbersThatReadBackEqual) {
  for (const JsonValue& value : {JsonValue(0), JsonValue(-1), JsonValue(std::numeric_limits<std::int64_t>::min()),
                                 JsonValue(std::numeric_limits<std::uint64_t>::max()), JsonValue(4.0), JsonValue(0.1),
                                 JsonValue(1e300), JsonValue(5e-324), JsonValue(-0.0)})
    EXPECT_EQ(JsonValue::parse(value.dump()), value) << value.dump();
}

TEST(JsonValue, WritesNonFiniteNumbersAsNull) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(JsonValue::array({std::nan(""), infinity, -infinity}).dump(-1), "[null,null,null]");
}

TEST(JsonValue, EscapesWhatJsonAsksFor) {
  const std::string text("a\"\\\n\t\r\x01\x7F\0\xC3\xA9", 11);
  EXPECT_EQ(JsonValue(text).dump(), R"("a\"\\\n\t\r\u0001\u007f\u0000é")");
  EXPECT_EQ(JsonValue::parse(JsonValue(text).dump()).as_string(), text);
}

TEST(JsonValue, WritesValidUtf8WhateverTheBytes) {
  EXPECT_EQ(JsonValue("a\xFF\xC3").dump(), "\"a\xEF\xBF\xBD\xEF\xBF\xBD\"");
  EXPECT_EQ(JsonValue("\xED\xA0\x80").dump(), "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");  // a surrogate
}

TEST(JsonValue, BreaksLinesOnlyWhereTheyAreWide) {
  const JsonValue value = JsonValue::object(
      {{"short", JsonValue::array({1, 2})}, {"long", JsonValue::array({std::string(20, 'x'), std::string(20, 'y')})}});
  EXPECT_EQ(value.dump(2, 30),
            "{\n  \"short\": [1, 2],\n  \"long\": [\n    \"xxxxxxxxxxxxxxxxxxxx\",\n    "
            "\"yyyyyyyyyyyyyyyyyyyy\"\n  ]\n}");
  EXPECT_EQ(JsonValue::object().dump(), "{}");
}

TEST(JsonValue, FindsByPointer) {
  const JsonValue value = JsonValue::parse(R"({"a/b": [{"~": 7}], "": 1})");
  EXPECT_EQ(value.at("/a~1b/0/~0").as_int(), 7);
  EXPECT_EQ(value.at("/").as_int(), 1);
  EXPECT_EQ(&value.at(""), &value);
  EXPECT_THROW_MESSAGE(value.at("/a~1b/1/x"), Error, "JSON has nothing at /a~1b/1");
  EXPECT_THROW_MESSAGE(value.at("nothing"), Error, "JSON has nothing at nothing");
}

TEST(JsonValue, SaysWhichTypeItHasNot) {
  EXPECT_THROW_MESSAGE(JsonValue("x").as_int(), Error, "JSON value is text, not a whole number of 63 bits");
  EXPECT_THROW_MESSAGE(JsonValue(1).set("a", 2), Error, "JSON value is a number, not an object");
  EXPECT_THROW_MESSAGE(JsonValue(1.5).elements(), Error, "JSON value is a number, not an array");
}

TEST(JsonValue, ParseNamesEachRepeatedKey) {
  std::vector<Violation> duplicates;
  EXPECT_EQ(JsonValue::parse(R"([{"a": 1, "a": {"b": 2}}])", &duplicates).dump(-1), R"([{"a":1}])");
  ASSERT_EQ(duplicates.size(), 1u);
  EXPECT_EQ(duplicates[0].path, "/0/a");
  EXPECT_THROW(JsonValue::parse(R"({"a": 1, "a": 1})"), ConfigError);
}

TEST(JsonValue, ParsesNestingUpToItsLimit) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(JsonValue::parse(nested(64)).dump(-1), nested(64));
  EXPECT_THROW(JsonValue::parse(nested(65)), ConfigError);
  EXPECT_EQ(JsonValue::parse("\"" + std::string(1000, '[') + "\\\"[\"").as_string(), std::string(1000, '[') + "\"[");
}

}  // namespace
}  // namespace kernelwright
