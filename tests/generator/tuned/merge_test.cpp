// Merging rows of many machines: any order and any grouping of the same rows give the same set.
#include "kernelwright/generator/tuned/merge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "kernelwright/generator/error.h"
#include "support/tuned_rows.h"

namespace kernelwright {
namespace {

/// A row of one of a few problems, with one of a few bounds and dates, so that rivals and ties are many.
AnyTunedRow random_row(std::mt19937_64& random) {
  const auto of = [&](int count) { return static_cast<int>(random() % static_cast<std::uint64_t>(count)); };
  const auto fill = [&](auto row) {
    row.provenance.speedup_low = 1 + 0.01 * of(3);
    row.provenance.speedup = row.provenance.speedup_low + 0.01;
    row.provenance.confirmed = of(2) == 1;
    row.provenance.date = "2026-11-2" + std::to_string(of(3));
    row.provenance.trials = of(3);
    return AnyTunedRow(row);
  };
  if (of(2))
    return fill(test::row_for(test::prefill_of(of(2) ? 8 : 16, 2), of(2) ? DeviceClass::kH100 : DeviceClass::kH200));
  const int least = of(2) ? 1 : 17;
  return fill(test::gemm_row_for(test::mlp_of(), {least, least == 1 ? 16 : 32}));
}

std::vector<AnyTunedRow> joined(std::vector<AnyTunedRow> a, const std::vector<AnyTunedRow>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(MergeRows, CommutesAssociatesAndIsIdempotent) {
  std::mt19937_64 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<AnyTunedRow> parts[3];
    for (auto& part : parts)
      for (std::uint64_t count = random() % 8; count > 0; --count) part.push_back(random_row(random));
    const auto& [a, b, c] = parts;
    const auto all = merge_rows(joined(joined(a, b), c));
    EXPECT_EQ(merge_rows(joined(b, a)), merge_rows(joined(a, b)));
    EXPECT_EQ(merge_rows(joined(merge_rows(joined(a, b)), c)), all);
    EXPECT_EQ(merge_rows(joined(a, merge_rows(joined(b, c)))), all);
    EXPECT_EQ(merge_rows(joined(all, all)), all);
    EXPECT_EQ(merge_rows(joined(all, a)), all) << "a part that comes again changes nothing";
    std::vector<AnyTunedRow> shuffled = joined(joined(c, a), b);
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    EXPECT_EQ(merge_rows(shuffled), all);
  }
}

TEST(MergeRows, KeepsTheGreaterLowerBoundAndOfTiesTheConfirmedThenTheOlder) {
  TunedRow low = test::row_for(test::prefill_of()), high = low, confirmed = low, older = low;
  high.provenance.speedup_low = low.provenance.speedup_low + 0.01;
  confirmed.provenance.confirmed = true;
  older.provenance.date = "2026-11-20";
  EXPECT_EQ(merge_rows({low, high, confirmed, older}), std::vector<AnyTunedRow>{high});
  EXPECT_EQ(merge_rows({low, confirmed, older}), std::vector<AnyTunedRow>{confirmed});
  EXPECT_EQ(merge_rows({low, older}), std::vector<AnyTunedRow>{older});
}

TEST(MergeRows, RowsOfOtherRangesDevicesAndProblemsAreNoRivals) {
  const std::vector<AnyTunedRow> rows = {
      test::gemm_row_for(test::mlp_of(), {1, 16}), test::gemm_row_for(test::mlp_of(), {17, 32}),
      test::row_for(test::prefill_of()), test::row_for(test::prefill_of(), DeviceClass::kH200),
      test::row_for(test::prefill_of(16, 2))};
  const auto merged = merge_rows(rows);
  EXPECT_EQ(merged.size(), rows.size());
  EXPECT_TRUE(std::ranges::is_sorted(merged, {}, rivalry));
}

TEST(ConfirmedRow, HasBothGpusAndTheLesserSpeedup) {
  TunedRow first = test::row_for(test::prefill_of());
  first.provenance.gpus = {{"0123456789abcdef", 1755, "power cap"}};
  TunedRow again = first;
  again.provenance.gpus = {{"fedcba9876543210", 1980, ""}};
  again.provenance.speedup = 1.06;
  again.provenance.speedup_low = 1.02;
  const TunedRow row = confirmed_row(first, again);
  EXPECT_TRUE(row.provenance.confirmed);
  EXPECT_EQ(row.provenance.gpus.size(), 2u);
  EXPECT_EQ(row.provenance.speedup, 1.06);
  EXPECT_EQ(row.provenance.speedup_low, 1.02);
  EXPECT_EQ(row.schedule, first.schedule);
  EXPECT_EQ(read_tuned_row(write_tuned_row(row)), AnyTunedRow(row));
  EXPECT_THROW(confirmed_row(first, first), ConfigError) << "the same GPU";
  again.schedule.block_n = 32;
  EXPECT_THROW(confirmed_row(first, again), ConfigError) << "another schedule";
}

}  // namespace
}  // namespace kernelwright
