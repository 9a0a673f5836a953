// Deliberate mistakes in where operands lie with swizzles narrower than 128B, or none: widths of slabs, their order,
// strides and modes of descriptors, steps of products, rows that threads move. Each is found on the emulator. Needs
// NVRTC.
#include <gmock/gmock.h>

#include "end_to_end/attention/cases/attention_cases.h"
#include "support/kernel_faults.h"

namespace kernelwright {
namespace {

enum class Form { k64B, k32B, kNone, kGathers64B, kGathersNone, kDecode64B, kBlackwell64B, kBlackwellNone, kSplit32B };

struct SwizzleFault {
  const char* name;
  Form form;
  std::vector<test::TemplateEdit> edits;
  const char* found;  // among what is found
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

constexpr const char* kStep = ": k / width() * part_bytes() + k % width();";
constexpr const char* kStride = "return swizzle_bytes > 0 || !mn_major ? pattern_bytes() : part_bytes();";
constexpr const char* kSwizzledLeading = "return mn_major ? part_bytes() : 0;";
constexpr const char* kPlainLeading = "return mn_major ? pattern_bytes() : part_bytes();";

const SwizzleFault kFaults[] = {
    // ---- the width of a slab ----
    {"slabs_of_128_bytes_on_the_device",
     Form::k64B,
     {{"return swizzle_bytes == 0 ? kPieceBytes : swizzle_bytes;", "return 128;"}},
     "out of bounds"},
    {"slabs_of_32_bytes_without_a_swizzle",
     Form::kNone,
     {{"return swizzle_bytes == 0 ? kPieceBytes : swizzle_bytes;", "return swizzle_bytes == 0 ? 32 : swizzle_bytes;"}},
     "deadlock"},
    {"one_slab_too_few",
     Form::k64B,
     {{"(depth * element_bytes + bytes - 1) / bytes * together", "depth * element_bytes / (bytes + 1) * together"}},
     "wrong result"},
    // ---- their order ----
    {"slabs_of_half_their_columns_apart",
     Form::k64B,
     {{"return {&map, slab * kSlabColumns, head};", "return {&map, slab * (kSlabColumns / 2), head};"}},
     "wrong result"},
    {"first_two_slabs_exchanged_in_keys_and_queries_and_values",
     Form::k64B,
     {{"return {&map, slab * kSlabColumns, head};", "return {&map, (slab ^ (slab < 2)) * kSlabColumns, head};"}},
     "wrong result"},
    {"box_of_another_place_in_a_slot",
     Form::kDecode64B,
     {{"ptx::cp_async_bulk_tensor_4d(slot + slab * kSlabBytes",
       "ptx::cp_async_bulk_tensor_4d(slot + (slab ^ 1) * kSlabBytes"}},
     "wrong result"},
    // ---- descriptors ----
    {"descriptor_of_128B",
     Form::k64B,
     {{"b = ptx::wgmma_descriptor<kSwizzleBytes>(keys,", "b = ptx::wgmma_descriptor<128>(keys,"}},
     "wrong result"},
    {"descriptor_of_64B_for_32B",
     Form::k32B,
     {{"b = ptx::wgmma_descriptor<kSwizzleBytes>(values,", "b = ptx::wgmma_descriptor<64>(values,"}},
     "wrong result"},
    {"rows_of_128_bytes_in_the_stride",
     Form::k64B,
     {{kStride, "return mn_major ? pattern_bytes() : kSwizzleRows * 128;"}},
     "race"},
    {"second_half_of_a_step_is_the_first",
     Form::kNone,
     {{kPlainLeading, "return mn_major ? pattern_bytes() : 0;"}},
     "wrong result"},
    {"strides_of_values_exchanged",
     Form::k32B,
     {{kSwizzledLeading, "return mn_major ? pattern_bytes() : 0;"},
      {kStride, "return mn_major ? part_bytes() : pattern_bytes();"}},
     "wrong result"},
    {"strides_of_values_as_if_swizzled",
     Form::kNone,
     {{kPlainLeading, "return part_bytes();"}, {kStride, "return pattern_bytes();"}},
     "wrong result"},
    // ---- steps ----
    {"second_step_of_a_slab_is_the_first", Form::k64B, {{kStep, ": k / width() * part_bytes();"}}, "wrong result"},
    {"all_steps_in_one_slab", Form::k64B, {{kStep, ": k % width();"}}, "wrong result"},
    {"steps_side_by_side_in_memory", Form::k32B, {{kStep, ": k;"}}, "wrong result"},
    {"steps_of_128B_taken_for_even",
     Form::k64B,
     {{"kSwizzleBytes == 64 || kFirst % 4 != 0 ? kSteps + 1 : 4", "4"}},
     "wrong result"},
    {"steps_of_values_of_a_row_of_128_bytes",
     Form::k64B,
     {{"kStep = kV.step_offset(1) / 16;", "kStep = 128;"}},
     "out of bounds"},
    // ---- what threads write and read of slabs ----
    {"foreign_values_cleaned_in_part",
     Form::k64B,
     {{"i < (spec::kBlockN - last_keys_) * kRowPieces;", "i < (spec::kBlockN - last_keys_) * kRowPieces / 8;"}},
     "wrong result"},
    {"output_lines_a_slab_apart",
     Form::k64B,
     {{"from + line * (8 / kPieces) * kSlabBytes", "from + line * kSlabBytes"}},
     "wrong result"},
    {"output_read_as_it_does_not_lie",
     Form::k32B,
     {{"(chunk % kPieces ^ contract::swizzle_of_row(row, kSwizzleBytes)) * 16;", "chunk % kPieces * 16;"}},
     "wrong result"},
    {"gathered_rows_not_swizzled",
     Form::kGathers64B,
     {{"(chunk % kRowPieces ^ contract::swizzle_of_row(row, spec::kSwizzleBytes)) * 16", "chunk % kRowPieces * 16"}},
     "wrong result"},
    {"gathered_lines_in_one_slab",
     Form::kGathersNone,
     {{"return chunk / kRowPieces * (kKeys * kRowBytes) +", "return"}},
     "wrong result"},
    {"gathered_line_goes_on_behind_the_slabs",
     Form::kGathers64B,
     {{"if (slabs < kLineBytes && static_cast<int>(chunk) * 16 >= slabs) break;", ""}},
     "race"},
    {"values_of_a_slot_cleaned_by_the_rows_of_128B",
     Form::kDecode64B,
     {{"piece % (kSlabBytes / 16) / (kRowBytes / 16)", "piece % (kSlabBytes / 16) / 8"}},
     "wrong result"},
    // ---- blackwell ----
    {"tcgen05_descriptor_of_32B",
     Form::kBlackwell64B,
     {{"descriptor.swizzle = contract::mma_swizzle(kSwizzleBytes);",
       "descriptor.swizzle = contract::mma_swizzle(32);"}},
     "wrong result"},
    {"tcgen05_rows_of_128_bytes",
     Form::kBlackwell64B,
     {{"descriptor.stride_bytes = stride_bytes;", "descriptor.stride_bytes = 1024;"}},
     "race"},
    {"tcgen05_leading_offset_forgotten",
     Form::kBlackwellNone,
     {{"descriptor.leading_bytes = leading_bytes;", ""}},
     "wrong result"},
    {"tcgen05_steps_of_values_of_128_bytes",
     Form::kBlackwell64B,
     {{"b + kV.step_offset((key - kShareFirst) / Type::step) / 16", "b + (key - kShareFirst) * 8"}},
     "wrong result"},
    {"output_of_blackwell_in_another_swizzle",
     Form::kBlackwell64B,
     {{"(chunk % kRowPieces ^ moved) * 16", "chunk % kRowPieces * 16"}},
     "wrong result"},
    {"part_over_barriers",
     Form::kSplit32B,
     {{"if (shape.splits_keys && shape.num_q == 1) layout.factors = larger(layout.factors, layout.keys + "
       "kPartSlabBytes);",
       ""}},
     "race"},
    {"part_over_the_keys",
     Form::kSplit32B,
     {{"larger(queries, shape.splits_keys ? kPartRowBytes : kOutputBatchBytes)", "larger(queries, kOutputBatchBytes)"}},
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

/// Without a mistake nothing is found: what the list proves.
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
}  // namespace kernelwright
