/// The words of a config, and one table per enum that gives their spelling. Readers, writers, the JSON Schema, docs and
/// messages all use the tables. contract/words.h has the enums that templates share.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "kernelwright/templates/contract/words.h"

namespace kernelwright {

/// The enums that templates do not know, as lists of X(enumerator, word).
#define KERNELWRIGHT_SWIZZLES(X) X(kNone, "none") X(k32B, "32B") X(k64B, "64B") X(k128B, "128B")
#define KERNELWRIGHT_ARCHS(X) \
  X(kSm80, "sm_80")           \
  X(kSm86, "sm_86")           \
  X(kSm89, "sm_89")           \
  X(kSm90a, "sm_90a")         \
  X(kSm100a, "sm_100a")       \
  X(kSm103a, "sm_103a")       \
  X(kSm120a, "sm_120a")
/// Classes of devices: generator/plan/machine.h has their facts.
#define KERNELWRIGHT_DEVICE_CLASSES(X) \
  X(kA100, "a100")                     \
  X(kRtx3090, "rtx3090")               \
  X(kRtx4090, "rtx4090")               \
  X(kH100, "h100")                     \
  X(kH200, "h200")                     \
  X(kB200, "b200")                     \
  X(kB300, "b300")                     \
  X(kRtx5090, "rtx5090")
#define KERNELWRIGHT_RASTERS(X) X(kAlongM, "along_m") X(kAlongN, "along_n")
#define KERNELWRIGHT_V_LAYOUTS(X) X(kRows, "rows") X(kColumns, "columns") X(kKeyPrefix, "key_prefix")
#define KERNELWRIGHT_ROW_INPUTS(X) X(kPlain, "plain") X(kAdd, "add") X(kGateUp, "gate_up") X(kMerge, "merge")
#define KERNELWRIGHT_SCALE_LAYOUTS(X) X(kColumns, "columns") X(kRows, "rows")
#define KERNELWRIGHT_SCALE_ROUNDS(X) X(kOcp, "ocp") X(kUp, "up")
#define KERNELWRIGHT_ROUTE_SCORES(X) X(kSoftmax, "softmax") X(kSigmoid, "sigmoid") X(kNone, "none") X(kGiven, "given")
#define KERNELWRIGHT_ROUTE_ORDERS(X) X(kScoreFirst, "score_first") X(kTopKFirst, "top_k_first")
#define KERNELWRIGHT_GROUP_SCORES(X) X(kTop2Sum, "top2_sum") X(kMax, "max")
/// How a token's experts are found: one after another, or among candidates that reach a bound.
#define KERNELWRIGHT_ROUTE_CHOICES(X) X(kRounds, "rounds") X(kBound, "bound")
/// How CTAs of route pass their counts to the sort: numbers of 32 bits, or of 16.
#define KERNELWRIGHT_ROUTE_COUNTS(X) X(kU32, "u32") X(kU16, "u16")
/// How the rows of a shape belong to groups. even: as equally as can be. uniform: each row draws its group. zipf: the
/// same, but group g is drawn in proportion to 1 / (g + 1). one: all in the first group.
#define KERNELWRIGHT_ROW_SKEWS(X) X(kEven, "even") X(kUniform, "uniform") X(kZipf, "zipf") X(kOne, "one")
#define KERNELWRIGHT_HOST_ENUMS(X)                        \
  X(Swizzle, "swizzle", KERNELWRIGHT_SWIZZLES)            \
  X(Arch, "arch", KERNELWRIGHT_ARCHS)                     \
  X(DeviceClass, "device", KERNELWRIGHT_DEVICE_CLASSES)   \
  X(Raster, "raster", KERNELWRIGHT_RASTERS)               \
  X(VLayout, "v_layout", KERNELWRIGHT_V_LAYOUTS)          \
  X(RowInput, "input", KERNELWRIGHT_ROW_INPUTS)           \
  X(ScaleLayout, "layout", KERNELWRIGHT_SCALE_LAYOUTS)    \
  X(ScaleRound, "round", KERNELWRIGHT_SCALE_ROUNDS)       \
  X(RouteScore, "score", KERNELWRIGHT_ROUTE_SCORES)       \
  X(RouteOrder, "order", KERNELWRIGHT_ROUTE_ORDERS)       \
  X(GroupScore, "group_score", KERNELWRIGHT_GROUP_SCORES) \
  X(RouteChoice, "choice", KERNELWRIGHT_ROUTE_CHOICES)    \
  X(RouteCounts, "counts", KERNELWRIGHT_ROUTE_COUNTS)     \
  X(RowSkew, "skew", KERNELWRIGHT_ROW_SKEWS)
KERNELWRIGHT_HOST_ENUMS(KERNELWRIGHT_DEFINE_ENUM)

/// The table of an enum: `type` is its name in C++, `name` its name in docs and messages, `entries` pairs each value
/// with its word.
template <class E>
struct EnumTable;

#define KERNELWRIGHT_ENTRY_OF_TABLE(enumerator, word, ...) {enumerator, word},
#define KERNELWRIGHT_ENUM_TABLE(Type, word, LIST)                                              \
  template <>                                                                                  \
  struct EnumTable<Type> {                                                                     \
    using enum Type;                                                                           \
    static constexpr std::string_view type = #Type, name = word;                               \
    static constexpr auto entries =                                                            \
        std::to_array<std::pair<Type, std::string_view>>({LIST(KERNELWRIGHT_ENTRY_OF_TABLE)}); \
  };
KERNELWRIGHT_SHARED_ENUMS(KERNELWRIGHT_ENUM_TABLE)
KERNELWRIGHT_HOST_ENUMS(KERNELWRIGHT_ENUM_TABLE)

template <class E>
concept Enum = requires {
  EnumTable<E>::entries;
};

/// The word of `value`: "bf16", "sliding_window".
template <Enum E>
constexpr std::string_view to_string(E value) {
  for (const auto& [entry, word] : EnumTable<E>::entries)
    if (entry == value) return word;
  return "?";
}

template <Enum E>
constexpr std::optional<E> from_string(std::string_view word) {
  for (const auto& [entry, spelling] : EnumTable<E>::entries)
    if (spelling == word) return entry;
  return std::nullopt;
}

/// "f16, bf16, e4m3": for messages that list what is accepted.
template <Enum E>
std::string all_words() {
  std::string words;
  for (const auto& [entry, word] : EnumTable<E>::entries) words.append(words.empty() ? "" : ", ").append(word);
  return words;
}

/// "f16, bf16 or tf32": all words but one, for messages that list accepted values.
template <Enum E>
std::string words_but(E refused) {
  std::string words;
  for (std::size_t i = 0, left = EnumTable<E>::entries.size() - 1; i < EnumTable<E>::entries.size(); ++i) {
    const auto& [entry, word] = EnumTable<E>::entries[i];
    if (entry == refused) continue;
    words.append(word).append(--left == 1 ? " or " : left > 0 ? ", " : "");
  }
  return words;
}

/// What a swizzle spans; 0 for none.
constexpr int bytes_of(Swizzle swizzle) { return swizzle == Swizzle::kNone ? 0 : 16 << static_cast<int>(swizzle); }
/// The next narrower one.
constexpr Swizzle half_of(Swizzle swizzle) {
  return swizzle == Swizzle::kNone ? swizzle : static_cast<Swizzle>(static_cast<int>(swizzle) - 1);
}

}  // namespace kernelwright
