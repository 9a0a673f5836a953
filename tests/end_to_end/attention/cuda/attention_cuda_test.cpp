// Every case on the GPU, twice, compared with the fp64 reference, with poisoned outputs and guards around them. One
// Engine serves all tests, and kernels come from the cache if it has them. Skipped by name if there is no GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>

#include "end_to_end/attention/cases/attention_cases.h"
#include "end_to_end/attention/cases/fp8_needle.h"
#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/runtime/engine/engine.h"
#include "kernelwright/verify/attention/bound.h"
#include "kernelwright/verify/attention/device.h"
#include "kernelwright/verify/attention/reference.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/random.h"
#include "support/cuda_engine.h"

namespace kernelwright {
namespace {

class OnCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::CudaEngine::get().engine) GTEST_SKIP() << "no GPU: " << test::CudaEngine::get().missing;
  }
  Engine& engine() { return *test::CudaEngine::get().engine; }
  Device& device() { return engine().device(0); }
  AttentionKernel prepare(const AttentionProblem& problem, const AttentionSchedule& schedule = {}) {
    return engine().prepare(problem, schedule);
  }
  void expect_right(const AttentionCase& call, const AttentionKernel& kernel) {
    const LaunchedTwice launched = launch_twice(device(), call, kernel);
    EXPECT_TRUE(launched.repeats) << "two launches differ";
    EXPECT_TRUE(launched.guards_intact) << "memory beside an output was written";
    const Verdict verdict = verify(call, launched.output, {.budget_operations = 4e9});
    EXPECT_TRUE(verdict.passed) << verdict.text << "\nworst/bound " << verdict.worst_ratio << ", lse "
                                << verdict.worst_lse_ratio << ", rms " << verdict.rms_ratio << " of "
                                << verdict.rms_limit;
    RecordProperty("worst_over_bound", fmt::format("{:.4f}", verdict.worst_ratio));
    RecordProperty("rms_over_expected", fmt::format("{:.4f}", verdict.rms_ratio));
  }
};

/// The emulator's tests have the same sums, and the errors of a kernel that leaves them in the tensor cores.
TEST_F(OnCuda, KeepsTheBitsOfLongSumsOfFp8) {
  if (!family_exists_on(Family::kHopper, *device().info().arch)) GTEST_SKIP() << "no Hopper: " << device().info().name;
  for (const auto& [pv_promote, warpgroups] : {std::pair{1, 1}, {8, 1}, {8, 3}, {0, 1}})
    for (const NeedleValues values : {NeedleValues::kSmallBehindLarge, NeedleValues::kOnes, NeedleValues::kRandom}) {
      const CudaCase test = needle_case(pv_promote, warpgroups);
      const AttentionCase call = needle_call(test, values);
      const double error =
          needle_error(call, launch_twice(device(), call, prepare(test.problem, test.schedule)).output);
      const bool loses = pv_promote == 0 && values != NeedleValues::kOnes;
      EXPECT_EQ(error > kNeedleError, loses) << pv_promote << " " << static_cast<int>(values) << " " << error;
    }
}

TEST_F(OnCuda, FindsANeedleOfFp8Among128kKeys) {
  if (!family_exists_on(Family::kHopper, *device().info().arch)) GTEST_SKIP() << "no Hopper: " << device().info().name;
  for (const NeedleValues values : {NeedleValues::kSmallBehindLarge, NeedleValues::kOnes, NeedleValues::kRandom})
    expect_needle_among_many_keys(engine(), values);
}

/// Every case on the portable family, and its own; on hopper those that it takes, and its own.
std::vector<CudaCase> cases_of_all_families() {
  std::vector<CudaCase> cases;
  for (const CudaCase& test : all_cuda_cases()) cases.push_back(of_family(test, Family::kPortable));
  for (const CudaCase& test : portable_cases()) cases.push_back(test);
  for (const CudaCase& test : shared_cases_on_hopper()) cases.push_back(test);
  for (const CudaCase& test : hopper_cases()) cases.push_back(test);
  for (const Family family : {Family::kPortable, Family::kHopper, Family::kBlackwell})
    for (const CudaCase& test : latent_cases(family)) cases.push_back(test);
  return cases;
}

