/// One of two types, by a constant; and whether two types are the same.
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

template <class A, class B>
struct Same {
  enum : bool { value = false };
};
template <class A>
struct Same<A, A> {
  enum : bool { value = true };
};

}  // namespace kernelwright::policy
