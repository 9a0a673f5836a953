/// The words of a config, and one table per enum that gives their spelling. Readers, writers, the JSON Schema, docs and
/// messages all use the tables.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace kernelwright {

enum class DType { kF16, kBf16, kE4m3, kE5m2, kF32, kMxfp8, kMxfp4, kNvfp4, kTf32 };
enum class MaskKind { kNone, kCausal, kSlidingWindow, kChunked, kPadding, kTensor, kSource, kAnd, kOr };
enum class ScoreModKind { kNone, kSoftcap, kAlibi, kTensor, kSource };
enum class QLayout { kPadded, kRagged };
enum class KvLayoutKind { kPadded, kRagged, kPaged };
enum class ScaleKind { kNone, kPerTensor, kPerHead, kPerBlock, kPerToken };
enum class CacheLength { kAccurate, kPrompt };
enum class Swizzle { kNone, k32B, k64B, k128B };
enum class Arch { kSm80, kSm86, kSm89, kSm90a, kSm100a, kSm103a, kSm120a };
enum class Family { kPortable, kHopper, kBlackwell };
enum class KvRing { kShared, kSplit };
enum class Overlap { kNone, kPingPong, kIntra, kBoth };
enum class Scheduler { kGrid, kPersistent, kLongestFirst, kQueued };
enum class Staging { kRegisters, kCpAsync };
enum class Merge { kInKernel, kCombine };
enum class Rescale { kAlways, kLazy };
enum class Roles { kCooperative, kPingPong };
enum class SplitMode { kCluster, kTurnstile };
enum class Raster { kAlongM, kAlongN };
enum class OperandLayout { kNt, kNn, kTn, kTt };
enum class Activation { kNone, kRelu, kSilu, kGelu, kGeluTanh };

template <class E>
struct EnumTable;  // { static constexpr std::string_view name; static constexpr std::array entries; }

#define KERNELWRIGHT_ENUM(Type, word, ...)                                                           \
  template <>                                                                                        \
  struct EnumTable<Type> {                                                                           \
    static constexpr std::string_view name = word;                                                   \
    static constexpr auto entries = std::to_array<std::pair<Type, std::string_view>>({__VA_ARGS__}); \
  }

KERNELWRIGHT_ENUM(DType, "dtype", {DType::kF16, "f16"}, {DType::kBf16, "bf16"}, {DType::kE4m3, "e4m3"},
                  {DType::kE5m2, "e5m2"}, {DType::kF32, "f32"}, {DType::kMxfp8, "mxfp8"}, {DType::kMxfp4, "mxfp4"},
                  {DType::kNvfp4, "nvfp4"}, {DType::kTf32, "tf32"});
KERNELWRIGHT_ENUM(MaskKind, "mask", {MaskKind::kNone, "none"}, {MaskKind::kCausal, "causal"},
                  {MaskKind::kSlidingWindow, "sliding_window"}, {MaskKind::kChunked, "chunked"},
                  {MaskKind::kPadding, "padding"}, {MaskKind::kTensor, "tensor"}, {MaskKind::kSource, "source"},
                  {MaskKind::kAnd, "and"}, {MaskKind::kOr, "or"});
KERNELWRIGHT_ENUM(ScoreModKind, "score_mod", {ScoreModKind::kNone, "none"}, {ScoreModKind::kSoftcap, "softcap"},
                  {ScoreModKind::kAlibi, "alibi"}, {ScoreModKind::kTensor, "tensor"},
                  {ScoreModKind::kSource, "source"});
KERNELWRIGHT_ENUM(QLayout, "q_layout", {QLayout::kPadded, "padded"}, {QLayout::kRagged, "ragged"});
KERNELWRIGHT_ENUM(KvLayoutKind, "kv_layout", {KvLayoutKind::kPadded, "padded"}, {KvLayoutKind::kRagged, "ragged"},
                  {KvLayoutKind::kPaged, "paged"});
KERNELWRIGHT_ENUM(ScaleKind, "scales", {ScaleKind::kNone, "none"}, {ScaleKind::kPerTensor, "per_tensor"},
                  {ScaleKind::kPerHead, "per_head"}, {ScaleKind::kPerBlock, "per_block"},
                  {ScaleKind::kPerToken, "per_token"});
