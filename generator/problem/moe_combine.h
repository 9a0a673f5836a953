/// Adding up the rows that experts made of each token: the problem, its schedule and its shapes.
#pragma once

#include <string>

#include "kernelwright/generator/problem/enums.h"
#include "kernelwright/generator/problem/fields.h"

namespace kernelwright {

struct MoeCombineDTypes {
  DType in = DType::kBf16, out = DType::kBf16;
  bool operator==(const MoeCombineDTypes&) const = default;
};
template <class Visitor>
void visit_fields(MoeCombineDTypes& dtypes, Visitor&& field) {
  field("in", dtypes.in, any{}, "rows of experts, and the residual: bf16 or f16");
  field("out", dtypes.out, any{}, "rows of tokens: bf16, f16 or f32");
}

/// A token's row is the sum of its experts' rows, each times its weight, in the order of its slots and in f32. Numbers
/// of tokens and rows, and strides, are run-time parameters.
struct MoeCombineProblem {
  MoeCombineDTypes dtype;
  int width = 0;
  int top_k = 0;
  bool weighted = true;
  bool residual = false;
  bool operator==(const MoeCombineProblem&) const = default;
};
template <class Visitor>
void visit_fields(MoeCombineProblem& problem, Visitor&& field) {
  field("dtype", problem.dtype, any{}, "element types");
  field("width", problem.width, required{range{8, 16384, 8}}, "elements of a row");
  field("top_k", problem.top_k, required{range{1, 32}}, "slots of a token: rows that are added up");
  field("weighted", problem.weighted, any{}, "each row is multiplied by an f32 of its token and slot");
  field("residual", problem.residual, any{}, "a row of each token is added last: a residual, or a shared expert's");
}

struct MoeCombineSchedule {
  Auto<Arch> arch;
  Auto<Family> family;
  Auto<int> threads;
  bool operator==(const MoeCombineSchedule&) const = default;
};
template <class Visitor>
void visit_fields(MoeCombineSchedule& schedule, Visitor&& field) {
  field("arch", schedule.arch, any{}, "architecture to compile for");
  field("family", schedule.family, any{}, "kernel family");
  field("threads", schedule.threads, range{32, 1024, 32}, "threads of a CTA; each has eight elements of a token");
}

struct MoeCombineShape {
  std::string name;
  int tokens = 1;
  bool check = false;
  bool operator==(const MoeCombineShape&) const = default;
};
template <class Visitor>
void visit_fields(MoeCombineShape& shape, Visitor&& field) {
  field("name", shape.name, required{text{64}}, "name for --shape");
  field("tokens", shape.tokens, range{0, 1 << 24}, "tokens");
  field("check", shape.check, any{}, "a shape for run: small, with gaps between rows, skipped slots and weights of 0");
}

}  // namespace kernelwright
