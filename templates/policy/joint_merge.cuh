/// Merging the parts of split keys by all CTAs that computed a part. Each CTA leaves its part in the workspace,
/// arrives, and goes on with other work. At its end it waits for the others, and merges its share of the rows. The CTAs
/// have equal work (policy/even_shares.cuh), so that they end at about the same time.
///
/// A CTA waits for a bounded time only. A server may leave the kernel fewer SMs than it has CTAs, and then some CTAs do
/// not run until others have ended. A CTA that has waited too long says so and leaves. The CTA that arrives last then
/// merges all rows. Either way each row is merged by one CTA, with the same arithmetic.
#pragma once

#include "contract/words.h"
#include "ptx/atomic.cuh"
#include "ptx/barrier.cuh"
#include "ptx/math.cuh"
#include "ptx/memory.cuh"
#include "tile/row_tile.cuh"

namespace kernelwright::policy {

/// Where the CTAs meet that have parts of the same rows: kMeetingWords words of the workspace, which need not be
/// zeroed. The first word counts arrivals. It has a tag like LastArrival's (policy/merge_parts.cuh): a word without the
/// tag is no count yet. Its highest bit of the count says that a CTA has left. The second word numbers the merges. It
/// changes when all have arrived, and any number is a beginning. One thread of each CTA calls these functions.
class Meeting {
  static constexpr unsigned long long kTag = 0x7fa5c3d2ffb60000, kCount = 0x7fff, kLeft = 0x8000;
  static constexpr int kPatience = 512;  // reads of a word in another place: about 400 us
  unsigned long long* arrivals_;
  uint32_t* number_;

 public:
  enum Role : uint32_t { kShare, kAll, kNothing };  // what this CTA merges of the rows
  struct Ticket {
    uint32_t number;  // of the merges before this one
    uint32_t role;    // of the CTA that arrived last, or kUnknown
  };
  static constexpr uint32_t kUnknown = 3;

  __device__ explicit Meeting(uint64_t* words)
      : arrivals_(reinterpret_cast<unsigned long long*>(words)), number_(reinterpret_cast<uint32_t*>(words + 1)) {}

  /// Called some time before arrive(), so that the memory's answers are there by then. Returns the number of the merges
  /// before this one.
  __device__ uint32_t open() const {
    const unsigned long long found = ptx::ld_relaxed_gpu_u64(arrivals_);
    const uint32_t number = ptx::ld_acquire_gpu_u32(number_);
    if ((found & ~(kCount | kLeft)) != kTag) ptx::atom_cas_relaxed_gpu_u64(arrivals_, found, kTag);
    return number;
  }
  /// Behind a barrier that follows the CTA's writes of its part. `number` is what open() returned.
  __device__ Ticket arrive(uint32_t number, int parts) const {
    const unsigned long long before = ptx::atom_add_acq_rel_gpu_u64(arrivals_, 1);
    if (static_cast<int>(before & kCount) != parts - 1) return {number, kUnknown};
    const bool alone = (before & kLeft) != 0;
    ptx::st_relaxed_gpu_u64(arrivals_, kTag);  // no CTA arrives or leaves any more
    ptx::st_release_gpu_u32(number_, ((number >> 1) + 1) << 1 | (alone ? 1 : 0));
    return {number, alone ? kAll : kShare};
  }

  /// Waits until all have arrived. The CTA can read all parts behind another barrier, unless its role is kNothing.
  __device__ uint32_t wait(const Ticket& ticket, int parts) const {
    if (ticket.role != kUnknown) return ticket.role;
#pragma unroll 1
    for (int reads = 0;; ++reads) {
      const uint32_t number = ptx::ld_acquire_gpu_u32(number_);
      if (number >> 1 != ticket.number >> 1) return (number & 1) != 0 ? kNothing : kShare;
      ptx::nanosleep(20);
      if (reads < kPatience) continue;
      const unsigned long long found = ptx::ld_relaxed_gpu_u64(arrivals_);
      const int arrived = static_cast<int>(found & kCount);
      if (arrived == 0 || arrived == parts) continue;  // the last one has come: the number is about to change
      if (ptx::atom_cas_relaxed_gpu_u64(arrivals_, found, found | kLeft) == found) return kNothing;
    }
  }
};

/// Parts in the workspace. Each has the registers of two warpgroups as they are, so that a warp stores 512 bytes at a
/// time. A warpgroup has 64 rows and half of the columns, and lies as [warps][row halves][pairs of column tiles][lanes]
/// of four f32. LSEs lie as [rows], base 2; -inf: the part saw no key.
template <int kColumns>
struct FragmentParts {
  static constexpr int kRows = 64, kPairs = kColumns / 32;  // of tiles of 8 columns, in a warpgroup
  static constexpr int kQuads = kRows * kColumns / 4;       // of f32, in a part