class AttentionOnCuda : public OnCuda, public testing::WithParamInterface<CudaCase> {
 protected:
  void SetUp() override {
    OnCuda::SetUp();
    if (!test::CudaEngine::get().engine) return;
    const Family family = GetParam().schedule.family.value();
    if (!family_exists_on(family, *device().info().arch))
      GTEST_SKIP() << to_string(family) << " kernels do not run on " << device().info().name;
  }
  // A whole run compiles all its kernels at once, on all cores; a single test compiles its own.
  static void SetUpTestSuite() {
    if (!test::CudaEngine::get().engine || testing::GTEST_FLAG(filter) != "*") return;
    for (const CudaCase& test : cases_of_all_families()) {
      if (!is_taken(test, *test::CudaEngine::get().engine->device(0).info().arch)) continue;
      PrepareOptions options;
      options.background = true;
      test::CudaEngine::get().engine->prepare(test.problem, test.schedule, options);
    }
  }
};

TEST_P(AttentionOnCuda, MatchesTheReference) {
  const CudaCase& test = GetParam();
  const AttentionKernel kernel = prepare(test.problem, test.schedule);
  kernel.wait();
  ASSERT_TRUE(kernel.binary());
  EXPECT_EQ(kernel.binary()->usage.spill_stores, 0) << "registers spill";
  AttentionCase call = make_inputs(test.problem, test.shape, test.options);
  if (test.change) {
    test.change(call);
    call.random_values = call.random_values && test.name.find("_c36_") == std::string::npos;
  }
  expect_right(call, kernel);
}

INSTANTIATE_TEST_SUITE_P(Cases, AttentionOnCuda, testing::ValuesIn(cases_of_all_families()),
                         [](const auto& info) { return info.param.name; });

/// Kernels of one family, unless a schedule names another.
class FamilyOnCuda : public OnCuda, public testing::WithParamInterface<Family> {
 protected:
  void SetUp() override {
    OnCuda::SetUp();
    if (test::CudaEngine::get().engine && !family_exists_on(GetParam(), *device().info().arch))
      GTEST_SKIP() << to_string(GetParam()) << " kernels do not run on " << device().info().name;
  }
  AttentionKernel prepare(const AttentionProblem& problem, AttentionSchedule schedule = {}) {
    if (schedule.family.is_auto()) schedule.family = GetParam();
    return engine().prepare(problem, schedule);
  }
};

const auto kFamilies = testing::Values(Family::kPortable, Family::kHopper);
std::string family_name(const testing::TestParamInfo<Family>& info) { return std::string(to_string(info.param)); }

// Case 24: a pool of more than 2^31 elements, and where pages are small page ids above 2^24.
TEST_P(FamilyOnCuda, PoolsBeyond32BitsOfElements) {
  const std::size_t needed = std::size_t{22} << 30, host = static_cast<std::size_t>(::sysconf(_SC_AVPHYS_PAGES)) * 4096;
  if (device().info().memory_bytes < needed || host < needed)
    GTEST_SKIP() << "needs 22 GiB on the host and on the device";
  AttentionProblem problem = default_problem();
  problem.head_dim = {64, 64};
  const int page_size = GetParam() == Family::kHopper ? 8 : 1;
  problem.kv_layout = {KvLayoutKind::kPaged, page_size};
  InputOptions options;
  options.unused_pages = ((1 << 24) + (1 << 20)) / page_size;  // of 2 x 64 elements a token: 2.2e9
  for (const int max_q_len : {0, 1}) {
    problem.max_q_len = max_q_len;
    const AttentionCase call = make_inputs(problem, shape_of(2, max_q_len ? 1 : 40, 500), options);
    ASSERT_GT(call.k.buffer->size() / 2, std::size_t{1} << 31);
    expect_right(call, prepare(problem));
  }
}

// Case 25: however many parts the keys are cut into, the result is the same within rounding.
TEST_F(OnCuda, PartsAgreeWithTheWhole) {
  AttentionProblem problem = default_problem(DType::kF16);
  problem.max_q_len = 1;
  AttentionShape shape = shape_of(4, 1, 0);
  shape.kv_lens = {4096, 100, 0, 513};
  const AttentionCase call = make_inputs(problem, shape);
  AttentionSchedule schedule;
  schedule.splits = 1;
  const AttentionOutput whole = launch_twice(device(), call, prepare(problem, schedule)).output;
  std::vector<double> expected(call.o_elems()), found(call.o_elems());
  decode_row(DType::kF16, whole.o.data(), expected.size(), expected.data());
  for (const int parts : {2, 3, 7, 33, 128}) {
    schedule.splits = parts;
    const AttentionOutput output = launch_twice(device(), call, prepare(problem, schedule)).output;
    decode_row(DType::kF16, output.o.data(), found.size(), found.data());
    for (std::size_t i = 0; i < found.size(); ++i)
      ASSERT_NEAR(found[i], expected[i], 1e-3) << parts << " parts, element " << i;
    for (std::size_t i = 0; i < whole.lse.size(); ++i) {
      if (std::isinf(whole.lse[i]))
        ASSERT_EQ(output.lse[i], whole.lse[i]) << parts << " parts, row " << i;
      else
        ASSERT_NEAR(output.lse[i], whole.lse[i], 1e-5) << parts << " parts, row " << i;
    }
  }
}

