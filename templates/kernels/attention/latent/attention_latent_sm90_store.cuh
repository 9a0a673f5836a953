/// How a math warpgroup of attention_latent_sm90 ends: the sums of both warpgroups meet, and each stores its columns.
/// Where keys are cut into parts, the CTA that arrives last merges them.
#pragma once

#include "kernels/attention/latent/attention_latent_sm90_math.cuh"
#include "ptx/launch.cuh"
#include "tile/quad_store.cuh"

namespace kernelwright {
namespace {

template <int kSide>
__device__ __forceinline__ void MathWarpgroup<kSide>::finish() {
  if constexpr (!spec::kBalanced) ptx::griddepcontrol_launch_dependents();  // attention_combine may begin
  const bool split = work_.parts > 1, merges = !spec::kBalanced && spec::kMerge == Merge::kInKernel && split;
  const bool first = threadIdx.x == 128;
  const auto last_arrival = [&] {
    const unsigned block = ptx::opaque(blockIdx.x), item = block / kCluster / params_.num_splits;
    return policy::LastArrival(params_.merge_counters + (item * kCluster + block % kCluster));
  };
  if (merges && first) last_arrival().open();

  softmax_.finish();
  if (lane_ % 4 == 0) {
#pragma unroll
    for (int r = 0; r < 2; ++r) ptx::st_shared_f32(shared_.sum(kSide, row() + r * 8), softmax_.sum[r]);
  }
  ptx::bar_sync(kMathBarrier, kMathThreads);
#pragma unroll
  for (int r = 0; r < 2; ++r)
    softmax_.sum[r] =
        ptx::ld_shared_f32(shared_.sum(0, row() + r * 8)) + ptx::ld_shared_f32(shared_.sum(1, row() + r * 8));

  if constexpr (spec::kBalanced) {
    if (split) return leave_part();
  }
  const typename Finished::type item = Finished::of(params_, work_.item);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int mine = row() + r * 8;
    const bool exists = mine < item.num_rows;
    const float inverse = output_factor(params_, softmax_.inverse(r)), log2_sum = softmax_.log2_sum(r, scale_);
    if (!spec::kBalanced && split) {
      const int64_t to = item.partial_row(params_, mine) + item.coord.split * WorkItem::partial_rows(params_);
      float* const columns = params_.partial_o + to * spec::kHeadDimV + kSide * kSideColumns + lane_ % 4 * 2;
      if (exists) {
#pragma unroll
        for (int n = 0; n < kSideColumns / 8; ++n)
          *reinterpret_cast<float2*>(columns + n * 8) =
              make_float2(output_[4 * n + 2 * r] * inverse, output_[4 * n + 2 * r + 1] * inverse);
        if (kSide == 0 && lane_ % 4 == 0) params_.partial_lse[to] = log2_sum;
      }
    } else {
      tile::store_row<spec::kOutDType, kSideColumns>(
          output_, r, inverse,
          static_cast<uint16_t*>(params_.o) + item.offset(params_.o_strides, exists ? mine : 0) + kSide * kSideColumns,
          exists, lane_);
      if (spec::kLse && kSide == 0 && exists && lane_ % 4 == 0)
        params_.lse[item.lse_index(params_, mine)] = log2_sum * policy::kLn2;
    }
  }
  if (!merges) return;

  ptx::bar_sync(kMathBarrier, kMathThreads);  // this part is written
  if (first) ptx::st_shared_u32(shared_.last(), last_arrival().arrive(params_.num_splits));
  ptx::bar_sync(kMathBarrier, kMathThreads);
  if (ptx::ld_shared_u32(shared_.last()) != 0)
    merge_rows<kMathThreads / 32>(params_, item, static_cast<int>(threadIdx.x / 32) - 4, lane_);
}

// ---- balanced: parts of a sequence are merged by all CTAs that have one ----

using Parts = policy::FragmentParts<spec::kHeadDimV>;
static_assert(Parts::kRows == contract::kLatentRows);

/// A sequence that the CTA has a part of.
struct Cut {
  int parts;  // in memory, 0: there is none, and nothing behind it is written
  int sequence, first_team, part;
  policy::Meeting::Ticket ticket;

