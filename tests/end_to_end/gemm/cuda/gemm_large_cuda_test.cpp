// GEMMs on the GPU whose operands or results have more than 2^31 elements: as planned, in the portable family, and in
// parts of k that take turns. The data are integers, so there is one right result. Rows of a and b repeat, so that the
// host knows every result from a small table. The test checks bands of rows: the first and last, those where 31 and 32
// bits of elements and of bytes end, and some between. Needs 25 GB of device memory. Skipped by name if there is no
// GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/engine/engine.h"
#include "kernelwright/verify/random.h"
#include "support/cuda_engine.h"
#include "support/emulated_gemm.h"

namespace kernelwright {
namespace {

struct Large {
  const char* name;
  int m, n, k;
  OperandLayout layout = OperandLayout::kNt;
  DType result = DType::kBf16;
  const char* epilogue = "acc";
};
void PrintTo(const Large& large, std::ostream* out) { *out << large.name; }

constexpr Large kLarge[] = {
    {"results", 70000, 33000, 64},
    {"results_and_c", 70000, 33000, 64, OperandLayout::kNt, DType::kBf16, "acc + c"},
    {"a", 33600, 136, 64000, OperandLayout::kNt, DType::kF32},
    {"b", 40, 33600, 64000, OperandLayout::kNt, DType::kF32},
    {"a_along_m", 33600008, 72, 64, OperandLayout::kTn},
    {"most_columns", 130, 1 << 24, 136, OperandLayout::kNn},
    {"many_rows", (1 << 28) + 5, 16, 8},
    {"rows_past_30_bits", (1 << 30) + 72, 8, 3, OperandLayout::kTn},
};

constexpr int kRowPeriod = 61, kColumnPeriod = 59;  // of rows of a, d and c, and of rows of b
constexpr std::size_t kGuardBytes = 4096;
constexpr std::uint8_t kGuardByte = 0xa5, kNanByte = 0xff;
constexpr std::size_t kBlockBytes = std::size_t{64} << 20;  // of host memory at a time
constexpr std::uint64_t kMostWorkspaceBytes = std::uint64_t{12} << 30;

std::uint16_t bf16_of(int whole) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(whole)) >> 16);
}

/// `period` rows of -1, 0 and 1.
std::vector<int> some_rows(int period, int k, std::uint64_t seed) {
  Random random(seed);
  std::vector<int> rows(static_cast<std::size_t>(period) * static_cast<std::size_t>(k));
  for (int& value : rows) value = static_cast<int>(random.below(3)) - 1;
  return rows;
}

class LargeOnCuda : public testing::TestWithParam<Large> {
 protected:
  void SetUp() override {
    if (!engine()) GTEST_SKIP() << "no GPU: " << test::CudaEngine::get().missing;
  }
  void TearDown() override {
    for (const DevicePtr address : owned_) device().free(address);
  }
  static Engine* engine() { return test::CudaEngine::get().engine.get(); }
  static Device& device() { return engine()->device(0); }

