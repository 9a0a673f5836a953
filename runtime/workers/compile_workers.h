/// NVRTC in worker processes: a crash, an abort, a hang or a runaway of the compiler costs one kernel and not the
/// server.
#pragma once

#include <memory>
#include <string>

#include "kernelwright/runtime/cache/compile_room.h"
#include "kernelwright/runtime/compile/source_compiler.h"
#include "kernelwright/runtime/process/events.h"
#include "kernelwright/runtime/workers/options.h"
#include "kernelwright/runtime/workers/worker_child.h"

namespace kernelwright {

/// A process is started when a thread compiles and no process is idle. A thread compiles in one process at a time. All
/// processes end with this object, or with this process. After fork(), the child starts processes of its own.
class CompileWorkers final : public SourceCompiler {
 public:
  /// Starts nothing. `options.where` is kWorkers or kAuto.
  CompileWorkers(std::string nvrtc_path, CompileWorkerOptions options, EventSink sink);
  ~CompileWorkers() override;

  /// One of the host's slots for compiles, not taken yet. A caller that holds one compiles beside as many others as the
  /// host bears. At most twice the time of one compile is waited for it: a slot whose holder hangs is free after one.
  /// This object must outlive it.
  std::unique_ptr<CompileRoom> room() const;
  /// Throws CompilerFaultError, after an event (kCompileWorker), if the worker fails. Else as SourceCompiler says.
  CompileAnswer compile(const CompileRequest& request) override;
  int version() override;
  CompileWorkerCounters counters() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// What `options` ask for, which is not kHosts: CompileWorkers, or Nvrtc. Throws ConfigError for an option, or a word
/// of the environment, that cannot be used.
std::unique_ptr<SourceCompiler> make_source_compiler(std::string nvrtc_path, CompileWorkerOptions options,
                                                     EventSink sink);

}  // namespace kernelwright