// Case 28: a prefill in chunks over paged keys, each of which is written when its chunk comes: every later slot still
// holds NaN. The chunks' rows together are the rows of the one-shot prefill.
class ChunkedPrefillOnCuda : public FamilyOnCuda {
 protected:
  static constexpr int kTokens = 5000, kPage = 16;

  static AttentionProblem problem(int max_q_len = 0) {
    AttentionProblem problem = default_problem();
    problem.q_layout = QLayout::kRagged;  // rows of o and lse then lie where one shot puts them
    problem.kv_layout = {KvLayoutKind::kPaged, kPage};
    problem.mask.kind = MaskKind::kCausal;
    problem.max_q_len = max_q_len;
    return problem;
  }

  /// o and lse of all chunks.
  AttentionOutput run_chunks(const AttentionCase& call, int chunk, const AttentionKernel& kernel) {
    DeviceCase on_device(device(), call, {});
    on_device.poison();
    AttentionTensors tensors = on_device.tensors();
    for (const auto& [tensor, address] : {std::pair{&call.k, tensors.k}, std::pair{&call.v, tensors.v}})
      device().fill(address, 0xff, tensor->buffer->size(), on_device.stream());  // NaN
    std::vector<std::int32_t> lengths;  // of each chunk: its two offsets of queries, and the keys so far
    for (int first = 0; first < kTokens; first += chunk) {
      const int count = std::min(chunk, kTokens - first);
      lengths.insert(lengths.end(), {0, count, first + count});
    }
    const DevicePtr lengths_at = device().allocate(lengths.size() * sizeof(std::int32_t));
    device().copy_to_device(lengths_at, lengths.data(), lengths.size() * sizeof(std::int32_t));
    std::vector<AttentionTensors> launches;
    std::uint64_t workspace_bytes = 0;
    for (std::size_t i = 0; i < lengths.size(); i += 3) {
      AttentionTensors part = tensors;
      const int count = lengths[i + 1], keys = lengths[i + 2];
      const std::uint64_t row = static_cast<std::uint64_t>(keys - count) * call.problem.heads.q;
      part.q += row * call.problem.head_dim.qk * bytes_of(call.problem.dtype.q);
      part.o += row * call.problem.head_dim.v * bytes_of(call.problem.dtype.out);
      part.lse += row * sizeof(float);
      part.q_offsets = lengths_at + i * sizeof(std::int32_t);
      part.kv_lengths = part.q_offsets + 2 * sizeof(std::int32_t);
      part.q_len = count, part.q_tokens = count, part.kv_len = keys;
      workspace_bytes = std::max(workspace_bytes, kernel.workspace_bytes(kernel.extent(part)));
      launches.push_back(part);
    }
    const DevicePtr workspace = device().allocate(workspace_bytes);
    int written = 0;
    for (AttentionTensors& part : launches) {
      on_device.wait();
      for (; written < part.kv_len; ++written)
        for (const auto& [tensor, address] : {std::pair{&call.k, tensors.k}, std::pair{&call.v, tensors.v}}) {
          const std::byte* row = tensor == &call.k ? call.k_row(0, written, 0) : call.v_row(0, written, 0);
          device().copy_to_device(address + static_cast<std::uint64_t>(row - tensor->buffer->data()), row,
                                  static_cast<std::size_t>(tensor->strides.token) * bytes_of(tensor->dtype));
        }
      part.workspace = workspace, part.workspace_bytes = workspace_bytes;
      if (workspace) device().fill(workspace, 0xff, workspace_bytes, on_device.stream());
      kernel.launch(part, on_device.stream());
    }
    const AttentionOutput output = on_device.download();
    EXPECT_TRUE(on_device.guards_are_intact());
    device().free(lengths_at);
    if (workspace) device().free(workspace);
    return output;
  }

