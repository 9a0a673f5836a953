#include "kernelwright/generator/models/sharding.h"

namespace kernelwright {

Fact Sharding::divided(const Fact& whole, int ranks, const char* word) {
  const std::string words = std::string(word) + " " + std::to_string(ranks);
  if (whole.value() % ranks != 0) refuse(whole, whole.text() + " does not divide among " + words);
  return whole / Fact(ranks, "", words);
}

Fact Sharding::split(const Fact& whole) { return divided(whole, tp_, "tp"); }

Fact Sharding::kv_heads(const Fact& heads) {
  if (heads.value() >= tp_) return split(heads);
  if (tp_ % heads.value() != 0)
    refuse(heads, heads.text() + " cannot be shared by tp " + std::to_string(tp_) + " evenly");
  return Fact(1, heads.field(), "1 (" + heads.formula() + " shared by tp " + std::to_string(tp_) + ")");
}

void Sharding::refuse_block(const Fact& own, int block) {
  refuse(own, own.text() + " is no whole number of the blocks of " + std::to_string(block) +
                  " elements that share a scale (/quantization_config/weight_block_size)");
}

Fact Sharding::experts(const Fact& experts) { return divided(experts, ep_, "ep"); }

Fact Sharding::expert_width(const Fact& width) { return ep_ > 1 ? width : split(width); }

}  // namespace kernelwright
