// Groups of a GEMM call: their bounds, and each of them as a dense call.
#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>

#include "contract/scale_atoms.h"
#include "kernelwright/verify/formats/block_formats.h"
#include "kernelwright/verify/gemm/groups.h"
#include "kernelwright/verify/random.h"

namespace kernelwright {
namespace {

constexpr std::uint64_t kStream = 108;  // of random numbers; inputs.cpp has those before

/// How many rows each group has, in order.
std::vector<int> draw_counts(const GemmProblem& problem, const GemmShape& shape, std::uint64_t seed) {
  const int count = problem.groups.count;
  if (!shape.group_rows.empty()) return shape.group_rows;
  const int active = shape.active > 0 ? std::min(shape.active, count) : count;
  const int all_rows = rows_of_bounds(problem, shape), rows = shape.rows > 0 ? shape.rows : all_rows;
  const int most = problem.groups.kind == GroupKind::kMasked ? shape.m / count : all_rows;
  std::vector<int> counts(static_cast<std::size_t>(count), 0);
  const auto at = [&](int group) -> int& { return counts[static_cast<std::size_t>(group)]; };
  if (shape.skew == RowSkew::kEven || shape.skew == RowSkew::kOne) {
    const int groups = shape.skew == RowSkew::kOne ? 1 : active;
    for (int g = 0; g < groups; ++g)
      at(g) = std::min(most, static_cast<int>(std::int64_t{rows} * (g + 1) / groups - std::int64_t{rows} * g / groups));
    return counts;
  }
  std::vector<double> up_to;  // the share of the groups up to each one
  for (int g = 0; g < active; ++g)
    up_to.push_back((g > 0 ? up_to.back() : 0) + (shape.skew == RowSkew::kZipf ? 1.0 / (g + 1) : 1.0));
  Random random(seed, kStream);
  for (int row = 0; row < rows; ++row) {
    const double drawn = random.uniform(0, up_to.back());
    const auto found = std::upper_bound(up_to.begin(), up_to.end(), drawn);
    int group = std::min(active - 1, static_cast<int>(found - up_to.begin()));
    for (int tries = 0; at(group) == most && tries < active; ++tries) group = (group + 1) % active;
    if (at(group) < most) ++at(group);
  }
  return counts;
}

}  // namespace

std::vector<std::int32_t> draw_bounds(const GemmProblem& problem, const GemmShape& shape, std::uint64_t seed) {
  if (!problem.groups.has_bounds()) return {};
  const std::vector<int> counts = draw_counts(problem, shape, seed);
  std::vector<std::int32_t> bounds(counts.begin(), counts.end());
  if (problem.groups.bounds == GroupBounds::kCounts) return bounds;
  std::partial_sum(bounds.begin(), bounds.end(), bounds.begin());
  if (problem.groups.bounds == GroupBounds::kEnds) return bounds;
  // Rows that belong to no group lie ahead of the first and behind the last.
  const int ahead = (rows_of_bounds(problem, shape) - bounds.back()) / 2;
  for (std::int32_t& bound : bounds) bound += ahead;
  bounds.insert(bounds.begin(), ahead);
  return bounds;
}

void draw_gather(GemmCase& call, const GemmShape& shape, std::uint64_t seed) {
  if (!call.problem.groups.gather) return;
  call.source_rows = shape.source_rows > 0 ? shape.source_rows : shape.m;
  Random random(seed, kStream + 1);
  call.gather.resize(static_cast<std::size_t>(shape.m));
  for (std::int32_t& source : call.gather) {
    source = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(std::max(1, call.source_rows))));
    if (call.source_rows == 0 || random.below(16) == 0) source = -1;
  }
}

void draw_scatter(GemmCase& call, const GemmShape& shape, std::uint64_t seed) {
  if (!call.problem.groups.scatter) return;
  call.result_rows = shape.result_rows > 0 ? shape.result_rows : std::max(1, shape.m);
  std::vector<std::int32_t> left(static_cast<std::size_t>(call.result_rows));
  std::iota(left.begin(), left.end(), 0);
  Random random(seed, kStream + 2);
  call.scatter.assign(static_cast<std::size_t>(shape.m), std::numeric_limits<std::int32_t>::max());
  for (int g = 0; g < call.problem.groups.count; ++g) {
    const GemmCase::Rows rows = call.rows_of_group(g);
    for (int row = rows.first; row < rows.end; ++row) {
      std::int32_t& place = call.scatter[static_cast<std::size_t>(row)];
      place = -1;
      if (left.empty() || random.below(16) == 0) continue;
      std::swap(left[random.below(left.size())], left.back());
      place = left.back();
      left.pop_back();
    }
  }
}

std::int64_t GemmCase::place_in_d(std::int64_t row) const {
  if (!problem.groups.scatter) return row;
  const std::int32_t place = scatter[static_cast<std::size_t>(row)];
  return place < result_rows ? std::max(place, -1) : -1;
}

