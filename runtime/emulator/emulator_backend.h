/// backend.h on the CPU: one device, which runs the PTX of each kernel and claims to be any architecture.
///
/// A launch has run to its end when launch() returns. So streams never overlap, synchronize() has nothing to wait for,
/// and events carry the host's time. A capture keeps launches and fills, and runs them only when it is replayed. Device
/// addresses are addresses of this process.
///
/// What a driver would refuse is a DeviceError here too, with the driver's CUresult:
///     1 an argument that does not fit        2 no memory              200 an image that is no PTX
///   209 PTX for another architecture       218 PTX that is refused    400 an unknown stream or event
///   401 a capture begun or ended wrongly   500 no such entry          900 waiting for a stream that captures
/// A launch that does not reach its end throws at once. A GPU would report it at the next wait, and would stay broken,
/// which this device does not.
///   700 memory outside of any allocation   702 a deadlock             719 anything else
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernelwright/runtime/device/backend.h"
#include "kernelwright/runtime/device/emulator_options.h"
#include "kernelwright/runtime/emulator/emulator.h"

namespace kernelwright {

namespace emulator {
/// A report, and the kernel that caused it.
struct KernelHazard {
  std::string kernel;
  HazardReport report;
};
}  // namespace emulator

/// Safe from any number of threads; launches take turns.
class EmulatorBackend : public Backend {
 public:
  /// The reports of all launches since the last call; equal ones are counted. A report never makes a launch throw. The
  /// reports include the faults that ended launches which threw.
  virtual std::vector<emulator::KernelHazard> take_reports() = 0;
  /// Adds a report that other code has found, as if the next launch had caused it.
  virtual void add_report(emulator::KernelHazard hazard) = 0;
  /// The traces of the launches since the last call; at most the last 16. Needs EmulatorBackendOptions::timeline.
  virtual std::vector<std::shared_ptr<const emulator::Trace>> take_traces() = 0;
  /// The sums over all launches so far.
  virtual emulator::Statistics statistics() const = 0;
  virtual emulator::Emulator& emulator() = 0;
};

/// What the device is made of, beside its architecture.
struct EmulatedMachine {
  int num_sms;  // unless EmulatorBackendOptions::num_sms says another number
  emulator::MachineCosts costs;
};

/// runtime/engine/emulated_machine.h makes one without a machine: that of the class that stands for `options.arch`.
std::unique_ptr<EmulatorBackend> make_emulator_backend(EmulatorBackendOptions options, const EmulatedMachine& machine);

}  // namespace kernelwright
