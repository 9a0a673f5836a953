/// What a model computes, from its problem.json: the tensors of a request, and a kernel on a device.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernelwright/engine.h"
#include "operands.h"

namespace kernelwright::triton {

/// The arguments of one launch.
struct Call {
  Sizes sizes;
  std::vector<DevicePtr> addresses;  // as Operation::operands()
  DevicePtr workspace = 0;
  std::uint64_t workspace_bytes = 0;
};

/// The operation's kernel on one device. It lives as long as its engine, and any thread may use it.
class PreparedKernel {
 public:
  virtual ~PreparedKernel() = default;
  /// Bytes of workspace that `call` takes, whatever its workspace is.
  virtual std::uint64_t workspace_bytes(const Call& call) const = 0;
  /// Queues the launch. Throws what the kernel's launch() throws.
  virtual void launch(const Call& call, Stream stream) const = 0;
};

class Operation {
 public:
  virtual ~Operation() = default;
  const std::vector<Operand>& operands() const { return operands_; }
  std::vector<Operand>& operands() { return operands_; }
  /// Compiles the kernel, or loads it from the cache. Throws what Engine::prepare() throws.
  virtual std::unique_ptr<PreparedKernel> prepare(Engine& engine, int device) const = 0;

 protected:
  std::vector<Operand> operands_;
};

/// Reads a config of kind gemm or attention. Throws ConfigError, with every reason, if it is none or if requests cannot
/// give what its launch takes.
std::unique_ptr<Operation> read_operation(const std::string& path);

}  // namespace kernelwright::triton
