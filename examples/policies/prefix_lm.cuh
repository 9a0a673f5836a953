// The mask of a prefix language model: every query sees the first kPrefix keys, and sees the other keys causally.
#include "policy/place.cuh"

struct PrefixLm {
  static constexpr int kPrefix = 24;
  __device__ bool visible(const kernelwright::Place& place) const {
    return place.key < kPrefix || place.key <= place.diagonal();
  }
};
