// One request after another: inputs are gathered, the kernel runs, outputs are written.
#include "instance.h"

#include <chrono>
#include <cstddef>
#include <set>

#include "errors.h"

namespace kernelwright::triton {
namespace {

std::uint64_t now() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

constexpr std::uint64_t kAlignment = 16;  // of every operand, in bytes

/// The ordinal of the instance's device in the engine.
int device_of(TRITONBACKEND_ModelInstance* instance, const Model& model) {
  if (model.emulated()) return 0;
  TRITONSERVER_InstanceGroupKind kind = TRITONSERVER_INSTANCEGROUPKIND_AUTO;
  check(TRITONBACKEND_ModelInstanceKind(instance, &kind));
  if (kind != TRITONSERVER_INSTANCEGROUPKIND_GPU)
    throw ConfigError("/instance_group",
                      "has an instance that is on no GPU; KIND_GPU is accepted where device is cuda");
  std::int32_t device = 0;
  check(TRITONBACKEND_ModelInstanceDeviceId(instance, &device));
  return device;
}

/// The names of the outputs that a request wants.
std::set<std::string> wanted_outputs(TRITONBACKEND_Request* request) {
  std::set<std::string> names;
  std::uint32_t count = 0;
  check(TRITONBACKEND_RequestOutputCount(request, &count));
  for (std::uint32_t i = 0; i < count; ++i) {
    const char* name = nullptr;
    check(TRITONBACKEND_RequestOutputName(request, i, &name));
    names.insert(name);
  }
  return names;
}

}  // namespace

Instance::Instance(TRITONBACKEND_ModelInstance* instance, const Model& model)
    : model_(model),
      device_(model.engine().device(device_of(instance, model))),
      kernel_(prepare()),
      weights_(model.weights_on(device_)),
      workspace_(device_) {
  for (std::size_t i = 0; i < model.operation().operands().size(); ++i) buffers_.emplace_back(device_);
  stream_ = device_.create_stream();
}

Instance::~Instance() {
  model_.note_buffers(-static_cast<double>(noted_bytes_));
  device_.destroy_stream(stream_);
}

std::unique_ptr<PreparedKernel> Instance::prepare() {
  const std::uint64_t begin = now();
  std::unique_ptr<PreparedKernel> kernel = model_.operation().prepare(model_.engine(), device_.ordinal());
  model_.note_prepared(static_cast<double>(now() - begin) * 1e-9);
  return kernel;
}

void Instance::note_buffers() {
  std::uint64_t bytes = workspace_.bytes();
  for (const Buffer& buffer : buffers_) bytes += buffer.bytes();
  if (bytes == noted_bytes_) return;
  model_.note_buffers(static_cast<double>(bytes) - static_cast<double>(noted_bytes_));
  noted_bytes_ = bytes;
}

bool Instance::is_here(const void* address, TRITONSERVER_MemoryType memory, std::int64_t memory_id) const {
  return !model_.emulated() && memory == TRITONSERVER_MEMORY_GPU && memory_id == device_.ordinal() &&
         reinterpret_cast<std::uintptr_t>(address) % kAlignment == 0;
}

void Instance::copy_in(DevicePtr to, const void* from, std::uint64_t bytes, TRITONSERVER_MemoryType memory,
                       std::int64_t memory_id) {
  if (memory != TRITONSERVER_MEMORY_GPU) return device_.copy_to_device(to, from, bytes);
  if (model_.emulated()) throw ConfigError("", "an input lies on a GPU, where an emulator cannot read it");
  std::vector<std::byte> staged(bytes);
  Device& source = model_.engine().device(static_cast<int>(memory_id));
  source.copy_to_host(staged.data(), reinterpret_cast<DevicePtr>(from), bytes);
  device_.copy_to_device(to, staged.data(), bytes);
}

void Instance::copy_out(const Output& output, DevicePtr from) {
  if (output.memory != TRITONSERVER_MEMORY_GPU) return device_.copy_to_host(output.buffer, from, output.bytes);
  if (model_.emulated()) throw ConfigError("", "an output lies on a GPU, where an emulator cannot write it");
  std::vector<std::byte> staged(output.bytes);
  device_.copy_to_host(staged.data(), from, output.bytes);
  Device& target = model_.engine().device(static_cast<int>(output.memory_id));
  target.copy_to_device(reinterpret_cast<DevicePtr>(output.buffer), staged.data(), output.bytes);
}

DevicePtr Instance::gather(TRITONBACKEND_Input* input, std::size_t operand, std::uint32_t pieces, std::uint64_t bytes) {
  DevicePtr to = 0;
  std::uint64_t filled = 0;
  for (std::uint32_t i = 0; i < pieces; ++i) {
    const void* piece = nullptr;
    std::uint64_t piece_bytes = 0;
    TRITONSERVER_MemoryType memory = model_.emulated() ? TRITONSERVER_MEMORY_CPU : TRITONSERVER_MEMORY_GPU;
    std::int64_t memory_id = model_.emulated() ? 0 : device_.ordinal();
    check(TRITONBACKEND_InputBuffer(input, i, &piece, &piece_bytes, &memory, &memory_id));
    if (piece_bytes == bytes && is_here(piece, memory, memory_id)) return reinterpret_cast<DevicePtr>(piece);
    if (piece_bytes > bytes - filled) break;  // more than the shape has: the sum below is wrong, too
    if (!to) to = buffers_[operand].reserve(bytes);
    copy_in(to + filled, piece, piece_bytes, memory, memory_id);
    filled += piece_bytes;
  }
  const std::string& name = model_.operation().operands()[operand].name;
  if (filled != bytes) throw ConfigError("/" + name, "its buffers do not have the bytes of its shape");
  return to;
}

void Instance::read_inputs(TRITONBACKEND_Request* request, Call& call) {
  const std::vector<Operand>& operands = model_.operation().operands();
  call.addresses = weights_;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Operand& operand = operands[i];
    if (operand.is_output || operand.is_held) continue;
    TRITONBACKEND_Input* input = nullptr;
    check(TRITONBACKEND_RequestInput(request, operand.name.c_str(), &input));
    TRITONSERVER_DataType type = TRITONSERVER_TYPE_INVALID;
    const std::int64_t* extents = nullptr;
    std::uint32_t dimensions = 0, pieces = 0;
    std::uint64_t given_bytes = 0;
    check(TRITONBACKEND_InputProperties(input, nullptr, &type, &extents, &dimensions, &given_bytes, &pieces));
    if (type != server_type(operand.dtype))
      throw ConfigError("/" + operand.name, std::string(TRITONSERVER_DataTypeString(type)) + " is given; " +
                                                TRITONSERVER_DataTypeString(server_type(operand.dtype)) +
                                                " is accepted");
    const Shape shape(extents, extents + dimensions);
    choose_sizes(call.sizes, operand, shape);
    const std::uint64_t bytes = bytes_of(operand, shape);
    if (bytes != given_bytes)
      throw ConfigError("/" + operand.name,
                        std::to_string(given_bytes) + " bytes are given; its shape has " + std::to_string(bytes));
    call.addresses[i] = gather(input, i, pieces, bytes);
  }
}