  __device__ __forceinline__ static Cut read(uint32_t at) {
    const auto word = [&](int i) { return ptx::ld_shared_u32(at + i * 4); };
    return {static_cast<int>(word(0)),
            static_cast<int>(word(1)),
            static_cast<int>(word(2)),
            static_cast<int>(word(3)),
            {word(4), word(5)}};
  }
  __device__ __forceinline__ void write(uint32_t at) const {
    ptx::st_shared_u32(at, static_cast<uint32_t>(parts));
    ptx::st_shared_u32(at + 4, static_cast<uint32_t>(sequence));
    ptx::st_shared_u32(at + 8, static_cast<uint32_t>(first_team));
    ptx::st_shared_u32(at + 12, static_cast<uint32_t>(part));
    ptx::st_shared_u32(at + 16, ticket.number);
    ptx::st_shared_u32(at + 20, ticket.role);
  }
  /// The CTA of the same rows that has the first part.
  __device__ __forceinline__ int first_cta(const contract::AttentionParams& params) const {
    return first_team * params.num_m_blocks + static_cast<int>(blockIdx.x % params.num_m_blocks);
  }
  __device__ __forceinline__ policy::Meeting meeting(const contract::AttentionParams& params) const {
    return policy::Meeting(params.merge_counters + first_cta(params) * contract::kMeetingWords);
  }
};

/// Writes this part to the workspace. Then the CTA arrives, and notes what it will merge.
template <int kSide>
__device__ __forceinline__ void MathWarpgroup<kSide>::leave_part() const {
  const policy::TileCoord& coord = work_.item.coord;
  const int number = static_cast<int>(blockIdx.x) * 2 + (coord.split == 0 ? 1 : 0);
  const int team = static_cast<int>(blockIdx.x) / params_.num_m_blocks;
  Cut cut{work_.parts, coord.batch * params_.kv_heads + coord.head, team - coord.split, coord.split, {}};
  const bool arrives = threadIdx.x == 128;
  if (arrives) ptx::st_shared_u32(shared_.last(), cut.meeting(params_).open());  // while other warps write
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float inverse = softmax_.inverse(r);
    float* const to =
        params_.partial_o + (int64_t{number} * Parts::kQuads + Parts::of_lane(kSide, warp_, r, lane_)) * 4;
#pragma unroll
    for (int pair = 0; pair < Parts::kPairs; ++pair) {
      ptx::Vector16 quad;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        quad.word[i] = __float_as_uint(output_[8 * pair + i / 2 * 4 + 2 * r + i % 2] * inverse);
      ptx::st_global_v4(to + pair * 128, quad);
    }
    if (kSide == 0 && lane_ % 4 == 0)
      params_.partial_lse[number * Parts::kRows + row() + r * 8] = softmax_.log2_sum(r, scale_);
  }
  ptx::bar_sync(kMathBarrier, kMathThreads);  // both warpgroups have written
  if (!arrives) return;
  cut.ticket = cut.meeting(params_).arrive(ptx::ld_shared_u32(shared_.last()), cut.parts);
  cut.write(shared_.cut(cut.part == 0 ? 1 : 0));
}

/// What a CTA does behind its last item: it merges its share of the rows of the sequences that it has parts of. All
/// math threads take part.
__device__ __forceinline__ void merge_cuts(const contract::AttentionParams& params, const Shared& shared) {
  ptx::griddepcontrol_launch_dependents();
  const int thread = static_cast<int>(threadIdx.x) - 128;
#pragma unroll 1
  for (int i = 0; i < 2; ++i) {
    ptx::bar_sync(kMathBarrier, kMathThreads);  // the note is written, and `last` has been read
    if (ptx::ld_shared_u32(shared.cut(i)) == 0) continue;
    const Cut cut = Cut::read(shared.cut(i));
    if (thread == 0) ptx::st_shared_u32(shared.last(), cut.meeting(params).wait(cut.ticket, cut.parts));
    ptx::bar_sync(kMathBarrier, kMathThreads);
    const uint32_t role = ptx::ld_shared_u32(shared.last());
    if (role == policy::Meeting::kNothing) continue;
    const Work work(params, BalancedItems::coord_of(params, cut.sequence));
    const policy::JointParts parts{params.partial_o, params.partial_lse, cut.first_cta(params) * 2,
                                   params.num_m_blocks * 2, cut.parts};
    const policy::JointRoom<spec::kHeadDimV> room{shared.keys(0)};
    // The CTA takes every cut.parts-th row, or the rows of all CTAs one after the other.
    const bool all = role == policy::Meeting::kAll;
#pragma unroll 1
    for (int share = all ? 0 : cut.part; share < (all ? cut.parts : cut.part + 1); ++share)
      policy::JointMerge<spec::kHeadDimV, kMathBarrier>(parts, share, work.item.num_rows, room, thread)
          .run(
              [&](int row, int column, const float(&sums)[8]) {
                ptx::Vector16 eight;
#pragma unroll
                for (int i = 0; i < 4; ++i)
                  eight.word[i] = tile::Element<spec::kOutDType>::pack(sums[2 * i], sums[2 * i + 1]);
                ptx::st_global_v4(static_cast<uint16_t*>(params.o) + work.item.offset(params.o_strides, row) + column,
                                  eight);
              },
              [&](int row, float log2_sum) {
                if (spec::kLse) params.lse[work.item.lse_index(params, row)] = log2_sum * policy::kLn2;
              });
  }
}

}  // namespace
}  // namespace kernelwright
