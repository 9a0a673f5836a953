// Left padding on the emulator, with every check on. A sequence that begins behind its padding has the bits of the same
// keys without padding, from a kernel that knows no starts. Kernels that count tiles from the start have them for any
// start. The other kernels have them where a tile begins with the start. Elsewhere their tiles hold other keys, maxima
// come in another order, and sums round differently: they must keep the bound of every kernel. Also kernels with a
// deliberate mistake, each of which must be found. Keys before a start hold NaN (make_inputs()). Needs NVRTC and no
// GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernelwright/verify/formats/float_formats.h"
#include "support/emulated_attention.h"
#include "support/kernel_faults.h"

namespace kernelwright::kv_starts_emulator_test {
namespace {

using namespace test;

struct Form {
  const char *name, *kernel;
  Arch arch;
  AttentionProblem problem;
  AttentionSchedule schedule;
  bool counts_from_start;  // tiles begin with the start, whichever key it is
};
void PrintTo(const Form& form, std::ostream* out) { *out << form.name; }

AttentionSchedule of(Family family) {
  AttentionSchedule schedule;
  schedule.family = family;
  schedule.block_n = 64;
  return schedule;
}
AttentionSchedule decoding(Family family) {
  AttentionSchedule schedule = of(family);
  schedule.token_gen = true;
  schedule.splits = 2;
  return schedule;
}
template <class Change>
AttentionSchedule blackwell(Change&& change) {
  AttentionSchedule schedule = of(Family::kBlackwell);
  change(schedule);
  return schedule;
}
AttentionProblem ragged_queries(AttentionProblem problem) {
  problem.q_layout = QLayout::kRagged;
  return problem;
}

void add_portable_forms(std::vector<Form>& forms, const AttentionProblem& dense) {
  const auto add = [&](const char* name, const AttentionProblem& problem) {
    forms.push_back({name, "attention_portable", Arch::kSm80, problem, of(Family::kPortable), false});
  };
  add("portable", causal(dense));
  add("portable_window_sinks_softcap", capped(with_sinks(windowed(dense, 60, 0)), 5));
  add("portable_pages_alibi_ragged_queries", causal(with_alibi(ragged_queries(paged(dense, 16)))));
  forms.push_back({"portable_decode", "attention_decode_portable", Arch::kSm80, decode(causal(paged(dense, 16)), 3),
                   decoding(Family::kPortable), false});
}

void add_hopper_forms(std::vector<Form>& forms, const AttentionProblem& dense) {
  const auto add = [&](const char* name, const AttentionProblem& problem, bool counts_from_start) {
    forms.push_back({name, "attention_sm90", Arch::kSm90a, problem, of(Family::kHopper), counts_from_start});
  };
  add("hopper", causal(dense), true);
  add("hopper_window_sinks_softcap", capped(with_sinks(windowed(dense, 60, 0)), 5), true);
  add("hopper_ragged_queries", ragged_queries(dense), true);
  add("hopper_gathered_pages_alibi", causal(with_alibi(paged(dense, 5))), true);
  add("hopper_pages", causal(paged(dims(dense, 128, 128), 64)), false);
  forms.back().schedule.num_mma_stages = 2;
  forms.back().schedule.kv_ring = KvRing::kShared;
  forms.back().schedule.num_kv_stages = 3;
  forms.push_back({"hopper_decode", "attention_decode_sm90", Arch::kSm90a, decode(causal(paged(dense, 16)), 3),
                   decoding(Family::kHopper), false});
}

void add_blackwell_forms(std::vector<Form>& forms, const AttentionProblem& dense) {
  const auto add = [&](const char* name, const AttentionProblem& problem, bool counts_from_start, auto&& change) {
    forms.push_back({name, "attention_sm100", Arch::kSm100a, problem, blackwell(change), counts_from_start});
  };
  const auto as_it_is = [](AttentionSchedule&) {};
  add("blackwell", causal(dense), true, as_it_is);
  add("blackwell_window_sinks_softcap", capped(with_sinks(windowed(dense, 60, 0)), 5), true, as_it_is);
  add("blackwell_gathered_pages_alibi", causal(with_alibi(paged(dense, 5))), true, as_it_is);
  add("blackwell_pages", causal(paged(dense, 32)), false,
      [](AttentionSchedule& s) { s.scheduler = Scheduler::kQueued; });
  add("blackwell_pair", causal(ragged_queries(paged(dense, 32))), false, [](AttentionSchedule& s) { s.cta_group = 2; });
  add("blackwell_decode", decode(causal(paged(dense, 32)), 3), false,
      [](AttentionSchedule& s) { s.num_q = 1, s.splits = 2; });
}

const std::vector<Form>& forms() {
  static const std::vector<Form> all = [] {
    std::vector<Form> made;
    const AttentionProblem dense = left_padded(heads(dims(default_problem(), 64, 64), 4, 2));
    add_portable_forms(made, dense);
    add_hopper_forms(made, dense);
    add_blackwell_forms(made, dense);
    return made;
  }();
  return all;
}

const Form& form(const std::string& name) {
  return *std::find_if(forms().begin(), forms().end(), [&](const Form& one) { return one.name == name; });
}

CudaCase case_of(const Form& form, std::vector<int> starts) {
  CudaCase test{form.name, form.problem, lists({}, {200, 193, 200}), form.schedule};
  test.shape.q_len = form.problem.max_q_len > 0 ? form.problem.max_q_len : 70;
  if (form.problem.q_layout == QLayout::kRagged) test.shape.q_lens = {70, 33, 70};
  test.shape.kv_starts = std::move(starts);
  return test;
}

/// The queries of one sequence and its keys from the start on, as a call without starts.
AttentionCase without_padding(const AttentionCase& call, int sequence) {
  AttentionProblem problem = call.problem;
  problem.q_layout = QLayout::kPadded;
  problem.kv_layout = {};
  problem.kv_starts = false;
  const int q_len = call.q_lens[sequence], start = call.first_key(sequence);
  AttentionCase bare = make_inputs(problem, shape_of(1, q_len, call.kv_lens[sequence] - start));
  bare.sinks = call.sinks;
  bare.alibi_slopes = call.alibi_slopes;
  const auto copy = [](std::byte* to, const std::byte* from, const HostTensor& tensor) {
    std::memcpy(to, from, static_cast<std::size_t>(tensor.head_dim) * bytes_of(tensor.dtype));
  };
  for (int query = 0; query < q_len; ++query)
    for (int h = 0; h < problem.heads.q; ++h) copy(bare.q_row(0, query, h), call.q_row(sequence, query, h), call.q);
  for (int key = 0; key < bare.kv_len; ++key)
    for (int h = 0; h < problem.heads.kv; ++h) {
      copy(bare.k_row(0, key, h), call.k_row(sequence, start + key, h), call.k);
      copy(bare.v_row(0, key, h), call.v_row(sequence, start + key, h), call.v);
    }
  return bare;
}

/// The bits of one row of one head, and of its LSE.
std::string row_of(const AttentionCase& call, const AttentionOutput& output, int sequence, int query, int head) {
  const std::size_t bytes = bytes_of(call.problem.dtype.out);
  std::string row(static_cast<std::size_t>(call.problem.head_dim.v) * bytes, '\0');
  std::memcpy(row.data(), output.o.data() + call.o_index(sequence, query, head) * bytes, row.size());
  const float lse = output.lse[call.lse_index(sequence, query, head)];
  return row.append(reinterpret_cast<const char*>(&lse), sizeof lse);
}

/// The number of rows that differ from those of the keys without padding.
int rows_that_differ(Engine& engine, const AttentionSchedule& schedule, const AttentionCase& call,
                     const AttentionOutput& output) {
  int differ = 0;
  for (int b = 0; b < call.batch; ++b) {
    const AttentionCase bare = without_padding(call, b);
    const AttentionOutput expected = run_checked(engine, {"bare", bare.problem, {}, schedule}, bare);
    for (int query = 0; query < call.q_lens[b]; ++query)
      for (int head = 0; head < call.problem.heads.q; ++head)
        differ += row_of(call, output, b, query, head) != row_of(bare, expected, 0, query, head);
  }
  return differ;
}

const std::vector<int> kStarts = {105, 1, 190};  // tiles begin with none of them

class KvStartsOnTheEmulator : public OnTheEmulator<Form> {
 protected:
  Engine few_ = make_checking_engine(3, emulator::Completion::kRandom, 5, GetParam().arch),
         many_ = make_checking_engine(132, emulator::Completion::kLazy, 0, GetParam().arch);