KERNELWRIGHT_ENUM(CacheLength, "cache_length", {CacheLength::kAccurate, "accurate"}, {CacheLength::kPrompt, "prompt"});
KERNELWRIGHT_ENUM(Swizzle, "swizzle", {Swizzle::kNone, "none"}, {Swizzle::k32B, "32B"}, {Swizzle::k64B, "64B"},
                  {Swizzle::k128B, "128B"});
KERNELWRIGHT_ENUM(Arch, "arch", {Arch::kSm80, "sm_80"}, {Arch::kSm86, "sm_86"}, {Arch::kSm89, "sm_89"},
                  {Arch::kSm90a, "sm_90a"}, {Arch::kSm100a, "sm_100a"}, {Arch::kSm103a, "sm_103a"},
                  {Arch::kSm120a, "sm_120a"});
KERNELWRIGHT_ENUM(Family, "family", {Family::kPortable, "portable"}, {Family::kHopper, "hopper"},
                  {Family::kBlackwell, "blackwell"});
KERNELWRIGHT_ENUM(KvRing, "kv_ring", {KvRing::kShared, "shared"}, {KvRing::kSplit, "split"});
KERNELWRIGHT_ENUM(Overlap, "overlap", {Overlap::kNone, "none"}, {Overlap::kPingPong, "ping_pong"},
                  {Overlap::kIntra, "intra"}, {Overlap::kBoth, "both"});
KERNELWRIGHT_ENUM(Scheduler, "scheduler", {Scheduler::kGrid, "grid"}, {Scheduler::kPersistent, "persistent"},
                  {Scheduler::kLongestFirst, "longest_first"}, {Scheduler::kQueued, "queued"});
KERNELWRIGHT_ENUM(Staging, "staging", {Staging::kRegisters, "registers"}, {Staging::kCpAsync, "cp_async"});
KERNELWRIGHT_ENUM(Merge, "merge", {Merge::kInKernel, "in_kernel"}, {Merge::kCombine, "combine"});
KERNELWRIGHT_ENUM(Rescale, "rescale", {Rescale::kAlways, "always"}, {Rescale::kLazy, "lazy"});
KERNELWRIGHT_ENUM(Roles, "roles", {Roles::kCooperative, "cooperative"}, {Roles::kPingPong, "ping_pong"});
KERNELWRIGHT_ENUM(SplitMode, "split_mode", {SplitMode::kCluster, "cluster"}, {SplitMode::kTurnstile, "turnstile"});
KERNELWRIGHT_ENUM(Raster, "raster", {Raster::kAlongM, "along_m"}, {Raster::kAlongN, "along_n"});
KERNELWRIGHT_ENUM(OperandLayout, "layout", {OperandLayout::kNt, "nt"}, {OperandLayout::kNn, "nn"},
                  {OperandLayout::kTn, "tn"}, {OperandLayout::kTt, "tt"});
KERNELWRIGHT_ENUM(Activation, "activation", {Activation::kNone, "none"}, {Activation::kRelu, "relu"},
                  {Activation::kSilu, "silu"}, {Activation::kGelu, "gelu"}, {Activation::kGeluTanh, "gelu_tanh"});
#undef KERNELWRIGHT_ENUM

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

/// "f16, bf16, e4m3": for messages that say what would do.
template <Enum E>
std::string all_words() {
  std::string words;
  for (const auto& [entry, word] : EnumTable<E>::entries) words.append(words.empty() ? "" : ", ").append(word);
  return words;
}

/// What a swizzle spans; 0 for none.
constexpr int bytes_of(Swizzle swizzle) { return swizzle == Swizzle::kNone ? 0 : 16 << static_cast<int>(swizzle); }

/// Bits of one element in memory; block-scaled formats count their payload without the scales. tf32 is an f32 of which
/// products read the upper 19 bits.
constexpr int bits_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kTf32: return 32;
    case DType::kF16:
    case DType::kBf16: return 16;
    case DType::kMxfp4:
    case DType::kNvfp4: return 4;
    default: return 8;
  }
}

/// Elements of k that share a scale in a block-scaled format; 0 in the others.
constexpr int scale_vector(DType dtype) {
  switch (dtype) {
    case DType::kMxfp8:
    case DType::kMxfp4: return 32;
    case DType::kNvfp4: return 16;
    default: return 0;
  }
}
constexpr bool is_block_scaled(DType dtype) { return scale_vector(dtype) > 0; }

}  // namespace kernelwright
