// GEMM: which fields contradict each other, on any architecture and in any kernel family.
#include "kernelwright/generator/problem/contradictions.h"
#include "kernelwright/generator/problem/epilogue.h"
#include "kernelwright/generator/problem/rule_check.h"

namespace kernelwright {
namespace {

using namespace detail;
using Violations = std::vector<Violation>;

constexpr int kRowAlignmentBytes = 16;  // of a tensor map's strides, and of vector loads
constexpr int kScaledElements = 32;     // of k that a block-scaled row is a multiple of

void check_dtypes(const GemmProblem& problem, Violations& violations) {
  const auto [a, b, d, c] = problem.dtype;
  if (a == DType::kF32)
    violations.push_back({"/problem/dtype/a", "\"f32\" does not fit; operands are " + words_but(DType::kF32)});
  else if (a != b && !(is_fp8(a) && is_fp8(b)))
    violations.push_back({"/problem/dtype/b", in_quotes(to_string(b)) + " does not go with a's " +
                                                  in_quotes(to_string(a)) + "; it takes " +
                                                  (is_fp8(a) ? "e4m3 or e5m2" : std::string(to_string(a)))});
  if (!is_one_of(c, {DType::kF16, DType::kBf16, DType::kF32}))
    violations.push_back(
        {"/problem/dtype/c", in_quotes(to_string(c)) + " does not fit; bias and c are f16, bf16 or f32"});
  const bool blocks = is_block_scaled(d) && quantizes(problem);  // check_epilogue() has the rest
  if (!blocks && !is_one_of(d, {DType::kF16, DType::kBf16, DType::kF32, DType::kE4m3, DType::kE5m2}))
    violations.push_back(
        {"/problem/dtype/d",
         in_quotes(to_string(d)) + " does not fit; the result is f16, bf16, f32, e4m3 or e5m2" +
             (is_block_scaled(d) ? ", or the epilogue quantises to " + std::string(to_string(d)) : "")});
}

void check_scales(const GemmProblem& problem, Violations& violations) {
  const DType a = problem.dtype.a;
  if (is_block_scaled(a)) {
    if (problem.scales != ScaleKind::kPerBlock)
      violations.push_back({"/problem/scales", in_quotes(to_string(problem.scales)) + " does not fit " +
                                                   std::string(to_string(a)) + " operands; they take per_block"});
  } else if (problem.scales == ScaleKind::kPerHead || problem.scales == ScaleKind::kPerPage) {
    violations.push_back({"/problem/scales", in_quotes(to_string(problem.scales)) +
                                                 " has no meaning for a GEMM; it takes none, per_tensor, per_block "
                                                 "or per_token"});
  } else if (problem.scales != ScaleKind::kNone && !is_fp8(a)) {
    violations.push_back({"/problem/scales", in_quotes(to_string(problem.scales)) + " has no meaning for " +
                                                 std::string(to_string(a)) +
                                                 " operands; leave it out, or make them e4m3 or e5m2"});
  }
}

/// Checks formats that allow one layout alone.
void check_layout(const GemmProblem& problem, Violations& violations) {
  const DType a = problem.dtype.a;
  if (!is_block_scaled(a) && a != DType::kTf32) return;
  if (problem.layout != OperandLayout::kNt)
    violations.push_back({"/problem/layout", in_quotes(to_string(problem.layout)) + " does not fit " +
                                                 std::string(to_string(a)) +
                                                 " operands, whose k is innermost; they take nt"});
}

/// Rows of both operands begin at 16-byte boundaries, whatever the family.
void check_rows(const GemmProblem& problem, Violations& violations) {
  if (const DType a = problem.dtype.a; is_block_scaled(a)) {
    if (problem.k % kScaledElements != 0)
      violations.push_back({"/problem/k", std::to_string(problem.k) + " is no whole number of blocks of " +
                                              std::string(to_string(a)) + "; it takes a multiple of " +
                                              std::to_string(kScaledElements)});
    return;
  }
  const bool a_along_k = is_one_of(problem.layout, {OperandLayout::kNt, OperandLayout::kNn});
  const bool b_along_k = is_one_of(problem.layout, {OperandLayout::kNt, OperandLayout::kTt});
  if (a_along_k || b_along_k) check_row("/problem/k", problem.k, problem.dtype.a, a_along_k ? "a" : "b", violations);
  if (!b_along_k) check_row("/problem/n", problem.n, problem.dtype.b, "b", violations);
}

/// Epilogues that go with some columns and types alone.
void check_epilogue(const GemmProblem& problem, Violations& violations) {
  Epilogue epilogue;
  try {
    epilogue = parse_epilogue(problem.epilogue);
  } catch (const ConfigError& error) {
    violations.insert(violations.end(), error.violations().begin(), error.violations().end());
    return;
  }
  const int pairs = 2 * kGatePairs;
  // Rows of a block-scaled d have whole 16 bytes and are rows of the next GEMM's operand.
  const int group = epilogue.makes_blocks() ? kBlocksOfResult : kQuantizedGroup;
  const int whole = group * (epilogue.gated ? 2 : 1);
  if (epilogue.gated && problem.n % pairs != 0)
    violations.push_back({"/problem/n", std::to_string(problem.n) + " columns are no whole runs of " +
                                            std::to_string(kGatePairs) +
                                            " gates and as many ups; it takes a multiple of " + std::to_string(pairs)});
  if ((epilogue.measures() || epilogue.rstd) && problem.groups.any())
    violations.push_back({"/problem/groups/kind", in_quotes(to_string(problem.groups.kind)) +
                                                      " does not go with amax, squares or rstd; it takes none"});
  if (epilogue.rstd && problem.k == 0)
    violations.push_back({"/problem/k", "0 leaves rows without a mean of squares, which rstd has; it takes 1 or more"});
  if (!epilogue.quantizes) return;
  if (problem.groups.slices_k())
    violations.push_back(
        {"/problem/epilogue", in_quotes(problem.epilogue) + " quantises, which does not go with groups of kind \"k\""});
  if (epilogue.makes_blocks() && problem.groups.is_batch())
    violations.push_back({"/problem/groups/kind", in_quotes(to_string(problem.groups.kind)) +
                                                      " does not go with an epilogue that quantises to " +
                                                      std::string(to_string(epilogue.to)) +
                                                      "; it takes none, rows or masked"});
  if (problem.groups.scatter)
    violations.push_back({"/problem/groups/scatter", "true does not go with an epilogue that quantises; leave it out"});
  if (problem.dtype.d != epilogue.to)
    violations.push_back({"/problem/dtype/d", in_quotes(to_string(problem.dtype.d)) +
                                                  " is not what the epilogue quantises to; it takes " +
                                                  std::string(to_string(epilogue.to))});
  if (problem.n % whole != 0)
    violations.push_back(
        {"/problem/n", std::to_string(problem.n) + " columns" + (epilogue.gated ? ", gates and ups," : "") +
                           " leave a part of the " + std::to_string(group) +
                           " columns of d that share a scale; it takes a multiple of " + std::to_string(whole)});
}

/// Groups of kind k: what the slices of k do not go with.
void check_slices(const GemmProblem& problem, Violations& violations) {
  const auto bad = [&](const char* field, std::string message) {
    violations.push_back({std::string("/problem/") + field, std::move(message)});
  };
  if (problem.layout != OperandLayout::kTn)
    bad("layout", in_quotes(to_string(problem.layout)) +
                      " has k side by side, and groups of kind \"k\" have rows of a and b; it takes tn");
  if (problem.groups.gather)
    bad("groups/gather", "true does not go with kind \"k\", whose groups have rows of a and b; leave it out");
  if (problem.groups.scatter)
    bad("groups/scatter", "true does not go with kind \"k\", whose groups have a matrix d each; leave it out");
  if (problem.groups.pointers)
    bad("groups/pointers", "true does not go with kind \"k\", whose groups have rows of one b; leave it out");
  if (problem.scales != ScaleKind::kNone)
    bad("scales", in_quotes(to_string(problem.scales)) + " does not go with groups of kind \"k\"; it takes none");
  if (problem.k == 0) bad("k", "0 rows of a group are expected of kind \"k\"; it takes 1 or more");
}

/// Groups of rows: which fields go together.
void check_groups(const GemmProblem& problem, Violations& violations) {
  const GemmGroups& groups = problem.groups;
  const auto bad = [&](const char* field, std::string message) {
    violations.push_back({std::string("/problem/groups/") + field, std::move(message)});
  };
  const std::string bounds = in_quotes(to_string(groups.bounds));
  if (!groups.any()) {
    if (groups.count != 1)
      bad("count", std::to_string(groups.count) + " groups are given and no kind; rows, masked, batch or k");
    if (groups.gather) bad("gather", "true is given and no kind; rows or masked");
    if (groups.scatter) bad("scatter", "true is given and no kind; rows or masked");
    if (groups.pointers) bad("pointers", "true is given and no kind; rows or masked");
    if (groups.bounds != GroupBounds::kStarts) bad("bounds", bounds + " is given and no kind; rows, masked or k");
    return;
  }
  if (groups.is_batch()) {
    if (groups.gather) bad("gather", "true does not go with kind \"batch\", whose rows lie at strides; leave it out");
    if (groups.scatter) bad("scatter", "true does not go with kind \"batch\", whose rows lie at strides; leave it out");
    if (groups.pointers)
      bad("pointers", "true does not go with kind \"batch\", whose matrices lie at strides; leave it out");
    if (groups.bounds != GroupBounds::kStarts)
      bad("bounds", bounds + " does not go with kind \"batch\", all of whose rows belong to a group; leave it out");
  } else if ((groups.kind == GroupKind::kMasked) != (groups.bounds == GroupBounds::kCounts))
    bad("bounds", bounds + " does not go with kind " + in_quotes(to_string(groups.kind)) + "; it takes " +
                      (groups.kind == GroupKind::kMasked ? "counts" : "starts or ends"));
  if (groups.slices_k()) return check_slices(problem, violations);
  if (groups.pointers && problem.k == 0)
    violations.push_back({"/problem/k", "0 leaves nothing that pointers lead to; it takes 1 or more"});
  if (!is_one_of(problem.layout, {OperandLayout::kNt, OperandLayout::kNn}))
    violations.push_back(
        {"/problem/layout", in_quotes(to_string(problem.layout)) + " has rows of a side by side, and " +
                                (groups.is_batch() ? "a batch has k side by side" : "a group may begin at any row") +
                                "; it takes nt or nn"});
}

/// Shapes of groups, and fields of a shape that only groups have.
void check_shape(const GemmShape& shape, const std::string& path, const GemmProblem& problem, Violations& violations) {
  const GemmGroups& groups = problem.groups;
  const auto bad = [&](const char* field, const std::string& message) {
    violations.push_back({path + field, message});
  };
  if (!groups.has_bounds()) {
    const char* const kWithout = groups.is_batch() ? "has no meaning for a batch, all of whose rows belong to a group; "
                                                     "leave it out"
                                                   : "has no meaning without groups; leave it out";
    if (shape.rows != 0) bad("/rows", kWithout);
    if (shape.active != 0) bad("/active", kWithout);
    if (shape.skew != RowSkew::kEven) bad("/skew", kWithout);
    if (!shape.group_rows.empty()) bad("/group_rows", kWithout);
  }
  if (shape.source_rows != 0 && !groups.gather && !groups.slices_k())
    bad("/source_rows", "has no meaning without gather; leave it out");
  if (shape.result_rows != 0 && !groups.scatter) bad("/result_rows", "has no meaning without scatter; leave it out");
  if (!groups.any()) return;
  // The rows to which bounds refer, and those of a group at most.
  const int all_rows = rows_of_bounds(problem, shape);
  const int capacity = groups.kind == GroupKind::kMasked ? shape.m / groups.count : all_rows;
  const std::string all_of = groups.slices_k() ? "the rows of a and b, " : "/m, ";
  if (groups.is_even() && shape.m % groups.count != 0)
    bad("/m", std::to_string(shape.m) + " rows are not the same number for each of " + std::to_string(groups.count) +
                  " groups; " + std::to_string((shape.m / groups.count + 1) * groups.count) + " would do");
  if (!groups.has_bounds()) return;
  if (shape.active > groups.count)
    bad("/active", std::to_string(shape.active) + " is more than the " + std::to_string(groups.count) + " groups");
  if (shape.rows > all_rows)
    bad("/rows", std::to_string(shape.rows) + " is more than " + all_of + std::to_string(all_rows));
  const int active = shape.skew == RowSkew::kOne ? 1 : shape.active > 0 ? shape.active : groups.count;
  const int belong = shape.rows > 0 ? shape.rows : all_rows;
  if (shape.group_rows.empty() && belong > std::int64_t{active} * capacity)
    bad(shape.rows > 0 ? "/rows" : "/m", std::to_string(belong) + " rows do not fit " + std::to_string(active) +
                                             " groups of " + std::to_string(capacity) + "; rows " +
                                             std::to_string(std::int64_t{active} * capacity) + " would do");
  if (shape.group_rows.empty()) return;
  if (shape.rows != 0 || shape.active != 0 || shape.skew != RowSkew::kEven)
    bad("/group_rows", "says it all; leave out rows, skew and active");
  if (shape.group_rows.size() != static_cast<std::size_t>(groups.count))
    bad("/group_rows", "has " + std::to_string(shape.group_rows.size()) + " numbers; it takes one for each of " +
                           std::to_string(groups.count) + " groups");
  std::int64_t all = 0;
  for (const int rows : shape.group_rows) {
    all += rows;
    if (rows > capacity)
      bad("/group_rows", std::to_string(rows) + " rows do not fit a group's " + std::to_string(capacity));
  }
  if (all > all_rows)
    bad("/group_rows", std::to_string(all) + " rows in all are more than " + all_of + std::to_string(all_rows));
}

}  // namespace

void detail::check_row(const char* path, int count, DType dtype, const char* of, Violations& violations) {
  const int step = kRowAlignmentBytes * 8 / bits_of(dtype);
  if (count % step != 0)
    violations.push_back({path, std::to_string(count) + " leaves rows of " + of + ", " + std::string(to_string(dtype)) +
                                    ", off their 16-byte boundaries; it takes a multiple of " + std::to_string(step)});
}

std::vector<Violation> contradictions(const GemmConfig& config) {
  Violations violations;
  check_fields(config, violations);
  const GemmProblem& problem = config.problem;
  check_rows(problem, violations);
  check_epilogue(problem, violations);
  check_dtypes(problem, violations);
  check_layout(problem, violations);
  check_scales(problem, violations);
  check_groups(problem, violations);
  if (problem.kv_write) check_kv_write(problem, violations);
  for (std::size_t i = 0; i < config.shapes.size(); ++i)
    check_shape(config.shapes[i], "/shapes/" + std::to_string(i), problem, violations);
  if (problem.fast_accumulation && !is_fp8(problem.dtype.a))
    violations.push_back({"/problem/fast_accumulation", "true has no meaning for " +
                                                            std::string(to_string(problem.dtype.a)) +
                                                            " operands, whose sums are f32; leave it out"});
  if (const int parts = config.schedule.split_k.value_or(1); problem.batch_invariant && parts > 1)
    violations.push_back({"/schedule/split_k", std::to_string(parts) +
                                                   ": parts of k are added in another order than the whole, and the "
                                                   "problem is batch_invariant; 1 would do"});
  check_family(config.schedule, violations);
  return violations;
}

}  // namespace kernelwright
