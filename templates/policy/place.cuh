/// What a user's own policy source is given, and the members that its type has. A config names such a header:
///
///   "mask": {"kind": "source", "file": "my_mask.cuh", "type": "MyMask"}
///
///   struct MyMask {
///     __device__ bool visible(const kernelwright::Place& place) const;  // whether the query sees the key
///   };
///   struct MyScoreMod {
///     /// Maps the scaled score, natural logarithm, to another score; -inf hides the key.
///     __device__ float apply(float score, const kernelwright::Place& place) const;
///   };
///
/// Members may be static. The kernel makes an object with T{} wherever it calls a member, so the type holds no state.
/// The kernel calls it for rows that exist and for keys that the masks of ranges beside it show: from any thread, in no
/// order, sometimes twice. So a member must have no side effect. A header may include this file and other headers of
/// templates/ that an attention kernel includes, and no other file.
#pragma once

namespace kernelwright {

/// A score's place. Queries and keys count from the first of their sequence.
struct Place {
  int query, key;
  int head;   // query head
  int batch;  // index of the sequence
  int q_len, kv_len;
  /// The key on the query's diagonal; that of the last query is the last key. Negative for the first queries if there
  /// are more queries than keys.
  __device__ int diagonal() const { return query + kv_len - q_len; }
};

namespace policy {

/// Stands in for a source in a Spec without one; never called.
struct NoSource {
  __device__ bool visible(const Place&) const { return true; }
  __device__ float apply(float score, const Place&) const { return score; }
};

}  // namespace policy
}  // namespace kernelwright
