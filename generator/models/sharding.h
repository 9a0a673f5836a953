/// How tensor and expert parallelism divide a model's numbers between ranks.
#pragma once

#include <string>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/models/fact.h"

namespace kernelwright {

/// Which side of a linear layer's weight [n, k] the ranks divide. Divided rows of n are column parallel in the words of
/// Megatron-LM, divided k is row parallel.
enum class Split { kNone, kN, kK };

class Sharding {
 public:
  Sharding(int tp, int ep) : tp_(tp), ep_(ep) {}
  int tp() const { return tp_; }
  int ep() const { return ep_; }

  /// `whole` / tp.
  Fact split(const Fact& whole);
  /// Key/value heads of a rank: `heads` / tp. Where tp is above `heads`, ranks share a head, and each rank has one.
  Fact kv_heads(const Fact& heads);
  /// Experts of a rank: `experts` / ep.
  Fact experts(const Fact& experts);
  /// The inner size of an expert: experts that ranks do not divide between them are themselves divided.
  Fact expert_width(const Fact& width);

  /// Refuses a size that a rank has, because it is no multiple of the `block` elements that share a scale.
  void refuse_block(const Fact& own, int block);
  void refuse(const Fact& fact, std::string message) { violations_.push_back({fact.field(), std::move(message)}); }
  const std::vector<Violation>& violations() const { return violations_; }

 private:
  Fact divided(const Fact& whole, int ranks, const char* word);
  int tp_, ep_;
  std::vector<Violation> violations_;
};

}  // namespace kernelwright