std::vector<std::int32_t> GemmCase::written_rows(int group) const {
  const Rows rows = rows_of_group(group);
  std::vector<std::int32_t> written;
  for (int row = rows.first; row < rows.end; ++row)
    if (place_in_d(row) >= 0) written.push_back(row);
  return written;
}

GemmCase::Rows GemmCase::rows_of_group(int group) const {
  const int capacity = m / problem.groups.count;
  if (problem.groups.stacks_d()) return {capacity * group, capacity * (group + 1)};
  return bounded_rows(group);
}

GemmCase::Rows GemmCase::bounded_rows(int group) const {
  const auto bound = [&](int index) { return bounds[static_cast<std::size_t>(index)]; };
  switch (problem.groups.bounds) {
    case GroupBounds::kStarts: return {bound(group), bound(group + 1)};
    case GroupBounds::kEnds: return {group > 0 ? bound(group - 1) : 0, bound(group)};
    case GroupBounds::kCounts: break;
  }
  const int first = m / problem.groups.count * group;
  return {first, first + bound(group)};
}

std::int64_t GemmCase::atom_rows() const {
  if (!problem.groups.is_even()) return contract::scale_atom_rows_of_groups(m, problem.groups.count);
  return problem.groups.count * contract::scale_atom_rows_of_groups(m / problem.groups.count, 1);
}

std::int64_t GemmCase::atom_rows_ahead(int group) const {
  std::int64_t ahead = 0;
  const bool masked = problem.groups.kind == GroupKind::kMasked;
  for (int g = 0; g < group; ++g)
    ahead += contract::scale_atom_rows_of_groups(masked ? m / problem.groups.count : rows_of_group(g).count(), 1);
  return ahead;
}

std::int64_t GemmCase::rows_in_groups() const {
  if (!problem.groups.any()) return m;
  std::int64_t rows = 0;
  for (int g = 0; g < problem.groups.count; ++g) rows += rows_of_group(g).count();
  return rows;
}

std::int64_t GemmCase::depth_in_groups() const {
  std::int64_t rows = 0;
  for (int g = 0; problem.groups.slices_k() && g < problem.groups.count; ++g) rows += bounded_rows(g).count();
  return rows;
}

int GemmCase::groups_with_rows() const {
  int groups = 0;
  for (int g = 0; problem.groups.any() && g < problem.groups.count; ++g) groups += rows_of_group(g).count() > 0 ? 1 : 0;
  return groups;
}

int GemmCase::planned_rows() const {
  const std::int64_t groups = std::max(1, groups_with_rows());
  return static_cast<int>((rows_in_groups() + groups - 1) / groups);
}

GemmCase GemmCase::dense_group(int group) const {
  const Rows rows = rows_of_group(group);
  const bool picks = problem.groups.gather || problem.groups.scatter;  // rows of a that lie anywhere
  const std::vector<std::int32_t> written = written_rows(group);
  std::vector<std::int32_t> sources, places;
  for (const std::int32_t row : written) {
    sources.push_back(problem.groups.gather ? gather[static_cast<std::size_t>(row)] : row);
    places.push_back(static_cast<std::int32_t>(place_in_d(row)));
  }
  GemmCase dense;
  dense.problem = problem, dense.problem.groups = {};
  dense.epilogue = epilogue, dense.m = static_cast<int>(written.size());
  if (problem.groups.slices_k()) {
    const Rows of_k = bounded_rows(group);
    dense.problem.k = of_k.count();
    dense.a = a.slice(of_k.first, of_k.count()), dense.b = b.slice(of_k.first, of_k.count());
  } else {
    dense.a = picks ? a.gathered(sources) : a.slice(rows.first, rows.count());
    const std::int64_t rows_of_b = b.rows / problem.groups.count;
    dense.b = b.slice(group * rows_of_b, rows_of_b);
  }
  if (epilogue.c) dense.c = problem.groups.scatter ? c.gathered(places) : c.slice(rows.first, rows.count());
  if (epilogue.bias) dense.bias = bias.slice(group, 1);
  dense.scale_a_stride = scale_a_stride, dense.scale_b_stride = scale_b_stride, dense.d_stride = d_stride;
  dense.tensor_scale = tensor_scale;
  if (epilogue.makes_blocks()) dense.scale_d_stride = scale_d_stride;
  dense.alpha = alpha, dense.beta = beta, dense.random_values = random_values, dense.exact = exact;
  const auto floats = [](const std::vector<float>& all, std::int64_t first, std::int64_t count) {
    return std::vector<float>(all.begin() + first, all.begin() + first + count);
  };
  const std::int64_t n = problem.n, blocks = (problem.k + kScaleBlock - 1) / kScaleBlock;
  switch (problem.scales) {
    case ScaleKind::kPerTensor:
      dense.scale_a = scale_a;
      dense.scale_b = floats(scale_b, group, 1);
      break;
    case ScaleKind::kPerToken:
      if (picks)
        for (const std::int32_t source : sources)
          dense.scale_a.push_back(source < 0 ? 0.f : scale_a[static_cast<std::size_t>(source)]);
      else
        dense.scale_a = floats(scale_a, rows.first, rows.count());
      dense.scale_b = floats(scale_b, group * n, n);
      break;
    case ScaleKind::kPerBlock: {
      if (!has_f32_block_scales()) break;
      const std::int64_t of_b = scale_rows_of_b(problem.n, epilogue.gated) * scale_b_stride;
      dense.scale_b = floats(scale_b, group * of_b, of_b);
      const bool own = problem.groups.is_even() && !problem.groups.gather;  // scales of a of each group
      if (picks) {
        const std::int64_t ahead = own ? group * (blocks * scale_a_stride - m / problem.groups.count) : 0;
        dense.scale_a_stride = std::max(1, dense.m);
        for (std::int64_t block = 0; block < blocks; ++block)
          for (const std::int32_t source : sources)
            dense.scale_a.push_back(
                source < 0 ? 0.f : scale_a[static_cast<std::size_t>(ahead + block * scale_a_stride + source)]);
        break;
      }
      if (blocks == 0) break;
      const std::int64_t first = own ? group * blocks * scale_a_stride : rows.first;
      const std::int64_t left = static_cast<std::int64_t>(scale_a.size()) - first;
      dense.scale_a = floats(scale_a, first, std::min(left, blocks * scale_a_stride));
      break;
    }
    default: break;
  }
  return dense;
}

