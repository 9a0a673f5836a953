/// ldmatrix, stmatrix, movmatrix (PTX ISA "Warp-level matrix load", "… store", "… transpose"): 8x8 matrices of 16-bit
/// elements between shared memory and a warp's registers.
///
/// Row r of a matrix is 16 bytes of shared memory; lane 8i + r supplies the address of row r of matrix i. In registers,
/// lane 4r + t holds elements 2t and 2t + 1 of row r. A register is an array over lanes, so its 128 bytes *are* the
/// matrix, row by row. Moving a matrix is eight copies of 16 bytes, and `.trans` is a transpose in place.
///
/// Matrices of 8-bit elements (m8n16, and m16n16 and m16n8 transposed) have rows of 16 bytes too. Without .trans a
/// register is the matrix as before. With .trans, lane 4c + t has elements of the columns c and c + 8. From a matrix of
/// 8 rows, these are rows 2t and 2t + 1. From one of 16 rows, these are rows 4t to 4t + 3, the first two of them in the
/// first register.
/// Elements of 4 and 6 bits are spread to bytes: see expand_row().
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

// ---- 8-bit elements

/// What op.imm has beside kGenericAddress.
constexpr std::uint64_t kFourBits = 2, kSixBits = 4, kTransposed = 8;

/// The 16 bytes of a row. Elements of 4 bits lie in the row's first 8 bytes, and become bits 5 to 2 of a byte. Elements
/// of 6 bits lie in its first 12 bytes, and become bits 5 to 0.
void expand_row(const std::byte* from, std::uint64_t flags, std::uint8_t* to) {
  if ((flags & (kFourBits | kSixBits)) == 0) {
    std::memcpy(to, from, kRowBytes);
    return;
  }
  const std::uint32_t bits = flags & kFourBits ? 4 : 6;
  for (std::uint32_t i = 0; i < kRowBytes; ++i) {
    std::uint32_t value = 0;
    for (std::uint32_t bit = 0; bit < bits; ++bit) {
      const std::uint32_t at = i * bits + bit;
      value |= (std::to_integer<std::uint32_t>(from[at / 8]) >> at % 8 & 1) << bit;
    }
    to[i] = static_cast<std::uint8_t>(bits == 4 ? value << 2 : value);
  }
}

/// The place among the rows and columns of a transposed matrix of the byte `byte` of a register of `lane`. A load has
/// two registers for 16 rows.
struct BytePlace {
  int row, column;
};
BytePlace transposed_place(int lane, int byte, int half, int rows_per_lane) {
  return {lane % 4 * rows_per_lane + 2 * half + byte % 2, lane / 4 + 8 * (byte / 2)};
}

Step load_bytes(Warp& warp, const Op& op, LaneMask lanes) {
  require_whole_warp("ldmatrix", lanes);
  const bool transposed = (op.imm & kTransposed) != 0;
  const int count = op.list_size, rows = transposed ? count / 2 * 16 : count * kRows;
  std::uint8_t all[32][kRowBytes];  // all rows first: a destination may be the address register
  for (int row = 0; row < rows; ++row) expand_row(row_place(warp, op, row, Access::kRead), op.imm, all[row]);
  for (int i = 0; i < count; ++i) {
    auto* bytes = warp.lanes<std::uint8_t>(op.list[i]);
    for (int at = 0; at < kMatrixBytes; ++at) {
      if (!transposed) {
        bytes[at] = all[i * kRows + at / 16][at % 16];
        continue;
      }
      const BytePlace place = transposed_place(at / 4, at % 4, i % 2, 4);
      bytes[at] = all[i / 2 * 16 + place.row][place.column];
    }
  }
  return Step::kNext;
}

Step store_bytes(Warp& warp, const Op& op, LaneMask lanes) {
  require_whole_warp("stmatrix", lanes);
  for (int i = 0; i < op.list_size; ++i) {
    const auto* bytes = warp.lanes<std::byte>(op.list[i]);
    std::byte* rows[kRows];
    for (int row = 0; row < kRows; ++row) rows[row] = row_place(warp, op, i * kRows + row, Access::kWrite);
    for (int at = 0; at < kMatrixBytes; ++at) {
      const BytePlace place = transposed_place(at / 4, at % 4, 0, 2);
      rows[place.row][place.column] = bytes[at];
    }
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

// The first choice of all patterns is the count.
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

void decode_move(Decoder& decoder, Op& op, std::size_t address, std::size_t registers, bool load,
                 std::size_t each = 1) {
  decoder.expect_operands(2, 2);
  const bool generic = !decoder.has("shared") && !decoder.has("shared::cta");
  decoder.address(address, generic ? StateSpace::kGeneric : StateSpace::kShared, op);
  const std::span<const Slot> matrices = decoder.vector(registers, RegisterClass::k32, load);
  const auto count = static_cast<std::size_t>(decoder.choice(0)[1] - '0');
  if (matrices.size() != count * each)
    decoder.refuse("an .x" + std::to_string(count) +
                   (each == 1 ? " form takes as many registers" : " form takes twice as many registers"));
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

void decode_load_bytes(Decoder& decoder, Op& op) {
  decoder.require_blackwell();
  const bool transposed = decoder.has("trans");
  decode_move(decoder, op, 1, 0, true, transposed ? 2 : 1);
  op.imm |= (decoder.has("b4x16_p64") ? kFourBits : 0) | (decoder.has("b6x16_p32") ? kSixBits : 0) |
            (transposed ? kTransposed : 0);
  op.run = load_bytes;
}

void decode_store_bytes(Decoder& decoder, Op& op) {
  decoder.require_blackwell();
  decode_move(decoder, op, 0, 1, false);
  op.run = store_bytes;
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
    {"ldmatrix.sync.aligned.m16n16.(x1|x2).(trans).(shared|shared::cta)?.b8", decode_load_bytes},
    {"ldmatrix.sync.aligned.m16n16.(x1|x2).(trans).(shared|shared::cta)?.b8x16.(b4x16_p64|b6x16_p32)",
     decode_load_bytes},
    {"ldmatrix.sync.aligned.m8n16.(x1|x2|x4).(shared|shared::cta)?.b8x16.(b4x16_p64|b6x16_p32)", decode_load_bytes},
    {"stmatrix.sync.aligned.m16n8.(x1|x2|x4).(trans).(shared|shared::cta)?.b8", decode_store_bytes},
    {"movmatrix.sync.aligned.m8n8.trans.b16", decode_movmatrix},
};

}  // namespace

std::span<const Form> matrix_move_forms() { return kForms; }

}  // namespace kernelwright::emulator
