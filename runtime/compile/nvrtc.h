/// NVRTC in this process, opened at run time.
///
/// Measured facts:
/// - NVRTC runs its C++ front end under a lock of the whole process, and the rest in parallel.
/// - After fork(), a child's compile may hang for ever.
/// - A program that failed still reports a cubin, of zero bytes.
/// - A compile with -G or -Ofc changes the results of later compiles of the process. So neither option is ever passed.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "kernelwright/runtime/compile/source_compiler.h"

namespace kernelwright {

/// Opened on first use and kept for ever. A compile runs on a stack that is large enough, whatever the caller's is. A
/// child of fork() must not compile: it gets a CompileError that says so.
class Nvrtc final : public SourceCompiler {
 public:
  /// "": there is none. Opens nothing yet.
  explicit Nvrtc(std::string path);
  CompileAnswer compile(const CompileRequest& request) override;
  int version() override;
  ~Nvrtc() override;

 private:
  friend class NvrtcProgram;
  struct Calls;
  /// Opens the library, once. A failure is not remembered, because the library may be installed later.
  void open();

  const std::string path_;
  std::unique_ptr<Calls> calls_;
  std::mutex mutex_;  // guards opening
  std::atomic<bool> ready_ = false;
  int version_ = 0;  // 13000
};

/// "13.0" of 13000.
std::string nvrtc_version_text(int version);

}  // namespace kernelwright
