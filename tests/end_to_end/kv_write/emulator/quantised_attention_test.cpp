// How far attention over an fp8 cache is from attention over what the cache was written from, for each kind of scales.
// The inputs are those of the FlashAttention-3 paper (arXiv:2407.08608, section 4.3): N(0, 1), and N(0, 100) on top of
// one element in a thousand. kv_write quantises. A kernel may add little to the error that its codes and scales have.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "kernelwright/verify/attention/reference.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/kv_write/reference.h"
#include "kernelwright/verify/random.h"
#include "support/written_cache.h"

namespace kernelwright::quantised_attention_test {
namespace {

constexpr int kKeys = 512, kPage = 64, kHeads = 2, kDepth = 128;
constexpr float kLargest = 448;  // of e4m3

constexpr ScaleKind kTensor = ScaleKind::kPerTensor, kHead = ScaleKind::kPerHead, kOfPage = ScaleKind::kPerPage,
                    kToken = ScaleKind::kPerToken;

struct Form {
  const char* name;
  bool decodes, narrow;  // narrow: queries are e4m3 too
  int rows;
  std::vector<ScaleKind> kinds;
};
std::vector<Form> forms() {
  return {{"decode", true, false, 16, {kTensor, kHead, kOfPage, kToken}},
          {"prefill", false, false, 128, {kTensor, kHead, kOfPage, kToken}},
          {"prefill_e4m3", false, true, 128, {kTensor, kHead, kOfPage, kToken}}};
}
void PrintTo(const Form& form, std::ostream* out) { *out << form.name; }

void fill_with_outliers(std::vector<std::byte>& bytes, Random& random) {
  std::vector<float> values(bytes.size() / 2);
  for (std::size_t i = 0; i < values.size(); i += 2) {
    float outliers[2];
    random.normal_pair(values[i], values[i + 1]);
    random.normal_pair(outliers[0], outliers[1]);
    for (std::size_t e = 0; e < 2; ++e)
      if (random.below(1000) == 0) values[i + e] += 10 * outliers[e];
  }
  encode_row(DType::kBf16, values, bytes.data());
}

/// The cache of one sequence, whose queries are e4m3 if `narrow`.
KvWriteCase cache_of(ScaleKind scales, bool narrow, bool hadamard) {
  KvWriteProblem problem;
  problem.head_dim = {kDepth, kDepth};
  problem.heads = {kHeads, kHeads};
  problem.kv_layout = {KvLayoutKind::kPaged, kPage};
  problem.index = CacheIndex::kPositions;
  problem.hadamard = problem.hadamard_signs = hadamard;
  problem.dtype.kv = DType::kE4m3;
  if (narrow) problem.dtype.q = DType::kE4m3;
  const bool of_tokens = scales == ScaleKind::kPerToken;
  // A launch that writes one page has one scale for each head of it.
  problem.scales.k = problem.scales.v = scales == ScaleKind::kPerPage ? ScaleKind::kPerHead : scales;
  if (narrow) problem.scales.q = of_tokens ? ScaleKind::kPerToken : ScaleKind::kPerTensor;
  KvWriteCase call = make_kv_write_inputs(problem, {.name = "outliers", .tokens = kKeys});
  lay_out_dense(call);
  test::make_one_sequence(call);
  Random random(41);
  for (auto* rows : {&call.q, &call.k, &call.v}) {
    rows->resize(std::size_t{kKeys} * kHeads * kDepth * 2);
    fill_with_outliers(*rows, random);
  }
  return call;
}

/// The largest magnitude of heads [first_head, last_head) of tokens [first, last), as they are quantised.
float largest(const KvWriteCase& call, HeadsOf of, int first, int last, int first_head, int last_head) {
  double most = 0;
  for (int token = first; token < last; ++token)
    for (int head = first_head; head < last_head; ++head)
      for (const double value : reference_head(call, of, token, head).value) most = std::max(most, std::fabs(value));
  return static_cast<float>(most);
}

/// Gives scales that let the largest value be the largest code.
void give_scales(KvWriteCase& call, ScaleKind kind) {
  if (kind == ScaleKind::kPerToken) return;
  if (is_fp8(call.problem.dtype.q)) call.q_scale = {largest(call, HeadsOf::kQ, 0, kKeys, 0, kHeads) / kLargest};
  for (const auto& [of, scales] : {std::pair{HeadsOf::kK, &call.k_scale}, std::pair{HeadsOf::kV, &call.v_scale}}) {
    scales->clear();
    if (kind == ScaleKind::kPerTensor) *scales = {largest(call, of, 0, kKeys, 0, kHeads) / kLargest};
    for (int head = 0; kind == ScaleKind::kPerHead && head < kHeads; ++head)
      scales->push_back(largest(call, of, 0, kKeys, head, head + 1) / kLargest);
    if (kind != ScaleKind::kPerPage) continue;
    scales->resize(static_cast<std::size_t>(call.num_pages) * kHeads, 1);
    for (int page = 0; page * kPage < kKeys; ++page)
      for (int head = 0; head < kHeads; ++head)
        (*scales)[static_cast<std::size_t>(call.page_table[static_cast<std::size_t>(page)] * kHeads + head)] =
            largest(call, of, page * kPage, (page + 1) * kPage, head, head + 1) / kLargest;
  }
}

/// Writes the cache: in one launch, or page by page with the scales of each.
void write(KvWriteDeviceCase& cache, const KvWriteCase& call, ScaleKind kind) {
  cache.poison();
  if (kind != ScaleKind::kPerPage) return cache.launch();
  const KvWriteTensors whole = cache.tensors();
  KvWriteTensors& now = cache.tensors();
  const std::size_t q_bytes = bytes_of(call.problem.dtype.q);
  for (int page = 0; page * kPage < kKeys; ++page) {
    const DevicePtr token = static_cast<DevicePtr>(page) * kPage, row = token * kHeads * kDepth;
    const auto number = static_cast<DevicePtr>(call.page_table[static_cast<std::size_t>(page)]);
    now.tokens = kPage;
    now.q = whole.q + row * 2, now.k = whole.k + row * 2, now.v = whole.v + row * 2,
    now.q_out = whole.q_out + row * q_bytes;
    now.positions = whole.positions + token * 4, now.batch_indices = whole.batch_indices + token * 4;
    now.k_scale = whole.k_scale + number * kHeads * 4, now.v_scale = whole.v_scale + number * kHeads * 4;
    cache.launch();
  }
  now = whole;
}

using Rows = std::vector<double>;

/// Exact attention of a call: its rows in the order of o.
Rows exact(const AttentionCase& call) {
  Rows rows(call.o_elems());
  compute_reference(call, choose_rows(call), {}, [&](const ReferenceRow& row) {
    std::copy(row.o.begin(), row.o.begin() + kDepth,
              rows.begin() + static_cast<std::ptrdiff_t>(call.o_index(row.id.sequence, row.id.query, row.id.head)));
  });
  return rows;
}
/// The same of what the cache is written from.
Rows exact_of_inputs(const KvWriteCase& cache, int q_len) {
  AttentionProblem problem;
  problem.head_dim = {kDepth, kDepth};
  problem.heads = {kHeads, kHeads};
  AttentionCase call = shape_only(problem, {.name = "inputs", .q_len = q_len, .kv_len = kKeys});
  const auto buffer = [](const std::vector<std::byte>& bytes) {
    return std::make_shared<std::vector<std::byte>>(bytes);
  };
  call.q.buffer = buffer(cache.q), call.k.buffer = buffer(cache.k), call.v.buffer = buffer(cache.v);
  call.q.offset_bytes = static_cast<std::size_t>(kKeys - q_len) * kHeads * kDepth * 2;
  return exact(call);
}
double rmse(const Rows& one, const Rows& other) {
  double sum = 0;
  for (std::size_t i = 0; i < one.size(); ++i) sum += (one[i] - other[i]) * (one[i] - other[i]);
  return std::sqrt(sum / static_cast<double>(one.size()));
}

struct Errors {
  double of_kernel, of_codes;  // RMSE to attention over the inputs: of the kernel, and exact over codes and scales
};

class QuantisedAttention : public test::OnTheEmulator<Form> {
 protected:
  const Form& form_ = GetParam();
  Engine engine_ = test::make_checking_engine(4, emulator::Completion::kRandom, 1);

