/// The words in which spec.h is written, for templates. The host has them in generator/problem/enums.h.
/// tests/generator/source/specialize_test.cpp checks that the two lists agree.
#pragma once

namespace kernelwright {

enum class DType { kF16, kBf16, kE4m3, kE5m2, kF32, kMxfp8, kMxfp4, kNvfp4, kTf32 };
enum class MaskKind { kNone, kCausal, kSlidingWindow, kChunked, kPadding, kTensor, kSource, kAnd, kOr };
enum class ScoreModKind { kNone, kSoftcap, kAlibi, kTensor, kSource };
enum class QLayout { kPadded, kRagged };
enum class KvLayoutKind { kPadded, kRagged, kPaged };
enum class CacheLength { kAccurate, kPrompt };
enum class ScaleKind { kNone, kPerTensor, kPerHead, kPerBlock, kPerToken };
enum class Staging { kRegisters, kCpAsync };
enum class Merge { kInKernel, kCombine };
enum class Rescale { kAlways, kLazy };
enum class Family { kPortable, kHopper, kBlackwell };
enum class KvRing { kShared, kSplit };
enum class Overlap { kNone, kPingPong, kIntra, kBoth };
enum class Scheduler { kGrid, kPersistent, kLongestFirst, kQueued };
enum class Roles { kCooperative, kPingPong };
enum class SplitMode { kCluster, kTurnstile };
enum class OperandLayout { kNt, kNn, kTn, kTt };
enum class Activation { kNone, kRelu, kSilu, kGelu, kGeluTanh };

}  // namespace kernelwright
