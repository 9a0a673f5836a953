/// What tests of kinds beside attention and GEMM do with one launch on the emulator.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/engine/engine.h"
#include "support/emulated_attention.h"

namespace kernelwright::test {

template <class Case, class Output>
void expect_right(const Case& call, const Output& output) {
  const auto verdict = verify(call, output);
  EXPECT_TRUE(verdict.passed) << verdict.text << "\nworst/bound " << verdict.worst_ratio;
}

/// One launch into poisoned outputs. It must cause no report, and write nothing beside the outputs. `change`, which may
/// be empty, takes the device call.
template <class DeviceCall, class Case, class Schedule, class Change>
auto launch_checked(Engine& engine, const Case& call, const Schedule& schedule, const Change& change) {
  DeviceCall on_device(engine.device(0), call, engine.prepare(call.problem, schedule));
  if (change) change(on_device);
  on_device.poison();
  on_device.launch();
  auto output = on_device.download();
  EXPECT_TRUE(on_device.guards_are_intact()) << "memory beside an output was written";
  expect_no_reports(engine);
  return output;
}

/// What launch() throws for arguments that do not fit, with nothing queued; "" if launch() accepts them. `change`
/// takes the launch's tensors.
template <class DeviceCall, class Case, class Change>
std::string refusal_of(Engine& engine, const Case& call, const Change& change) {
  DeviceCall on_device(engine.device(0), call, engine.prepare(call.problem));
  change(on_device.tensors());
  on_device.poison();
  const auto before = on_device.download();
  try {
    on_device.launch();
  } catch (const ConfigError& error) {
    EXPECT_EQ(on_device.download(), before) << "something was written";
    return error.what();
  }
  on_device.wait();
  return "";
}

}  // namespace kernelwright::test
