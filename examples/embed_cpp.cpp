// Kernelwright inside a C++ program: prepares a kernel once, launches it on raw device pointers, and checks the result.
// It runs on the GPU, or on the emulator if there is none. Exits 3 if there is no compiler and the kernel is not
// cached.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "kernelwright/engine.h"

using namespace kernelwright;

namespace {

constexpr int kLen = 64, kHeads = 4, kKvHeads = 2, kHeadDim = 128;

// bf16 is the upper half of an f32.
std::uint16_t to_bf16(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<std::uint16_t>(bits >> 16);  // exact for the small integers below
}
float from_bf16(std::uint16_t half) {
  const std::uint32_t bits = std::uint32_t{half} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

int run() {
  EngineOptions options;
  options.sink = [](const kernelwright::Event& event) {
    std::printf("  %s: %s %s\n", to_string(event.kind).data(), event.name.c_str(), event.detail.c_str());
  };
  Engine engine(options);

  AttentionProblem problem;  // dtype bf16, padded layout
  problem.head_dim = {kHeadDim, kHeadDim};
  problem.heads = {kHeads, kKvHeads};
  problem.mask.kind = MaskKind::kCausal;
  const AttentionKernel kernel = engine.prepare(problem);  // compiled, or found in the cache, and loaded
  engine.seal();                                           // a server would do this: from here on nothing compiles

  // With queries and keys of zero, all visible keys have the same weight. Value t is t in every element, so row i is
  // the mean of 0..i.
  const std::size_t q_elements = kLen * kHeads * kHeadDim, kv_elements = kLen * kKvHeads * kHeadDim;
  std::vector<std::uint16_t> zeros(q_elements), values(kv_elements), out(q_elements);
  for (std::size_t i = 0; i < kv_elements; ++i) values[i] = to_bf16(static_cast<float>(i / (kKvHeads * kHeadDim)));

  Device& device = engine.device(0);  // a server has its own pointers and stream
  AttentionTensors tensors;
  tensors.q = device.allocate(q_elements * 2);
  tensors.k = device.allocate(kv_elements * 2);
  tensors.v = device.allocate(kv_elements * 2);
  tensors.o = device.allocate(q_elements * 2);
  tensors.batch = 1;
  tensors.q_len = tensors.kv_len = kLen;
  device.copy_to_device(tensors.q, zeros.data(), q_elements * 2);
  device.copy_to_device(tensors.k, zeros.data(), kv_elements * 2);
  device.copy_to_device(tensors.v, values.data(), kv_elements * 2);
  tensors.workspace_bytes = kernel.workspace_bytes(kernel.extent(tensors));
  tensors.workspace = device.allocate(tensors.workspace_bytes);

  const Stream stream = device.create_stream();
  kernel.launch(tensors, stream);
  device.synchronize(stream);
  device.copy_to_host(out.data(), tensors.o, q_elements * 2);
  device.destroy_stream(stream);
  for (const DevicePtr address : {tensors.q, tensors.k, tensors.v, tensors.o, tensors.workspace}) device.free(address);

  for (const int row : {0, 1, kLen - 1}) {
    const float found = from_bf16(out[static_cast<std::size_t>(row) * kHeads * kHeadDim]);
    std::printf("row %2d: %g, expected %g\n", row, found, row / 2.0);
    if (found != static_cast<float>(row) / 2) return 1;  // all these means are exact in bf16
  }
  std::printf("right, by %s on %s\n", kernel.binary()->entry.c_str(), device.info().name.c_str());
  return 0;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const MissingError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
