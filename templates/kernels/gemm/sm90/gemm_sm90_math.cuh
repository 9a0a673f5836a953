/// Role of a math warpgroup of gemm_sm90: it multiplies slabs, adds products to sums, and stores tiles.
#pragma once

#include "kernels/gemm/sm90/gemm_sm90_deal.cuh"
#include "kernels/gemm/sm90/gemm_sm90_products.cuh"
#include "kernels/gemm/sm90/gemm_sm90_scales.cuh"
#include "kernels/gemm/sm90/gemm_sm90_store.cuh"
#include "kernels/gemm/sm90/gemm_sm90_tiles.cuh"
#include "ptx/wgmma.cuh"

namespace kernelwright {
namespace {

/// The role.
class MathWarpgroup {
  static constexpr int kShares = spec::kBlockN / kProductColumns;  // products that a tile's columns are cut into
  using Turns = policy::Turns<kPingPong, spec::kMathWarpgroups>;

 public:
  __device__ __forceinline__ MathWarpgroup(const EntryParams& params, const MathWork& work, uint32_t base,
                                           uint32_t barriers, const Payload& payload, uint32_t warpgroup)
      : work_(work),
        input_(barriers, payload),
        scales_(params),
        slab_scales_(params),
        store_(params, base, warpgroup),
        warpgroup_(warpgroup),
        lane_(threadIdx.x % 32) {}

  __device__ __forceinline__ void run() {
    if constexpr (kStoresBehind)
      run_and_store_behind<kWaves * kShares>();
    else
      run_in_turn();
  }

 private:
  // With scales of blocks, products have registers of their own. So a tile's sums can wait in theirs while the next
  // tile's first products run. Other launches than these would spill registers.
  static constexpr bool kStoresBehind = kBlockScales && spec::kMmaInFlight == 0 && !kPingPong && kParts == 1 &&
                                        !spec::kSwapAb && !kCopies && !(kGrouped && kCluster > 1) &&
                                        TileStore::stores_in_pieces(kWaves * kShares);
  static_assert(kHalves == 1 || kStoresBehind, "only tiles that are stored behind have halves");

  /// Multiplies tile after tile. The first products of a tile run while the warpgroup stores the tile before, finds the
  /// next one, and waits for the first scales. A template, so that other kernels do not compile it.
  template <int kPieces>
  __device__ __forceinline__ void run_and_store_behind() {
    const Part part = work_.part();
    const int groups = (part.end - part.begin + spec::kKGroup - 1) / spec::kKGroup, rank = rank_in_cluster();
    Tile next = next_tile(work_, work_.first, rank), stored{};
    bool landed = false, stores = false;
#pragma unroll 1
    for (int t = work_.first; t < work_.count(); t = work_.after(t)) {
      const Tile tile = next;
      multiply_and_add_round<0, spec::kKGroup, kPieces>(landed, [&](int piece) {
        if (piece == 0) begin_scales(t, tile, part);
        if (stores) store_.template store_piece<kPieces>(sums_, stored, piece);
        clear(piece);
        if (piece == kPieces - 1) next = next_tile(work_, work_.after(t), rank);
      });
      multiply_and_add<0>(groups - 1, landed);
      stored = tile, stored.row += first_row(), stores = true;
    }
    if (stores) {
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) store_.template store_piece<kPieces>(sums_, stored, piece);
    }
    store_.finish();
  }
  __device__ __forceinline__ void run_in_turn() {
    const Part part = work_.part();
    const int groups_of_part = (part.end - part.begin + spec::kKGroup - 1) / spec::kKGroup;
    const int rank = rank_in_cluster(), sharers = kPingPong ? spec::kMathWarpgroups : 1;
    const int mine = kPingPong ? static_cast<int>(warpgroup_) : 0;  // which of the dealt tiles
    const Turns turns(warpgroup_);
    input_.skip(groups_of_part * mine);
    // Groups: the next tile is asked for an item ahead, and not behind a condition: that calls uniform().
    Tile next{};
    if constexpr (kHasBounds) {
      for (int i = 0; i < mine; ++i) pass_tile(work_);
      next = next_tile(work_, work_.first + mine * work_.step, rank);
    }
    begin_scales(work_.first + mine * work_.step, next, rank, part);
#pragma unroll 1
    for (int t = work_.first; t < work_.count(); t += work_.step * sharers) {
      const int own = t + mine * work_.step;
      const bool works = own < work_.count();  // else it only passes the turn
      Tile tile = next;
      if constexpr (kHasBounds) {
        for (int i = 1; i < sharers; ++i) pass_tile(work_);
        next = next_tile(work_, own + work_.step * sharers, rank);
      }
      const int groups = kSlicesK ? groups_of(tile.depth) : groups_of_part;
      if (EndScales::kAny || kPromotes || groups == 0) clear();
      turns.wait();
      if (works) {
        if constexpr (spec::kPromotion == 1) {
          bool landed = false;
          multiply_and_add<(spec::kMmaInFlight > 0)>(groups, landed);
        } else if constexpr (kPromotes)
          multiply_runs_and_add<spec::kPromotion / spec::kKGroup>(groups);
        else
          multiply(sums_, groups, tile.depth);
      }
      turns.pass();
      if (!works) break;
      if constexpr (kTakesTurns) {
        if (!store_.take_turn(sums_, own, work_.turn)) break;
      }
      if constexpr (!kHasBounds) tile = work_.at(own, rank);
      tile.row += first_row();
      begin_scales(own + work_.step * sharers, next, rank, part);
      if constexpr (EndScales::kAny) scales_.apply(sums_, tile);
      store_(sums_, tile, groups > 0);
      if constexpr (kTakesTurns) break;  // the CTA has no other part
      input_.skip(groups_of_part * (sharers - 1));
    }
    turns.finish();
    pass_last_tiles(work_, 0);
    store_.finish();
  }

