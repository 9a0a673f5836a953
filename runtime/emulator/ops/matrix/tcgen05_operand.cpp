#include "kernelwright/runtime/emulator/ops/matrix/tcgen05_operand.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "kernelwright/runtime/emulator/machine/fault.h"
#include "kernelwright/runtime/emulator/numbers/number_formats.h"
#include "kernelwright/runtime/emulator/numbers/target_clones.h"

namespace kernelwright::emulator {
namespace {

std::uint32_t span_bytes(TensorSwizzle swizzle) {
  switch (swizzle) {
    case TensorSwizzle::kNone: return kUnitBytes;
    case TensorSwizzle::k32B: return 32;
    case TensorSwizzle::k64B: return 64;
    case TensorSwizzle::k128B:
    case TensorSwizzle::k128BAtom32B: return 128;
  }
  return kUnitBytes;
}

KERNELWRIGHT_TARGET_CLONES_FLATTEN void bytes_to_f32(const std::int8_t* from, std::size_t count, float* out) {
  for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<float>(from[i]);
}
KERNELWRIGHT_TARGET_CLONES_FLATTEN void bytes_to_f32(const std::uint8_t* from, std::size_t count, float* out) {
  for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<float>(from[i]);
}
KERNELWRIGHT_TARGET_CLONES_FLATTEN void tf32_to_f32(const std::uint32_t* from, std::size_t count, float* out) {
  for (std::size_t i = 0; i < count; ++i) out[i] = std::bit_cast<float>(from[i] & 0xffffe000u);  // 10 mantissa bits
}

/// Reads `count` elements of 4 or 6 bits that lie side by side, from the lowest bit of the first byte on.
void unpack_bits(const std::uint8_t* from, std::uint32_t count, std::uint32_t bits, const float* values, float* out) {
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t at = i * bits;
    // An element of 6 bits may reach into the next byte; an element of 4 bits never does.
    const std::uint32_t low = from[at / 8], high = at % 8 + bits > 8 ? from[at / 8 + 1] : 0u;
    out[i] = values[(low | high << 8) >> at % 8 & ((1u << bits) - 1)];
  }
}

const float* small_values(MatrixElement element) {
  return element == MatrixElement::kE2m3   ? kE2m3Values.data()
         : element == MatrixElement::kE3m2 ? kE3m2Values.data()
                                           : kE2m1Values.data();
}

/// For elements that take whole bytes.
void widen_bytes(const std::byte* from, std::size_t bytes, MatrixElement element, float* out) {
  const auto* octets = reinterpret_cast<const std::uint8_t*>(from);
  const auto* halves = reinterpret_cast<const std::uint16_t*>(from);
  switch (element) {
    case MatrixElement::kF16: return f16_to_f32(out, halves, bytes / 2);
    case MatrixElement::kBf16: return bf16_to_f32(out, halves, bytes / 2);
    case MatrixElement::kTf32: return tf32_to_f32(reinterpret_cast<const std::uint32_t*>(from), bytes / 4, out);
    case MatrixElement::kE4m3: return e4m3_to_f32(out, octets, bytes);
    case MatrixElement::kE5m2: return e5m2_to_f32(out, octets, bytes);
    case MatrixElement::kS8: return bytes_to_f32(reinterpret_cast<const std::int8_t*>(from), bytes, out);
    case MatrixElement::kU8: return bytes_to_f32(octets, bytes, out);
    default: return;
  }
}

}  // namespace

TensorDescriptor decode_tensor_descriptor(std::uint64_t bits, const char* operand, bool sm103) {
  const auto field = [bits](int low, int count) {
    return static_cast<std::uint32_t>(bits >> low & ((std::uint64_t{1} << count) - 1));
  };
  const auto refuse = [&](const char* name, const std::string& why) {
    throw Fault(fmt::format("the matrix descriptor {:#018x} of {}: {} {}", bits, operand, name, why));
  };
  if (field(14, 2) != 0) refuse("bits 14-15 are reserved", "and must be 0");
  if (field(30, 2) != 0) refuse("bits 30-31 are reserved", "and must be 0");
  if (field(46, 3) != 1)
    refuse("bits 46-48, the version,", fmt::format("are {} and must be 1 (a descriptor of wgmma has 0)", field(46, 3)));
  if (field(53, 8) != 0) refuse("bits 53-60 are reserved", "and must be 0");
  static constexpr TensorSwizzle kSwizzles[] = {TensorSwizzle::kNone, TensorSwizzle::k128BAtom32B, TensorSwizzle::k128B,
                                                TensorSwizzle::kNone, TensorSwizzle::k64B,         TensorSwizzle::kNone,
                                                TensorSwizzle::k32B,  TensorSwizzle::kNone};
  const std::uint32_t swizzle = field(61, 3);
  if (swizzle == 3 || swizzle == 5 || swizzle == 7)
    refuse("bits 61-63, the swizzle,", fmt::format("are {}; 0, 1, 2, 4 and 6 exist", swizzle));
  TensorDescriptor descriptor{.start = field(0, 14) << 4,
                              .leading = field(16, 14) << 4,
                              .stride = field(32, 14) << 4,
                              .base = field(49, 3) << 7,
                              .leading_absolute = field(52, 1) != 0,
                              .swizzle = kSwizzles[swizzle]};
  if (descriptor.leading_absolute && !sm103)
    refuse("bit 52, the mode of the leading dimension,", "is 1 (an absolute address), which exists from sm_103a on");
  if (descriptor.base != 0 && descriptor.swizzle == TensorSwizzle::kNone)
    refuse("bits 49-51, the base offset,", "must be 0 without a swizzle");
  return descriptor;
}

