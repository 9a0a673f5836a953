// GEMM whose columns are queries, keys and values: what a cache that it writes goes with.
#include "kernelwright/generator/problem/contradictions.h"
#include "kernelwright/generator/problem/epilogue.h"
#include "kernelwright/generator/problem/rule_check.h"

namespace kernelwright {

using namespace detail;
using Violations = std::vector<Violation>;

namespace {

/// Says what kv_write by itself says, at its place in a GEMM.
void check_own_rules(const KvWriteProblem& problem, Violations& violations) {
  constexpr std::string_view kProblem = "/problem";
  for (Violation& violation : contradictions(KvWriteConfig{"", problem, {}, {}})) {
    // The walk over the fields of the whole GEMM has these already.
    violation.path = "/problem/kv_write" + violation.path.substr(std::min(kProblem.size(), violation.path.size()));
    bool is_there = false;
    for (const Violation& other : violations)
      is_there = is_there || (other.path == violation.path && other.message == violation.message);
    if (!is_there) violations.push_back(std::move(violation));
  }
}

void check_value(const std::string& text, Violations& violations) {
  const auto bad = [&](std::string_view what, std::string_view why) {
    violations.push_back({"/problem/epilogue", in_quotes(text) + " has " + std::string(what) +
                                                   ", which does not go with kv_write: " + std::string(why)});
  };
  Epilogue epilogue;
  try {
    epilogue = parse_epilogue(text);
  } catch (const ConfigError&) {
    return;  // check_epilogue() has the words
  }
  if (epilogue.gated)
    bad("gates", "columns are queries, keys and values; acc, alpha, rstd, bias and activations would do");
  if (epilogue.c) bad("c", "keys and values have no row of d; acc, alpha, rstd, bias and activations would do");
  if (epilogue.quantizes) bad("quantize(...)", "kv_write's scales say what is quantised; leave it out");
  if (epilogue.measures()) bad("amax or squares", "they are of columns of d; leave them out");
}

}  // namespace

void detail::check_kv_write(const GemmProblem& problem, Violations& violations) {
  const KvWriteProblem& of = *problem.kv_write;
  check_own_rules(of, violations);
  check_value(problem.epilogue, violations);
  const auto bad = [&](const char* path, std::string message) { violations.push_back({path, std::move(message)}); };
  if (!of.q_out) bad("/problem/kv_write/q_out", "false leaves d without columns; true would do");
  if (!of.v_out) bad("/problem/kv_write/v_out", "false leaves columns of values over; true would do");
  if (of.dtype.q != problem.dtype.d)
    bad("/problem/dtype/d", in_quotes(to_string(problem.dtype.d)) + " is not what queries are written as; it takes " +
                                std::string(to_string(of.dtype.q)) + ", kv_write's dtype.q");
  if (const std::int64_t columns = row_columns(of); problem.n != columns)
    bad("/problem/n", std::to_string(problem.n) + " columns are not those of " + std::to_string(of.heads.q) +
                          " queries of " + std::to_string(of.head_dim.qk) + " elements, " +
                          std::to_string(of.heads.kv) + " keys and as many values of " + std::to_string(of.head_dim.v) +
                          "; it takes " + std::to_string(columns));
  if (problem.groups.any())
    bad("/problem/groups/kind",
        in_quotes(to_string(problem.groups.kind)) + " does not go with kv_write; it takes none");
}

}  // namespace kernelwright
