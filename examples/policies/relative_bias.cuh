// A bias by relative position, as in T5's encoder, from a table for each head. The first 8 buckets are exact distances.
// The others are wider, and the last bucket takes all larger distances.
#include "policy/place.cuh"

struct RelativeBias {
  static __device__ int bucket(int distance) {
    const int far = distance < 0 ? -distance : distance;
    const int bucket = far < 4 ? far : far < 8 ? 4 : far < 16 ? 5 : far < 32 ? 6 : 7;
    return distance > 0 ? bucket + 8 : bucket;
  }
  __device__ float apply(float score, const kernelwright::Place& place) const {
    // [heads % 2][buckets]; a model would have its own numbers here.
    constexpr float kTable[2][16] = {
        {0.5f, 0.25f, 0.125f, 0, -0.25f, -0.5f, -1, -2, 0, 0.75f, 0.5f, 0.25f, 0, -0.5f, -1.5f, -3},
        {1, 0.5f, 0, -0.5f, -0.75f, -1, -1.25f, -1.5f, 0, 0.25f, -0.25f, -0.5f, -1, -1.25f, -2, -2.5f}};
    return score + kTable[place.head % 2][bucket(place.key - place.diagonal())];
  }
};
