/// The words of a config that templates know too: one list for each enum, with the spelling of each value. Both sides
/// compile this file. spec.h is written in these enums, and generator/problem/enums.h adds the tables of words that
/// readers, messages and docs use. A new value is one line of its list.
#pragma once

/// X(enumerator, word, bits, vector). bits: of one element in memory; block-scaled formats count their elements without
/// the scales. vector: elements of k that share a scale in a block-scaled format; 0 in the others. A tf32 lies in
/// memory as an f32, of which products read the upper 19 bits.
#define KERNELWRIGHT_DTYPES(X) \
  X(kF16, "f16", 16, 0)        \
  X(kBf16, "bf16", 16, 0)      \
  X(kE4m3, "e4m3", 8, 0)       \
  X(kE5m2, "e5m2", 8, 0)       \
  X(kF32, "f32", 32, 0)        \
  X(kMxfp8, "mxfp8", 8, 32)    \
  X(kMxfp4, "mxfp4", 4, 32)    \
  X(kNvfp4, "nvfp4", 4, 16)    \
  X(kTf32, "tf32", 32, 0)

/// X(enumerator, word), here and below.
#define KERNELWRIGHT_MASK_KINDS(X)    \
  X(kNone, "none")                    \
  X(kCausal, "causal")                \
  X(kSlidingWindow, "sliding_window") \
  X(kChunked, "chunked")              \
  X(kPadding, "padding")              \
  X(kTensor, "tensor")                \
  X(kSource, "source")                \
  X(kAnd, "and")                      \
  X(kOr, "or")

#define KERNELWRIGHT_SCORE_MOD_KINDS(X) \
  X(kNone, "none")                      \
  X(kSoftcap, "softcap")                \
  X(kAlibi, "alibi")                    \
  X(kTensor, "tensor")                  \
  X(kSource, "source")

#define KERNELWRIGHT_ACTIVATIONS(X) \
  X(kNone, "none")                  \
  X(kRelu, "relu")                  \
  X(kSilu, "silu")                  \
  X(kGelu, "gelu")                  \
  X(kGeluTanh, "gelu_tanh")

#define KERNELWRIGHT_FAMILIES(X) X(kPortable, "portable") X(kHopper, "hopper") X(kBlackwell, "blackwell")
#define KERNELWRIGHT_Q_LAYOUTS(X) X(kPadded, "padded") X(kRagged, "ragged")
#define KERNELWRIGHT_KV_LAYOUT_KINDS(X) X(kPadded, "padded") X(kRagged, "ragged") X(kPaged, "paged")
#define KERNELWRIGHT_CACHE_LENGTHS(X) X(kAccurate, "accurate") X(kPrompt, "prompt")
#define KERNELWRIGHT_SCALE_KINDS(X) \
  X(kNone, "none")                  \
  X(kPerTensor, "per_tensor")       \
  X(kPerHead, "per_head")           \
  X(kPerBlock, "per_block")         \
  X(kPerToken, "per_token")         \
  X(kPerPage, "per_page")
#define KERNELWRIGHT_NORM_KINDS(X) \
  X(kNone, "none")                 \
  X(kRms, "rms")                   \
  X(kRmsAllHeads, "rms_all_heads") \
  X(kL2, "l2")
#define KERNELWRIGHT_ROPE_STYLES(X) X(kNone, "none") X(kNeox, "neox") X(kGptj, "gptj")
#define KERNELWRIGHT_CACHE_INDEXES(X) X(kSlots, "slots") X(kPositions, "positions")
#define KERNELWRIGHT_STAGINGS(X) X(kRegisters, "registers") X(kCpAsync, "cp_async")
#define KERNELWRIGHT_MERGES(X) X(kInKernel, "in_kernel") X(kCombine, "combine")
#define KERNELWRIGHT_RESCALES(X) X(kAlways, "always") X(kLazy, "lazy")
#define KERNELWRIGHT_KV_RINGS(X) X(kShared, "shared") X(kSplit, "split")
#define KERNELWRIGHT_OVERLAPS(X) X(kNone, "none") X(kPingPong, "ping_pong") X(kIntra, "intra") X(kBoth, "both")
#define KERNELWRIGHT_SCHEDULERS(X)  \
  X(kGrid, "grid")                  \
  X(kPersistent, "persistent")      \
  X(kLongestFirst, "longest_first") \
  X(kQueued, "queued")              \
  X(kBalanced, "balanced")