  DevicePtr allocate(std::size_t bytes) {
    owned_.push_back(device().allocate(bytes));
    return owned_.back();
  }
  /// `count` rows in memory; rows that are `period` apart are equal. row(i, bytes) makes row i of the first period.
  template <class MakeRow>
  DevicePtr upload(std::int64_t count, int period, std::size_t row_bytes, const MakeRow& row) {
    const std::size_t rows = static_cast<std::size_t>(count), of_period = static_cast<std::size_t>(period) * row_bytes;
    const std::size_t periods =
        std::clamp<std::size_t>(kBlockBytes / of_period, 1, rows / static_cast<std::size_t>(period) + 1);
    std::vector<std::byte> block(periods * of_period);
    for (int i = 0; i < period; ++i) row(i, block.data() + static_cast<std::size_t>(i) * row_bytes);
    for (std::size_t i = 1; i < periods; ++i) std::memcpy(block.data() + i * of_period, block.data(), of_period);
    const DevicePtr address = allocate(rows * row_bytes);
    for (std::size_t at = 0; at < rows * row_bytes; at += block.size())
      device().copy_to_device(address + at, block.data(), std::min(block.size(), rows * row_bytes - at));
    return address;
  }
  /// An operand [extent][k], or [k][extent], of repeating rows.
  DevicePtr upload_operand(const std::vector<int>& rows, int period, int extent, int k, bool along_k) {
    const std::size_t depth = static_cast<std::size_t>(k);
    const auto value = [&](std::size_t i, std::size_t at) {
      return bf16_of(rows[i % static_cast<std::size_t>(period) * depth + at]);
    };
    if (along_k)
      return upload(extent, period, depth * 2, [&](int i, std::byte* to) {
        for (std::size_t at = 0; at < depth; ++at) {
          const std::uint16_t bits = value(static_cast<std::size_t>(i), at);
          std::memcpy(to + at * 2, &bits, 2);
        }
      });
    const std::size_t columns = static_cast<std::size_t>(extent);
    const DevicePtr address = allocate(columns * depth * 2);
    std::vector<std::uint16_t> row(columns);
    for (std::size_t at = 0; at < depth; ++at) {
      const std::size_t first = std::min(columns, static_cast<std::size_t>(period));
      for (std::size_t i = 0; i < first; ++i) row[i] = value(i, at);
      for (std::size_t have = first; have < columns; have *= 2)
        std::memcpy(row.data() + have, row.data(), std::min(have, columns - have) * 2);
      device().copy_to_device(address + at * columns * 2, row.data(), columns * 2);
    }
    return address;
  }

 private:
  std::vector<DevicePtr> owned_;
};

/// The rows of d that the host can compute.
class Expected {
 public:
  Expected(const Large& large, const std::vector<int>& a, const std::vector<int>& b)
      : large_(large), sums_(kRowPeriod * kColumnPeriod) {
    const std::size_t depth = static_cast<std::size_t>(large.k);
    for (std::size_t i = 0; i < kRowPeriod; ++i)
      for (std::size_t j = 0; j < kColumnPeriod; ++j)
        for (std::size_t at = 0; at < depth; ++at)
          sums_[i * kColumnPeriod + j] += a[i * depth + at] * b[j * depth + at];
  }
  static int c(std::int64_t row, std::int64_t column) { return static_cast<int>((row % kRowPeriod + column) % 5) - 2; }
  int at(std::int64_t row, std::int64_t column) const {
    const bool adds = std::strlen(large_.epilogue) > std::strlen("acc");
    return sums_[static_cast<std::size_t>(row % kRowPeriod * kColumnPeriod + column % kColumnPeriod)] +
           (adds ? c(row, column) : 0);
  }
  std::size_t element_bytes() const { return large_.result == DType::kF32 ? 4 : 2; }
  /// The first wrong column of `row`, in words; "" if all are right.
  std::string wrong(std::int64_t row, const std::byte* bits) const {
    for (std::int64_t column = 0; column < large_.n; ++column) {
      const int want = at(row, column);
      float found = 0;
      if (large_.result == DType::kF32) {
        std::memcpy(&found, bits + column * 4, 4);
      } else {
        std::uint16_t half = 0;
        std::memcpy(&half, bits + column * 2, 2);
        found = std::bit_cast<float>(std::uint32_t{half} << 16);
      }
      if (found != static_cast<float>(want)) return fmt::format("d[{}][{}] is {} and not {}", row, column, found, want);
    }
    return "";
  }

 private:
  const Large& large_;
  std::vector<int> sums_;
};

/// First rows of bands of `rows` rows that are looked at.
std::vector<std::int64_t> bands(const Large& large, std::int64_t rows) {
  constexpr int kBetween = 16;
  std::vector<std::int64_t> firsts = {0, large.m - rows};
  for (int i = 1; i < kBetween; ++i) firsts.push_back(std::int64_t{large.m} * i / kBetween);
  for (const int bits : {29, 30, 31, 32, 33}) firsts.push_back((std::int64_t{1} << bits) / large.n - rows / 2);
  for (std::int64_t& first : firsts) first = std::clamp<std::int64_t>(first, 0, large.m - rows);
  std::sort(firsts.begin(), firsts.end());
  firsts.erase(std::unique(firsts.begin(), firsts.end()), firsts.end());
  return firsts;
}

