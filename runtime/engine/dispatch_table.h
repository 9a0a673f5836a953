/// Problem -> kernel, for launches that name their problem: a plain-data key and a table that readers walk without a
/// lock.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "kernelwright/generator/problem/problem.h"
#include "kernelwright/generator/quantize/plan.h"

namespace kernelwright {

/// A problem and a device, exactly, in 48 bytes. Problems that do not fit (masks with operands, masks and biases that
/// are tensors or sources, epilogues of more than 24 letters, numbers that no valid problem has) give an
/// invalid key. Each kind of problem has a table of its own.
struct DispatchKey {
  std::array<std::uint64_t, 6> words{};
  bool valid() const { return words[0] & 1; }
  bool operator==(const DispatchKey& other) const noexcept {
    // In registers: a memcmp() would read with wide loads what was just written with narrow stores, and wait for it.
    std::uint64_t difference = 0;
    for (int i = 0; i < 6; ++i) difference |= words[i] ^ other.words[i];
    return difference == 0;
  }

  static DispatchKey of(const AttentionProblem& problem, int device) noexcept {
    constexpr auto word = [](auto low, auto high) {
      return std::uint64_t{static_cast<std::uint32_t>(low)} | std::uint64_t{static_cast<std::uint32_t>(high)} << 32;
    };
    const auto& [head_dim, heads, mask] = std::tie(problem.head_dim, problem.heads, problem.mask);
    const auto sizes = static_cast<std::uint32_t>(head_dim.qk | head_dim.v | heads.q | heads.kv | device);
    DispatchKey key;
    if (sizes > 0xffff || !mask.operands.empty()) return key;
    const ScoreMod& mod = problem.score_mod;
    if (mask.kind == MaskKind::kTensor || mod.kind == ScoreModKind::kTensor || mod.dtype != DType::kBf16) return key;
    if (mask.tensor != ScoreTensor{} || mod.tensor != ScoreTensor{}) return key;
    if (mask.source.is_given() || mod.source.is_given()) return key;
    std::uint64_t packed = 1;  // valid
    int shift = 1;
    const auto pack = [&](auto value, int bits) {
      packed |= static_cast<std::uint64_t>(value) << shift;
      shift += bits;
    };
    pack(problem.dtype.q, 4);
    pack(problem.dtype.kv, 4);
    pack(problem.dtype.out, 4);
    pack(problem.q_layout, 2);
    pack(problem.kv_layout.kind, 2);
    pack(mask.kind, 4);
    pack(problem.score_mod.kind, 4);
    pack(problem.sinks, 1);
    pack(problem.lse, 1);
    pack(problem.rope.dtype, 4);
    pack(problem.scales, 4);
    pack(problem.kv_offsets, 1);
    pack(problem.cache_length, 2);
    pack(problem.deterministic, 1);
    pack(problem.batch_invariant, 1);
    pack(device, 16);
    key.words = {packed,
                 word(head_dim.qk | head_dim.v << 16,
                      static_cast<std::uint32_t>(heads.q) | static_cast<std::uint32_t>(heads.kv) << 16),
                 word(problem.kv_layout.page_size, mask.chunk),
                 word(mask.window.left, mask.window.right),
                 std::bit_cast<std::uint64_t>(problem.score_mod.cap),
                 word(problem.max_q_len, problem.rope.width)};
    return key;
  }

  static DispatchKey of(const GemmProblem& problem, int device) noexcept {
    DispatchKey key;
    constexpr std::size_t kMostText = 24;
    if (device < 0 || device > 0xffff || problem.n < 0 || problem.k < 0 || problem.epilogue.size() > kMostText)
      return key;
    std::uint64_t packed = 1;  // valid
    int shift = 1;
    const auto pack = [&](auto value, int bits) {
      packed |= static_cast<std::uint64_t>(value) << shift;
      shift += bits;
    };
    pack(problem.dtype.a, 4);
    pack(problem.dtype.b, 4);
    pack(problem.dtype.d, 4);
    pack(problem.dtype.c, 4);
    pack(problem.layout, 2);
    pack(problem.scales, 4);
    pack(problem.fast_accumulation, 1);
    pack(problem.batch_invariant, 1);
    pack(device, 16);
    key.words[0] = packed;
    key.words[1] = static_cast<std::uint32_t>(problem.n) | std::uint64_t{static_cast<std::uint32_t>(problem.k)} << 32;
    for (std::size_t i = 0; i < problem.epilogue.size(); ++i)
      key.words[2 + i / 8] |= std::uint64_t{static_cast<unsigned char>(problem.epilogue[i])} << i % 8 * 8;
    return key;
  }

