// Records of latent caches, written by strides: all of a token, its scales and its rotated part lie in one record.
//   656 bytes  512 e4m3, 4 f32 scales of 128 elements each, 64 bf16
//   584 bytes  a page has 448 e4m3 and 64 bf16 of each key, then 8 bytes of each: 7 exponents of 64 elements, and one
//              that is not used; pages are rounded up to 576 bytes
//   132 bytes  a page has 128 e4m3 of each key, then an f32 scale of each
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernelwright/generator/kv_write/rope_table.h"
#include "kernelwright/verify/device/device_memory.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/random.h"
#include "support/emulated_kv_write.h"

namespace kernelwright::kv_write_records_test {
namespace {

constexpr int kTokens = 7, kPages = 3;
constexpr std::int64_t kSlots[kTokens] = {5, 0, -1, 11, 8, 3, 7};

class KvWriteRecords : public test::OnTheEmulator<int> {
 protected:
  /// Random elements of bf16: [kTokens, elements]. One head is of tiny numbers, and one is all zeros.
  std::vector<float> rows(int elements, std::uint64_t seed) {
    std::vector<float> values(static_cast<std::size_t>(kTokens * elements));
    Random random(seed, 9);
    for (std::size_t i = 0; i < values.size(); i += 2) random.normal_pair(values[i], values[i + 1]);
    for (int i = 0; i < 128 && i < elements; ++i) {
      values[static_cast<std::size_t>(elements + i)] *= 1e-7f;
      values[static_cast<std::size_t>(3 * elements + i)] = 0;
    }
    for (float& value : values) value = static_cast<float>(round_to(DType::kBf16, value));
    return values;
  }
  DevicePtr upload(const std::vector<float>& values) {
    std::vector<std::byte> bytes(values.size() * 2);
    encode_row(DType::kBf16, values, bytes.data());
    return memory_.upload(bytes);
  }