  /// Where a lane's quads of a row half begin, in quads; they are 32 apart.
  __device__ __forceinline__ static int of_lane(int side, int warp, int half, int lane) {
    return ((side * 4 + warp) * 2 + half) * (kPairs * 32) + lane;
  }
  /// Where quad 0 of row `row` lies, in quads.
  __device__ __forceinline__ static int of_row(int row) {
    return (row / 16 * 2 + row / 8 % 2) * (kPairs * 32) + row % 8 * 4;
  }
  /// From there to quad `quad` of the row, of kColumns / 4.
  __device__ __forceinline__ static int of_quad(int quad) {
    return quad / (kPairs * 4) * (kQuads / 2) + quad / 4 % kPairs * 32 + quad % 4;
  }
  /// The first and the second two columns of that quad: these, and 8 further on.
  __device__ __forceinline__ static int column_of_quad(int quad) { return quad / 4 * 16 + quad % 4 * 2; }
};

/// The parts of the rows of a tile. Part s is number `first` + s * `step` in the workspace, but part 0 is the one
/// behind `first`.
struct JointParts {
  const float* outputs;
  const float* lses;
  int first, step, count;
  __device__ __forceinline__ int number(int part) const { return first + part * step + (part == 0 ? 1 : 0); }
};

/// Shared memory of JointMerge, from `base` on, a multiple of 16.
template <int kColumns>
struct JointRoom {
  uint32_t base;
  static constexpr int kRows = 64;
  /// Sums of row i over half of the parts, [kColumns] f32. With at least two parts no CTA has more than 32 rows.
  __device__ uint32_t sums(int half, int i) const { return base + (half * (kRows / 2) + i) * kColumns * 4; }
  /// For each part of each row, the place of quad 0 and the weight, 8 bytes together.
  __device__ uint32_t entry(int i) const { return base + kRows * kColumns * 4 + i * 8; }
};

/// Merges rows first, first + parts.count, .. of a tile: O = sum_s w_s O_s / sum_s w_s with w_s = 2^lse_s. 256 threads
/// take part, and meet at the named barrier kBarrier. A half of them adds half of the parts in order, and a thread has
/// four columns.
///
/// Threads wait for memory here. So each reads kBatch parts at a time, of one row or of several.
template <int kColumns, int kBarrier>
class JointMerge {
  enum : int { kThreads = 256, kWarps = kThreads / 32, kBatch = 12 };
  enum : uint32_t { kEndsRow = 0x80000000 };
  static_assert(kColumns == 2 * kThreads, "half of the threads have four columns each");
  using Layout = FragmentParts<kColumns>;

  const JointParts& parts_;
  const JointRoom<kColumns>& room_;
  const int first_, rows_, lower_;  // lower_: parts of the first half of the threads
  const int thread_;
  float held_[kBatch][4];
  uint32_t places_[kBatch];

 public:
  __device__ __forceinline__ JointMerge(const JointParts& parts, int first, int num_rows,
                                        const JointRoom<kColumns>& room, int thread)
      : parts_(parts),
        room_(room),
        first_(first),
        rows_(first < num_rows ? (num_rows - first + parts.count - 1) / parts.count : 0),
        lower_((parts.count + 1) / 2),
        thread_(thread) {}

  /// store(row, column, sums) takes 8 columns of the result, and store_lse(row, base-2 LSE) the LSE.
  template <class Store, class StoreLse>
  __device__ __forceinline__ void run(const Store& store, const StoreLse& store_lse) {
    list_entries();
    ptx::bar_sync(kBarrier, kThreads);
    const int half = thread_ / 128, split = rows_ * lower_;
    const int begin = half == 0 ? 0 : split, end = half == 0 ? split : rows_ * parts_.count;
    read(begin, end);
    weigh(store_lse);  // meanwhile
    ptx::bar_sync(kBarrier, kThreads);
    add(half, begin, end);
    ptx::bar_sync(kBarrier, kThreads);
    finish(store);
    ptx::bar_sync(kBarrier, kThreads);  // the room is free
  }

 private:
  /// Entries of the first half come first, then those of the second. A half has those of a row one behind the other.
  __device__ __forceinline__ uint32_t entry(int i, int part) const {
    const int upper = rows_ * lower_ + i * (parts_.count - lower_) + part - lower_;
    return room_.entry(part < lower_ ? i * lower_ + part : upper);
  }

