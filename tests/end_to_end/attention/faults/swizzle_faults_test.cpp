// Deliberate mistakes in where operands lie with swizzles narrower than 128B, or without one: widths of slabs, their
// order, strides and modes of descriptors, steps of products, rows that threads move. The emulator must find each.
// Needs NVRTC.
#include <gmock/gmock.h>

#include "end_to_end/attention/cases/attention_cases.h"
#include "support/kernel_faults.h"

namespace kernelwright::swizzle_faults_test {
namespace {

using test::change, test::drop, test::replace;

enum class Form { k64B, k32B, kNone, kGathers64B, kGathersNone, kDecode64B, kBlackwell64B, kBlackwellNone, kSplit32B };

struct SwizzleFault {
  const char* name;
  Form form;
  std::vector<test::TemplateEdit> edits;
  const char* found;  // must be among the findings
};

/// Several slabs, a last tile with keys that are not the sequence's, and NaN behind them.
CudaCase call_of(Form form) {
  CudaCase test;
  const bool blackwell = form == Form::kBlackwell64B || form == Form::kBlackwellNone || form == Form::kSplit32B;
  const bool none = form == Form::kNone || form == Form::kGathersNone || form == Form::kBlackwellNone;
  test.problem = heads(dims(default_problem(), 96, 96), 2, 1);
  test.schedule.family = blackwell ? Family::kBlackwell : Family::kHopper;
  test.schedule.swizzle = none                                            ? Swizzle::kNone
                          : form == Form::k32B || form == Form::kSplit32B ? Swizzle::k32B
                                                                          : Swizzle::k64B;
  test.schedule.block_n = blackwell ? 64 : 48;
  test.shape = lists({}, {150, 160});
  test.shape.q_len = 70;
  if (form == Form::kGathers64B || form == Form::kGathersNone) test.problem = paged(test.problem, 3);
  if (form == Form::kDecode64B) {
    test.problem = decode(test.problem, 4);
    test.schedule.token_gen = true, test.schedule.splits = 1, test.schedule.block_n = {};
    test.shape.q_len = 4;
  }
  if (form == Form::kSplit32B) {
    test.problem = decode(dims(test.problem, 48, 48), 5);
    test.schedule.splits = 3, test.schedule.merge = Merge::kInKernel, test.schedule.num_kv_stages = 2;
    test.schedule.kv_ring = KvRing::kShared;
    test.shape.q_len = 5;
  }
  return test;
}

/// Faults of what the host and both sides of a product read of contract/shared_slab.h.
test::TemplateEdit step_offset_becomes(const char* text) {
  return change("step_offset", "width", "k / width() * part_bytes() + k % width()", text);
}
test::TemplateEdit stride_becomes(const char* text) { return replace("stride_bytes", "return", text); }
test::TemplateEdit plain_leading_becomes(const char* text) { return replace("leading_bytes", "pattern_bytes", text); }
test::TemplateEdit swizzled_leading_becomes(const char* text) { return replace("leading_bytes", "return #1", text); }

const SwizzleFault kFaults[] = {
    // ---- the width of a slab ----
    {"slabs_of_128_bytes_on_the_device",
     Form::k64B,
     {change("slab_width", "kPieceBytes", "swizzle_bytes == 0 ? kPieceBytes : swizzle_bytes", "128")},
     "out of bounds"},
    {"slabs_of_32_bytes_without_a_swizzle",
     Form::kNone,
     {change("slab_width", "kPieceBytes", "kPieceBytes", "32")},
     "deadlock"},
    {"one_slab_too_few",
     Form::k64B,
     {change("slabs_of", "return", "(depth * element_bytes + bytes - 1) / bytes",
             "depth * element_bytes / (bytes + 1)")},
     "wrong result"},
    // ---- their order ----
    {"slabs_of_half_their_columns_apart",
     Form::k64B,
     {change("slab_source", "map kSlabColumns", "kSlabColumns", "(kSlabColumns / 2)")},
     "wrong result"},
    {"first_two_slabs_exchanged_in_keys_and_queries_and_values",
     Form::k64B,
     {change("slab_source", "map kSlabColumns", "slab", "(slab ^ (slab < 2))")},
     "wrong result"},
    {"box_of_another_place_in_a_slot",
     Form::kDecode64B,
     {change("load_slabs", "cp_async_bulk_tensor_4d", "slab * kSlabBytes", "(slab ^ 1) * kSlabBytes")},
     "wrong result"},
    // ---- descriptors ----
    {"descriptor_of_128B",
     Form::k64B,
     {change("issue_scores", "leading_bytes keys", "kSwizzleBytes", "128")},
     "wrong result"},
    {"descriptor_of_64B_for_32B",
     Form::k32B,
     {change("issue_output", "leading_bytes", "kSwizzleBytes", "64")},
     "wrong result"},
    {"rows_of_128_bytes_in_the_stride",
     Form::k64B,
     {stride_becomes("return mn_major ? pattern_bytes() : kSwizzleRows * 128;")},
     "race"},
    {"second_half_of_a_step_is_the_first",
     Form::kNone,
     {plain_leading_becomes("return mn_major ? pattern_bytes() : 0;")},
     "wrong result"},
    {"strides_of_values_exchanged",
     Form::k32B,
     {swizzled_leading_becomes("return mn_major ? pattern_bytes() : 0;"),
      stride_becomes("return mn_major ? part_bytes() : pattern_bytes();")},
     "wrong result"},
    {"strides_of_values_as_if_swizzled",
     Form::kNone,
     {plain_leading_becomes("return part_bytes();"), stride_becomes("return pattern_bytes();")},
     "wrong result"},
    // ---- steps ----
    {"second_step_of_a_slab_is_the_first",
     Form::k64B,
     {step_offset_becomes("k / width() * part_bytes()")},
     "wrong result"},
    {"all_steps_in_one_slab", Form::k64B, {step_offset_becomes("k % width()")}, "wrong result"},
    {"steps_side_by_side_in_memory", Form::k32B, {step_offset_becomes("k")}, "wrong result"},
    {"steps_of_128B_taken_for_even",
     Form::k64B,
     {change("issue_scores", "kAtOnce kSwizzleBytes", "kSwizzleBytes == 64 || kFirst % 4 != 0 ? kSteps + 1 :", "")},
     "wrong result"},
    {"steps_of_values_of_a_row_of_128_bytes",
     Form::k64B,
     {change("issue_output", "wgmma_rs step_offset", "kV.step_offset(i) / 16", "i * 128")},
     "out of bounds"},
    // ---- slabs that threads write and read ----
    {"foreign_values_cleaned_in_part",
     Form::k64B,
     {change("clear_last_keys", "thread kBlockN", "kRowPieces", "kRowPieces / 8")},
     "wrong result"},
    {"output_lines_a_slab_apart",
     Form::k64B,
     {change("StagedRows::store", "st_global_v4", "(8 / kPieces) *", "")},
     "wrong result"},
    {"output_read_as_it_does_not_lie",
     Form::k32B,
     {change("StagedRows::store", "swizzle_of_row", "(chunk % kPieces ^ contract::swizzle_of_row(row, kSwizzleBytes))",
             "chunk % kPieces")},
     "wrong result"},
    {"gathered_rows_not_swizzled",
     Form::kGathers64B,
     {change("place", "swizzle_of_row", "(chunk % kRowPieces ^ contract::swizzle_of_row(row, spec::kSwizzleBytes))",
             "chunk % kRowPieces")},
     "wrong result"},
    {"gathered_lines_in_one_slab",
     Form::kGathersNone,
     {change("place", "swizzle_of_row", "chunk / kRowPieces * (kKeys * kRowBytes) +", "")},
     "wrong result"},
    {"gathered_line_goes_on_behind_the_slabs", Form::kGathers64B, {drop("copy", "break")}, "race"},
    {"values_of_a_slot_cleaned_by_the_rows_of_128B",
     Form::kDecode64B,
     {change("await_values", "holds", "(kRowBytes / 16)", "8")},
     "wrong result"},
    // ---- blackwell ----
    {"tcgen05_descriptor_of_32B",
     Form::kBlackwell64B,
     {change("swizzled_descriptor", "swizzle", "kSwizzleBytes", "32")},
     "wrong result"},
    {"tcgen05_rows_of_128_bytes",
     Form::kBlackwell64B,
     {change("swizzled_descriptor", "stride_bytes descriptor", "= stride_bytes", "= 1024")},
     "race"},
    {"tcgen05_leading_offset_forgotten",
     Form::kBlackwellNone,
     {drop("swizzled_descriptor", "leading_bytes descriptor")},
     "wrong result"},
    {"tcgen05_steps_of_values_of_128_bytes",
     Form::kBlackwell64B,
     {change("OutputProduct::issue", "step_offset", "kV.step_offset((key - kShareFirst) / Type::step) / 16",
             "(key - kShareFirst) * 8")},
     "wrong result"},
    {"output_of_blackwell_in_another_swizzle",
     Form::kBlackwell64B,
     {change("stage", "st_shared_v4", "(chunk % kRowPieces ^ moved)", "chunk % kRowPieces")},
     "wrong result"},
    {"part_over_barriers", Form::kSplit32B, {drop("blackwell_layout", "factors larger")}, "race"},
    {"part_over_the_keys",
     Form::kSplit32B,
     {change("query_row_bytes", "larger", "shape.splits_keys ? kPartRowBytes :", "")},
     "race"},
};

void PrintTo(const SwizzleFault& fault, std::ostream* out) { *out << fault.name; }

class SwizzleFaults : public testing::TestWithParam<SwizzleFault> {
 protected:
  void SetUp() override {
    if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }
};

TEST_P(SwizzleFaults, AreFound) {
  const SwizzleFault& fault = GetParam();
  const CudaCase call = call_of(fault.form);
  const bool blackwell = call.schedule.family.value() == Family::kBlackwell;
  const char* const kernel = blackwell                                 ? "attention_sm100"
                             : call.schedule.token_gen.value_or(false) ? "attention_decode_sm90"
                                                                       : "attention_sm90";
  const test::Findings findings =
      test::run_with_edits(kernel, call, fault.edits, blackwell ? Arch::kSm100a : Arch::kSm90a);
  EXPECT_THAT(findings.found, testing::Contains(fault.found)) << findings.text;
}

INSTANTIATE_TEST_SUITE_P(, SwizzleFaults, testing::ValuesIn(kFaults),
                         [](const auto& info) { return std::string(info.param.name); });

/// Without a mistake nothing is found. So in the list above, the mistake is what is found.
TEST(SwizzleFaultForms, AreRightAsTheyAre) {
  if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  for (const Form form : {Form::k64B, Form::k32B, Form::kNone, Form::kGathers64B, Form::kGathersNone, Form::kDecode64B,
                          Form::kBlackwell64B, Form::kBlackwellNone, Form::kSplit32B}) {
    const CudaCase call = call_of(form);
    const Arch arch = call.schedule.family.value() == Family::kBlackwell ? Arch::kSm100a : Arch::kSm90a;
    const test::Findings findings = test::run_with_edits("", call, {}, arch);
    EXPECT_THAT(findings.found, testing::IsEmpty()) << static_cast<int>(form) << "\n" << findings.text;
  }
}

}  // namespace
}  // namespace kernelwright::swizzle_faults_test