TensorUnits::TensorUnits(const TensorDescriptor& descriptor, MatrixElement element, bool packed, bool mn_major,
                         std::uint32_t size, std::uint32_t k)
    : start_(descriptor.start), base_(descriptor.base) {
  const std::uint32_t per_unit = elements_per_unit(element, packed);
  const bool atom32 = descriptor.swizzle == TensorSwizzle::k128BAtom32B;
  if (mn_major && atom32 != (element == MatrixElement::kTf32))
    throw Fault(atom32 ? "a transposed operand with a 128B swizzle of 32-byte atoms: only 32-bit elements have that"
                       : "a transposed operand of kind::tf32 needs the 128B swizzle of 32-byte atoms");
  if (descriptor.leading_absolute)
    throw Fault("a matrix descriptor gives the leading dimension as an absolute address, which is not modelled");
  const std::uint32_t span = span_bytes(descriptor.swizzle);
  rows_ = mn_major ? k : size;
  columns_ = (mn_major ? size : k) / per_unit;
  row_ = span;
  atom_mask_ = span / kUnitBytes - 1;
  atom_shift_ = static_cast<std::uint32_t>(std::popcount(atom_mask_));
  swizzle_mask_ = atom32 ? 0x60 : span - kUnitBytes;
  swizzle_shift_ = atom32 ? 2 : 3;
  if (mn_major && atom32) {
    row_shift_ = 2;
    row_mask_ = 3;
  }
  if (descriptor.swizzle == TensorSwizzle::kNone) {
    // The leading byte offset leads from one atom to the next along K, the stride byte offset along M or N.
    row_group_ = mn_major ? descriptor.leading : descriptor.stride;
    column_group_ = mn_major ? descriptor.stride : descriptor.leading;
    return;
  }
  row_group_ = descriptor.stride;
  column_group_ = descriptor.leading;
  if (!mn_major) {
    // K continues within the atom: 32 bytes of K stay within the swizzle's width, 48 bytes may cross to the next atom.
    first_ = (start_ - base_) / kUnitBytes & atom_mask_;
    start_ -= first_ * kUnitBytes;
  }
}

void gather_units(const Cta& cta, const TensorUnits& operand, std::byte* out) {
  const TensorUnits units = operand;  // a copy, so that writes to `out` cannot change it
  const std::size_t size = cta.shared.size();
  const std::byte* shared = cta.shared.data();
  const std::uint32_t rows = units.rows(), columns = units.columns();
  for (std::uint32_t row = 0; row < rows; ++row)
    for (std::uint32_t column = 0; column < columns; ++column, out += kUnitBytes) {
      const std::uint32_t address = units.address(row, column);
      if (address < kSharedBase || address + kUnitBytes > size) [[unlikely]]
        throw Fault(fmt::format("an operand of tcgen05.mma reaches shared {}, outside the CTA's {} bytes from {}",
                                address, size - kSharedBase, kSharedBase),
                    HazardKind::kOutOfBounds);
      std::memcpy(out, shared + address, kUnitBytes);
    }
}

void widen_units(const std::byte* units, std::uint32_t count, MatrixElement element, bool packed, float* out) {
  const std::uint32_t bits = element_bits(element);
  if (bits >= 8) return widen_bytes(units, std::size_t{count} * kUnitBytes, element, out);
  const std::uint32_t elements = elements_per_unit(element, packed);
  for (std::uint32_t unit = 0; unit < count; ++unit)
    unpack_bits(reinterpret_cast<const std::uint8_t*>(units + unit * kUnitBytes), elements, bits, small_values(element),
                out + unit * elements);
}

void widen_cells(const std::uint32_t* cells, std::uint32_t count, MatrixElement element, bool packed, float* out) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(cells);
  const std::uint32_t bits = element_bits(element);
  if (bits >= 8) return widen_bytes(reinterpret_cast<const std::byte*>(cells), std::size_t{count} * 4, element, out);
  if (packed) return unpack_bits(bytes, count * 8, bits, small_values(element), out);
  const std::uint32_t shift = bits == 4 ? 2 : 0, mask = (1u << bits) - 1;
  const float* values = small_values(element);
  for (std::uint32_t i = 0; i < count * 4; ++i) out[i] = values[bytes[i] >> shift & mask];
}

}  // namespace kernelwright::emulator
