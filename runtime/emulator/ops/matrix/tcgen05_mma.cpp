#include "kernelwright/runtime/emulator/ops/matrix/tcgen05_mma.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "kernelwright/runtime/emulator/machine/fault.h"
#include "kernelwright/runtime/emulator/numbers/number_formats.h"
#include "kernelwright/runtime/emulator/numbers/target_clones.h"
#include "kernelwright/runtime/emulator/numbers/tcgen05_block.h"
#include "kernelwright/runtime/process/per_thread.h"

namespace kernelwright::emulator {
namespace {

constexpr const char* kName = "tcgen05.mma";

/// One thread's workspace, half a megabyte.
struct alignas(64) Workspace {
  std::byte units[kMaxTensorColumns * 64];
  float values[kMaxTensorColumns * kMaxTensorDepth];
  float a[kMaxTensorRows * kMaxTensorDepth];                          // [row or lane][k]
  float b[kMaxTensorDepth * kMaxTensorColumns];                       // [k][n]
  float tile[kMaxTensorRows * kMaxTensorColumns];                     // [lane][n], if D cannot be summed in place
  float scale_a[6 * kMaxTensorRows], scale_b[6 * kMaxTensorColumns];  // [block][row], [block][n]
};

void negate_if(bool negate, float* values, std::size_t count) {
  if (negate)
    for (std::size_t i = 0; i < count; ++i) values[i] = -values[i];
}

/// Loads B, from all CTAs, into `space.b`.
void load_b(const Tcgen05Mma& mma, Workspace& space) {
  const Tcgen05Shape& shape = mma.shape;
  const std::uint32_t columns = mma.columns_per_cta(), k = shape.k;
  const TensorUnits units = mma.b_units();
  for (std::uint32_t cta = 0; cta < mma.num_ctas; ++cta) {
    gather_units(*mma.ctas[cta], units, space.units);
    widen_units(space.units, units.rows() * units.columns(), shape.b, shape.packed_4bit, space.values);
    float* to = space.b + cta * columns;
    if (shape.b_mn_major)
      for (std::uint32_t i = 0; i < k; ++i) std::copy_n(space.values + i * columns, columns, to + i * shape.n);
    else
      transpose_panel(space.values, columns, k, to, shape.n);
  }
  negate_if(shape.negate_b, space.b, std::size_t{k} * shape.n);
}

/// Loads A of one CTA into `space.a`: by row from shared memory, by lane from tensor memory.
void load_a(const Tcgen05Mma& mma, Cta& cta, Workspace& space) {
  const Tcgen05Shape& shape = mma.shape;
  const std::uint32_t k = shape.k;
  if (mma.form.has(Tcgen05Form::kATensor)) {
    const TensorMemory& memory = tensor_memory(cta);
    mma.visit_a([&](const TensorBlock& block) {
      for (std::uint32_t i = 0; i < block.lanes; ++i)
        widen_cells(memory.row(block.lane + i, block.column), block.columns, shape.a, shape.packed_4bit,
                    space.a + (block.lane + i) * k);
    });
    negate_if(shape.negate_a, space.a, std::size_t{kTensorLanes} * k);
    return;
  }
  const TensorUnits units = mma.a_units();
  gather_units(cta, units, space.units);
  float* to = shape.a_mn_major ? space.values : space.a;
  widen_units(space.units, units.rows() * units.columns(), shape.a, shape.packed_4bit, to);
  const std::uint32_t rows = mma.layout.rows;
  if (shape.a_mn_major)
    for (std::uint32_t i = 0; i < k; ++i)
      for (std::uint32_t row = 0; row < rows; ++row) space.a[row * k + i] = space.values[i * rows + row];
  negate_if(shape.negate_a, space.a, std::size_t{rows} * k);
}

/// The scales of `size` rows of A or columns of B, as [block][size]. The copies in the four lane quarters must agree.
void load_scales(const Tcgen05Mma& mma, Cta& cta, std::uint32_t column, std::uint32_t id, std::uint32_t size,
                 const char* operand, float* out) {
  const TensorMemory& memory = tensor_memory(cta);
  // Scale j of row r is byte id + j of the cell in lane r % 32 and column r / 32. Past the cell's four bytes, it is in
  // the next group of columns.
  const std::uint32_t group = Tcgen05Mma::scale_group(size);
  const bool bytes_are_e4m3 = mma.shape.scale_ue4m3;
  for (std::uint32_t block = 0; block < mma.num_scales(); ++block)
    for (std::uint32_t row = 0; row < size; ++row) {
      const std::uint32_t byte = id + block, at = column + row / kTensorQuadrant + byte / 4 * group;
      std::uint8_t codes[4];
      for (std::uint32_t quadrant = 0; quadrant < 4; ++quadrant)
        codes[quadrant] = static_cast<std::uint8_t>(
            *memory.row(quadrant * kTensorQuadrant + row % kTensorQuadrant, at) >> byte % 4 * 8);
      for (std::uint32_t quadrant = 1; quadrant < 4; ++quadrant)
        if (codes[quadrant] != codes[0])
          throw Fault(
              fmt::format("{}: the scale factors of {} differ between the lane quarters: {} {} has {:#04x} in "
                          "lane {} and {:#04x} in lane {} of column {}; all four need a copy",
                          kName, operand, operand[0] == 'A' ? "row" : "column", row, codes[0], row % kTensorQuadrant,
                          codes[quadrant], quadrant * kTensorQuadrant + row % kTensorQuadrant, at),
              HazardKind::kTensorMemory);
      out[block * size + row] = bytes_are_e4m3 ? kE4m3Values[codes[0] & 0x7f] : ue8m0_to_f32(codes[0]);
    }
}

/// d += tile * scale * scales, computed in double: a product of scales may lie beyond the exponents of f32 even if the
/// result does not.
KERNELWRIGHT_TARGET_CLONES void add_scaled(float* __restrict d, const float* __restrict tile, float scale,
                                           const float* __restrict scales, std::uint32_t count, bool accumulate) {
  const double row_scale = scale;
  const double keep = accumulate ? 1.0 : 0.0;
  for (std::uint32_t n = 0; n < count; ++n) {
    const double before = keep != 0.0 ? static_cast<double>(d[n]) : 0.0;
    d[n] = static_cast<float>(before + static_cast<double>(tile[n]) * row_scale * static_cast<double>(scales[n]));
  }
}

void one_nan(float* values, std::uint32_t count) {
  for (std::uint32_t n = 0; n < count; ++n)
    if (std::isnan(values[n])) values[n] = std::bit_cast<float>(0x7fffffffu);
}

/// Sums of 32 products of bytes are integers below 2^24, exact in f32.
KERNELWRIGHT_TARGET_CLONES void add_integers(std::uint32_t* __restrict d, const float* __restrict sums,
                                             std::uint32_t count, bool accumulate, bool saturate) {
  for (std::uint32_t n = 0; n < count; ++n) {
    const std::int64_t before = accumulate ? static_cast<std::int32_t>(d[n]) : 0;
    std::int64_t sum = before + static_cast<std::int32_t>(sums[n]);
    constexpr std::int64_t kLow = std::numeric_limits<std::int32_t>::min(),
                           kHigh = std::numeric_limits<std::int32_t>::max();
    if (saturate) sum = std::clamp(sum, kLow, kHigh);
    d[n] = static_cast<std::uint32_t>(sum);
  }
}

/// The rows of D in one CTA and one fold that are written.
struct Rows {
  std::uint32_t* cells[kMaxTensorRows];
  float* d[kMaxTensorRows];
  const float* a[kMaxTensorRows];
  std::uint32_t row[kMaxTensorRows];
  std::uint32_t count = 0;
};

void multiply_fold(const Tcgen05Mma& mma, Rows& rows, std::uint32_t fold, Workspace& space) {
  const Tcgen05Shape& shape = mma.shape;
  const std::uint32_t columns = mma.columns_per_fold(), first = fold * columns;
  RowProduct product{.d = rows.d,
                     .a = rows.a,
                     .rows = rows.count,
                     .b = space.b + first,
                     .b_stride = shape.n,
                     .columns = columns,
                     .depth = shape.k,
                     .accumulate = mma.accumulate};
  if (mma.form.block_scaled()) {
    product.accumulate = false;
    product.depth = mma.form.scale_block;
    for (std::uint32_t block = 0; block < mma.num_scales(); ++block) {
      multiply_rows(product);
      for (std::uint32_t i = 0; i < rows.count; ++i)
        add_scaled(reinterpret_cast<float*>(rows.cells[i]), rows.d[i],
                   space.scale_a[block * mma.layout.rows + rows.row[i]], space.scale_b + block * shape.n + first,
                   columns, mma.accumulate || block > 0);
      for (std::uint32_t i = 0; i < rows.count; ++i) rows.a[i] += product.depth;
      product.b += std::size_t{product.depth} * shape.n;
    }
    for (std::uint32_t i = 0; i < rows.count; ++i) one_nan(reinterpret_cast<float*>(rows.cells[i]), columns);
    return;
  }
  const float scale = std::ldexp(1.0f, -static_cast<int>(mma.form.scale_d));
  const bool scaled = mma.accumulate && mma.form.scale_d != 0;
  switch (shape.d) {
    case TensorOutput::kF32:
      if (scaled)
        for (std::uint32_t i = 0; i < rows.count; ++i)
          for (std::uint32_t n = 0; n < columns; ++n) rows.d[i][n] *= scale;
      return multiply_rows(product);
    case TensorOutput::kF16:  // one result per cell, in its low half
      if (mma.accumulate)
        for (std::uint32_t i = 0; i < rows.count; ++i)
          for (std::uint32_t n = 0; n < columns; ++n)
            rows.d[i][n] = f16_to_f32(static_cast<std::uint16_t>(rows.cells[i][n])) * (scaled ? scale : 1.0f);
      multiply_rows(product);
      for (std::uint32_t i = 0; i < rows.count; ++i)
        for (std::uint32_t n = 0; n < columns; ++n) rows.cells[i][n] = f32_to_f16(rows.d[i][n]);
      return;
    case TensorOutput::kS32:
      product.accumulate = false;
      multiply_rows(product);
      for (std::uint32_t i = 0; i < rows.count; ++i)
        add_integers(rows.cells[i], rows.d[i], columns, mma.accumulate, shape.saturate);
      return;
  }
}

}  // namespace

TensorUnits Tcgen05Mma::a_units() const {
  return {a_shared, shape.a, shape.packed_4bit, shape.a_mn_major, layout.rows, shape.k};
}
TensorUnits Tcgen05Mma::b_units() const {
  return {b_shared, shape.b, shape.packed_4bit, shape.b_mn_major, columns_per_cta(), shape.k};
}

void check_places(const Tcgen05Mma& mma) {
  const auto require_lane = [&](const TensorAddress& at, const char* what) {
    if (mma.layout.scattered ? at.lane != 0 && at.lane != 16 : at.lane != 0)
      throw Fault(fmt::format("{}: {} begins at lane {} of tensor memory; M = {} of cta_group::{}{} begins at {}",
                              kName, what, at.lane, mma.shape.m, mma.form.cta_group,
                              mma.form.has(Tcgen05Form::kWeightStationary) ? " with .ws" : "",
                              mma.layout.scattered ? "lane 0 or 16" : "lane 0"),
                  HazardKind::kTensorMemory);
  };
  require_lane(mma.d, "D");
  if (mma.form.has(Tcgen05Form::kATensor)) {
    require_lane(mma.a, "A");
    if (mma.a.lane != mma.d.lane)
      throw Fault(fmt::format("{}: A begins at lane {} and D at lane {} of tensor memory; with M = 64 they must be one",
                              kName, mma.a.lane, mma.d.lane),
                  HazardKind::kTensorMemory);
  }
  if (mma.form.block_scaled())
    for (const auto& [at, what] :
         {std::pair{mma.scale_a, "the scales of A"}, std::pair{mma.scale_b, "the scales of B"}})
      if (at.lane != 0)
        throw Fault(fmt::format("{}: {} begin at lane {} of tensor memory; they begin at lane 0", kName, what, at.lane),
                    HazardKind::kTensorMemory);
  for (std::uint32_t i = 0; i < mma.num_ctas; ++i) {
    const auto require = [&](const TensorBlock& block) { require_tensor(*mma.ctas[i], block, kName); };
    mma.visit_d(require);
    mma.visit_a(require);
    mma.visit_scales(require);
  }
}

void perform(const Tcgen05Mma& mma) {
  Workspace& space = per_thread<Workspace>();
  const Tcgen05Shape& shape = mma.shape;
  load_b(mma, space);
  const bool a_by_lane = mma.form.has(Tcgen05Form::kATensor);
  const bool in_place = shape.d == TensorOutput::kF32 && !mma.form.block_scaled();
  for (std::uint32_t cta = 0; cta < mma.num_ctas; ++cta) {
    load_a(mma, *mma.ctas[cta], space);
    if (mma.form.block_scaled()) {
      load_scales(mma, *mma.ctas[cta], mma.scale_a.column, shape.scale_a_id, mma.layout.rows, "A", space.scale_a);
      load_scales(mma, *mma.ctas[cta], mma.scale_b.column, shape.scale_b_id, shape.n, "B", space.scale_b);
    }
    TensorMemory& memory = tensor_memory(*mma.ctas[cta]);
    for (std::uint32_t fold = 0; fold < mma.layout.folds; ++fold) {
      Rows rows;
      for (std::uint32_t row = 0; row < mma.layout.rows; ++row) {
        const std::uint32_t lane = mma.d.lane + mma.layout.lane(fold, row);
        if (mma.lane_disabled(cta, lane)) continue;
        const std::uint32_t i = rows.count++;
        rows.row[i] = row;
        rows.cells[i] = memory.row(lane, mma.d.column);
        rows.d[i] = in_place ? reinterpret_cast<float*>(rows.cells[i]) : space.tile + lane * kMaxTensorColumns;
        rows.a[i] = space.a + (a_by_lane ? lane : row) * shape.k;
      }
      multiply_fold(mma, rows, fold, space);
    }
  }
  mma.ctas[0]->cluster->mma_operations += std::uint64_t{2} * shape.m * shape.n * shape.k;
}

}  // namespace kernelwright::emulator