  /// Runs the case on two machines. The outputs must be right, and the same.
  AttentionOutput run(const CudaCase& test, const AttentionCase& call) {
    const AttentionOutput output = run_checked(few_, test, call);
    expect_right(call, output);
    expect_same_bits(output, run_checked(many_, test, call), "two machines differ");
    return output;
  }
};

TEST_P(KvStartsOnTheEmulator, HaveTheBitsOfTheKeysWithoutPaddingWhereTilesBeginWithThem) {
  const CudaCase test = case_of(GetParam(), {128, 0, 192});
  const AttentionCase call = inputs_of(test);
  EXPECT_EQ(rows_that_differ(few_, test.schedule, call, run(test, call)), 0);
}

TEST_P(KvStartsOnTheEmulator, MayBeAnyKey) {
  const CudaCase test = case_of(GetParam(), kStarts);
  const AttentionCase call = inputs_of(test);
  const AttentionOutput output = run(test, call);
  if (GetParam().counts_from_start) EXPECT_EQ(rows_that_differ(few_, test.schedule, call, output), 0);
}

// The first rows of a prompt that is padded on the left are padding, too.
TEST_P(KvStartsOnTheEmulator, LeaveRowsWithoutKeysZeros) {
  const CudaCase test = case_of(GetParam(), {200, 192, 198});
  const AttentionCase call = inputs_of(test);
  const AttentionOutput output = run_checked(few_, test, call);
  expect_right(call, output);
  int unseen = 0;
  for (int b = 0; b < call.batch; ++b)
    for (int query = 0; query < call.q_lens[b]; ++query) {
      if (call.visible(b, query).size() > 0) continue;
      ++unseen;
      for (int head = 0; head < call.problem.heads.q; ++head) {
        const float lse = call.problem.sinks ? call.sinks[head] : -std::numeric_limits<float>::infinity();
        std::string zeros(static_cast<std::size_t>(call.problem.head_dim.v) * 2, '\0');
        zeros.append(reinterpret_cast<const char*>(&lse), sizeof lse);
        ASSERT_EQ(row_of(call, output, b, query, head), zeros) << b << ", " << query << ", " << head;
      }
    }
  EXPECT_GE(unseen, call.q_lens[0]);
}

TEST_P(KvStartsOnTheEmulator, AreTheFirstKeysWhereNoneAreGiven) {
  const CudaCase test = case_of(GetParam(), {});
  const AttentionCase call = inputs_of(test);
  const AttentionOutput output = run_checked(few_, test, call);
  CudaCase without = test;
  without.problem.kv_starts = false;
  AttentionCase same = call;
  same.problem.kv_starts = false;
  expect_same_bits(output, run_checked(few_, without, same), "the kernel without starts differs");
}

INSTANTIATE_TEST_SUITE_P(, KvStartsOnTheEmulator, testing::ValuesIn(forms()),
                         [](const auto& info) { return std::string(info.param.name); });

struct Fault {
  const char *name, *form;
  std::vector<TemplateEdit> edits;
  const char* found;  // must be among the findings; null: there must be none
  std::vector<int> starts = kStarts;
};
void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

const Fault kFaults[] = {
    {"portable_right", "portable", {}, nullptr},
    {"start_of_the_next_sequence",
     "portable",
     {change("ItemFrom", "kv_starts coord", "item.coord.batch", "item.coord.batch + 1")},
     "out of bounds"},
    {"starts_read_where_none_are_given",
     "portable",
     {change("ItemFrom", "kv_starts nullptr", "kv_starts == nullptr", "false")},
     "out of bounds",
     {}},
    {"portable_decode_right", "portable_decode", {}, nullptr},
    {"a_key_too_many",
     "portable_decode",
     {change("MaskFrom::visible", "key_range", "start", "start - 1")},
     "wrong result"},
    {"hopper_right", "hopper", {}, nullptr},
    {"tiles_counted_from_key_0",
     "hopper",
     {change("item_tiles", "kFromStart first_key", "mask.visible(first).low", "0")},
     "wrong result"},
    {"hopper_pages_right", "hopper_pages", {}, nullptr},
    {"start_counted_from_key_0",
     "hopper_pages",
     {change("limits_of", "hidden_keys", "item_.hidden_keys()", "0")},
     "wrong result"},
    {"first_values_not_cleaned", "hopper_pages", {drop("take_values", "clean_first")}, "wrong result"},
    {"a_value_too_few_cleaned",
     "hopper_pages",
     {change("clean_first", "clear_first_keys", "hidden_keys()", "hidden_keys() - 1")},
     "wrong result"},
    {"cleaned_before_they_land", "hopper_pages", {drop("clean_first", "wait_more_v")}, "race"},
    {"multiplied_before_all_have_cleaned", "hopper_pages", {drop("clean_first", "bar_sync")}, "race"},
    {"cleaned_again_in_the_next_item", "hopper_pages", {drop("clean_first", "hide")}, "wrong result"},
    {"blackwell_right", "blackwell_pages", {}, nullptr},
    {"blackwell_start_one_early",
     "blackwell_pages",
     {change("MaskFrom::counted_from", "start", "start - origin", "start - origin - 1")},
     "wrong result"},
    {"blackwell_first_values_not_cleaned",
     "blackwell_pages",
     {change("hidden_keys", "work start", "work.start - first_key", "0")},
     "wrong result"},
    {"blackwell_another_slot_cleaned",
     "blackwell_pages",
     {change("Cleaner::clean_first", "slot before_", "before_", "before_ + 1")},
     "race"},
    {"blackwell_a_value_too_few_cleaned",
     "blackwell_pages",
     {change("Cleaner::clean_first", "for keys", "keys * kRowPieces", "(keys - 1) * kRowPieces")},
     "wrong result"},
    {"blackwell_cleaned_before_they_land", "blackwell_pages", {drop("Cleaner::clean_first", "values_landed")}, "race"},
    {"blackwell_clean_values_not_waited_for", "blackwell_pages", {drop("let_clean_first", "values_clean")}, "race"},
    {"blackwell_only_tile_not_cleaned", "blackwell_pages", {drop("run_two", "let_clean_first #1")}, "deadlock"},
    {"blackwell_decode_right", "blackwell_decode", {}, nullptr},
    {"blackwell_last_tile_not_cleaned", "blackwell_decode", {drop("run_one", "let_clean_first")}, "deadlock"},
};

class KvStartFaults : public OnTheEmulator<Fault> {};

TEST_P(KvStartFaults, AreFound) {
  const Fault& fault = GetParam();
  const Form& form = kv_starts_emulator_test::form(fault.form);
  const Arch arch = form.arch == Arch::kSm80 ? Arch::kSm90a : form.arch;  // launches are dependent ones
  const Findings findings = run_with_edits(form.kernel, case_of(form, fault.starts), fault.edits, arch, /*num_sms=*/2);
  if (fault.found)
    EXPECT_THAT(findings.found, testing::Contains(fault.found)) << findings.text;
  else
    EXPECT_EQ(findings.text, "");
}

INSTANTIATE_TEST_SUITE_P(, KvStartFaults, testing::ValuesIn(kFaults),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace kernelwright::kv_starts_emulator_test