  /// A cache of bytes that nobody has written.
  void make_cache(int page_size, std::int64_t page_bytes) {
    page_size_ = page_size, page_bytes_ = page_bytes;
    cache_ = memory_.allocate_guarded(static_cast<std::size_t>(kPages * page_bytes));
    wanted_.assign(cache_.bytes, DeviceMemory::kGuardByte);
    memory_.renew_guards(cache_);
    memory_.wait();
    engine_.device(0).copy_to_device(cache_.data(), wanted_.data(), wanted_.size());
  }
  KvWriteProblem problem(int heads, int elements, DType kv) const {
    KvWriteProblem problem;
    problem.head_dim = {elements, elements};
    problem.heads = {heads, heads};
    problem.kv_layout = {KvLayoutKind::kPaged, page_size_};
    problem.dtype.kv = kv;
    problem.q_out = problem.v_out = false;
    return problem;
  }
  KvWriteTensors tensors(const std::vector<float>& k) {
    KvWriteTensors t;
    t.k = upload(k), t.tokens = kTokens, t.num_pages = kPages;
    t.slot_mapping = memory_.upload(std::vector<std::int64_t>(kSlots, kSlots + kTokens));
    return t;
  }
  void launch(const KvWriteProblem& problem, const KvWriteTensors& t) {
    engine_.prepare(problem).launch(t, memory_.stream());
    memory_.wait();
  }
  /// The bytes of elements quantised by their largest magnitude, and the bits of the scale.
  std::uint32_t quantise(const float* values, int elements, float least, bool power_of_two, std::byte* to) {
    float largest = least;
    for (int i = 0; i < elements; ++i) largest = std::max(largest, std::fabs(values[i]));
    float scale = std::max(largest / 448.f, 0x1p-126f);
    if (power_of_two) scale = std::exp2(std::ceil(std::log2(scale)));
    const float factor = 1.f / scale;
    for (int i = 0; i < elements; ++i) to[i] = static_cast<std::byte>(encode_float(DType::kE4m3, values[i] * factor));
    return std::bit_cast<std::uint32_t>(scale);
  }
  std::byte* at(std::int64_t slot, std::int64_t in_page) {
    return wanted_.data() + slot / page_size_ * page_bytes_ + in_page;
  }
  /// The rotated part of a token as bf16, by gptj's pairs.
  void turn(const float* values, const std::vector<float>& table, int position, std::byte* to) {
    std::vector<float> turned(64);
    for (std::size_t i = 0; i < 32; ++i) {
      const float cosine = table[static_cast<std::size_t>(position) * 64 + i],
                  sine = table[static_cast<std::size_t>(position) * 64 + 32 + i];
      turned[2 * i] = std::fma(values[2 * i], cosine, -values[2 * i + 1] * sine);
      turned[2 * i + 1] = std::fma(values[2 * i + 1], cosine, values[2 * i] * sine);
    }
    encode_row(DType::kBf16, turned, to);
  }
  /// Writes the rotated parts, 64 bf16 of each record, by a launch of their own.
  void write_rotated(std::int64_t record_bytes, std::int64_t begin) {
    const std::vector<float> part = rows(64, 2), table = rope_table({.width = 64}, 0, 16);
    KvWriteProblem rotated = problem(1, 64, DType::kBf16);
    rotated.rope = {.style = RopeStyle::kGptj, .width = 64};
    KvWriteTensors t = tensors(part);
    t.positions = memory_.upload(std::vector<std::int32_t>{3, 1, 4, 1, 5, 9, 2});
    t.cos_sin = memory_.upload(table), t.cos_sin_rows = 16;
    t.k_cache = cache_.data() + static_cast<DevicePtr>(begin);
    t.k_cache_strides = {page_bytes_ / 2, record_bytes / 2, 64};
    launch(rotated, t);
    constexpr int kPositions[] = {3, 1, 4, 1, 5, 9, 2};
    for (int token = 0; token < kTokens; ++token)
      if (kSlots[token] >= 0)
        turn(part.data() + token * 64, table, kPositions[token],
             at(kSlots[token], kSlots[token] % page_size_ * record_bytes + begin));
  }
  void expect_cache() {
    std::vector<std::byte> found(cache_.bytes);
    engine_.device(0).copy_to_host(found.data(), cache_.data(), found.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      ASSERT_EQ(static_cast<int>(found[i]), static_cast<int>(wanted_[i])) << "byte " << i << " of " << found.size();
    EXPECT_TRUE(memory_.guards_are_intact(cache_));
    test::expect_no_reports(engine_);
  }

  Engine engine_ = test::make_checking_engine(4, emulator::Completion::kRandom, 1);
  DeviceMemory memory_{engine_.device(0)};
  DeviceMemory::Guarded cache_;
  int page_size_ = 0;
  std::int64_t page_bytes_ = 0;
  std::vector<std::byte> wanted_;
};
INSTANTIATE_TEST_SUITE_P(, KvWriteRecords, testing::Values(0));

TEST_P(KvWriteRecords, Of656Bytes) {
  for (const bool power_of_two : {false, true}) {
    make_cache(4, 4 * 656);
    const std::vector<float> latent = rows(512, 1);
    KvWriteProblem groups = problem(4, 128, DType::kE4m3);
    groups.scales.k = ScaleKind::kPerToken;
    groups.scales.power_of_two = power_of_two;
    KvWriteTensors t = tensors(latent);
    t.k_cache = cache_.data(), t.k_cache_strides = {4 * 656, 656, 128};
    t.k_scale = cache_.data() + 512, t.k_scale_strides = {656, 164, 1};
    launch(groups, t);
    for (int token = 0; token < kTokens; ++token)
      for (int group = 0; group < 4 && kSlots[token] >= 0; ++group) {
        std::byte* const record = at(kSlots[token], kSlots[token] % 4 * 656);
        const std::uint32_t scale =
            quantise(latent.data() + token * 512 + group * 128, 128, 0, power_of_two, record + group * 128);
        std::memcpy(record + 512 + group * 4, &scale, 4);
      }
    write_rotated(656, 528);
    expect_cache();
  }
}

TEST_P(KvWriteRecords, Of584Bytes) {
  constexpr int kKeys = 4, kPage = (kKeys * 584 + 575) / 576 * 576;
  make_cache(kKeys, kPage);
  const std::vector<float> latent = rows(448, 1);
  KvWriteProblem groups = problem(7, 64, DType::kE4m3);
  groups.scales.k = ScaleKind::kPerToken;
  groups.scales.power_of_two = groups.scales.ue8m0 = true;
  KvWriteTensors t = tensors(latent);
  t.k_cache = cache_.data(), t.k_cache_strides = {kPage, 576, 64};
  t.k_scale = cache_.data() + kKeys * 576, t.k_scale_strides = {kPage, 8, 1};
  launch(groups, t);
  for (int token = 0; token < kTokens; ++token)
    for (int group = 0; group < 7 && kSlots[token] >= 0; ++group) {
      const std::int64_t key = kSlots[token] % kKeys;
      const std::uint32_t scale =
          quantise(latent.data() + token * 448 + group * 64, 64, 0, true, at(kSlots[token], key * 576 + group * 64));
      *at(kSlots[token], kKeys * 576 + key * 8 + group) = static_cast<std::byte>(scale >> 23);
    }
  write_rotated(576, 448);
  expect_cache();
}

TEST_P(KvWriteRecords, Of132Bytes) {
  make_cache(4, 4 * 132);
  const std::vector<float> keys = rows(128, 1);
  KvWriteProblem indexer = problem(1, 128, DType::kE4m3);
  indexer.scales.k = ScaleKind::kPerToken;
  indexer.scales.least = 1e-4;
  KvWriteTensors t = tensors(keys);
  t.k_cache = cache_.data(), t.k_cache_strides = {4 * 132, 128, 128};
  t.k_scale = cache_.data() + 4 * 128, t.k_scale_strides = {132, 1, 1};
  launch(indexer, t);
  for (int token = 0; token < kTokens; ++token) {
    if (kSlots[token] < 0) continue;
    const std::int64_t key = kSlots[token] % 4;
    const std::uint32_t scale = quantise(keys.data() + token * 128, 128, 1e-4f, false, at(kSlots[token], key * 128));
    std::memcpy(at(kSlots[token], 4 * 128 + key * 4), &scale, 4);
  }
  expect_cache();
}

TEST_P(KvWriteRecords, HaveNoNegativeStrides) {
  make_cache(4, 4 * 132);
  KvWriteProblem indexer = problem(1, 128, DType::kE4m3);
  indexer.scales.k = ScaleKind::kPerToken;
  KvWriteTensors t = tensors(rows(128, 1));
  t.k_cache = cache_.data(), t.k_cache_strides = {4 * 132, 128, 128};
  t.k_scale = cache_.data() + 4 * 128, t.k_scale_strides = {132, -1, 1};
  try {
    engine_.prepare(indexer).launch(t, memory_.stream());
    ADD_FAILURE() << "no refusal";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "/tensors/k_scale_strides: [132, -1, 1] has a negative stride");
  }
}

}  // namespace
}  // namespace kernelwright::kv_write_records_test
