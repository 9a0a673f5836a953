// Wrong lengths, offsets and pages: kernels must not trust what is in device memory. Every family, on the emulator with
// every check on and on a GPU (run it under compute-sanitizer: --gtest_filter='*HostileDataOnCuda*'). NaN lies around
// the memory that the tensors are said to have. The reference computes what docs/attention/portable.md promises for
// such data.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <climits>
#include <cmath>

#include "end_to_end/attention/cases/attention_cases.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "support/cuda_engine.h"
#include "support/emulated_attention.h"

namespace kernelwright {
namespace {

using test::CudaEngine;
using test::expect_no_reports;
using test::expect_right;
using test::make_checking_engine;
using testing::Each;

struct HostileCase {
  const char* name;
  Arch arch;
  AttentionProblem problem;
  AttentionShape shape;
  AttentionSchedule schedule;
};

AttentionSchedule on(Family family) {
  AttentionSchedule schedule;
  schedule.family = family;
  return schedule;
}
AttentionSchedule decoding_on(Family family, Merge merge) {
  AttentionSchedule schedule = on(family);
  schedule.token_gen = true;
  schedule.splits = 3;
  schedule.merge = merge;
  return schedule;
}
AttentionSchedule queued() {
  AttentionSchedule schedule = on(Family::kBlackwell);
  schedule.scheduler = Scheduler::kQueued;
  return schedule;
}
AttentionProblem small(int depth = 64) { return heads(dims(default_problem(), depth, depth), 4, 2); }
AttentionProblem prompts(AttentionProblem problem) {
  problem.cache_length = CacheLength::kPrompt;
  return problem;
}
AttentionProblem token_scaled(AttentionProblem problem) {
  problem.dtype.q = problem.dtype.kv = DType::kE4m3;
  problem.scales = ScaleKind::kPerToken;
  return problem;
}
AttentionShape starting(AttentionShape shape, std::vector<int> kv_starts) {
  shape.kv_starts = std::move(kv_starts);
  return shape;
}
AttentionShape padded(int q_len, std::vector<int> kv_lens) {
  AttentionShape shape = lists({}, std::move(kv_lens));
  shape.q_len = q_len;
  return shape;
}

/// Sequences of the greatest length, of none, and of some length in between: the first two are told lies about.
const std::vector<HostileCase>& hostile_cases() {
  const AttentionShape keys = padded(20, {150, 0, 150, 0, 70, 150}), tokens = padded(1, {150, 0, 150, 0, 70, 150});
  const AttentionShape rows = lists({50, 30, 0, 0}, {150, 70, 0, 0}), few = lists({2, 1, 0, 0}, {150, 70, 0, 0});
  // None, all, a few; the first two are told lies about.
  const std::vector<int> starts{0, 0, 150, 0, 33, 77};
  const AttentionShape paged_starts = starting(keys, starts),
                       padded_starts = starting(padded(20, {150, 0, 150, 0, 70, 150}), starts);
  static const std::vector<HostileCase> cases{
      {"portable_pages", Arch::kSm80, causal(paged(small(), 16)), keys, on(Family::kPortable)},
      {"portable_converted_pages", Arch::kSm80, causal(fp8(paged(small(), 64))), keys, on(Family::kPortable)},
      {"portable_ragged", Arch::kSm80, causal(ragged(small())), rows, on(Family::kPortable)},
      {"portable_decode_pages", Arch::kSm80, decode(paged(small(), 64)), tokens,
       decoding_on(Family::kPortable, Merge::kInKernel)},
      {"portable_decode_ragged", Arch::kSm80, causal(decode(ragged(small()), 2)), few,
       decoding_on(Family::kPortable, Merge::kCombine)},
      {"hopper_lengths", Arch::kSm90a, prompts(causal(small())), padded(20, {150, 20, 150, 20, 70, 150}),
       on(Family::kHopper)},
      {"hopper_pages", Arch::kSm90a, causal(paged(small(), 16)), keys, on(Family::kHopper)},
      {"hopper_gathered_pages", Arch::kSm90a, causal(paged(small(), 5)), keys, on(Family::kHopper)},
      {"hopper_ragged", Arch::kSm90a, causal(ragged(small())), rows, on(Family::kHopper)},
      {"hopper_decode_pages", Arch::kSm90a, decode(paged(small(128), 16)), tokens,
       decoding_on(Family::kHopper, Merge::kInKernel)},
      {"blackwell_pages", Arch::kSm100a, causal(paged(small(), 16)), keys, on(Family::kBlackwell)},
      {"blackwell_gathered_pages", Arch::kSm100a, causal(paged(small(), 5)), keys, on(Family::kBlackwell)},
      {"blackwell_scaled_tokens", Arch::kSm100a, token_scaled(paged(small(), 16)), keys, on(Family::kBlackwell)},
      {"blackwell_ragged", Arch::kSm100a, causal(ragged(small())), rows, on(Family::kBlackwell)},
      {"blackwell_ragged_queue", Arch::kSm100a, causal(ragged(small())), rows, queued()},
      {"portable_starts", Arch::kSm80, left_padded(causal(small())), padded_starts, on(Family::kPortable)},
      {"portable_decode_starts", Arch::kSm80, decode(left_padded(paged(small(), 64))), starting(tokens, starts),
       decoding_on(Family::kPortable, Merge::kInKernel)},
      {"hopper_starts", Arch::kSm90a, left_padded(causal(small())), padded_starts, on(Family::kHopper)},
      {"hopper_paged_starts", Arch::kSm90a, left_padded(causal(paged(small(), 16))), paged_starts, on(Family::kHopper)},
      {"hopper_decode_starts", Arch::kSm90a, decode(left_padded(paged(small(128), 16))), starting(tokens, starts),
       decoding_on(Family::kHopper, Merge::kInKernel)},
      {"blackwell_starts", Arch::kSm100a, left_padded(causal(small())), padded_starts, on(Family::kBlackwell)},
      {"blackwell_paged_starts", Arch::kSm100a, left_padded(causal(paged(small(), 16))), paged_starts,
       on(Family::kBlackwell)},
  };
  return cases;
}

HostTensor with_pages_behind(const HostTensor& tensor, int pages, bool nan) {
  HostTensor longer = tensor;
  const std::size_t page = static_cast<std::size_t>(tensor.strides.batch) * bytes_of(tensor.dtype);
  std::vector<std::byte> bytes = *tensor.buffer;
  const std::size_t before = bytes.size();
  bytes.resize(before + page * static_cast<std::size_t>(pages));
  if (nan) fill_with_nan(tensor.dtype, std::span(bytes).subspan(before));
  longer.buffer = std::make_shared<std::vector<std::byte>>(std::move(bytes));
  return longer;
}

/// A call that lies, and the one that it is to be read as.
struct Lie {
  AttentionCase told, meant;
  int num_pages = 0;
};

Lie lie(const HostileCase& test) {
  Lie made;
  made.told = made.meant = make_inputs(test.problem, test.shape);
  AttentionCase &told = made.told, &meant = made.meant;
  meant.random_values = false;  // keys of zeros
  const std::int32_t above[] = {told.kv_len + 1, told.kv_len + 100000, INT_MAX}, below[] = {-1, INT_MIN};
  std::size_t next = 0;
  for (std::size_t b = 0; b < told.kv_lengths.size(); ++b) {
    const int own = test.problem.cache_length == CacheLength::kPrompt ? told.q_lens[b] : 0;
    if (told.kv_lens[b] == told.kv_len) told.kv_lengths[b] = above[next++ % 3];
    if (told.kv_lens[b] == own) told.kv_lengths[b] = below[next++ % 2];
  }
  for (std::size_t b = 0; b < told.kv_starts.size(); ++b) {
    if (told.kv_starts[b] == 0) told.kv_starts[b] = below[next++ % 2];
    if (told.kv_starts[b] == told.kv_lens[b]) told.kv_starts[b] = above[next++ % 3];
  }
  if (test.problem.kv_layout.kind == KvLayoutKind::kPaged) {
    made.num_pages = told.num_pages();
    for (HostTensor* tensor : {&told.k, &told.v}) *tensor = with_pages_behind(*tensor, 3, true);
    for (HostTensor* tensor : {&meant.k, &meant.v}) *tensor = with_pages_behind(*tensor, 1, false);
    if (told.has_key_scales()) {
      const std::size_t page = told.k_scale.size() / static_cast<std::size_t>(made.num_pages);
      for (auto* scales : {&told.k_scale, &told.v_scale})
        scales->resize(scales->size() + 3 * page, std::numeric_limits<float>::quiet_NaN());
      for (auto* scales : {&meant.k_scale, &meant.v_scale}) scales->resize(scales->size() + page, 1);
    }
    const std::int32_t none[] = {-1, made.num_pages, made.num_pages + 2, INT_MAX, INT_MIN};
    std::size_t lies = 0;
    for (int b = 0; b < told.batch; ++b)
      for (int page = b % 2; page * test.problem.kv_layout.page_size < told.kv_lens[static_cast<std::size_t>(b)];
           page += 2) {
        const std::size_t at = static_cast<std::size_t>(b * told.page_table_stride + page);
        told.page_table[at] = none[lies++ % 5];
        meant.page_table[at] = made.num_pages;
      }
  }
  // The end of sequence 1 and the beginning of sequence 2; both read as the end of the rows.
  if (!told.q_offsets.empty()) told.q_offsets[2] = INT_MAX, told.q_offsets[3] = -7;
  if (!told.kv_offsets.empty()) told.kv_offsets[2] = INT_MIN, told.kv_offsets[3] = told.kv_offsets[4] + 1;
  return made;
}

/// Launches with wrong data, and expects the results of the intended data.
void expect_read_as_meant(Engine& engine, const HostileCase& test) {
  const Lie made = lie(test);
  DeviceCase on_device(engine.device(0), made.told, engine.prepare(test.problem, test.schedule));
  on_device.tensors().num_pages = made.num_pages;
  if (!made.meant.q_offsets.empty()) on_device.tensors().q_tokens = made.meant.q_tokens;
  if (!made.meant.kv_offsets.empty()) on_device.tensors().kv_tokens = made.meant.kv_offsets.back();
  on_device.poison();
  on_device.launch();
  expect_right(made.meant, on_device.download());
  EXPECT_TRUE(on_device.guards_are_intact()) << "memory beside an output was written";
}

/// Offsets in no order, and rows that several sequences have: whatever is computed, no memory but the outputs is
/// touched.
void expect_no_harm(Engine& engine, const HostileCase& test) {
  const AttentionCase call = make_inputs(test.problem, test.shape);
  if (call.q_offsets.empty()) return;
  AttentionCase told = call;
  told.q_offsets = {70, 20, INT_MIN, 10, 1000};
  told.kv_offsets = {-1, 0, 1 << 30, 3, 100};
  DeviceCase on_device(engine.device(0), told, engine.prepare(test.problem, test.schedule));
  on_device.tensors().q_tokens = call.q_tokens;
  on_device.tensors().kv_tokens = call.kv_offsets.back();
  on_device.poison();
  on_device.launch();
  on_device.download();
  EXPECT_TRUE(on_device.guards_are_intact()) << "memory beside an output was written";
}

/// Queries as in a padded batch: `front` rows before the first sequence and `back` rows after the last belong to no
/// sequence.
AttentionCase with_padding(const AttentionCase& call, int front, int back) {
  AttentionCase padded = call;
  const std::size_t row = static_cast<std::size_t>(call.q.strides.token) * bytes_of(call.q.dtype);
  std::vector<std::byte> bytes((static_cast<std::size_t>(front + back)) * row + call.q.buffer->size());
  fill_with_nan(call.q.dtype, bytes);
  std::copy(call.q.buffer->begin(), call.q.buffer->end(), bytes.begin() + static_cast<std::ptrdiff_t>(front * row));
  padded.q.buffer = std::make_shared<std::vector<std::byte>>(std::move(bytes));
  for (std::int32_t& offset : padded.q_offsets) offset += front;
  padded.q_tokens += front + back;
  return padded;
}

void expect_padding(Engine& engine, const HostileCase& test) {
  constexpr int kFront = 2, kBack = 3;
  const AttentionCase call = make_inputs(test.problem, test.shape);
  if (call.q_offsets.empty() || call.kv_offsets.empty()) return;
  const AttentionCase padded = with_padding(call, kFront, kBack);
  for (const bool zeros : {false, true}) {
    SCOPED_TRACE(zeros ? "zeros" : "untouched");
    DeviceCase on_device(engine.device(0), padded, engine.prepare(test.problem, test.schedule));
    on_device.tensors().zero_padding = zeros;
    on_device.poison();
    on_device.launch();
    const AttentionOutput output = on_device.download();
    EXPECT_TRUE(on_device.guards_are_intact()) << "memory beside an output was written";
    expect_right(padded, output);
    const std::size_t heads = static_cast<std::size_t>(test.problem.heads.q), tokens = padded.q_tokens;
    const std::size_t row = output.o.size() / tokens;
    for (std::size_t token = 0; token < tokens; ++token) {
      if (token >= kFront && token < tokens - kBack) continue;
      const auto o = std::span(output.o).subspan(token * row, row);
      EXPECT_THAT(std::vector(o.begin(), o.end()), Each(std::byte{static_cast<unsigned char>(zeros ? 0 : 0xff)}))
          << "row " << token;
      for (std::size_t h = 0; h < heads; ++h) {
        const float lse = output.lse[token * heads + h];
        EXPECT_TRUE(zeros ? lse == -INFINITY : std::isnan(lse)) << "lse " << lse << " of row " << token;
      }
    }
  }
}

std::string name_of(const testing::TestParamInfo<std::size_t>& info) { return hostile_cases()[info.param].name; }

class HostileDataOnTheEmulator : public test::OnTheEmulator<std::size_t> {
 protected:
  const HostileCase& test() const { return hostile_cases()[GetParam()]; }
  /// The reports about wrong data; all other reports are failures. If `rows_may_be_shared`, offsets may give a row to
  /// two sequences: then both CTAs write the row, in any order.
  std::vector<std::string> bad_data(bool rows_may_be_shared = false) {
    std::vector<std::string> found;
    for (const auto& [kernel, report] : dynamic_cast<EmulatorBackend&>(engine_.backend()).take_reports()) {
      if (report.kind == emulator::HazardKind::kData)
        found.push_back(report.what);
      else if (rows_may_be_shared && report.kind == emulator::HazardKind::kRace)
        EXPECT_THAT(report.what, testing::HasSubstr("a write of global memory is not ordered after a write"))
            << report.text();
      else
        ADD_FAILURE() << kernel << ": " << report.text();
    }
    return found;
  }
  Engine engine_ = make_checking_engine(4, emulator::Completion::kRandom, 7, test().arch);
};

TEST_P(HostileDataOnTheEmulator, IsReadAsTheNearestThatThereIs) {
  expect_read_as_meant(engine_, test());
  EXPECT_FALSE(bad_data().empty());
  expect_no_harm(engine_, test());
  bad_data(/*rows_may_be_shared=*/true);
  expect_padding(engine_, test());
  EXPECT_TRUE(bad_data().empty());
}

INSTANTIATE_TEST_SUITE_P(Families, HostileDataOnTheEmulator, testing::Range<std::size_t>(0, 22), name_of);

class HostileDataOnCuda : public testing::TestWithParam<std::size_t> {};

TEST_P(HostileDataOnCuda, IsReadAsTheNearestThatThereIs) {
  Engine* const engine = CudaEngine::get().engine.get();
  if (!engine) GTEST_SKIP() << CudaEngine::get().missing;
  const HostileCase& test = hostile_cases()[GetParam()];
  const Arch arch = *engine->device(0).info().arch;
  if (!is_taken({test.name, test.problem, test.shape, test.schedule}, arch))
    GTEST_SKIP() << "no such kernel for " << arch_info(arch).name;
  expect_read_as_meant(*engine, test);
  expect_no_harm(*engine, test);
  expect_padding(*engine, test);
}

INSTANTIATE_TEST_SUITE_P(Families, HostileDataOnCuda, testing::Range<std::size_t>(0, 22), name_of);

// ---- reports ----

TEST(HostileData, IsToldByRowAndValue) {
  if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  std::vector<std::string> told;
  EngineOptions options;
  options.backend = "emulator";
  options.check_data = true;  // as on a GPU: without hazards
  options.custom_store = test::ptx_store();
  options.sink = [&](const Event& event) {
    if (event.kind == EventKind::kBadData) told.push_back(event.name + ": " + event.detail);
  };
  Engine engine(options);
  const AttentionProblem problem = left_padded(windowed(paged(small(), 16), 20));
  AttentionCase call = make_inputs(problem, padded(2, {100, 64, 0}));
  call.kv_lengths = {101, 64, -3};
  call.kv_starts = {-2, 65, 0};
  call.page_table[0] = -1;  // left of the window: no query reads it
  call.page_table[6] = 99;
  call.page_table[static_cast<std::size_t>(call.page_table_stride) + 3] = -5;
  DeviceCase on_device(engine.device(0), call, engine.prepare(problem, on(Family::kPortable)));
  on_device.launch();
  EXPECT_THAT(
      told, testing::ElementsAre(
                "attention_portable: kv_lengths[0] is 101, above kv_len 100; it is read as 100",
                "attention_portable: kv_lengths[2] is -3; it is read as 0",
                "attention_portable: kv_starts[0] is -2; it is read as 0",
                "attention_portable: kv_starts[1] is 65, above the sequence's 64 keys; it is read as 64",
                "attention_portable: page_table[0, 6] is 99, and there are pages 0 to 13; its keys are read as zeros"));
  told.clear();
  call.kv_starts = {0, 47, 0};
  DeviceCase again(engine.device(0), call, engine.prepare(problem, on(Family::kPortable)));
  again.launch();
  EXPECT_EQ(told.back(), "attention_portable: page_table[1, 3] is -5, which is no page; its keys are read as zeros");
}

// ---- NaN and infinities ----

struct HiddenCase {
  const char* name;
  AttentionProblem problem;
  int rows_from;  // key `key` is seen by no query of [rows_from, rows_to), and by others of the same tile
  int rows_to;
  int key;
};

const std::vector<HiddenCase>& hidden_cases() {
  static const std::vector<HiddenCase> cases{
      {"causal", causal(small()), 0, 60, 160},  // q_len 100, kv_len 200
      {"causal_f16_d256", causal(heads(dims(default_problem(DType::kF16), 256, 256), 2, 1)), 0, 60, 160},
      {"window", windowed(small(128), 40, 3), 60, 100, 119},
      {"converted", causal(fp8(small(), ScaleKind::kPerTensor, DType::kE5m2)), 0, 60, 160},
  };
  return cases;
}

class HiddenValuesOnTheEmulator : public test::OnTheEmulator<std::size_t> {};

TEST_P(HiddenValuesOnTheEmulator, ReachNoRowThatDoesNotSeeThem) {
  const HiddenCase& test = hidden_cases()[GetParam()];
  Engine engine = make_checking_engine(4, emulator::Completion::kRandom, 3, Arch::kSm80);
  const AttentionCase clean = make_inputs(test.problem, shape_of(1, 100, 200));
  const AttentionKernel kernel = engine.prepare(test.problem, on(Family::kPortable));
  const auto run = [&](const AttentionCase& call) {
    DeviceCase on_device(engine.device(0), call, kernel);
    on_device.poison();
    on_device.launch();
    return on_device.download();
  };
  const AttentionOutput without = run(clean);
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), INFINITY}) {
    AttentionCase call = clean;
    call.v.buffer = std::make_shared<std::vector<std::byte>>(*clean.v.buffer);
    call.random_values = false;
    for (int h = 0; h < test.problem.heads.kv; ++h) {  // every other column
      const std::size_t depth = static_cast<std::size_t>(test.problem.head_dim.v);
      std::vector<double> row(depth);
      decode_row(call.v.dtype, call.v_row(0, test.key, h), depth, row.data());
      std::vector<float> spoilt(row.begin(), row.end());
      for (std::size_t i = 1; i < depth; i += 2) spoilt[i] = value;
      encode_row(call.v.dtype, spoilt, call.v_row(0, test.key, h));
    }
    const AttentionOutput output = run(call);
    expect_right(call, output);  // the queries that see the keys get them
    const std::size_t bytes = static_cast<std::size_t>(test.problem.head_dim.v) * bytes_of(test.problem.dtype.out);
    for (int query = test.rows_from; query < test.rows_to; ++query)
      for (int h = 0; h < test.problem.heads.q; ++h) {
        const std::size_t at = call.o_index(0, query, h) * bytes_of(test.problem.dtype.out);
        EXPECT_EQ(std::memcmp(output.o.data() + at, without.o.data() + at, bytes), 0)
            << "query " << query << " of head " << h << " with " << value;
      }
  }
  expect_no_reports(engine);
}

INSTANTIATE_TEST_SUITE_P(Masks, HiddenValuesOnTheEmulator, testing::Range<std::size_t>(0, 4),
                         [](const auto& info) { return std::string(hidden_cases()[info.param].name); });

}  // namespace
}  // namespace kernelwright
