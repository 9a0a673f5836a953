#include "kernelwright/generator/models/fact.h"

#include <gtest/gtest.h>

namespace kernelwright {
namespace {

const Fact kHeads(32, "/num_attention_heads", "num_attention_heads 32"),
    kWidth(4096, "/hidden_size", "hidden_size 4096");

TEST(Fact, WritesItsFormula) {
  const Fact tp(2, "", "tp 2");
  EXPECT_EQ(kHeads.text(), "num_attention_heads 32");
  EXPECT_EQ((kHeads / tp).text(), "num_attention_heads 32 / tp 2 = 16");
  EXPECT_EQ((Fact(2) * kHeads + kWidth).text(), "2 * num_attention_heads 32 + hidden_size 4096 = 4160");
}

TEST(Fact, PutsBracketsWhereTheOrderCounts) {
  EXPECT_EQ((kHeads * (kHeads + kWidth)).formula(),
            "num_attention_heads 32 * (num_attention_heads 32 + hidden_size 4096)");
  EXPECT_EQ((kHeads * (kWidth / kHeads)).text(),
            "num_attention_heads 32 * (hidden_size 4096 / num_attention_heads 32) = 4096");
}

TEST(Fact, NamesTheFirstFieldOfItsFormula) {
  EXPECT_EQ((Fact(2) * kHeads + kWidth).field(), "/num_attention_heads");
  EXPECT_EQ(Fact(2).field(), "");
}

TEST(LayersText, IsShort) {
  EXPECT_EQ(layers_text({}), "");
  EXPECT_EQ(layers_text({7}), "7");
  EXPECT_EQ(layers_text({0, 1, 2}), "0-2");
  EXPECT_EQ(layers_text({0, 2, 4}), "0-4 by 2");
  EXPECT_EQ(layers_text({0, 1, 3, 4}), "0-1, 3-4");
}

}  // namespace
}  // namespace kernelwright
