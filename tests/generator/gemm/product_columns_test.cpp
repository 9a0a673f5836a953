// The width of a product of gemm_sm90 if products have registers beside the sums.
#include <gtest/gtest.h>

#include "contract/gemm_params.h"

namespace kernelwright::contract {
namespace {

constexpr bool kPingPong = true, kCooperative = false;

TEST(GemmProductColumns, AreTheTilesWithoutPromotion) {
  EXPECT_EQ(gemm_product_columns(128, 256, 2, kCooperative, 1, 0), 256);
  EXPECT_EQ(gemm_product_columns(128, 192, 2, kPingPong, 1, 0), 192);
}

TEST(GemmProductColumns, AreAShareWhereASetOfProductsWouldNotFitBesideTheSums) {
  EXPECT_EQ(gemm_product_columns(128, 192, 2, kCooperative, 0, 1), 192);
  EXPECT_EQ(gemm_product_columns(128, 256, 2, kCooperative, 0, 1), 128);
  EXPECT_EQ(gemm_product_columns(256, 128, 2, kCooperative, 0, 1), 128);
}

TEST(GemmProductColumns, AreFewerWhereTwoSetsTakeTurns) {
  EXPECT_EQ(gemm_product_columns(128, 128, 2, kCooperative, 1, 1), 128);
  EXPECT_EQ(gemm_product_columns(128, 192, 2, kCooperative, 1, 1), 96);
  EXPECT_EQ(gemm_product_columns(192, 128, 3, kCooperative, 1, 1), 64);
  EXPECT_EQ(gemm_product_columns(64, 128, 2, kPingPong, 1, 1), 64);
}

TEST(GemmProductColumns, AreNoneWhereTheSumsAloneTakeAllRegisters) {
  EXPECT_EQ(gemm_product_columns(256, 256, 2, kCooperative, 0, 1), 0);
  EXPECT_EQ(gemm_product_columns(128, 256, 2, kCooperative, 0, 4), 0);  // all products of the tile beside its sums
}

}  // namespace
}  // namespace kernelwright::contract
