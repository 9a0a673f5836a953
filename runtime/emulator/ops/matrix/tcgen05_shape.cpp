#include "kernelwright/runtime/emulator/ops/matrix/tcgen05_shape.h"

#include <fmt/format.h>

#include <string>

#include "kernelwright/runtime/emulator/machine/fault.h"

namespace kernelwright::emulator {
namespace {

/// Reads one descriptor: fields by their bits, with the field's name in errors.
class Reader {
 public:
  Reader(std::uint32_t bits, const Tcgen05Form& form) : bits_(bits), form_(form) {}
  std::uint32_t field(int low, int count) const { return bits_ >> low & ((1u << count) - 1); }
  bool flag(int bit) const { return field(bit, 1) != 0; }
  void zero(int low, int count, const char* name) const {
    if (const std::uint32_t value = field(low, count); value != 0) refuse(low, count, name, value, "must be 0");
  }
  [[noreturn]] void refuse(int low, int count, const char* name, std::uint32_t value, const std::string& why) const {
    const std::string place = count == 1 ? fmt::format("bit {}", low) : fmt::format("bits {}-{}", low, low + count - 1);
    throw Fault(fmt::format("the instruction descriptor {:#010x} of a tcgen05.mma of {}: {} ({}) is {} and {}", bits_,
                            name_of(form_.kind), name, place, value, why));
  }
  [[noreturn]] void refuse_shape(std::uint32_t m, std::uint32_t n, const std::string& why) const {
    throw Fault(fmt::format(
        "the instruction descriptor {:#010x} asks for M = {} and N = {}; {}{} of cta_group::{} takes {}", bits_, m, n,
        form_.has(Tcgen05Form::kWeightStationary) ? ".ws with " : "", name_of(form_.kind), form_.cta_group, why));
  }

