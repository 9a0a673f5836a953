/// One of two types, by a constant.
#pragma once

namespace kernelwright::policy {

template <bool kTrue, class A, class B>
struct Either {
  using type = A;
};
template <class A, class B>
struct Either<false, A, B> {
  using type = B;
};

}  // namespace kernelwright::policy