  static DispatchKey of(const QuantizeProblem& problem, int device) noexcept {
    constexpr auto byte = [](DType dtype) { return static_cast<std::uint64_t>(dtype) & 0xff; };
    DispatchKey key;
    if (device < 0 || device > 0xffff) return key;
    key.words[0] = 1 | byte(problem.from) << 8 | byte(problem.to) << 16 | static_cast<std::uint64_t>(device) << 32;
    return key;
  }

  std::uint64_t hash() const noexcept {
    // Three folded 64x64-bit products: every input bit reaches the low bits that index the table.
    constexpr auto fold = [](std::uint64_t a, std::uint64_t b) {
      __extension__ using Wide = unsigned __int128;
      const Wide product = static_cast<Wide>(a) * b;
      return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
    };
    // Constants with about half of their bits set: the fractions of sqrt 2, 3, 5, 7, 11, 13.
    return fold(words[0] ^ 0x6a09e667f3bcc908u, words[1] ^ 0xbb67ae8584caa73bu) ^
           fold(words[2] ^ 0x3c6ef372fe94f82bu, words[3] ^ 0xa54ff53a5f1d36f1u) ^
           fold(words[4] ^ 0x510e527fade682d1u, words[5] ^ 0x9b05688c2b3e6c1fu);
  }
};
static_assert(sizeof(DispatchKey) <= 64);

/// Open addressing with linear probes, at most half full, never shrinking. find() is lock-free and may run beside
/// insert().
template <class Slot>
class DispatchTable {
 public:
  DispatchTable() {
    blocks_.push_back(std::make_unique<Block>(kFirstSize));
    current_.store(blocks_.back().get(), std::memory_order_release);
  }

  Slot* find(const DispatchKey& key) const noexcept {
    const Block& block = *current_.load(std::memory_order_acquire);
    for (std::uint64_t at = key.hash();; ++at) {
      const Entry& entry = block.entries[at & block.mask];
      Slot* slot = entry.slot.load(std::memory_order_acquire);
      if (!slot || entry.key == key) return slot;
    }
  }

  /// Keeps the first slot of a key. Writers take turns.
  void insert(const DispatchKey& key, Slot* slot) {
    std::lock_guard lock(writers_);
    if ((size_ + 1) * 2 > blocks_.back()->mask + 1) {
      const Block& old = *blocks_.back();
      auto larger = std::make_unique<Block>((old.mask + 1) * 2);
      for (std::uint64_t i = 0; i <= old.mask; ++i)
        if (Slot* other = old.entries[i].slot.load(std::memory_order_relaxed))
          place(*larger, old.entries[i].key, other);
      blocks_.push_back(std::move(larger));
      current_.store(blocks_.back().get(), std::memory_order_release);
    }
    size_ += place(*blocks_.back(), key, slot);
  }

 private:
  static constexpr std::size_t kFirstSize = 128;  // a model needs tens of kernels
  struct Entry {
    DispatchKey key;                   // written once, before slot
    std::atomic<Slot*> slot{nullptr};  // null: free
  };
  struct Block {
    explicit Block(std::size_t size) : mask(size - 1), entries(std::make_unique<Entry[]>(size)) {}
    const std::uint64_t mask;
    std::unique_ptr<Entry[]> entries;
  };
  static bool place(Block& block, const DispatchKey& key, Slot* slot) {
    for (std::uint64_t at = key.hash();; ++at) {
      Entry& entry = block.entries[at & block.mask];
      if (!entry.slot.load(std::memory_order_relaxed)) {
        entry.key = key;
        entry.slot.store(slot, std::memory_order_release);
        return true;
      }
      if (entry.key == key) return false;
    }
  }

  std::mutex writers_;
  std::size_t size_ = 0;
  std::atomic<const Block*> current_;
  std::vector<std::unique_ptr<Block>> blocks_;  // the last is current; readers may still walk the others
};

}  // namespace kernelwright