std::vector<Instance::Output> Instance::make_outputs(TRITONBACKEND_Request* request, TRITONBACKEND_Response* response,
                                                     Call& call) {
  const std::vector<Operand>& operands = model_.operation().operands();
  const std::set<std::string> wanted = wanted_outputs(request);
  std::vector<Output> outputs;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Operand& operand = operands[i];
    if (!operand.is_output) continue;
    const Shape shape = shape_of(operand, call.sizes);
    Output output{.operand = i, .bytes = bytes_of(operand, shape)};
    if (wanted.count(operand.name)) {
      TRITONBACKEND_Output* made = nullptr;
      check(TRITONBACKEND_ResponseOutput(response, &made, operand.name.c_str(), server_type(operand.dtype),
                                         shape.data(), static_cast<std::uint32_t>(shape.size())));
      if (!model_.emulated()) output.memory = TRITONSERVER_MEMORY_GPU, output.memory_id = device_.ordinal();
      check(TRITONBACKEND_OutputBuffer(made, &output.buffer, output.bytes, &output.memory, &output.memory_id));
    }
    const bool in_place = output.buffer && is_here(output.buffer, output.memory, output.memory_id);
    call.addresses[i] = in_place ? reinterpret_cast<DevicePtr>(output.buffer) : buffers_[i].reserve(output.bytes);
    if (!in_place && output.buffer) outputs.push_back(output);
  }
  return outputs;
}

Moments Instance::execute(TRITONBACKEND_Request* request, TRITONBACKEND_Response* response) {
  Moments moments{.start = now()};
  Call call;
  read_inputs(request, call);
  const std::vector<Output> outputs = make_outputs(request, response, call);
  call.workspace_bytes = kernel_->workspace_bytes(call);
  call.workspace = workspace_.reserve(call.workspace_bytes);
  note_buffers();
  moments.compute_start = now();
  kernel_->launch(call, stream_);
  device_.synchronize(stream_);
  moments.compute_end = now();
  for (const Output& output : outputs) copy_out(output, call.addresses[output.operand]);
  moments.end = now();
  return moments;
}

}  // namespace kernelwright::triton
