/// Shares out the key tiles of all sequences evenly among teams of CTAs, whatever the lengths are. A team has one CTA
/// for each tile of query rows of a sequence. These CTAs read the same keys at the same time.
///
/// The sequences stand in a line, each with its key tiles and kSequenceTiles more. Each team takes a piece of the line,
/// and all pieces cost the same. So a sequence may be cut into parts, which policy/joint_merge.cuh merges. FlashMLA
/// makes such a plan in a kernel of its own. Here each CTA adds up the lengths and finds its own piece.
///
/// The code is kept short. A CTA runs it once, and instructions that no SM has fetched yet come from memory.
#pragma once

#include "contract/even_shares.h"
#include "ptx/memory.cuh"

namespace kernelwright::policy {

/// A team's piece of the line.
struct TeamShare {
  int sequence;  // the first one that reaches into the piece; the number of sequences: the piece is empty
  int offset;    // from the beginning of the piece to that of this sequence: 0 or less
  int share;     // what a piece costs. 0: teams take turns at whole sequences
};

/// Bytes of shared memory that find_share() works in.
constexpr int even_scratch(int threads) { return threads / 32 * 8 + 8; }

/// Finds the piece of team `team`. All kThreads threads of the CTA take part. `cost_of(i)` is what sequence i costs; 0:
/// it has no row. All costs together are less than 2^31. `may_cut`: whether sequences may be cut at all. `scratch` is a
/// multiple of 8, and free for other use behind the next barrier of the CTA.
template <int kThreads, class CostOf>
__device__ __forceinline__ TeamShare find_share(int team, int teams, int sequences, bool may_cut, uint32_t scratch,
                                                const CostOf& cost_of) {
  if (!may_cut) return {team, 0, 0};
  constexpr int kWarps = kThreads / 32;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const uint32_t found = scratch + kWarps * 8;

  // A thread has some sequences that follow each other: one, in most batches.
  const int each = (sequences + kThreads - 1) / kThreads, first = thread * each, last = min(first + each, sequences);
  int sum = 0, longest = 0;
#pragma unroll 1
  for (int i = first; i < last; ++i) {
    const int cost = cost_of(i);
    sum += cost;
    longest = max(longest, cost);
  }
  int end = sum;  // of the thread's sequences, in the line of this warp's
#pragma unroll 1
  for (int distance = 1; distance < 32; distance *= 2) {
    const int lower = __shfl_up_sync(0xffffffff, end, distance);
    if (lane >= distance) end += lower;
  }
  longest = __reduce_max_sync(0xffffffff, longest);
  if (lane == 31)
    ptx::st_shared_u64(scratch + warp * 8, static_cast<uint64_t>(longest) << 32 | static_cast<uint32_t>(end));
  if (thread == 0) ptx::st_shared_u32(found, static_cast<uint32_t>(sequences));
  __syncthreads();
  const uint64_t other = lane < kWarps ? ptx::ld_shared_u64(scratch + lane * 8) : 0;
  const int cost_of_warp = static_cast<int>(other & 0xffffffff);
  const int total = __reduce_add_sync(0xffffffff, cost_of_warp);
  end += __reduce_add_sync(0xffffffff, lane < warp ? cost_of_warp : 0);
  longest = __reduce_max_sync(0xffffffff, static_cast<int>(other >> 32));
  const int share = contract::even_share(total, longest, sequences, teams);
  if (share == 0) return {team, 0, 0};

  // The thread that has the piece's beginning finds the sequence there.
  const int64_t from = int64_t{team} * share;
  int begin = end - sum;
  if (begin <= from && from < end) {
    int i = first;
    for (int cost = sum; each > 1; ++i, begin += cost) {
      cost = cost_of(i);
      if (from < begin + cost) break;
    }
    ptx::st_shared_u32(found, static_cast<uint32_t>(i));
    ptx::st_shared_u32(found + 4, static_cast<uint32_t>(begin - static_cast<int>(from)));
  }
  __syncthreads();
  const int sequence = static_cast<int>(ptx::ld_shared_u32(found));
  return {sequence, sequence < sequences ? static_cast<int>(ptx::ld_shared_u32(found + 4)) : 0, share};
}

/// A part of the key tiles of a sequence.
struct KeyPart {
  int begin, end;   // tiles, counted from the first that the sequence has
  int part, parts;  // its number, and how many parts there are
  bool exists;      // false: the team has nothing of the sequence
};

/// A team's walk over its piece, sequence after sequence.
class EvenWalk {
  int sequence_, offset_, share_;
  enum : int { kEndless = 0x7fffffff };

 public:
  __device__ __forceinline__ explicit EvenWalk(const TeamShare& first)
      : sequence_(first.sequence), offset_(first.offset), share_(first.share == 0 ? kEndless : first.share) {}

  __device__ __forceinline__ int sequence() const { return sequence_; }
  __device__ __forceinline__ bool goes_on(int sequences) const { return sequence_ < sequences && offset_ < share_; }

  /// The team's part of the sequence, which has `tiles` tiles.
  __device__ __forceinline__ KeyPart part(int tiles) const {
    if (share_ == kEndless) return {0, tiles, 0, 1, true};
    if (tiles == 0) return {0, 0, 0, 1, offset_ >= 0};
    const int first = offset_ + contract::kSequenceTiles;  // where its tiles begin
    KeyPart part;
    part.begin = min(max(-first, 0), tiles);
    part.end = max(min(share_ - first, tiles), part.begin);
    const int begins = pieces_until(first);
    part.part = -begins;
    part.parts = pieces_until(first + tiles - 1) - begins + 1;
    part.exists = part.end > part.begin;
    return part;
  }

  /// Goes on from a sequence that costs `cost`.
  __device__ __forceinline__ void next(int cost, int teams) {
    sequence_ += share_ == kEndless ? teams : 1;
    if (share_ != kEndless) offset_ += cost;
  }

 private:
  /// Pieces from this team's one to the one that has place `at`.
  __device__ __forceinline__ int pieces_until(int at) const {
    return at >= 0 ? at / share_ : -((share_ - 1 - at) / share_);
  }
};

}  // namespace kernelwright::policy