  __device__ __forceinline__ void list_entries() const {
#pragma unroll 1
    for (int at = thread_; at < rows_ * parts_.count; at += kThreads) {
      const int i = at / parts_.count, part = at % parts_.count;
      const int number = parts_.number(part), row = first_ + i * parts_.count;
      const uint32_t place = number * Layout::kQuads + Layout::of_row(row);
      const bool ends = part == lower_ - 1 || part == parts_.count - 1;
      const float lse = ptx::ld_global_cg_f32(parts_.lses + number * Layout::kRows + row);
      ptx::st_shared_u64(entry(i, part), uint64_t{__float_as_uint(lse)} << 32 | place | (ends ? kEndsRow : 0));
    }
  }

  __device__ __forceinline__ void read(int from, int end) {
    const float* const quads = parts_.outputs + Layout::of_quad(thread_ % 128) * 4;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (from + i >= end) continue;
      places_[i] = ptx::ld_shared_u32(room_.entry(from + i));
      ptx::ld_global_cg(held_[i], quads + int64_t{places_[i] & ~kEndsRow} * 4);
    }
  }

  /// Turns LSEs into weights. A warp has a row.
  template <class StoreLse>
  __device__ __forceinline__ void weigh(const StoreLse& store_lse) const {
    const int lane = thread_ % 32;
#pragma unroll 1
    for (int i = thread_ / 32; i < rows_; i += kWarps) {
      const auto lse = [&](int part) { return ptx::ld_shared_f32(entry(i, part) + 4); };
      float largest = ptx::minus_infinity(), total = 0;
#pragma unroll 1
      for (int part = lane; part < parts_.count; part += 32) largest = fmaxf(largest, lse(part));
#pragma unroll 1
      for (int distance = 16; distance > 0; distance /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, distance));
      if (!(largest > ptx::minus_infinity())) largest = 0;  // the row saw no key, or only NaN
#pragma unroll 1
      for (int part = lane; part < parts_.count; part += 32) total += ptx::ex2_approx_ftz(lse(part) - largest);
#pragma unroll 1
      for (int distance = 16; distance > 0; distance /= 2) total += __shfl_xor_sync(0xffffffff, total, distance);
      const float inverse = total == 0 ? 0 : 1 / total;
#pragma unroll 1
      for (int part = lane; part < parts_.count; part += 32)
        ptx::st_shared_f32(entry(i, part) + 4, ptx::ex2_approx_ftz(lse(part) - largest) * inverse);
      if (lane == 0)
        store_lse(first_ + i * parts_.count, total == 0 ? ptx::minus_infinity() : largest + ptx::lg2_approx_ftz(total));
    }
  }

  /// Adds this half's parts of each row. The first batch has been read.
  __device__ __forceinline__ void add(int half, int begin, int end) {
    float sum[4] = {0, 0, 0, 0};
    uint32_t to = room_.sums(half, 0) + Layout::column_of_quad(thread_ % 128) * 4;
#pragma unroll 1
    for (int from = begin; from < end; from += kBatch) {
      if (from > begin) read(from, end);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (from + i >= end) continue;
        const float weight = ptx::ld_shared_f32(room_.entry(from + i) + 4);
#pragma unroll
        for (int c = 0; c < 4; ++c) sum[c] += weight * held_[i][c];
        if ((places_[i] & kEndsRow) == 0) continue;
        ptx::st_shared_v2_f32(to, sum[0], sum[1]);
        ptx::st_shared_v2_f32(to + 32, sum[2], sum[3]);
        to += kColumns * 4;
#pragma unroll
        for (int c = 0; c < 4; ++c) sum[c] = 0;
      }
    }
  }

  /// Adds the sums of both halves. A thread takes 8 columns at a time.
  template <class Store>
  __device__ __forceinline__ void finish(const Store& store) const {
    constexpr int kThreadsOfRow = kColumns / 8;
    const int column = thread_ % kThreadsOfRow * 8;
#pragma unroll 1
    for (int i = thread_ / kThreadsOfRow; i < rows_; i += kThreads / kThreadsOfRow) {
      float sums[8];
#pragma unroll
      for (int c = 0; c < 8; c += 4) {
        float low[4], high[4];
        ptx::ld_shared_v4_f32(room_.sums(0, i) + (column + c) * 4, low);
        ptx::ld_shared_v4_f32(room_.sums(1, i) + (column + c) * 4, high);
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[c + e] = low[e] + high[e];
      }
      store(first_ + i * parts_.count, column, sums);
    }
  }
};

}  // namespace kernelwright::policy