  /// For tile `index`, if there is one; `grouped`: the tile, where there are groups. Asks memory for its first scales,
  /// ahead of their use.
  __device__ __forceinline__ void begin_scales(int index, const Tile& grouped, int rank, const Part& part) {
    if constexpr (kBlockScales) begin_scales(index, kGrouped ? grouped : work_.at(index, rank), part);
  }
  __device__ __forceinline__ void begin_scales(int index, Tile tile, const Part& part) {
    if constexpr (kBlockScales) {
      if (index >= work_.count() || part.begin >= part.end) return;
      tile.row += first_row();
      slab_scales_.begin(tile, part.begin);
    }
  }
  /// The warpgroup's first row in its tile.
  __device__ __forceinline__ int first_row() const {
    return kPingPong ? 0 : static_cast<int>(warpgroup_) * (kWaves * 64);
  }

  /// Behind the wait for a slot into which threads have copied.
  __device__ __forceinline__ static void take_copied() {
    if constexpr (kCopies) ptx::fence_proxy_async_shared();
  }

  /// Groups of slabs that have some of `depth` elements of k.
  __device__ __forceinline__ static int groups_of(int depth) {
    return (slabs_of(depth) + spec::kKGroup - 1) / spec::kKGroup;
  }

  /// Multiplies all of k, or a run of slabs. `depth`: of kind k, rows of the slice.
  template <int kCount>
  __device__ __forceinline__ void multiply(float (&sums)[kWaves][kCount], int groups, int depth = 0) {
    const Release release{lane_};
    const uint32_t rows = kPingPong ? 0 : warpgroup_ * kASlab.row_offset(kWaves * 64);
    pipeline::HeldSlot held{};  // with products in flight: the slot before this one
#pragma unroll 1
    for (int group = 0; group < groups; ++group) {
      auto stage = input_.acquire(release);
      take_copied();
      if constexpr (kSlicesK) {
        if (const int first = group * (spec::kKGroup * kSlabDepth); first + spec::kKGroup * kSlabDepth > depth)
          clear_end(stage, depth - first);
      }
      ptx::wgmma_fence();
#pragma unroll
      for (int j = 0; j < spec::kKGroup; ++j) {
        const auto from = stage.get_tile(j);
        const uint64_t b = descriptor_b(from.b());
        const uint64_t a = descriptor_a(from.a() + rows);
#pragma unroll
        for (int wave = 0; wave < kWaves; ++wave)
          issue(sums[wave], a + wave * (kASlab.row_offset(64) / 16), b, j > 0 ? 1 : group > 0);
      }
      ptx::wgmma_commit_group();
      if constexpr (spec::kMmaInFlight > 0) {
        ptx::wgmma_wait_group<1>();
        if (group > 0) input_.release(held, release);
        held = stage.release_later();
      } else {
        ptx::wgmma_wait_group<0>();
      }
    }
    if constexpr (spec::kMmaInFlight > 0) {
      ptx::wgmma_wait_group<0>();
      if (groups > 0) input_.release(held, release);
    }
#pragma unroll
    for (int wave = 0; wave < kWaves; ++wave) ptx::pin_registers(sums[wave]);
  }

