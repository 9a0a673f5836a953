/// Conformance cases on the emulator.
#include <cstring>
#include <stdexcept>

#include "kernelwright/runtime/emulator/emulator.h"
#include "kernelwright/runtime/emulator/machine/tensor_map.h"
#include "runtime/emulator/conformance/conformance.h"

namespace kernelwright::test {
namespace {

class OnEmulator final : public ConformanceDevice {
 public:
  std::string name() const override { return "the emulator"; }

  Outputs run(const ConformanceCase& test) override {
    emulator::Emulator emulator({.hazards = true, .threads = 1, .max_instructions = 10'000'000});
    const auto module = emulator.load(test.text);
    std::vector<std::uint64_t> addresses;
    for (const ConformanceBuffer& buffer : test.buffers) {
      addresses.push_back(emulator.memory().allocate(buffer.bytes(), buffer.name));
      std::memcpy(reinterpret_cast<void*>(addresses.back()), buffer.contents.data(), buffer.bytes());
    }
    std::vector<TensorMap> maps;
    for (const ConformanceMap& map : test.maps) {
      TensorMapRequest request = map.request;
      for (std::size_t i = 0; i < test.buffers.size(); ++i)
        if (test.buffers[i].name == map.buffer) request.address = addresses[i];
      maps.push_back(emulator::encode_tensor_map(emulator::describe(request)));
    }
    const emulator::LaunchShape shape{
        .grid = {test.launch.grid[0], test.launch.grid[1], test.launch.grid[2]},
        .block = {test.launch.block, 1, 1},
        .cluster = {test.launch.cluster[0], test.launch.cluster[1], test.launch.cluster[2]},
        .dynamic_shared_bytes = test.launch.shared_bytes};
    const auto report = emulator.launch(*module, "test", shape, conformance_parameters(test, addresses, maps));
    if (!report.completed) throw std::runtime_error(report.fault);
    if (!report.hazards.empty()) throw std::runtime_error(report.hazards.front().text());
    Outputs outputs;
    for (std::size_t i = 0; i < test.buffers.size(); ++i) {
      const ConformanceBuffer& buffer = test.buffers[i];
      if (buffer.role == ConformanceBuffer::Role::kIn) continue;
      auto& bytes = outputs[buffer.name];
      bytes.resize(buffer.bytes());
      std::memcpy(bytes.data(), reinterpret_cast<const void*>(addresses[i]), buffer.bytes());
    }
    return outputs;
  }
};

}  // namespace

std::unique_ptr<ConformanceDevice> make_emulator_conformance_device() { return std::make_unique<OnEmulator>(); }

}  // namespace kernelwright::test
