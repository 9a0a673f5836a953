/// Calls of every kind on a device, drawn at random from a number, which random launches queue beside each other.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "end_to_end/random_calls.h"
#include "kernelwright/runtime/engine/engine.h"
#include "support/drawn_kv_write.h"

namespace kernelwright {

/// A call with its memory on the device. One thread may use it. Each function but the first two waits for its launch.
class RandomJob {
 public:
  virtual ~RandomJob() = default;
  /// Config and inputs, for people.
  virtual std::string describe() const = 0;
  /// Queues a launch into poisoned outputs on `stream`. `sm_budget` is for kernels that have one, and changes no bit.
  virtual void launch(Stream stream, int sm_budget) = 0;
  /// Keeps the output. Returns false if memory beside it was written.
  virtual bool keep() = 0;
  /// Whether the output is the kept one, to the bit.
  virtual bool repeats() = 0;
  /// What is wrong with the kept output; "" if nothing is.
  virtual std::string fault() const = 0;
};

/// Attention kernels in turn of family and form, and a kv_write for every four of them, prepared. Those that launches
/// of a seed take at random.
class RandomKernels {
 public:
  /// Compiles on all cores; nothing compiles later. `engine` must outlive this object and its jobs. Of the kernels
  /// drawn it takes those in whose line of counts() `kind` stands.
  RandomKernels(Engine& engine, int attention_kernels, std::uint64_t seed, const std::string& kind = "");

  /// The call of that number, which is the same for the same seed.
  std::unique_ptr<RandomJob> draw(const CallLimits& limits, std::uint64_t number);
  /// A line for each kind of kernel: how many launches draw() has made of it.
  std::string counts() const;

 private:
  struct Attention {
    DrawnKernel drawn;
    AttentionKernel kernel;
  };
  struct KvWrite {
    test::DrawnKvWrite drawn;
    KvWriteKernel kernel;
  };
  Device& device_;
  const std::uint64_t seed_;
  std::vector<Attention> attention_;
  std::vector<KvWrite> kv_write_;
  std::vector<std::string> kinds_;  // of attention_, then of kv_write_
  std::vector<std::uint64_t> drawn_;
};

}  // namespace kernelwright
