#include "kernelwright/generator/tuned/merge.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/problem/enums.h"

namespace kernelwright {
namespace {

std::string launches_text(const TunedRow&) { return ""; }
std::string launches_text(const GemmTunedRow& row) {
  // Padded, so that ranges sort as numbers.
  const auto padded = [](int value) {
    const std::string digits = std::to_string(value);
    return std::string(8 - std::min<std::size_t>(8, digits.size()), '0') + digits;
  };
  return padded(row.launches.num_sms) + " " + padded(row.launches.rows.least) + " " + padded(row.launches.rows.most);
}

std::string text_of(const AnyTunedRow& row) {
  return std::visit([](const auto& any) { return write_tuned_row(any); }, row);
}

template <class Row>
Row confirmed(const Row& first, const Row& again) {
  if (rivalry(first) != rivalry(again) || first.schedule != again.schedule)
    throw ConfigError("/problem", "the row that confirms is for another problem or has another schedule");
  for (const MeasuredGpu& old : first.provenance.gpus)
    for (const MeasuredGpu& now : again.provenance.gpus)
      if (old.id == now.id && now.id != kUnknownGpu)
        throw ConfigError("/provenance/gpus",
                          "the row was measured on this very GPU; another one of its kind would do");
  Row row = first;
  row.provenance.gpus.insert(row.provenance.gpus.end(), again.provenance.gpus.begin(), again.provenance.gpus.end());
  row.provenance.confirmed = true;
  row.provenance.speedup = std::min(first.provenance.speedup, again.provenance.speedup);
  row.provenance.speedup_low = std::min(first.provenance.speedup_low, again.provenance.speedup_low);
  return row;
}

}  // namespace

std::string rivalry(const AnyTunedRow& row) {
  return std::visit(
      [](const auto& any) {
        return std::string(to_string(any.arch)) + " " + std::string(to_string(any.device)) + " " + any.kind + " " +
               canonical_text(any.problem) + " " + launches_text(any);
      },
      row);
}

bool is_kept_before(const AnyTunedRow& a, const AnyTunedRow& b) {
  const auto rank = [](const AnyTunedRow& row) {
    return std::visit(
        [](const auto& any) {
          return std::tuple(-any.provenance.speedup_low, !any.provenance.confirmed, any.provenance.date);
        },
        row);
  };
  const auto rank_a = rank(a), rank_b = rank(b);
  return rank_a != rank_b ? rank_a < rank_b : text_of(a) < text_of(b);
}

std::vector<AnyTunedRow> merge_rows(const std::vector<AnyTunedRow>& rows) {
  std::map<std::string, const AnyTunedRow*> kept;
  for (const AnyTunedRow& row : rows) {
    const AnyTunedRow*& best = kept[rivalry(row)];
    if (!best || is_kept_before(row, *best)) best = &row;
  }
  std::vector<AnyTunedRow> merged;
  for (const auto& [rivals, row] : kept) merged.push_back(*row);
  return merged;
}

TunedRow confirmed_row(const TunedRow& first, const TunedRow& again) { return confirmed(first, again); }
GemmTunedRow confirmed_row(const GemmTunedRow& first, const GemmTunedRow& again) { return confirmed(first, again); }

}  // namespace kernelwright