  /// Each slab's products begin at zero; math warps add them to sums in f32, times their scales (14 bits: see above).
  /// With kLag, a warpgroup's next products run while it adds earlier ones. Without kLag, one warpgroup multiplies
  /// while the other adds, so the code between its last addition and its next product must be short. So slabs go in
  /// unrolled rounds: ptxas spreads additions over the next slab's beginning. The warpgroup asks ahead of them whether
  /// that slab has landed. (Plain additions would spill in rounds.) No product is in flight from one round to the next:
  /// across a loop's end, ptxas lets only wgmma touch registers of products in flight. `landed`: whether the next slot
  /// is known to have landed, here and at the end.
  template <int kLag>
  __device__ __forceinline__ void multiply_and_add(int groups, bool& landed) {
    // A single slab takes a hundred clocks more than one of a round. Behind the first slab of a tile, rounds of five
    // leave no single ones where k is 2048 or 7168. With two products to 64 rows they were slower.
    constexpr int kSlabs = kStoresBehind && kShares == 1 && spec::kKGroup == 1 ? 5 : 4;
    constexpr int kRound = kLag > 0 || kBlockScales ? kSlabs / spec::kKGroup : 1;
    int group = 0;
    if constexpr (kRound > 1) {
#pragma unroll 1
      for (; group + kRound <= groups; group += kRound) multiply_and_add_round<kLag, kRound * spec::kKGroup>(landed);
    }
#pragma unroll 1
    for (; group < groups; ++group) multiply_and_add_round<kLag, spec::kKGroup>(landed);
  }
  struct Nothing {
    __device__ __forceinline__ void operator()(int) const {}
  };
  /// While the round's first kBusy pieces run, each by itself, the warpgroup calls `meanwhile` with the piece's number,
  /// and reads scales behind that.
  template <int kLag, int kSlabs, int kBusy = 0, class Meanwhile = Nothing>
  __device__ __forceinline__ void multiply_and_add_round(bool& landed, const Meanwhile& meanwhile = {}) {
    constexpr int kPieces = kWaves * kShares, kSets = 1 + kLag, kGroupPieces = kPieces * spec::kKGroup;
    const uint32_t row = static_cast<uint32_t>(first_row());
    const Payload& payload = input_.payload();
    const uint64_t first_a = descriptor_a(payload.a(0) + row / 64 * kASlab.row_offset(64));
    const uint64_t first_b = descriptor_b(payload.b(0));
    Products products[kSets];
    SlabScales::Factors factors[kSlabs][kWaves];
    pipeline::HeldSlot slots[kSlabs / spec::kKGroup] = {};
    if constexpr (kBusy == 0) slab_scales_.template reach<kSlabs>();
    const auto finish = [&](int number) {  // for piece `number` of the round
      ptx::pin_registers(products[number % kSets]);
      const bool ends = (number + 1) % kGroupPieces == 0;  // ends a slot
      const auto release = [&] { input_.release(slots[number / kGroupPieces], Release{lane_}); };
      if (ends && !SlabScales::kReadsSlot) release();
      if (ends && !kPingPong) landed = input_.try_acquire();  // the next slot may be the other warpgroup's
      add(number % kPieces, products[number % kSets], factors[number / kPieces][number % kPieces / kShares]);
      if (ends && SlabScales::kReadsSlot) {
        __syncwarp();  // all lanes have read the slot's scales
        release();
      }
    };
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab) {
      if (slab % spec::kKGroup == 0) {
        slots[slab / spec::kKGroup] = input_.acquire(Release{lane_}, landed).release_later();
        take_copied();
        landed = false;
      }
      const uint32_t tile = slots[slab / spec::kKGroup].index * spec::kKGroup + slab % spec::kKGroup;
      const uint64_t a = ptx::wgmma_descriptor_at(first_a, tile * (kABytes / 16));
      const uint64_t b = ptx::wgmma_descriptor_at(first_b, tile * (kBBytes / 16));
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        const int number = slab * kPieces + piece;
        const auto read_scales = [&] {
          if (piece % kShares != 0) return;
          const int wave = piece / kShares;
          if (wave == 0) slab_scales_.next();
          slab_scales_.read(payload.scales(static_cast<int>(tile)), row, wave, factors[slab][wave]);
          // All lanes have read the slot's scales before the arrival that releases the slot.
          if (kBlockScales && !SlabScales::kReadsSlot && wave + 1 == kWaves && (slab + 1) % spec::kKGroup == 0)
            __syncwarp();
        };
        const bool reads_behind = SlabScales::kHeldByLanes || number < kBusy;
        if (!reads_behind) read_scales();
        if (number > kLag) settle((number - kLag - 1) % kPieces);  // before the products that take these registers
        ptx::wgmma_fence();
        issue(products[number % kSets], a + piece / kShares * (kASlab.row_offset(64) / 16),
              b + piece % kShares * (kBSlab.row_offset(kProductColumns) / 16), 0);
        ptx::wgmma_commit_group();
        if (number < kBusy) meanwhile(piece);
        if (reads_behind) read_scales();
        if (number < kLag) continue;
        ptx::wgmma_wait_group<kLag>();
        finish(number - kLag);
      }
    }
    if constexpr (kLag > 0) {
      ptx::wgmma_wait_group<0>();
      finish(kSlabs * kPieces - 1);
      settle((kSlabs * kPieces - 2) % kPieces);
    }
    settle(kPieces - 1);
  }
  __device__ __forceinline__ void add(int piece, const Products& products, const SlabScales::Factors& factors) {
    slab_scales_.add(sums_[piece / kShares], piece % kShares * kProductColumns, products, factors);
  }
  /// Piece `piece` has been added: no later code reads its registers.
  __device__ __forceinline__ void settle(int piece) { ptx::pin_registers(sums_of(piece)); }

  /// As above, but several slabs' products are made before they are added. All products of the tile have registers.
  template <int kRun>
  __device__ __forceinline__ void multiply_runs_and_add(int groups) {
    static_assert(kRun * spec::kKGroup == spec::kPromotion && kProductColumns == spec::kBlockN);
    Sums products;
#pragma unroll 1
    for (int begin = 0; begin < groups; begin += kRun) {
      multiply(products, min(kRun, groups - begin));
#pragma unroll
      for (int wave = 0; wave < kWaves; ++wave)
#pragma unroll
        for (int i = 0; i < spec::kBlockN / 2; ++i) sums_[wave][i] += products[wave][i];
    }
  }

  /// Defines the sums for every tile, where other instructions than wgmma write them. Otherwise ptxas would serialise
  /// the products, or would keep the last tile's sums beside the results made of them.
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int wave = 0; wave < kWaves; ++wave)
#pragma unroll
      for (float& sum : sums_[wave]) sum = 0;
  }
  /// The same of one piece.
  __device__ __forceinline__ void clear(int piece) {
#pragma unroll
    for (float& sum : sums_of(piece)) sum = 0;
  }
  __device__ __forceinline__ Products& sums_of(int piece) {
    return reinterpret_cast<Products&>(sums_[piece / kShares][piece % kShares * kProductColumns / 2]);
  }

  MathWork work_;
  pipeline::InputConsumer<Input> input_;
  const EndScales scales_;
  SlabScales slab_scales_;
  const TileStore store_;
  const uint32_t warpgroup_, lane_;
  Sums sums_;
};

}  // namespace
}  // namespace kernelwright
