// The swizzle of attention's operands where TMA writes them: which swizzles suit the heads, and which one is chosen.
#include <fmt/format.h>

#include <algorithm>

#include "kernelwright/generator/attention/family.h"

namespace kernelwright::detail {
namespace {

constexpr Swizzle kWidestFirst[] = {Swizzle::k128B, Swizzle::k64B, Swizzle::k32B, Swizzle::kNone};

/// A row in device memory that becomes slabs.
struct Row {
  const char* name;
  int bytes;
};
std::vector<Row> rows_of(const AttentionSpec& spec) {
  // In shared memory, keys have the type of q, except where decode copies q without TMA.
  const int element = bits_of(spec.token_gen ? spec.kv : spec.q) / 8;
  const bool pair = spec.cta_group == 2;  // each CTA has half of V's columns
  const int columns = pair ? contract::blackwell_output_columns(blackwell_shape_of(spec)) / 2 : spec.head_dim_v;
  std::vector<Row> rows{{"a query or key", spec.plain_depth() * element},
                        {pair ? "a CTA's half of a value" : "a value", columns * element}};
  if (spec.rope_width > 0) rows.push_back({"a rotary part", spec.rope_width * bits_of(spec.rope) / 8});
  return rows;
}
int widest_row(const AttentionSpec& spec) {
  int bytes = 0;
  for (const Row& row : rows_of(spec)) bytes = std::max(bytes, row.bytes);
  return bytes;
}
bool divides(const AttentionSpec& spec, Swizzle swizzle) {
  const int bytes = contract::slab_width(bytes_of(swizzle));
  for (const Row& row : rows_of(spec))
    if (row.bytes % bytes != 0) return false;
  return true;
}

/// The rule: rows of more bytes than this take 128B, even if the last span is then filled up with zeros. Fewer spans
/// mean fewer copies, and rows of whole cache lines. Narrower rows would be filled up with as many zeros as they have
/// bytes.
constexpr int kMostBytesOfNarrowRows = 64;

}  // namespace

bool takes_swizzle(const AttentionSpec& spec, Swizzle swizzle) {
  return swizzle == Swizzle::k128B || divides(spec, swizzle);
}

PlannedSwizzle planned_swizzle(const AttentionSpec& spec) {
  const int widest = widest_row(spec);
  if (widest <= kMostBytesOfNarrowRows)
    for (const Swizzle swizzle : {Swizzle::k64B, Swizzle::k32B})
      if (divides(spec, swizzle))
        return {swizzle,
                fmt::format("the widest that divides rows of {} bytes: 128B would fill them up with zeros", widest)};
  const char* const reader = spec.token_gen ? "ldmatrix" : family_row(spec).reader;
  if (divides(spec, Swizzle::k128B)) return {Swizzle::k128B, fmt::format("what TMA writes and {} reads", reader)};
  return {
      Swizzle::k128B,
      fmt::format("what TMA writes and {} reads; the end of rows of {} bytes is filled up with zeros", reader, widest)};
}

std::vector<Swizzle> swizzles_to_try(const AttentionProblem& problem) {
  AttentionSpec spec;
  spec.q = problem.dtype.q, spec.kv = problem.dtype.kv;
  spec.head_dim_qk = problem.head_dim.qk, spec.head_dim_v = problem.head_dim.v;
  spec.rope_width = problem.rope.width;
  std::vector<Swizzle> swizzles{Swizzle::k128B};
  if (divides(spec, Swizzle::k128B)) return swizzles;
  for (const Swizzle swizzle : {Swizzle::k64B, Swizzle::k32B})
    if (divides(spec, swizzle)) {
      swizzles.push_back(swizzle);
      break;
    }
  return swizzles;
}

void check_swizzle(const AttentionSpec& spec, std::vector<Violation>& violations) {
  if (takes_swizzle(spec, spec.swizzle)) return;
  const int bytes = contract::slab_width(bytes_of(spec.swizzle));
  const std::vector<Row> rows = rows_of(spec);
  const Row row = *std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.bytes % bytes != 0; });
  Swizzle nearest = Swizzle::k128B;
  for (const Swizzle swizzle : kWidestFirst)
    if (bytes_of(swizzle) < bytes_of(spec.swizzle) && swizzle != Swizzle::kNone && divides(spec, swizzle)) {
      nearest = swizzle;
      break;
    }
  violations.push_back(
      {"/schedule/swizzle", fmt::format("\"{}\" spans {} bytes and does not divide the {} of {}; \"{}\" would do{}",
                                        to_string(spec.swizzle), bytes, row.bytes, row.name, to_string(nearest),
                                        nearest == Swizzle::k128B ? ", filled up with zeros" : "")});
}

}  // namespace kernelwright::detail
