/// An instance of a model: its kernel on one device, a stream, and memory for one request at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "model.h"

namespace kernelwright::triton {

/// The moments of a request that the server's statistics have, in nanoseconds of the steady clock.
struct Moments {
  std::uint64_t start = 0, compute_start = 0, compute_end = 0, end = 0;
};

/// The server calls an instance from one thread at a time. The model outlives it.
class Instance {
 public:
  /// Prepares the kernel. Throws ConfigError if the instance is on no device of the model's, and what Engine::prepare()
  /// throws.
  Instance(TRITONBACKEND_ModelInstance* instance, const Model& model);
  ~Instance();
  Instance(const Instance&) = delete;

  /// Computes a request and writes the outputs that it wants into `response`, which the caller sends. Returns once they
  /// are written. Throws ConfigError, ServerError or DeviceError; the instance then takes further requests.
  Moments execute(TRITONBACKEND_Request* request, TRITONBACKEND_Response* response);

 private:
  struct Output {
    std::size_t operand = 0;
    void* buffer = nullptr;  // null if the request does not want it
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    std::int64_t memory_id = 0;
    std::uint64_t bytes = 0;
  };

  /// The input in memory of this device: its own if it lies there in one piece, else a copy.
  DevicePtr gather(TRITONBACKEND_Input* input, std::size_t operand, std::uint32_t pieces, std::uint64_t bytes);
  void copy_in(DevicePtr to, const void* from, std::uint64_t bytes, TRITONSERVER_MemoryType memory,
               std::int64_t memory_id);
  void copy_out(const Output& output, DevicePtr from);
  /// Whether a kernel may read or write it where it is.
  bool is_here(const void* address, TRITONSERVER_MemoryType memory, std::int64_t memory_id) const;
  void read_inputs(TRITONBACKEND_Request* request, Call& call);
  std::vector<Output> make_outputs(TRITONBACKEND_Request* request, TRITONBACKEND_Response* response, Call& call);

  std::unique_ptr<PreparedKernel> prepare();
  void note_buffers();

  const Model& model_;
  Device& device_;
  std::unique_ptr<PreparedKernel> kernel_;
  const std::vector<DevicePtr> weights_;  // as Operation::operands(); 0 for those that requests give
  std::vector<Buffer> buffers_;           // likewise
  Buffer workspace_;
  std::uint64_t noted_bytes_ = 0;  // of the buffers and the workspace, in the model's metrics
  Stream stream_ = nullptr;
};

}  // namespace kernelwright::triton