#define KERNELWRIGHT_ROLES(X) X(kCooperative, "cooperative") X(kPingPong, "ping_pong")
#define KERNELWRIGHT_SPLIT_MODES(X) X(kCluster, "cluster") X(kTurnstile, "turnstile")
#define KERNELWRIGHT_GROUP_KINDS(X) X(kNone, "none") X(kRows, "rows") X(kMasked, "masked") X(kBatch, "batch") X(kK, "k")
#define KERNELWRIGHT_GROUP_BOUNDS(X) X(kStarts, "starts") X(kEnds, "ends") X(kCounts, "counts")
#define KERNELWRIGHT_OPERAND_LAYOUTS(X) X(kNt, "nt") X(kNn, "nn") X(kTn, "tn") X(kTt, "tt")

/// X(enum, its name in docs and messages, its list).
#define KERNELWRIGHT_SHARED_ENUMS(X)                         \
  X(DType, "dtype", KERNELWRIGHT_DTYPES)                     \
  X(MaskKind, "mask", KERNELWRIGHT_MASK_KINDS)               \
  X(ScoreModKind, "score_mod", KERNELWRIGHT_SCORE_MOD_KINDS) \
  X(Activation, "activation", KERNELWRIGHT_ACTIVATIONS)      \
  X(Family, "family", KERNELWRIGHT_FAMILIES)                 \
  X(QLayout, "q_layout", KERNELWRIGHT_Q_LAYOUTS)             \
  X(KvLayoutKind, "kv_layout", KERNELWRIGHT_KV_LAYOUT_KINDS) \
  X(CacheLength, "cache_length", KERNELWRIGHT_CACHE_LENGTHS) \
  X(ScaleKind, "scales", KERNELWRIGHT_SCALE_KINDS)           \
  X(NormKind, "norm", KERNELWRIGHT_NORM_KINDS)               \
  X(RopeStyle, "rope_style", KERNELWRIGHT_ROPE_STYLES)       \
  X(CacheIndex, "index", KERNELWRIGHT_CACHE_INDEXES)         \
  X(Staging, "staging", KERNELWRIGHT_STAGINGS)               \
  X(Merge, "merge", KERNELWRIGHT_MERGES)                     \
  X(Rescale, "rescale", KERNELWRIGHT_RESCALES)               \
  X(KvRing, "kv_ring", KERNELWRIGHT_KV_RINGS)                \
  X(Overlap, "overlap", KERNELWRIGHT_OVERLAPS)               \
  X(Scheduler, "scheduler", KERNELWRIGHT_SCHEDULERS)         \
  X(Roles, "roles", KERNELWRIGHT_ROLES)                      \
  X(SplitMode, "split_mode", KERNELWRIGHT_SPLIT_MODES)       \
  X(GroupKind, "group_kind", KERNELWRIGHT_GROUP_KINDS)       \
  X(GroupBounds, "group_bounds", KERNELWRIGHT_GROUP_BOUNDS)  \
  X(OperandLayout, "layout", KERNELWRIGHT_OPERAND_LAYOUTS)

namespace kernelwright {

#define KERNELWRIGHT_ENUMERATOR(enumerator, ...) enumerator,
#define KERNELWRIGHT_DEFINE_ENUM(Type, name, LIST) enum class Type { LIST(KERNELWRIGHT_ENUMERATOR) };
KERNELWRIGHT_SHARED_ENUMS(KERNELWRIGHT_DEFINE_ENUM)

#define KERNELWRIGHT_BITS(enumerator, word, bits, vector) \
  case DType::enumerator: return bits;
/// Bits of one element in memory.
constexpr int bits_of(DType dtype) {
  switch (dtype) { KERNELWRIGHT_DTYPES(KERNELWRIGHT_BITS) }
  return 0;
}

#define KERNELWRIGHT_VECTOR(enumerator, word, bits, vector) \
  case DType::enumerator: return vector;
/// Elements of k that share a scale in a block-scaled format; 0 in the others.
constexpr int scale_vector(DType dtype) {
  switch (dtype) { KERNELWRIGHT_DTYPES(KERNELWRIGHT_VECTOR) }
  return 0;
}
constexpr bool is_block_scaled(DType dtype) { return scale_vector(dtype) > 0; }
/// Whether keys of one head and sequence, and their values, have scales that differ.
constexpr bool scales_differ_by_key(ScaleKind scales) {
  return scales == ScaleKind::kPerToken || scales == ScaleKind::kPerPage;
}
/// A float of 8 bits whose scale, if any, is an operand of its own.
constexpr bool is_fp8(DType dtype) { return bits_of(dtype) == 8 && !is_block_scaled(dtype); }

}  // namespace kernelwright
