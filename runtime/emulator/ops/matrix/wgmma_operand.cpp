#include "kernelwright/runtime/emulator/ops/matrix/wgmma_operand.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "kernelwright/runtime/emulator/machine/fault.h"

namespace kernelwright::emulator {
namespace {

std::uint32_t span_bytes(Swizzle swizzle) {
  switch (swizzle) {
    case Swizzle::kNone: return kUnitBytes;
    case Swizzle::k32B: return 32;
    case Swizzle::k64B: return 64;
    case Swizzle::k128B: return 128;
  }
  return kUnitBytes;
}

}  // namespace

MatrixDescriptor decode_matrix_descriptor(std::uint64_t bits) {
  // Bits 0-13 start, 16-29 leading byte offset, 32-45 stride byte offset, all in units of 16 bytes; 49-51 base offset;
  // 62-63 swizzle.
  static constexpr Swizzle kSwizzles[] = {Swizzle::kNone, Swizzle::k128B, Swizzle::k64B, Swizzle::k32B};
  const auto field = [bits](int at) { return static_cast<std::uint32_t>(bits >> at & 0x3fff) << 4; };
  MatrixDescriptor descriptor{field(0), field(16), field(32), kSwizzles[bits >> 62]};
  if ((bits >> 49 & 7) != 0)
    throw Fault(
        fmt::format("the matrix descriptor {:#018x} has base offset {}, which is not modelled; place the "
                    "operand at a multiple of 8 rows of its swizzle",
                    bits, bits >> 49 & 7));
  return descriptor;
}

OperandUnits::OperandUnits(const MatrixDescriptor& descriptor, bool mn_major, std::uint32_t size)
    : start_(descriptor.start), size_(size), mn_major_(mn_major) {
  const std::uint32_t span = span_bytes(descriptor.swizzle);
  row_ = span;
  atom_mask_ = span / kUnitBytes - 1;
  atom_shift_ = static_cast<std::uint32_t>(std::popcount(atom_mask_));
  swizzle_mask_ = span - kUnitBytes;
  if (descriptor.swizzle == Swizzle::kNone) {
    // The leading byte offset leads from one atom to the next along K, the stride byte offset along M or N.
    row_group_ = mn_major ? descriptor.leading : descriptor.stride;
    column_group_ = mn_major ? descriptor.stride : descriptor.leading;
  } else {
    // To reach the next K-major atom along K, a kernel moves the start: the leading byte offset is not read.
    row_group_ = descriptor.stride;
    column_group_ = descriptor.leading;
  }
}

void gather_units(const Cta& cta, const OperandUnits& operand, std::byte* out) {
  const OperandUnits units = operand;  // a copy, so that writes to `out` cannot change it
  const std::size_t size = cta.shared.size();
  const std::byte* shared = cta.shared.data();
  const std::uint32_t rows = units.rows(), columns = units.columns();
  for (std::uint32_t row = 0; row < rows; ++row)
    for (std::uint32_t column = 0; column < columns; ++column, out += kUnitBytes) {
      const std::uint32_t address = units.address(row, column);
      if (address < kSharedBase || address + kUnitBytes > size) [[unlikely]]
        throw Fault(fmt::format("an operand of wgmma reaches shared {}, outside the CTA's {} bytes from {}", address,
                                size - kSharedBase, kSharedBase),
                    HazardKind::kOutOfBounds);
      std::memcpy(out, shared + address, kUnitBytes);
    }
}

}  // namespace kernelwright::emulator