  AttentionKernel prepare(ScaleKind scales, const PrepareOptions& options = {}) {
    AttentionSchedule schedule;
    schedule.family = Family::kHopper, schedule.token_gen = form_.decodes;
    return engine_.prepare(problem_of(scales), schedule, options);
  }
  AttentionProblem problem_of(ScaleKind scales) const {
    AttentionProblem problem;
    problem.dtype = {form_.narrow ? DType::kE4m3 : DType::kBf16, DType::kE4m3, DType::kBf16};
    problem.head_dim = {kDepth, kDepth};
    problem.heads = {kHeads, kHeads};
    problem.kv_layout = {KvLayoutKind::kPaged, kPage};
    problem.scales = scales;
    if (form_.decodes) problem.max_q_len = form_.rows;
    return problem;
  }

  /// Over a cache that is written with scales of a kind.
  Errors errors_of(ScaleKind scales, bool hadamard = false) {
    KvWriteCase call = cache_of(scales, form_.narrow, hadamard);
    give_scales(call, scales);
    KvWriteDeviceCase cache(engine_.device(0), call, engine_.prepare(call.problem));
    write(cache, call, scales);
    const KvWriteOutput written = cache.download();
    const AttentionProblem problem = problem_of(scales);
    const AttentionCase read = test::attention_over(call, problem, form_.rows, &written);
    DeviceCase on_device(engine_.device(0), read, prepare(scales));
    test::read_where_it_lies(on_device, cache, problem, form_.rows);
    on_device.poison();
    on_device.launch();
    const AttentionOutput output = on_device.download();
    test::expect_no_reports(engine_);
    Rows found(read.o_elems());
    decode_row(DType::kBf16, output.o.data(), found.size(), found.data());
    const Rows inputs = exact_of_inputs(call, form_.rows);
    const Errors errors{rmse(found, inputs), rmse(exact(read), inputs)};
    const std::string name = std::string(to_string(scales)) + (hadamard ? "_hadamard" : "");
    RecordProperty(name, fmt::format("{:.3g}", errors.of_kernel));
    RecordProperty(name + "_codes", fmt::format("{:.3g}", errors.of_codes));
    EXPECT_LE(errors.of_kernel, 1.1 * errors.of_codes) << name;
    return errors;
  }
};
INSTANTIATE_TEST_SUITE_P(, QuantisedAttention, testing::ValuesIn(forms()),
                         [](const auto& info) { return info.param.name; });

TEST_P(QuantisedAttention, AddsLittleToTheErrorOfItsCodes) {
  PrepareOptions background;
  background.background = true;
  for (const ScaleKind scales : form_.kinds) prepare(scales, background);  // on all cores
  std::map<ScaleKind, double> errors;
  for (const ScaleKind scales : form_.kinds) errors[scales] = errors_of(scales).of_kernel;
  EXPECT_LT(errors[kToken], errors[kTensor]);
  EXPECT_LT(errors_of(kTensor, true).of_kernel, errors[kTensor]);
}

}  // namespace
}  // namespace kernelwright::quantised_attention_test
