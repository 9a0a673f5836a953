/// ldmatrix, stmatrix, movmatrix (PTX ISA "Warp-level matrix load", "… store", "… transpose"): 8x8 matrices of 16-bit
/// elements between shared memory and a warp's registers.
///
/// Row r of a matrix is 16 bytes of shared memory; lane 8i + r supplies the address of row r of matrix i. In registers,
/// lane 4r + t holds elements 2t and 2t + 1 of row r. A register is an array over lanes, so its 128 bytes *are* the
/// matrix, row by row. Moving a matrix is eight copies of 16 bytes, and `.trans` is a transpose in place.
///
/// For the checker each row is one access by the lane that supplies its address, although other lanes hold the values.
/// This cannot hide a race between warps, because an aligned instruction runs only once its lanes have met.
#include <cstring>

#include "kernelwright/runtime/emulator/checker/hazards.h"
#include "kernelwright/runtime/emulator/machine/fault.h"
#include "kernelwright/runtime/emulator/machine/warp_access.h"
#include "kernelwright/runtime/emulator/numbers/matrix_transpose.h"
#include "kernelwright/runtime/emulator/program/decoder.h"

namespace kernelwright::emulator {

namespace {

constexpr std::uint32_t kRowBytes = 16;
constexpr int kRows = 8;
constexpr int kMatrixBytes = 128;

/// op.imm of the forms that address memory.
constexpr std::uint64_t kGenericAddress = 1;

std::byte* row_place(Warp& warp, const Op& op, int lane, Access access) {
  const std::uint64_t address = lane_address(warp, op, lane);
  SharedPlace place;
  if (op.imm & kGenericAddress) {
    place = generic_place(warp, lane, address, kRowBytes, access).shared;
    if (place.cta == nullptr)
      throw Fault("the row addresses of ldmatrix and stmatrix must be in shared memory; a generic one is not");
  } else {
    place = shared_place(warp, static_cast<std::uint32_t>(address), kRowBytes);
  }
  if (Hazards* hazards = warp.cta->cluster->hazards) hazards->access(warp, lane, access, place, kRowBytes);
  return place.host;
}

/// Where the 8 * kCount rows are.
template <int kCount>
void find_rows(Warp& warp, const Op& op, Access access, std::byte* (&rows)[kCount][kRows]) {
  std::uint32_t offsets[32];
  if (warp.cta->cluster->hazards == nullptr && op.imm == 0 &&
      own_shared_offsets(warp, op, kCount * kRows, kRowBytes, offsets)) {
    std::byte* shared = warp.cta->shared.data();
    for (int i = 0; i < kCount; ++i)
      for (int r = 0; r < kRows; ++r) rows[i][r] = shared + offsets[i * kRows + r];
  } else {
    for (int i = 0; i < kCount; ++i)
      for (int r = 0; r < kRows; ++r) rows[i][r] = row_place(warp, op, i * kRows + r, access);
  }
}

/// The rows of the matrix that one register holds.
void rows_of_register(std::byte* matrix, const std::byte* (&rows)[kRows]) {
  for (int r = 0; r < kRows; ++r) rows[r] = matrix + r * kRowBytes;
}

template <int kCount, bool kTranspose>
Step ldmatrix(Warp& warp, const Op& op, LaneMask lanes) {
  require_whole_warp("ldmatrix", lanes);
  std::byte* rows[kCount][kRows];
  find_rows<kCount>(warp, op, Access::kRead, rows);  // all rows first: a destination may be the address register
  for (int i = 0; i < kCount; ++i) {
    auto* matrix = warp.lanes<std::byte>(op.list[i]);
    if constexpr (kTranspose) {
      const std::byte* from[kRows];
      for (int r = 0; r < kRows; ++r) from[r] = rows[i][r];
      transpose_8x8_b16(from, matrix);
    } else {
      for (int r = 0; r < kRows; ++r) std::memcpy(matrix + r * kRowBytes, rows[i][r], kRowBytes);
    }
  }
  return Step::kNext;
}

template <int kCount, bool kTranspose>
Step stmatrix(Warp& warp, const Op& op, LaneMask lanes) {
  require_whole_warp("stmatrix", lanes);
  std::byte* rows[kCount][kRows];
  find_rows<kCount>(warp, op, Access::kWrite, rows);
  for (int i = 0; i < kCount; ++i) {
    std::byte* matrix = warp.lanes<std::byte>(op.list[i]);
    alignas(16) std::byte transposed[kMatrixBytes];
    if constexpr (kTranspose) {
      const std::byte* from[kRows];
      rows_of_register(matrix, from);
      transpose_8x8_b16(from, transposed);
      matrix = transposed;
    }
    for (int r = 0; r < kRows; ++r) std::memcpy(rows[i][r], matrix + r * kRowBytes, kRowBytes);
  }
  return Step::kNext;
}

Step movmatrix(Warp& warp, const Op& op, LaneMask lanes) {
  require_whole_warp("movmatrix", lanes);
  const std::byte* from[kRows];
  rows_of_register(warp.lanes<std::byte>(op.a), from);
  transpose_8x8_b16(from, warp.lanes<std::byte>(op.d));
  return Step::kNext;
}

// The choices of both patterns: 0 count, 1 trans, 2 state space.
template <template <int, bool> class Handlers>
Handler handler_of(const Decoder& decoder) {
  const bool transpose = decoder.has("trans");
  if (decoder.choice(0) == "x1") return transpose ? Handlers<1, true>::run : Handlers<1, false>::run;
  if (decoder.choice(0) == "x2") return transpose ? Handlers<2, true>::run : Handlers<2, false>::run;
  return transpose ? Handlers<4, true>::run : Handlers<4, false>::run;
}
template <int kCount, bool kTranspose>
struct Load {
  static constexpr Handler run = ldmatrix<kCount, kTranspose>;
};
template <int kCount, bool kTranspose>
struct Store {
  static constexpr Handler run = stmatrix<kCount, kTranspose>;
};

void decode_move(Decoder& decoder, Op& op, std::size_t address, std::size_t registers, bool load) {
  decoder.expect_operands(2, 2);
  const bool generic = decoder.choice(2).empty();
  decoder.address(address, generic ? StateSpace::kGeneric : StateSpace::kShared, op);
  const std::span<const Slot> matrices = decoder.vector(registers, RegisterClass::k32, load);
  const auto count = static_cast<std::size_t>(decoder.choice(0)[1] - '0');
  if (matrices.size() != count) decoder.refuse("an .x" + std::to_string(count) + " form takes as many registers");
  for (const Slot matrix : matrices)
    if (matrix == kNoSlot) decoder.refuse("a matrix register cannot be _");
  op.list = matrices.data();
  op.list_size = static_cast<std::uint8_t>(matrices.size());
  op.imm = generic && op.wide_address ? kGenericAddress : 0;  // 32 bits can only be a shared address
  op.converge = Converge::kWarp;
}

void decode_ldmatrix(Decoder& decoder, Op& op) {
  decode_move(decoder, op, 1, 0, true);
  op.run = handler_of<Load>(decoder);
}

void decode_stmatrix(Decoder& decoder, Op& op) {
  decode_move(decoder, op, 0, 1, false);
  op.run = handler_of<Store>(decoder);
}

void decode_movmatrix(Decoder& decoder, Op& op) {
  decoder.expect_operands(2, 2);
  op.d = decoder.destination(0, RegisterClass::k32);
  op.a = decoder.source(1, RegisterClass::k32);
  if (op.d == kNoSlot) decoder.refuse("the destination cannot be _");
  op.converge = Converge::kWarp;
  op.run = movmatrix;
}

constexpr Form kForms[] = {
    {"ldmatrix.sync.aligned.m8n8.(x1|x2|x4).(trans)?.(shared|shared::cta)?.b16", decode_ldmatrix},
    {"stmatrix.sync.aligned.m8n8.(x1|x2|x4).(trans)?.(shared|shared::cta)?.b16", decode_stmatrix},
    {"movmatrix.sync.aligned.m8n8.trans.b16", decode_movmatrix},
};

}  // namespace

std::span<const Form> matrix_move_forms() { return kForms; }

}  // namespace kernelwright::emulator
