/// A queue of work items that the CTAs of one grid share: a counter in global memory that needs no zeroing.
#pragma once

#include "contract/integers.h"
#include "ptx/atomic.cuh"

namespace kernelwright::policy {

/// Gives each asking CTA one of the numbers 0, 1, ..., each number once. A launch asks for exactly `all` numbers. So
/// the CTA that gets the last one knows that no CTA asks again. It leaves the word as a count of 0, for the next launch
/// and for every replay of a graph. Launches that may overlap have their own words.
///
/// The word may hold anything before the first launch. A count has a tag in its upper 32 bits: bits that neither an
/// output nor an LSE ever has, those of a NaN that no instruction makes. The tag differs from that of LastArrival,
/// whose words may lie here between two launches. A CTA asks without reading the word first, which would cost a second
/// trip to memory. If the answer shows that the word was no count, the CTA makes it a count and asks again:
/// - An exchange of anything but a count for a count of 0 succeeds once in a launch. From then on the word is a count:
///   no CTA removes the tag, and `all` numbers do not overflow into it.
/// - An addition to leftovers counts neither for the leftovers nor for the CTA that added: the leftovers are replaced.
///   If an addition turns leftovers into a count, they are replaced by a count of 0, as by an exchange.
/// - Each CTA adds to leftovers at most once. So an exchange that fails because of such an addition soon succeeds.
class ItemQueue {
  static constexpr unsigned long long kTag = 0x7fb91e4d00000000, kCount = 0xffffffff;
  unsigned long long* word_;
  unsigned long long before_ = 0;  // what the addition of ask() found

  __device__ static bool is_count(unsigned long long word) { return (word & ~kCount) == kTag; }

 public:
  __device__ explicit ItemQueue(uint64_t* word) : word_(reinterpret_cast<unsigned long long*>(word)) {}

  /// A launch may have no queue.
  __device__ bool exists() const { return word_ != nullptr; }

  /// Starts to take a number. The request is in flight until answer() needs the result.
  __device__ void ask() { before_ = ptx::atom_add_relaxed_gpu_u64(word_, 1); }

  /// The number that ask() took; `all` > 0. Call it once for each ask().
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
