/// backend.h on the CPU: one device, which runs the PTX of each kernel and claims to be any architecture.
///
/// A launch has run to its end when launch() returns, so streams never overlap, synchronize() has nothing to wait for
/// and events carry the host's time. A capture keeps launches and fills instead of running them, until they are
/// replayed. Device addresses are addresses of this process.
///
/// What a driver would refuse is a DeviceError here too, with the CUresult that the driver gives for it:
///     1 an argument that does not fit        2 no memory              200 an image that is no PTX
///   209 PTX for another architecture       218 PTX that is refused    400 an unknown stream or event
///   401 a capture begun or ended wrongly   500 no such entry          900 waiting for a stream that captures
/// and a launch that does not reach its end throws at once (a GPU would tell at the next wait; and it would stay
/// broken, which this device does not): 700 memory outside of any allocation, 702 a deadlock, 719 anything else.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernelwright/runtime/device/backend.h"
#include "kernelwright/runtime/device/emulator_options.h"
#include "kernelwright/runtime/emulator/emulator.h"

namespace kernelwright {

namespace emulator {
/// A report, and the kernel that it is of.
struct KernelHazard {
  std::string kernel;
  HazardReport report;
};
}  // namespace emulator

/// Safe from any number of threads; launches take turns.
class EmulatorBackend : public Backend {
 public:
  /// The reports of all launches since the last call, equal ones counted. A report never makes a launch throw; what
  /// ended a launch that threw is among them.
  virtual std::vector<emulator::KernelHazard> take_reports() = 0;
  /// Takes in a report that something else has found, as one of the next launch.
  virtual void add_report(emulator::KernelHazard hazard) = 0;
  /// With EmulatorBackendOptions::timeline: the traces of the launches since the last call, of which it keeps the last
  /// 16.
  virtual std::vector<std::shared_ptr<const emulator::Trace>> take_traces() = 0;
  /// Of all launches so far.
  virtual emulator::Statistics statistics() const = 0;
  virtual emulator::Emulator& emulator() = 0;
};

std::unique_ptr<EmulatorBackend> make_emulator_backend(EmulatorBackendOptions options = {});

}  // namespace kernelwright
