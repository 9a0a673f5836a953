/// An Engine on a fake backend and a fake compiler, and the problems for its tests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <vector>

#include "kernelwright/runtime/engine/engine.h"
#include "support/fake_backend.h"
#include "support/fake_store.h"

namespace kernelwright::test {

inline AttentionProblem prefill_problem() {
  AttentionProblem problem;
  problem.dtype = {DType::kBf16, DType::kBf16, DType::kBf16};
  problem.head_dim = {128, 128};
  problem.heads = {8, 2};
  problem.mask.kind = MaskKind::kCausal;
  return problem;
}

/// A schedule that differs from the planner's choice.
inline AttentionSchedule other_schedule() {
  AttentionSchedule schedule;
  schedule.rescale = Rescale::kAlways;
  return schedule;
}
inline const char* const kOtherSchedule = "rescale always";  // in its Spec's text

inline AttentionTensors some_tensors() {
  AttentionTensors tensors;
  tensors.q = 0x10000;
  tensors.k = 0x20000;
  tensors.v = 0x30000;
  tensors.o = 0x40000;
  tensors.batch = 2;
  tensors.q_len = 100;
  tensors.kv_len = 300;
  return tensors;
}

inline Stream some_stream() { return reinterpret_cast<Stream>(std::uintptr_t{0x5000}); }

struct EngineTest : ::testing::Test {
  explicit EngineTest(int devices = 1) : backend(std::make_shared<FakeBackend>(devices)) {}

  EngineOptions options() {
    EngineOptions options;
    options.cache = memory_only();
    options.compile_threads = 2;
    options.custom_backend = backend;
    options.custom_store = store;
    options.sink = [this](const kernelwright::Event& event) {
      std::lock_guard lock(mutex);
      events.push_back(event);
    };
    return options;
  }
  std::vector<kernelwright::Event> events_of(EventKind kind) {
    std::lock_guard lock(mutex);
    std::vector<kernelwright::Event> found;
    for (const auto& event : events)
      if (event.kind == kind) found.push_back(event);
    return found;
  }
  FakeDevice& device(int ordinal = 0) { return backend->device(ordinal); }

  std::shared_ptr<FakeBackend> backend;
  std::shared_ptr<FakeStore> store = std::make_shared<FakeStore>();
  std::mutex mutex;
  std::vector<kernelwright::Event> events;
};

/// The error text of a callable; "" if it throws nothing or another type.
template <class Exception, class F>
std::string message_of(F&& call) {
  try {
    call();
  } catch (const Exception& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another exception: ") + error.what();
  }
  return "nothing was thrown";
}

}  // namespace kernelwright::test
