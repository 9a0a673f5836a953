/// A queue of work items that CTAs of one grid share: a counter in global memory that nobody sets to zero.
#pragma once

#include "contract/integers.h"
#include "ptx/atomic.cuh"

namespace kernelwright::policy {

/// Numbers 0, 1, ... for whoever asks, each once. A launch takes exactly `all` of them, so that whoever has the last
/// one knows that nobody else will come, and leaves the word as a count of 0 for the next launch and for every replay
/// of a graph. Launches that may overlap have words of their own.
///
/// The word may hold anything before the first launch: a count stands behind 32 bits that neither an output nor an LSE
/// ever has, those of a NaN that no instruction makes. They are not LastArrival's, whose words may lie here between
/// two launches. Nobody looks before asking, which would cost a second way to memory and back. Whoever finds that the
/// word was no count when it asked makes it one, and asks again:
/// - An exchange of anything but a count for a count of 0 succeeds once in a launch: from then on the word is a count,
///   for nobody takes the tag away and `all` numbers do not reach it.
/// - What was added to leftovers does not count, neither for them nor for whoever added it: they are replaced. Should
///   they become a count by it, they become one of 0, as by an exchange.
/// - Each CTA adds to leftovers once at most: a failed exchange, which one of these has overtaken, soon succeeds.
class ItemQueue {
  static constexpr unsigned long long kTag = 0x7fb91e4d00000000, kCount = 0xffffffff;
  unsigned long long* word_;
  unsigned long long before_ = 0;  // what ask() found

  __device__ static bool is_count(unsigned long long word) { return (word & ~kCount) == kTag; }

 public:
  __device__ explicit ItemQueue(uint64_t* word) : word_(reinterpret_cast<unsigned long long*>(word)) {}

  /// A launch may come without one.
  __device__ bool exists() const { return word_ != nullptr; }

  /// Begins to take a number. The answer is on its way until answer() wants it.
  __device__ void ask() { before_ = ptx::atom_add_relaxed_gpu_u64(word_, 1); }

  /// The number that ask() took, of `all` > 0. Once for each ask().
  __device__ unsigned answer(unsigned all) {
    if (!is_count(before_)) {
      unsigned long long found = ptx::ld_relaxed_gpu_u64(word_);
      while (!is_count(found)) found = ptx::atom_cas_relaxed_gpu_u64(word_, found, kTag);
      ask();
    }
    const unsigned number = static_cast<unsigned>(before_ & kCount);
    if (number == all - 1) ptx::st_relaxed_gpu_u64(word_, kTag);
    return number;
  }
};

}  // namespace kernelwright::policy
