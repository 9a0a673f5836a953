/// tcgen05.cp, from shared memory into tensor memory, and tcgen05.shift (PTX ISA "Tensor Memory Data Movement
/// Instructions"). One thread issues them. With cta_group::2, each CTA of the pair does the same with its own memory.
#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <span>

#include "kernelwright/runtime/emulator/checker/hazards.h"
#include "kernelwright/runtime/emulator/machine/fault.h"
#include "kernelwright/runtime/emulator/machine/tensor_memory.h"
#include "kernelwright/runtime/emulator/ops/matrix/tcgen05_operand.h"
#include "kernelwright/runtime/emulator/program/decoder.h"

namespace kernelwright::emulator {
namespace {

enum class Spread : std::uint8_t {
  kRows,     // row r is lane r
  kQuarter,  // .4x256b: row r is lane 32r
  kWarpx4,   // 32 rows, in each of the four quadrants
  kPairs02,  // .warpx2::02_13: 64 rows, in lanes 0-63 and 64-127
  kPairs01,  // .warpx2::01_23: rows 0-31 in the first two quadrants, 32-63 in the others
};
enum class Unpack : std::uint8_t { kNone, kB4, kB6 };

/// What an opcode says; Op::imm carries it.
struct Copy {
  std::uint8_t rows = 128;
  std::uint8_t units = 1;  // units of 16 bytes, per row
  Spread spread = Spread::kRows;
  Unpack unpack = Unpack::kNone;
  std::uint8_t pair = 0;
  std::uint8_t reserved[3] = {};