  void expect_one_shot(int chunk, int max_q_len = 0) {
    const AttentionCase call = make_inputs(problem(), shape_of(1, kTokens, kTokens));
    const AttentionOutput whole = launch_twice(device(), call, prepare(problem())).output;
    const AttentionOutput chunks = run_chunks(call, chunk, prepare(problem(max_q_len)));
    const Verdict verdict = verify(call, chunks, {.budget_operations = 4e9});
    EXPECT_TRUE(verdict.passed) << verdict.text;
    // Other rows than verify() took: each of the two may be off by its bound.
    std::mutex mutex;
    double worst = 0, worst_lse = 0;
    compute_reference(call, choose_rows(call, 2e9, 28), score_error_model(call.problem), [&](const ReferenceRow& row) {
      const int width = call.problem.head_dim.v;
      const std::size_t at = call.o_index(0, row.id.query, row.id.head),
                        lse_at = call.lse_index(0, row.id.query, row.id.head);
      const DType dtype = call.problem.dtype.out;
      std::vector<double> one(static_cast<std::size_t>(width)), other(one.size());
      decode_row(dtype, whole.o.data() + at * bytes_of(dtype), one.size(), one.data());
      decode_row(dtype, chunks.o.data() + at * bytes_of(dtype), other.size(), other.data());
      const std::lock_guard lock(mutex);
      const auto note = [](double& largest, double difference, double bound) {
        const double ratio = difference / bound;
        largest = std::max(largest, std::isnan(ratio) ? std::numeric_limits<double>::infinity() : ratio);
      };
      for (int i = 0; i < width; ++i)
        note(worst, std::fabs(one[static_cast<std::size_t>(i)] - other[static_cast<std::size_t>(i)]),
             output_bound(call, row, i).limit);
      note(worst_lse, std::fabs(whole.lse[lse_at] - chunks.lse[lse_at]), lse_bound(call, row));
    });
    EXPECT_LE(worst, 2) << "o";
    EXPECT_LE(worst_lse, 2) << "lse";
  }
};

TEST_P(ChunkedPrefillOnCuda, Of512EqualsOneShot) { expect_one_shot(512); }
TEST_P(ChunkedPrefillOnCuda, Of777EqualsOneShot) { expect_one_shot(777); }
TEST_P(ChunkedPrefillOnCuda, Of1EqualsOneShot) { expect_one_shot(1); }
TEST_P(ChunkedPrefillOnCuda, Of1ByAKernelForOneQueryEqualsOneShot) { expect_one_shot(1, 1); }

// Case 36, V inside the union: docs/attention/portable.md promises one element of O, in the rows of a block and of one
// KV head.
TEST_P(FamilyOnCuda, ANanInAValueReachesOneElementOfOneBlock) {
  AttentionProblem problem = default_problem();
  problem.mask.kind = MaskKind::kCausal;
  constexpr int kQueries = 600, kElement = 7;
  AttentionCase call = make_inputs(problem, shape_of(1, kQueries, kQueries));
  const AttentionKernel kernel = prepare(problem);
  const AttentionOutput clean = launch_twice(device(), call, kernel).output;
  fill_with_nan(call.v.dtype, {call.v_row(0, kQueries - 1, 1) + kElement * 2, 2});  // the last query alone sees it
  const AttentionOutput spoilt = launch_twice(device(), call, kernel).output;
  const AttentionSpec& spec = kernel.plan().main;
  // attention_sm90 multiplies whole key tiles: the block before may have the key in its last one.
  const int block = spec.block_m + (spec.family == Family::kHopper ? spec.block_n : 0);
  ASSERT_LT(block, kQueries / 2);
  for (int query = 0; query < kQueries; ++query)
    for (int head = 0; head < problem.heads.q; ++head)
      for (int i = 0; i < problem.head_dim.v; ++i) {
        const std::byte* found = spoilt.o.data() + (call.o_index(0, query, head) + static_cast<std::size_t>(i)) * 2;
        double value;
        decode_row(DType::kBf16, found, 1, &value);
        const bool may_be_nan = i == kElement && head / problem.group() == 1 && query >= kQueries - block;
        if (may_be_nan && query == kQueries - 1) {
          ASSERT_TRUE(std::isnan(value)) << "head " << head;
        } else if (!may_be_nan || !std::isnan(value)) {
          ASSERT_EQ(std::memcmp(found, clean.o.data() + (found - spoilt.o.data()), 2), 0)
              << "query " << query << ", head " << head << ", element " << i;
        }
      }
  EXPECT_EQ(std::memcmp(spoilt.lse.data(), clean.lse.data(), clean.lse.size() * sizeof(float)), 0);
}