namespace {

/// Makes the scales of rows that are not `read` NaN, and those that pad a group's atoms.
void hide_scales(HostMatrix& matrix, const std::vector<bool>& read) {
  if (matrix.scale_rows.empty()) return;
  constexpr int kOfAtom = contract::ScaleAtom::kScales;
  const std::int32_t atoms =
      contract::scale_atoms_of_row(static_cast<std::int32_t>(matrix.columns), scale_vector(matrix.dtype));
  std::vector<bool> used(static_cast<std::size_t>(matrix.atom_rows * contract::ScaleAtom::kRows), false);
  for (std::size_t row = 0; row < read.size(); ++row)
    if (read[row]) used[static_cast<std::size_t>(matrix.scale_rows[row])] = true;
  for (std::size_t row = 0; row < used.size(); ++row)
    for (int scale = 0; !used[row] && scale < atoms * kOfAtom; ++scale)
      matrix.scales[static_cast<std::size_t>(contract::block_scale_offset(
          atoms, static_cast<std::int64_t>(row), scale))] = static_cast<std::byte>(nan_scale(matrix.dtype));
}

}  // namespace

void hide_rows_outside_groups(GemmCase& call) {
  if (!call.problem.groups.has_bounds()) return;
  const auto hide = [](HostMatrix& matrix, const std::vector<bool>& read) {
    for (std::size_t row = 0; row < read.size() && !matrix.bytes.empty(); ++row) {
      if (read[row]) continue;
      HostMatrix one = matrix.slice(static_cast<std::int64_t>(row), 1);
      one.allocate();
      std::memcpy(matrix.row(static_cast<std::int64_t>(row)), one.bytes.data(), one.bytes.size());
    }
  };
  if (call.problem.groups.slices_k()) {
    std::vector<bool> read(static_cast<std::size_t>(call.source_rows), false);
    for (int g = 0; g < call.problem.groups.count; ++g) {
      const GemmCase::Rows rows = call.bounded_rows(g);
      std::fill(read.begin() + rows.first, read.begin() + rows.end, true);
    }
    hide(call.a, read), hide(call.b, read);
    return;
  }
  const bool gathers = call.problem.groups.gather;
  std::vector<bool> of_d(static_cast<std::size_t>(call.rows_of_d()), false),
      of_a(static_cast<std::size_t>(call.rows_of_a()), false);
  for (int g = 0; g < call.problem.groups.count; ++g) {
    for (const std::int32_t row : call.written_rows(g)) {
      const int source = gathers ? call.gather[static_cast<std::size_t>(row)] : row;
      of_d[static_cast<std::size_t>(call.place_in_d(row))] = true;
      if (source >= 0) of_a[static_cast<std::size_t>(source)] = true;
    }
  }
  hide(call.a, of_a);
  hide(call.c, of_d);
  hide_scales(call.a, of_a);
  const auto blocks = static_cast<std::size_t>((call.problem.k + kScaleBlock - 1) / kScaleBlock);
  const bool masked = call.problem.groups.kind == GroupKind::kMasked && !gathers;
  const std::size_t side_by_side =
      masked ? of_a.size() / static_cast<std::size_t>(call.problem.groups.count) : of_a.size();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (std::size_t row = 0; row < of_a.size(); ++row) {
    if (of_a[row]) continue;
    if (call.problem.scales == ScaleKind::kPerToken) call.scale_a[row] = kNan;
    if (!call.has_f32_block_scales()) continue;
    for (std::size_t block = 0; block < blocks; ++block)
      call.scale_a[(row / side_by_side * blocks + block) * static_cast<std::size_t>(call.scale_a_stride) +
                   row % side_by_side] = kNan;
  }
}

}  // namespace kernelwright
