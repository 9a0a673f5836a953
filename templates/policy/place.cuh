/// What a policy that is a user's own source is told, and the members that its type has. A config names such a header:
///
///   "mask": {"kind": "source", "file": "my_mask.cuh", "type": "MyMask"}
///
///   struct MyMask {
///     __device__ bool visible(const kernelwright::Place& place) const;  // whether the query sees the key
///   };
///   struct MyScoreMod {
///     /// The scaled score, natural logarithm, becomes another; -inf hides the key.
///     __device__ float apply(float score, const kernelwright::Place& place) const;
///   };
///
/// Members may be static. A type is made anew with T{} wherever it is asked: it holds nothing. It is asked of rows that
/// exist and of keys that the masks of ranges beside it show, by any thread, in no order, now and then twice; so that
/// it has no side effect. A header may include this one and others of templates/ that a kernel of attention includes,
/// and no other file.
#pragma once

namespace kernelwright {

/// A score's place. Queries and keys count from their sequence's first.
struct Place {
  int query, key;
  int head;   // of the query heads
  int batch;  // the sequence
  int q_len, kv_len;
  /// The key that the query's diagonal meets: the last query's is the last key. Negative where queries outnumber keys.
  __device__ int diagonal() const { return query + kv_len - q_len; }
};

namespace policy {

/// In place of a source where a Spec has none: never asked.
struct NoSource {
  __device__ bool visible(const Place&) const { return true; }
  __device__ float apply(float score, const Place&) const { return score; }
};

}  // namespace policy
}  // namespace kernelwright
