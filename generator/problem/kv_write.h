/// Writing keys and values to a cache: how, and the shapes of a config. kv_write_problem.h has what is computed.
#pragma once

#include <string>

#include "kernelwright/generator/problem/enums.h"
#include "kernelwright/generator/problem/fields.h"
#include "kernelwright/generator/problem/kv_write_problem.h"
#include "kernelwright/generator/problem/schedule.h"

namespace kernelwright {

struct KvWriteSchedule {
  Auto<Arch> arch;
  Auto<Family> family;
  Auto<int> num_warps, heads_per_lane;
  bool operator==(const KvWriteSchedule&) const = default;
};
template <class Visitor>
void visit_fields(KvWriteSchedule& schedule, Visitor&& field) {
  field("arch", schedule.arch, any{}, "architecture to compile for");
  field("family", schedule.family, any{}, "kernel family");
  field("num_warps", schedule.num_warps, range{1, 32}, "warps of a CTA");
  field("heads_per_lane", schedule.heads_per_lane, range{1, 8},
        "heads of a token of which a lane has 16 elements each; auto: one in launches of few tokens");
}

struct KvWriteShape {
  std::string name;
  int tokens = 1;
  int pages = 0;
  bool check = false;
  bool operator==(const KvWriteShape&) const = default;
};
template <class Visitor>
void visit_fields(KvWriteShape& shape, Visitor&& field) {
  field("name", shape.name, required{text{64}}, "name for --shape");
  field("tokens", shape.tokens, range{0, 1 << 24}, "tokens that are written");
  field("pages", shape.pages, range{0, 1 << 24}, "pages of the cache; 0: twice as many as the tokens fill");
  field("check", shape.check, any{}, "a shape for run: small, with slots that are skipped");
}

}  // namespace kernelwright