 private:
  std::uint32_t bits_;
  const Tcgen05Form& form_;
};

MatrixElement float_element(const Reader& reader, int low, const char* name) {
  const std::uint32_t code = reader.field(low, 3);
  switch (code) {
    case 0: return MatrixElement::kE4m3;
    case 1: return MatrixElement::kE5m2;
    case 3: return MatrixElement::kE2m3;
    case 4: return MatrixElement::kE3m2;
    case 5: return MatrixElement::kE2m1;
    default: reader.refuse(low, 3, name, code, "must be 0 (e4m3), 1 (e5m2), 3 (e2m3), 4 (e3m2) or 5 (e2m1)");
  }
}

MatrixElement element_of(const Reader& reader, Tcgen05Kind kind, int low, const char* name) {
  const std::uint32_t code = reader.field(low, 3);
  switch (kind) {
    case Tcgen05Kind::kF16:
      if (code > 1) reader.refuse(low, 3, name, code, "must be 0 (f16) or 1 (bf16)");
      return code == 0 ? MatrixElement::kF16 : MatrixElement::kBf16;
    case Tcgen05Kind::kTf32:
      if (code != 2) reader.refuse(low, 3, name, code, "must be 2 (tf32)");
      return MatrixElement::kTf32;
    case Tcgen05Kind::kI8:
      if (code > 1) reader.refuse(low, 3, name, code, "must be 0 (u8) or 1 (s8)");
      return code == 0 ? MatrixElement::kU8 : MatrixElement::kS8;
    case Tcgen05Kind::kF8f6f4:
    case Tcgen05Kind::kMxf8f6f4: return float_element(reader, low, name);
    case Tcgen05Kind::kMxf4:
    case Tcgen05Kind::kMxf4nvf4:
      if (code != 1) reader.refuse(low, 3, name, code, "must be 1 (e2m1)");
      return MatrixElement::kE2m1;
  }
  return MatrixElement::kF16;
}

void decode_plain(const Reader& reader, const Tcgen05Form& form, Tcgen05Shape& shape) {
  reader.zero(0, 2, "the sparsity selector");
  shape.saturate = reader.flag(3);
  const bool integers = form.kind == Tcgen05Kind::kI8;
  if (!integers) reader.zero(3, 1, "saturate, which is for integers,");
  const std::uint32_t d = reader.field(4, 2);
  const bool halves = form.kind == Tcgen05Kind::kF16 || form.kind == Tcgen05Kind::kF8f6f4;
  if (integers ? d != 2 : halves ? d > 1 : d != 1)
    reader.refuse(4, 2, "the type of D", d,
                  integers ? "must be 2 (s32)"
                  : halves ? "must be 0 (f16) or 1 (f32)"
                           : "must be 1 (f32)");
  shape.d = static_cast<TensorOutput>(d);
  reader.zero(6, 1, "a reserved field");
  if (integers) {
    reader.zero(13, 1, "negate A, which is for floats,");
    reader.zero(14, 1, "negate B, which is for floats,");
  }
  reader.zero(23, 1, "a reserved field");
  reader.zero(29, 1, "a reserved field");
  if (const std::uint32_t shift = reader.field(30, 2); shift != 0)
    reader.refuse(30, 2, "the maximum shift of B", shift, "is not modelled");
  if (shape.a == MatrixElement::kBf16 && shape.d == TensorOutput::kF16)
    reader.refuse(4, 2, "the type of D", d, "must be 1 (f32) for bf16");
  if (form.kind == Tcgen05Kind::kF16 && shape.a != shape.b)
    reader.refuse(10, 3, "the type of B", reader.field(10, 3), "must be that of A");
}

void decode_scaled(const Reader& reader, const Tcgen05Form& form, Tcgen05Shape& shape) {
  reader.zero(0, 2, "a reserved field");
  reader.zero(3, 1, "a reserved field");
  reader.zero(6, 1, "a reserved field");
  reader.zero(24, 3, "a reserved field");
  shape.scale_b_id = reader.field(4, 2);
  shape.scale_a_id = reader.field(29, 2);
  shape.scale_ue4m3 = !reader.flag(23);
  if (form.kind == Tcgen05Kind::kMxf8f6f4) {
    reader.zero(31, 1, "a reserved field");
    if (shape.scale_ue4m3) reader.refuse(23, 1, "the type of the scales", 0, "must be 1 (ue8m0)");
    return;
  }
  reader.zero(15, 1, "transpose A");
  reader.zero(16, 1, "transpose B");
  shape.packed_4bit = true;
  if (shape.scale_ue4m3 && (form.kind == Tcgen05Kind::kMxf4 || form.scale_block == 32))
    reader.refuse(23, 1, "the type of the scales", 0, "must be 1 (ue8m0), but for kind::mxf4nvf4 with blocks of 16");
  if (reader.flag(31)) {
    if (!form.has(Tcgen05Form::kSm103)) reader.refuse(31, 1, "the K dimension", 1, "(K = 96) exists from sm_103a on");
    shape.k = 96;
  }
  // With K = 64, two scales are half a cell, and four are a whole cell.
  const auto require = [&](int low, const char* name, std::uint32_t id) {
    if (shape.k == 64 && form.scale_block == 16 && id != 0)
      reader.refuse(low, 2, name, id, "must be 0 with four scales");
    if (id % 2 != 0 && (shape.k == 64 || form.scale_block == 16)) reader.refuse(low, 2, name, id, "must be 0 or 2");
  };
  require(29, "the scale factor id of A", shape.scale_a_id);
  require(4, "the scale factor id of B", shape.scale_b_id);
}

/// Throws unless the ISA's table of shapes contains this shape.
void check_shape(const Reader& reader, const Tcgen05Form& form, const Tcgen05Shape& shape) {
  const std::uint32_t m = shape.m, n = shape.n;
  if (form.has(Tcgen05Form::kWeightStationary)) {
    if ((m != 32 && m != 64 && m != 128) || (n != 64 && n != 128 && n != 256))
      reader.refuse_shape(m, n, "M = 32, 64 or 128 and N = 64, 128 or 256");
    return;
  }
  const bool pair = form.cta_group == 2, integers = form.kind == Tcgen05Kind::kI8;
  if (form.block_scaled()) {
    const bool long_k = shape.k == 96;
    if (pair ? m != 256 && (m != 128 || long_k) : m != 128)
      reader.refuse_shape(m, n, pair ? long_k ? "M = 256 with K = 96" : "M = 128 or 256" : "M = 128");
    const std::uint32_t step = pair ? 16 : 8;
    if (n == 0 || n > 256 || n % step != 0) reader.refuse_shape(m, n, fmt::format("N = {0} to 256 by {0}", step));
  } else {
    if (pair ? m != 128 && m != 256 : m != 64 && m != 128)
      reader.refuse_shape(m, n, pair ? "M = 128 or 256" : "M = 64 or 128");
    const bool small = integers && !pair && (n == 8 || n == 24);
    const std::uint32_t step = pair ? (integers ? 32 : 16) : integers ? 16 : 8;
    if (!small && (n == 0 || n > 256 || n % step != 0))
      reader.refuse_shape(
          m, n, fmt::format("N = {0} to 256 by {0}{1} with M = {2}", step, integers && !pair ? ", 8 or 24" : "", m));
  }
  const std::uint32_t step = pair ? 32 : 16;
  if (shape.b_mn_major && element_bits(shape.b) <= 8 && n % step != 0)
    reader.refuse_shape(m, n, fmt::format("N = {0} to 256 by {0} where an 8-bit B is transposed", step));
}

}  // namespace

std::string_view name_of(Tcgen05Kind kind) {
  constexpr std::string_view kNames[] = {"kind::f16",      "kind::tf32", "kind::f8f6f4",  "kind::i8",
                                         "kind::mxf8f6f4", "kind::mxf4", "kind::mxf4nvf4"};
  return kNames[static_cast<std::size_t>(kind)];
}

Tcgen05Shape decode_instruction_descriptor(std::uint32_t bits, const Tcgen05Form& form) {
  const Reader reader(bits, form);
  if (reader.flag(2)) reader.refuse(2, 1, "sparsity", 1, "is not modelled; tcgen05.mma without .sp needs 0");
  Tcgen05Shape shape;
  shape.a = element_of(reader, form.kind, 7, "the type of A");
  shape.b = element_of(reader, form.kind, 10, "the type of B");
  const bool packed = form.kind == Tcgen05Kind::kMxf4 || form.kind == Tcgen05Kind::kMxf4nvf4;
  shape.k = packed ? 64 : 2 * elements_per_unit(shape.a, false);
  shape.m = reader.field(24, 5) << 4;
  shape.n = reader.field(17, 6) << 3;
  shape.negate_a = reader.flag(13);
  shape.negate_b = reader.flag(14);
  shape.a_mn_major = reader.flag(15);
  shape.b_mn_major = reader.flag(16);
  if (form.block_scaled())
    decode_scaled(reader, form, shape);
  else
    decode_plain(reader, form, shape);
  if (shape.a_mn_major && form.has(Tcgen05Form::kATensor))
    reader.refuse(15, 1, "transpose A", 1, "must be 0 where A is in tensor memory");
  check_shape(reader, form, shape);
  return shape;
}

Tcgen05Layout layout_of(const Tcgen05Form& form, const Tcgen05Shape& shape) {
  Tcgen05Layout layout;
  layout.rows = shape.m / form.cta_group;
  if (form.cta_group == 2 || form.has(Tcgen05Form::kWeightStationary)) {
    layout.folds = 128 / layout.rows;  // layouts A, B, E and G
  } else {
    layout.scattered = layout.rows == 64;  // F, else D
  }
  return layout;
}

}  // namespace kernelwright::emulator
