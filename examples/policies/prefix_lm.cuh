// A prefix language model's mask: the first kPrefix keys are seen by every query, the others causally.
#include "policy/place.cuh"

struct PrefixLm {
  static constexpr int kPrefix = 24;
  __device__ bool visible(const kernelwright::Place& place) const {
    return place.key < kPrefix || place.key <= place.diagonal();
  }
};
