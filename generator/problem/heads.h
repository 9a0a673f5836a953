/// Heads of queries, keys and values, and how a cache of keys lies: what attention and writing a cache have in common.
#pragma once

#include "kernelwright/generator/problem/enums.h"
#include "kernelwright/generator/problem/fields.h"

namespace kernelwright {

struct HeadDim {
  int qk = 128, v = 128;
  bool operator==(const HeadDim&) const = default;
};
template <class Visitor>
void visit_fields(HeadDim& head_dim, Visitor&& field) {
  field("qk", head_dim.qk, required{range{1, 1024}}, "elements of one query or key head");
  field("v", head_dim.v, required{range{1, 1024}}, "elements of one value head");
}

struct Heads {
  int q = 1, kv = 1;
  bool operator==(const Heads&) const = default;
};
template <class Visitor>
void visit_fields(Heads& heads, Visitor&& field) {
  field("q", heads.q, required{range{1, 4096}}, "query heads; a multiple of the key/value heads");
  field("kv", heads.kv, required{range{1, 4096}}, "key and value heads");
}

struct KvLayout {
  KvLayoutKind kind = KvLayoutKind::kPadded;
  int page_size = 0;  // keys in one page; 0 unless paged
  bool operator==(const KvLayout&) const = default;
};
template <class Visitor>
void visit_fields(KvLayout& layout, Visitor&& field) {
  field("kind", layout.kind, required{any{}}, "how keys and values lie in memory");
  field("page_size", layout.page_size, range{0, 65536}, "keys in one page, for kind paged");
}

}  // namespace kernelwright
