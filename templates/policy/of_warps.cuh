/// What depends on the warps of a CTA, in a kernel that launches of few tokens give fewer warps.
#pragma once

namespace kernelwright::policy {

/// Lives in shared memory. kFewWarps may be kWarps.
template <template <int> class Type, int kWarps, int kFewWarps>
class OfWarps {
 public:
  /// Calls body(Type<warps of this launch>&).
  template <class Body>
  __device__ __forceinline__ void visit(const Body& body) {
    if (kFewWarps == kWarps || blockDim.x != 32 * kFewWarps)
      body(storage_.many);
    else
      body(storage_.few);
  }

 private:
  union Storage {
    Type<kWarps> many;
    Type<kFewWarps> few;
  };
  Storage storage_;
};

}  // namespace kernelwright::policy
