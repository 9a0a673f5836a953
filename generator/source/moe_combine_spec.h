/// The Spec of moe_combine: spec.h has what a Spec is.
#pragma once

#include "kernelwright/generator/problem/enums.h"
#include "kernelwright/generator/problem/fields.h"

namespace kernelwright {

/// moe_combine.
struct MoeCombineSpec {
  static constexpr Family family = Family::kPortable;  // the only one; no part of the text
  Arch arch = Arch::kSm80;
  DType in = DType::kBf16, out = DType::kBf16;
  int width = 8;
  int top_k = 1;
  bool weighted = true, adds = false;
  int cta_threads = 128;
  bool operator==(const MoeCombineSpec&) const = default;
  /// Threads of a CTA.
  int threads() const { return cta_threads; }
};
template <class Visitor>
void visit_fields(MoeCombineSpec& spec, Visitor&& field) {
  field("arch", spec.arch, any{}, "architecture");
  field("in", spec.in, any{}, "dtype of the rows of experts, and of the residual");
  field("out", spec.out, any{}, "dtype of the rows of tokens");
  field("width", spec.width, any{}, "elements of a row");
  field("top_k", spec.top_k, any{}, "slots of a token");
  field("weighted", spec.weighted, any{}, "each row is multiplied by a weight");
  field("adds", spec.adds, any{}, "a residual is added last");
  field("threads", spec.cta_threads, any{}, "threads of a CTA");
}

}  // namespace kernelwright
