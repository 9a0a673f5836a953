/// What a tcgen05.mma multiplies: the qualifiers of its opcode and its instruction descriptor (PTX ISA "TensorCore 5th
/// Generation Family Instructions", "Instruction Descriptor", "Matrix Shape").
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace kernelwright::emulator {

enum class Tcgen05Kind : std::uint8_t { kF16, kTf32, kF8f6f4, kI8, kMxf8f6f4, kMxf4, kMxf4nvf4 };
std::string_view name_of(Tcgen05Kind kind);  // "kind::f16"

/// An element of A or B.
enum class MatrixElement : std::uint8_t { kF16, kBf16, kTf32, kE4m3, kE5m2, kE2m3, kE3m2, kE2m1, kS8, kU8 };
enum class TensorOutput : std::uint8_t { kF16, kF32, kS32 };

/// What the opcode and its constants say; Op::imm carries it.
struct Tcgen05Form {
  enum Flag : std::uint8_t {
    kWeightStationary = 1,  // .ws
    kATensor = 2,           // A is in tensor memory
    kNegatedPredicate = 4,  // enable-input-d is !p
    kLaneMask = 8,          // disable-output-lane is given
    kSm103 = 16,            // the target has the additions of sm_103a
    kZeroColumns = 32,      // a zero-column mask descriptor is given (.ws)
  };
  Tcgen05Kind kind = Tcgen05Kind::kF16;
  std::uint8_t cta_group = 1;
  std::uint8_t flags = 0;
  /// Elements of K that share a scale; 0 without block scaling.
  std::uint8_t scale_block = 0;
  std::uint8_t scale_d = 0;           // D is multiplied by 2^-scale_d before it is read
  std::uint8_t collector = 0;         // CollectorUse
  std::uint8_t collector_buffer = 0;  // buffer of B, 0 to 3 (.ws)
  std::uint8_t unused = 0;

  bool has(Flag flag) const { return (flags & flag) != 0; }
  bool block_scaled() const { return scale_block != 0; }
  static Tcgen05Form of(std::uint64_t imm) { return std::bit_cast<Tcgen05Form>(imm); }
  std::uint64_t imm() const { return std::bit_cast<std::uint64_t>(*this); }
};
static_assert(sizeof(Tcgen05Form) == sizeof(std::uint64_t));

/// .collector::a::… or .collector::bN::…
enum class CollectorUse : std::uint8_t { kDiscard, kFill, kUse, kLastUse };

struct Tcgen05Shape {
  MatrixElement a = MatrixElement::kF16, b = MatrixElement::kF16;
  TensorOutput d = TensorOutput::kF32;
  std::uint32_t m = 128, n = 8, k = 16;  // of the instruction; with cta_group::2, of the pair
  bool negate_a = false, negate_b = false;
  bool a_mn_major = false, b_mn_major = false;
  bool saturate = false;                         // saturates integers
  bool packed_4bit = false;                      // two elements per byte: kind::mxf4, kind::mxf4nvf4
  bool scale_ue4m3 = false;                      // false: ue8m0
  std::uint32_t scale_a_id = 0, scale_b_id = 0;  // the byte of the 32-bit cell at which the scales begin

  bool operator==(const Tcgen05Shape&) const = default;
};

/// Reads an instruction descriptor. Throws Fault, naming the field, for a value that the ISA does not allow with this
/// form, and for what is not modelled: sparse A, shifts of B.
Tcgen05Shape decode_instruction_descriptor(std::uint32_t bits, const Tcgen05Form& form);

/// Where the rows of D are (PTX ISA "Data Path Layout Organization"). The lanes of one CTA's tensor memory are in
/// `folds` equal parts. Each part has all of the CTA's rows and its share of the columns.
struct Tcgen05Layout {
  std::uint32_t rows = 128;  // rows of D in this CTA
  std::uint32_t folds = 1;   // lane = fold * rows + row; each fold has n / folds columns of D
  bool scattered = false;    // layout F: row r is lane 32 (r / 16) + r % 16, from lane 0 or lane 16 on
  std::uint32_t lane(std::uint32_t fold, std::uint32_t row) const {
    return scattered ? row / 16 * 32 + row % 16 : fold * rows + row;
  }
};
Tcgen05Layout layout_of(const Tcgen05Form& form, const Tcgen05Shape& shape);

/// Bits of an element in shared memory, without padding.
constexpr std::uint32_t element_bits(MatrixElement element) {
  switch (element) {
    case MatrixElement::kTf32: return 32;
    case MatrixElement::kF16:
    case MatrixElement::kBf16: return 16;
    case MatrixElement::kE2m3:
    case MatrixElement::kE3m2: return 6;
    case MatrixElement::kE2m1: return 4;
    default: return 8;
  }
}
/// Elements in 16 bytes of shared memory. 4- and 6-bit elements are padded to a byte each on average, unless `packed`.
constexpr std::uint32_t elements_per_unit(MatrixElement element, bool packed) {
  return packed ? 32 : element_bits(element) <= 8 ? 16 : 128 / element_bits(element);
}

}  // namespace kernelwright::emulator