  std::uint32_t columns() const { return units * 4u; }
  static Copy of(std::uint64_t imm) { return std::bit_cast<Copy>(imm); }
  std::uint64_t imm() const { return std::bit_cast<std::uint64_t>(*this); }
};
static_assert(sizeof(Copy) == sizeof(std::uint64_t));

/// Calls `visit(row, lane)` for each lane into which a row is copied.
template <class Visit>
void visit_lanes(const Copy& copy, Visit&& visit) {
  for (std::uint32_t row = 0; row < copy.rows; ++row) switch (copy.spread) {
      case Spread::kRows: visit(row, row); break;
      case Spread::kQuarter: visit(row, row * 32); break;
      case Spread::kWarpx4:
        for (std::uint32_t quadrant = 0; quadrant < 4; ++quadrant) visit(row, quadrant * 32 + row);
        break;
      case Spread::kPairs02:
        visit(row, row);
        visit(row, row + 64);
        break;
      case Spread::kPairs01: {
        const std::uint32_t lane = row / 32 * 64 + row % 32;
        visit(row, lane);
        visit(row, lane + 32);
        break;
      }
    }
}

/// 16 elements of 4 bits (in the first 8 bytes of a unit) or 6 bits (in the first 12) become 16 bytes. An element takes
/// bits 5-2 or 5-0 of its byte, where tcgen05.mma reads it.
void unpack_unit(Unpack unpack, std::byte* unit) {
  if (unpack == Unpack::kNone) return;
  std::uint8_t from[17] = {}, to[16];
  std::memcpy(from, unit, 16);
  const std::uint32_t bits = unpack == Unpack::kB4 ? 4 : 6;
  for (std::uint32_t i = 0; i < 16; ++i) {
    const std::uint32_t at = i * bits;
    const std::uint32_t word = from[at / 8] | static_cast<std::uint32_t>(from[at / 8 + 1]) << 8;
    const std::uint32_t code = word >> at % 8 & ((1u << bits) - 1);
    to[i] = static_cast<std::uint8_t>(unpack == Unpack::kB4 ? code << 2 : code);
  }
  std::memcpy(unit, to, 16);
}

/// The block of tensor memory that the copy covers.
TensorBlock block_of(const Copy& copy, const TensorAddress& at) {
  const std::uint32_t lanes = copy.spread == Spread::kQuarter ? 3 * 32 + 1 : kTensorLanes;
  return {at.lane, lanes, at.column, copy.columns()};
}

void perform_copy(Cta& cta, const Copy& copy, const TensorUnits& units, const TensorAddress& at) {
  TensorMemory& memory = require_tensor(cta, block_of(copy, at), "tcgen05.cp");
  alignas(16) std::byte rows[128 * 32];
  gather_units(cta, units, rows);
  const std::uint32_t row_bytes = copy.units * kUnitBytes;
  for (std::uint32_t unit = 0; unit < copy.rows * copy.units; ++unit)
    unpack_unit(copy.unpack, rows + unit * kUnitBytes);
  visit_lanes(copy, [&](std::uint32_t row, std::uint32_t lane) {
    std::memcpy(memory.row(at.lane + lane, at.column), rows + row * row_bytes, row_bytes);
  });
}

/// Calls `body(cta)` for the warp's CTA, and for its peer if the instruction is for a pair.
template <class Body>
void for_each_of_group(Warp& warp, bool pair, const char* instruction, Body&& body) {
  body(*warp.cta);
  if (pair) body(peer_cta(*warp.cta, instruction));
}

Step run_copy(Warp& warp, const Op& op, LaneMask lanes) {
  const Copy copy = Copy::of(op.imm);
  Cluster& cluster = *warp.cta->cluster;
  for_each_lane(lanes, [&](int lane) {
    const TensorAddress at = TensorAddress::of(static_cast<std::uint32_t>(lane_address(warp, op, lane)));
    const TensorUnits units(decode_tensor_descriptor(warp.lanes<std::uint64_t>(op.b)[lane], "tcgen05.cp", false),
                            MatrixElement::kU8, /*packed=*/false, /*mn_major=*/false, copy.rows,
                            copy.units * kUnitBytes);
    for_each_of_group(warp, copy.pair != 0, "tcgen05.cp", [&](Cta& cta) {
      require_tensor(cta, block_of(copy, at), "tcgen05.cp");
      if (Hazards* hazards = cluster.hazards) {
        const AsyncAgent agent = hazards->of_group(warp, AsyncGroup::kTensor);
        visit_unit_pieces(units, [&](std::uint32_t offset, std::uint32_t bytes) {
          if (offset < kSharedBase || offset + bytes > cta.shared.size())
            return;  // becomes a fault when the copy is
                     // performed
          hazards->access_async(warp, lane, Access::kRead, Proxy::kAsync, agent, cta, offset, bytes);
        });
        const auto writes = [&](std::uint32_t first, std::uint32_t count) {
          hazards->tensor_access(warp, lane, Access::kWrite, AsyncGroup::kTensor, cta,
                                 {at.lane + first, count, at.column, copy.columns()});
        };
        if (copy.spread == Spread::kQuarter)
          for (std::uint32_t row = 0; row < 4; ++row) writes(row * 32, 1);
        else
          writes(0, kTensorLanes);
      }
    });
    cluster.async.issue(tensor_chain(warp, lane), [&warp, copy, units, at] {
      for_each_of_group(warp, copy.pair != 0, "tcgen05.cp", [&](Cta& cta) { perform_copy(cta, copy, units, at); });
    });
  });
  return Step::kNext;
}

// ---------------------------------------------------------------------------------------------- shift

constexpr std::uint32_t kShiftColumns = 8;  // 32 bytes

/// Lanes l to l + 30 take the value of the next lane. The last of the 32 lanes keeps its value, so that a
/// tcgen05.cp.4x256b can fill it.
Step run_shift(Warp& warp, const Op& op, LaneMask lanes) {
  Cluster& cluster = *warp.cta->cluster;
  const bool pair = op.imm != 0;
  for_each_lane(lanes, [&](int lane) {
    const TensorAddress at = TensorAddress::of(static_cast<std::uint32_t>(lane_address(warp, op, lane)));
    if (at.lane % kTensorQuadrant != 0)
      throw Fault(fmt::format("tcgen05.shift from lane {} of tensor memory, which is no multiple of 32", at.lane),
                  HazardKind::kTensorMemory);
    const TensorBlock block{at.lane, kTensorQuadrant, at.column, kShiftColumns};
    for_each_of_group(warp, pair, "tcgen05.shift", [&](Cta& cta) {
      require_tensor(cta, block, "tcgen05.shift");
      Hazards* hazards = cluster.hazards;
      if (!hazards) return;
      hazards->tensor_access(warp, lane, Access::kRead, AsyncGroup::kTensor, cta,
                             {block.lane + 1, block.lanes - 1, block.column, block.columns});
      hazards->tensor_access(warp, lane, Access::kWrite, AsyncGroup::kTensor, cta,
                             {block.lane, block.lanes - 1, block.column, block.columns});
    });
    cluster.async.issue(tensor_chain(warp, lane), [&warp, pair, block] {
      for_each_of_group(warp, pair, "tcgen05.shift", [&](Cta& cta) {
        TensorMemory& memory = require_tensor(cta, block, "tcgen05.shift");
        for (std::uint32_t row = block.lane; row + 1 < block.lane + block.lanes; ++row)
          std::memcpy(memory.row(row, block.column), memory.row(row + 1, block.column),
                      block.columns * sizeof(std::uint32_t));
      });
    });
  });
  return Step::kNext;
}

// ---------------------------------------------------------------------------------------------- decoding

/// Choices: the CTA group, the shape, the multicast, the formats.
void decode_copy(Decoder& decoder, Op& op) {
  decoder.require_tensor_memory();
  decoder.expect_operands(2, 2);
  static constexpr struct {
    std::string_view shape, multicast;
    Copy copy;
  } kShapes[] = {
      {"128x256b", "", {128, 2, Spread::kRows}},
      {"4x256b", "", {4, 2, Spread::kQuarter}},
      {"128x128b", "", {128, 1, Spread::kRows}},
      {"64x128b", "warpx2::02_13", {64, 1, Spread::kPairs02}},
      {"64x128b", "warpx2::01_23", {64, 1, Spread::kPairs01}},
      {"32x128b", "warpx4", {32, 1, Spread::kWarpx4}},
  };
  for (const auto& row : kShapes) {
    if (!decoder.has(row.shape) || (!row.multicast.empty() && !decoder.has(row.multicast))) continue;
    Copy copy = row.copy;
    copy.pair = decoder.has("cta_group::2");
    if (decoder.has("b4x16_p64")) copy.unpack = Unpack::kB4;
    if (decoder.has("b6x16_p32")) copy.unpack = Unpack::kB6;
    op.imm = copy.imm();
  }
  decoder.address(0, StateSpace::kShared, op);
  if (op.wide_address) decoder.refuse("needs an address of 32 bits");
  op.b = decoder.source(1, RegisterClass::k64);
  op.run = run_copy;
}

void decode_shift(Decoder& decoder, Op& op) {
  decoder.require_tensor_memory();
  decoder.expect_operands(1, 1);
  op.imm = decoder.has("cta_group::2");
  decoder.address(0, StateSpace::kShared, op);
  if (op.wide_address) decoder.refuse("needs an address of 32 bits");
  op.run = run_shift;
}

}  // namespace

std::span<const Form> tcgen05_copy_forms() {
  static constexpr Form kForms[] = {
      {"tcgen05.cp.(cta_group::1|cta_group::2).(128x256b|4x256b|128x128b)", decode_copy},
      {"tcgen05.cp.(cta_group::1|cta_group::2).(128x256b|4x256b|128x128b).b8x16.(b4x16_p64|b6x16_p32)", decode_copy},
      {"tcgen05.cp.(cta_group::1|cta_group::2).(64x128b).(warpx2::02_13|warpx2::01_23)", decode_copy},
      {"tcgen05.cp.(cta_group::1|cta_group::2).(64x128b).(warpx2::02_13|warpx2::01_23).b8x16.(b4x16_p64|b6x16_p32)",
       decode_copy},
      {"tcgen05.cp.(cta_group::1|cta_group::2).(32x128b).(warpx4)", decode_copy},
      {"tcgen05.cp.(cta_group::1|cta_group::2).(32x128b).(warpx4).b8x16.(b4x16_p64|b6x16_p32)", decode_copy},
      // Some compilers write the modifiers in this order.
      {"tcgen05.cp.(cta_group::1|cta_group::2).(warpx4).(32x128b)", decode_copy},
      {"tcgen05.cp.(cta_group::1|cta_group::2).(warpx2::02_13|warpx2::01_23).(64x128b)", decode_copy},
      {"tcgen05.shift.(cta_group::1|cta_group::2).down", decode_shift},
  };
  return kForms;
}

}  // namespace kernelwright::emulator
