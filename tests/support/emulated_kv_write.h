/// Shared by tests of kernels that write a cache on the emulator.
#pragma once

#include <functional>
#include <string>

#include "kernelwright/verify/kv_write/bound.h"
#include "kernelwright/verify/kv_write/device.h"
#include "support/emulated_attention.h"
#include "support/emulated_launch.h"

namespace kernelwright::test {

using KvWriteChange = std::function<void(KvWriteTensors&)>;

/// Reports are of wrong places alone, if the case has them: of slots, sequences, positions and pages.
inline void expect_no_reports_but_of_places(Engine& engine, const KvWriteCase& call) {
  for (const auto& [name, report] : take_reports(engine))
    if (!call.wrong_places || report.kind != emulator::HazardKind::kData)
      ADD_FAILURE() << name << ": " << report.text();
}

/// One launch into poisoned outputs. It must cause no other report, and write nothing beside the outputs.
inline KvWriteOutput run_checked(Engine& engine, const KvWriteCase& call, const KvWriteSchedule& schedule = {},
                                 const KvWriteChange& change = {}) {
  KvWriteDeviceCase on_device(engine.device(0), call, engine.prepare(call.problem, schedule));
  if (change) change(on_device.tensors());
  on_device.poison();
  on_device.launch();
  const KvWriteOutput output = on_device.download();
  EXPECT_TRUE(on_device.guards_are_intact()) << "memory beside an output was written";
  expect_no_reports_but_of_places(engine, call);
  return output;
}

inline void expect_right(const KvWriteCase& call, const KvWriteOutput& output) {
  expect_right<KvWriteCase, KvWriteOutput>(call, output);
}

inline std::string refusal_of_launch(Engine& engine, const KvWriteCase& call, const KvWriteChange& change) {
  return refusal_of<KvWriteDeviceCase>(engine, call, change);
}

/// 4 query heads over 2 key/value heads of 64 elements, pages of 4 keys.
inline KvWriteProblem small_kv_write() {
  KvWriteProblem problem;
  problem.head_dim = {64, 64};
  problem.heads = {4, 2};
  problem.kv_layout = {KvLayoutKind::kPaged, 4};
  return problem;
}

}  // namespace kernelwright::test
