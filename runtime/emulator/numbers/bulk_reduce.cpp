#include "kernelwright/runtime/emulator/numbers/bulk_reduce.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernelwright/runtime/emulator/numbers/number_formats.h"

namespace kernelwright::emulator {
namespace {

/// How an element is stored in memory, and in which type it is computed.
struct F16 {
  using Bits = std::uint16_t;
  using Value = float;
  static Value read(Bits bits) { return f16_to_f32(bits); }
  static Bits write(Value value) { return f32_to_f16(value); }
};
struct Bf16 {
  using Bits = std::uint16_t;
  using Value = float;
  static Value read(Bits bits) { return bf16_to_f32(bits); }
  static Bits write(Value value) { return f32_to_bf16(value); }
};
template <class BitsType, class ValueType>
struct Plain {
  using Bits = BitsType;
  using Value = ValueType;
  static Value read(Bits bits) { return std::bit_cast<Value>(bits); }
  static Bits write(Value value) { return std::bit_cast<Bits>(value); }
};
using U32 = Plain<std::uint32_t, std::uint32_t>;
using S32 = Plain<std::uint32_t, std::int32_t>;
using U64 = Plain<std::uint64_t, std::uint64_t>;
using S64 = Plain<std::uint64_t, std::int64_t>;
using F32 = Plain<std::uint32_t, float>;
using F64 = Plain<std::uint64_t, double>;

struct Add {
  template <class T>
  static T compute(T a, T b) {
    return a + b;
  }
};
/// A number wins over a NaN, and -0 is less than +0.
struct Min {
  template <class T>
  static T compute(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      if (a != a) return b;  // fmin() would keep a signalling NaN
      if (a == b) return std::signbit(a) ? a : b;
      return b < a ? b : a;
    } else {
      return std::min(a, b);
    }
  }
};
struct Max {
  template <class T>
  static T compute(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      if (a != a) return b;
      if (a == b) return std::signbit(a) ? b : a;
      return b > a ? b : a;
    } else {
      return std::max(a, b);
    }
  }
};
struct Inc {
  static std::uint32_t compute(std::uint32_t a, std::uint32_t b) { return a >= b ? 0 : a + 1; }
};
struct Dec {
  static std::uint32_t compute(std::uint32_t a, std::uint32_t b) { return a == 0 || a > b ? b : a - 1; }
};
struct And {
  template <class T>
  static T compute(T a, T b) {
    return a & b;
  }
};
struct Or {
  template <class T>
  static T compute(T a, T b) {
    return a | b;
  }
};
struct Xor {
  template <class T>
  static T compute(T a, T b) {
    return a ^ b;
  }
};

template <class Element, class Operation>
void reduce(std::byte* destination, const std::byte* source, std::size_t bytes) {
  using Bits = typename Element::Bits;
  for (std::size_t at = 0; at + sizeof(Bits) <= bytes; at += sizeof(Bits)) {
    Bits operand;
    std::memcpy(&operand, source + at, sizeof operand);
    std::atomic_ref<Bits> place(*reinterpret_cast<Bits*>(destination + at));
    Bits before = place.load(std::memory_order_relaxed);
    while (!place.compare_exchange_weak(
        before, Element::write(Operation::compute(Element::read(before), Element::read(operand))),
        std::memory_order_relaxed)) {
    }
  }
}

struct Row {
  std::string_view operation, type;
  ReduceBytes reduce;
};
// Addition in two's complement does not depend on the sign: s32 adds as u32, which cannot overflow.
constexpr Row kRows[] = {
    {"add", "u32", reduce<U32, Add>}, {"add", "s32", reduce<U32, Add>},   {"add", "u64", reduce<U64, Add>},
    {"add", "s64", reduce<U64, Add>}, {"add", "f16", reduce<F16, Add>},   {"add", "bf16", reduce<Bf16, Add>},
    {"add", "f32", reduce<F32, Add>}, {"add", "f64", reduce<F64, Add>},   {"min", "u32", reduce<U32, Min>},
    {"min", "s32", reduce<S32, Min>}, {"min", "u64", reduce<U64, Min>},   {"min", "s64", reduce<S64, Min>},
    {"min", "f16", reduce<F16, Min>}, {"min", "bf16", reduce<Bf16, Min>}, {"max", "u32", reduce<U32, Max>},
    {"max", "s32", reduce<S32, Max>}, {"max", "u64", reduce<U64, Max>},   {"max", "s64", reduce<S64, Max>},
    {"max", "f16", reduce<F16, Max>}, {"max", "bf16", reduce<Bf16, Max>}, {"inc", "u32", reduce<U32, Inc>},
    {"dec", "u32", reduce<U32, Dec>}, {"and", "b32", reduce<U32, And>},   {"and", "b64", reduce<U64, And>},
    {"or", "b32", reduce<U32, Or>},   {"or", "b64", reduce<U64, Or>},     {"xor", "b32", reduce<U32, Xor>},
    {"xor", "b64", reduce<U64, Xor>},
};

}  // namespace

ReduceBytes bulk_reduction(std::string_view operation, std::string_view type) {
  for (const Row& row : kRows)
    if (row.operation == operation && row.type == type) return row.reduce;
  return nullptr;
}

}  // namespace kernelwright::emulator