TEST_P(LargeOnCuda, IsExactToTheLastRow) {
  const Large& large = GetParam();
  const bool a_along_k = large.layout == OperandLayout::kNt || large.layout == OperandLayout::kNn;
  const bool b_along_k = large.layout == OperandLayout::kNt || large.layout == OperandLayout::kTt;
  const std::vector<int> a = some_rows(kRowPeriod, large.k, 1), b = some_rows(kColumnPeriod, large.k, 2);
  const Expected expected(large, a, b);
  GemmProblem problem = test::gemm_problem(DType::kBf16, large.result, large.n, large.k, large.epilogue);
  problem.layout = large.layout;

  GemmTensors tensors;
  tensors.m = large.m;
  tensors.a = upload_operand(a, kRowPeriod, large.m, large.k, a_along_k);
  tensors.b = upload_operand(b, kColumnPeriod, large.n, large.k, b_along_k);
  const std::size_t row_bytes = static_cast<std::size_t>(large.n) * expected.element_bytes();
  const std::size_t bytes = static_cast<std::size_t>(large.m) * row_bytes;
  if (std::strlen(large.epilogue) > std::strlen("acc"))
    tensors.c = upload(large.m, kRowPeriod, row_bytes, [&](int row, std::byte* to) {
      for (int column = 0; column < large.n; ++column) {
        const std::uint16_t bits = bf16_of(Expected::c(row, column));
        std::memcpy(to + static_cast<std::size_t>(column) * 2, &bits, 2);
      }
    });
  tensors.d = allocate(bytes + kGuardBytes);

  const std::int64_t rows = std::clamp<std::int64_t>((1 << 18) / large.n, 1, large.m);
  std::vector<std::byte> band(static_cast<std::size_t>(rows) * row_bytes), guard(kGuardBytes);
  GemmSchedule portable, turns;
  portable.family = Family::kPortable;
  turns.split_k = 2, turns.split_mode = SplitMode::kTurnstile;
  const std::pair<const char*, GemmSchedule> ways[] = {{"as planned", {}}, {"portable", portable}, {"turns", turns}};
  for (const auto& [way, schedule] : ways) {
    SCOPED_TRACE(way);
    if (schedule == turns && !own_family(*device().info().arch)) continue;
    const GemmKernel kernel = engine()->prepare(problem, schedule);
    tensors.workspace_bytes = kernel.workspace_bytes(large.m);
    if (tensors.workspace_bytes > kMostWorkspaceBytes) continue;
    tensors.workspace = tensors.workspace_bytes > 0 ? allocate(tensors.workspace_bytes) : 0;
    device().fill(tensors.d, kNanByte, bytes, nullptr);
    device().fill(tensors.d + bytes, kGuardByte, kGuardBytes, nullptr);
    kernel.launch(tensors, nullptr);
    device().synchronize(nullptr);
    for (const std::int64_t first : bands(large, rows)) {
      device().copy_to_host(band.data(), tensors.d + static_cast<std::size_t>(first) * row_bytes, band.size());
      for (std::int64_t row = 0; row < rows; ++row)
        ASSERT_EQ(expected.wrong(first + row, band.data() + static_cast<std::size_t>(row) * row_bytes), "");
    }
    device().copy_to_host(guard.data(), tensors.d + bytes, kGuardBytes);
    EXPECT_TRUE(std::all_of(guard.begin(), guard.end(), [](std::byte byte) { return byte == std::byte{kGuardByte}; }))
        << "memory behind d was written";
  }
}

INSTANTIATE_TEST_SUITE_P(, LargeOnCuda, testing::ValuesIn(kLarge),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace kernelwright
