/// A handle as Python calls it: kernel(q, k, v, out=o). The call reads its tensors through their framework's table of C
/// functions, fills the C struct by the rules, and launches. What the rules do not take goes to the handle's Python
/// method _slow(), which checks in words.
#pragma once

#include "fast/frameworks.h"
#include "fast/python.h"
#include "fast/rules.h"

namespace kernelwright::fast {

/// The workspace of a stream, as Python's _workspace() gave it. Python keeps its memory for good.
struct Workspace {
  void* stream;
  std::uint64_t address, bytes;
};
constexpr int kMostWorkspaces = 4, kMostResults = 5;

/// The sizes of a launch whose workspace was asked for, and what it needs.
struct Asked {
  std::int64_t sizes[kMostSizes];
  std::uint64_t bytes;
  bool known;
};

/// All that a handle knows beside its rules.
struct State {
  Rules rules;
  void* kernel;
  const std::int32_t* engine_lives;  // 0 once the engine is closed
  int (*launch)(void* kernel, const void* tensors, void* stream);
  int (*workspace_bytes)(void* kernel, const void* tensors, std::uint64_t* bytes);  // null: a launch needs none

  int num_arguments, num_positional, num_results;
  PyObject* names[kMostArguments];  // interned
  bool has_rule[kMostArguments];
  int stream_argument, workspace;  // place in names, in rules.operands; -1: there is none
  int results[kMostResults];       // places in rules.operands
  Workspace workspaces[kMostWorkspaces];
  int num_workspaces;
  Asked asked;  // of the last launch from Python
  unsigned long long fast_calls, slow_calls;
};

/// The values of one call by argument; null: not given.
struct Given {
  PyObject* values[kMostArguments];
};

/// Reads a state, which is all zeros, from the tuple that kernelwright/_rules.py makes. False: with an error.
bool read_state(PyObject* described, State& state);
void free_state(State* state);
/// The state of a handle; null: the object is none, or has no rules yet.
State* state_of(PyObject* door);

enum class Outcome { kDone, kMiss, kError };

/// What a launch needs, from the library, or from the last launch of the same sizes. False: the library refuses.
bool needed_workspace(const State& state, Asked& asked, const Launch& launch, std::uint64_t& bytes);

/// One call. kDone: *result is a new reference. kError: with an error.
Outcome call(State& state, PyObject* self, const Given& given, PyObject** result);
/// The struct of the call alone, as bytes; None for a miss. Nothing is allocated. For tests.
PyObject* build(State& state, const Given& given);

}  // namespace kernelwright::fast
