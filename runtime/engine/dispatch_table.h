/// Problem -> kernel, for launches that name their problem. It has a plain-data key, and a table that readers walk
/// without a lock.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

#include "kernelwright/generator/problem/fields.h"
#include "kernelwright/generator/problem/problem.h"
#include "kernelwright/generator/quantize/plan.h"

namespace kernelwright {

/// A problem and a device, exactly, in 48 bytes. Some problems do not fit, and give an invalid key. They have masks
/// with operands, masks or biases that are sources, epilogues of more than 24 letters, a cache that a GEMM
/// writes, or numbers that no valid problem
/// has. Each kind of problem has a table of its own.
struct DispatchKey {
  std::array<std::uint64_t, 6> words{};
  bool valid() const { return words[0] & 1; }
  bool operator==(const DispatchKey& other) const noexcept {
    // Compared in registers. A memcmp() would read with wide loads what narrow stores have just written, and would wait
    // for them.
    std::uint64_t difference = 0;
    for (int i = 0; i < 6; ++i) difference |= words[i] ^ other.words[i];
    return difference == 0;
  }

  /// Packs every field that visit_fields() of the problem names, so that no field can be missing from the key.
  template <class Problem>
  static DispatchKey of(const Problem& problem, int device) noexcept;

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

namespace detail {

/// Packs field after field into a key's words, each in as many bits as its rule or its enum needs. All widths and
/// places are constants once the code is inlined, so a field costs a shift and an or.
///
/// A string takes kTextBytes from the next word on. Longer strings do not fit. With kTextBytes 0, strings have to be
/// empty.
template <std::size_t kTextBytes>
struct FieldPacker {
  static constexpr unsigned kWordBits = 64;

  std::array<std::uint64_t, 6>& words;  // zeros at first
  std::size_t word = 0;
  unsigned bit = 0;
  std::uint64_t misfit = 0;  // not 0: a value needs more bits than its field has

  [[gnu::always_inline]] void pack(std::uint64_t value, unsigned bits) {
    if (bit + bits > kWordBits) ++word, bit = 0;
    if (word >= words.size()) {
      misfit = 1;
      return;
    }
    words[word] |= value << bit;
    bit += bits;
  }
  [[gnu::always_inline]] void field(const std::string& value, const auto&) {
    if constexpr (kTextBytes == 0) {
      misfit |= value.size();
    } else {
      const std::size_t first = word + 1;
      if (value.size() > kTextBytes || first + kTextBytes / 8 > words.size()) {
        misfit = 1;
        return;
      }
      for (std::size_t i = 0; i < value.size(); ++i)
        words[first + i / 8] |= std::uint64_t{static_cast<unsigned char>(value[i])} << i % 8 * 8;
      word = first + kTextBytes / 8;
      bit = 0;
    }
  }
  [[gnu::always_inline]] void field(int value, const range& rule) {
    // As 32 bits without a sign, so that a number below the range counts as far above it.
    const std::int64_t least = rule.low < 0 ? rule.low : 0;
    const auto above = static_cast<std::uint32_t>(value) - static_cast<std::uint32_t>(least);
    const auto bits = static_cast<unsigned>(std::bit_width(static_cast<std::uint64_t>(rule.high - least)));
    misfit |= above >> bits;
    pack(above, bits);
  }
  [[gnu::always_inline]] void field(double value, const real_range&) {  // in halves, which leave no gaps
    const auto bits = std::bit_cast<std::uint64_t>(value);
    pack(bits >> 32, 32);
    pack(bits & 0xffffffffu, 32);
  }
  template <class T>
  [[gnu::always_inline]] void field(const T& value, const any&) {
    if constexpr (std::is_same_v<T, bool>)
      pack(value, 1);
    else if constexpr (std::is_enum_v<T>)
      pack(static_cast<std::uint32_t>(value), std::bit_width(EnumTable<T>::entries.size() - 1));
    else if constexpr (requires { value.empty(); })
      misfit |= !value.empty();
    else if constexpr (requires { value.has_value(); })
      misfit |= value.has_value();
    else
      walk(value);
  }
  template <class T, class Rule>
  [[gnu::always_inline]] void field(const T& value, const required<Rule>& rule) {
    field(value, rule.rule);
  }
  template <class Struct>
  [[gnu::always_inline]] void walk(const Struct& of) {
    visit_fields(const_cast<Struct&>(of), *this);  // it hands out mutable references; *this does not write
  }
  template <class T, class Rule>
  [[gnu::always_inline]] void operator()(const char*, const T& value, const Rule& rule, const char*) {
    field(value, rule);
  }
};

}  // namespace detail

// Flattened: once everything is inlined, every width and every place is a constant.
template <class Problem>
[[gnu::flatten]] DispatchKey DispatchKey::of(const Problem& problem, int device) noexcept {
  // Only a GEMM has text that is worth a key: its epilogue.
  constexpr std::size_t kTextBytes = std::is_same_v<Problem, GemmProblem> ? 24 : 0;
  // The words are made in the returned object. A copy would read with wide loads what narrow stores have just written.
  DispatchKey key;
  detail::FieldPacker<kTextBytes> packer{key.words};
  packer.pack(1, 1);  // valid
  packer.field(device, range{0, 0xffff});
  packer.walk(problem);
  if (packer.misfit != 0) [[unlikely]]
    key.words[0] = 0;
  return key;
}

/// Open addressing with linear probes, at most half full, never shrinking. find() takes no lock and may run beside
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
