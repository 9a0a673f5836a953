#include "kernelwright/verify/gemm/heads.h"

#include <map>
#include <utility>
#include <vector>

#include "kernelwright/verify/kv_write/bound.h"

namespace kernelwright {
namespace {

/// The product's chosen rows, rounded, with the errors that they may have.
class Rows {
 public:
  Rows(const GemmCase& call, const GemmSample& sample) : call_(call) {
    const auto columns = static_cast<std::size_t>(call.problem.n);
    for (const int row : sample.rows) rows_[row] = {std::vector<double>(columns), std::vector<double>(columns)};
    compute_reference(call, sample, [&](const GemmReference& piece) {
      for (std::size_t i = 0; i < piece.rows.size(); ++i) {
        KvWriteHead& row = rows_.at(piece.rows[i]);  // pieces have elements of their own
        for (std::size_t j = 0; j < piece.columns.size(); ++j) {
          const std::size_t index = i * piece.columns.size() + j, column = static_cast<std::size_t>(piece.columns[j]);
          const EpilogueValue value = epilogue_value(call, piece.rows[i], piece.columns[j], piece.sum[index]);
          row.value[column] = value.value();
          row.error[column] =
              rounded_bound(call.problem.kv_write->dtype.in, value.value(), value_bound(call, piece, index, value))
                  .limit;
        }
      }
    });
  }

  bool has(std::int64_t token) const { return rows_.contains(static_cast<int>(token)); }
  KvWriteHead head(HeadsOf of, std::int64_t token, int head) const {
    const KvWriteProblem& problem = *call_.problem.kv_write;
    const KvWriteHead& row = rows_.at(static_cast<int>(token));
    int first = head * call_.kv->head_dim(of);
    if (of != HeadsOf::kQ) first += problem.heads.q * problem.head_dim.qk;
    if (of == HeadsOf::kV) first += problem.heads.kv * problem.head_dim.qk;
    const auto part = [&](const std::vector<double>& all) {
      return std::vector<double>(all.begin() + first, all.begin() + first + call_.kv->head_dim(of));
    };
    return {part(row.value), part(row.error)};
  }

 private:
  const GemmCase& call_;
  std::map<int, KvWriteHead> rows_;
};

}  // namespace

GemmVerdict verify_heads(const GemmCase& call, const GemmOutput& output, const GemmVerdictOptions& options) {
  const GemmSample sample = choose_elements(call, options.budget_operations, options.seed);
  const Rows rows(call, sample);
  KvWriteOutput of_kv = output.kv;
  of_kv.q_out = output.d;
  const KvWriteVerdict found =
      verify(*call.kv, of_kv,
             {[&](std::int64_t token) { return rows.has(token); },
              [&](HeadsOf of, std::int64_t token, int head) { return rows.head(of, token, head); }});
  GemmVerdict verdict;
  verdict.passed = found.passed, verdict.text = found.text;
  verdict.rows = sample.rows.size(), verdict.columns = sample.columns.size();
  verdict.elements = found.elements;
  verdict.sampled = verdict.rows < static_cast<std::size_t>(call.m);
  verdict.worst_ratio = found.worst_ratio, verdict.max_error = found.max_error;
  verdict.not_finite = found.not_finite;
  return verdict;
}

}  // namespace kernelwright