// Case 36, split keys: one part's lse is NaN, the others see nothing. That is no empty row: O = 0 would hide it.
TEST_F(OnCuda, ANanPartAmongEmptyOnesIsNotAnEmptyRow) {
  AttentionProblem problem = default_problem();
  problem.max_q_len = 1;
  AttentionSchedule schedule;
  schedule.splits = 16;
  AttentionShape shape = shape_of(2, 1, 0);
  shape.kv_lens = {5, 4096};
  AttentionCase call = make_inputs(problem, shape);
  for (int j = 0; j < 5; ++j) fill_with_nan(call.k.dtype, {call.k_row(0, j, 0), 256});
  const AttentionOutput output = launch_twice(device(), call, prepare(problem, schedule)).output;
  std::vector<double> row(128);
  for (int b = 0; b < 2; ++b)
    for (int head = 0; head < problem.heads.q; ++head) {
      const bool is_nan = b == 0 && head < problem.group();
      EXPECT_EQ(std::isnan(output.lse[call.lse_index(b, 0, head)]), is_nan) << b << ", head " << head;
      decode_row(DType::kBf16, output.o.data() + call.o_index(b, 0, head) * 2, row.size(), row.data());
      for (const double value : row) ASSERT_EQ(std::isnan(value), is_nan) << b << ", head " << head;
    }
}

// Case 40, short: mixed shapes on two streams at once, each result the same to the bit every time.
TEST_P(FamilyOnCuda, ManyLaunchesOnTwoStreamsRepeatToTheBit) {
  struct Job {
    AttentionCase call;
    std::unique_ptr<DeviceCase> on_device;
    AttentionOutput first;
  };
  std::vector<std::unique_ptr<Job>> jobs;
  AttentionProblem prefill = default_problem(), decode = default_problem();
  prefill.mask.kind = MaskKind::kCausal;
  decode.kv_layout = {KvLayoutKind::kPaged, 16};
  decode.max_q_len = 1;
  for (const auto& [problem, shape] :
       {std::pair{prefill, shape_of(2, 300, 300)}, std::pair{decode, shape_of(5, 1, 2000)},
        std::pair{prefill, shape_of(1, 33, 1000)}, std::pair{decode, shape_of(60, 1, 100)}}) {
    auto job = std::make_unique<Job>();
    job->call = make_inputs(problem, shape);
    job->on_device = std::make_unique<DeviceCase>(device(), job->call, prepare(problem));
    job->on_device->poison();
    job->on_device->launch();
    job->first = job->on_device->download();
    jobs.push_back(std::move(job));
  }
  Random random(40);
  for (int round = 0; round < 50; ++round) {
    for (auto& job : jobs) job->on_device->poison();
    for (int i = 0; i < 20; ++i) jobs[random.below(jobs.size())]->on_device->launch();  // every job has its own stream
    for (auto& job : jobs) job->on_device->launch();
    for (auto& job : jobs) {
      const AttentionOutput output = job->on_device->download();
      ASSERT_EQ(output.o, job->first.o) << "round " << round;
      ASSERT_EQ(std::memcmp(output.lse.data(), job->first.lse.data(), output.lse.size() * sizeof(float)), 0)
          << "round " << round;
    }
  }
}

// A captured launch replays, and gives the bits of a direct one.
TEST_P(FamilyOnCuda, GraphsReplayTheSameBits) {
  AttentionProblem problem = default_problem();
  problem.max_q_len = 1;
  const AttentionCase call = make_inputs(problem, shape_of(2, 1, 3000));
  DeviceCase on_device(device(), call, prepare(problem));
  on_device.poison();
  on_device.launch();
  const AttentionOutput direct = on_device.download();
  device().begin_capture(on_device.stream());
  on_device.launch();
  const auto graph = device().end_capture(on_device.stream());
  for (int i = 0; i < 100; ++i) {
    on_device.poison();
    graph->replay(on_device.stream());
    ASSERT_EQ(on_device.download().o, direct.o) << "replay " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Of, FamilyOnCuda, kFamilies, family_name);
INSTANTIATE_TEST_SUITE_P(Of, ChunkedPrefillOnCuda, kFamilies, family_name);

}  // namespace
}  // namespace kernelwright
