/// SourceUnit -> cubin and PTX, through NVRTC opened at run time.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "kernelwright/generator/source/specialize.h"
#include "kernelwright/runtime/binary/binary.h"
#include "kernelwright/runtime/binary/cache_key.h"
#include "kernelwright/runtime/compile/source_compiler.h"

namespace kernelwright {

/// One NVRTC, opened on first use and kept. Safe from any number of threads; NVRTC itself runs its front end under one
/// lock and the rest in parallel. It runs on our own threads, whose stacks are large enough, so a caller's stack may be
/// small. A child of fork() must not compile: it gets a CompileError that says so. With compile workers
/// (runtime/workers/), NVRTC runs in other processes, and a forked child may compile.
///
/// A compile ends early, with an InterruptedError, when the process exits or this thread's InterruptScope is stopped.
class Compiler {
 public:
  /// Makes what runs the NVRTC at a path; "": there is none. It must not open it yet.
  using MakeSourceCompiler = std::function<std::unique_ptr<SourceCompiler>(const std::string& nvrtc_path)>;

  /// `nvrtc_path` "": found by find_nvrtc(). Opens nothing yet. `failed_source_dir`: the folder for sources of failed
  /// compiles, as in keep_failed_source(). `make` makes what runs NVRTC; by default,
  /// this process runs it.
  explicit Compiler(std::string nvrtc_path = {}, std::string failed_source_dir = {},
                    const MakeSourceCompiler& make = {});
  /// For a host that compiles nothing: its keys have no compiler. What would compile throws MissingError with `why`.
  static Compiler none(std::string why);
  ~Compiler();
  Compiler(const Compiler&) = delete;
  Compiler& operator=(const Compiler&) = delete;

  /// Throws CompileError with the first lines of the log and the path of the kept source. Throws MissingError if there
  /// is no NVRTC, if it is older than 12.8, or if its file or that of its builtins is broken.
  Binary compile(const SourceUnit& unit);

  /// The PTX of `unit` with the lines of its source files (-lineinfo), and no machine code. Throws as compile() does.
  std::string compile_with_lines(const SourceUnit& unit);

  /// The key of `unit` on this machine. Reads ELF headers; does not load NVRTC. Without a compiler, or if its file is
  /// broken, the key has no compiler.
  CacheKey key(const SourceUnit& unit) const;

  /// Path of the NVRTC that would be used, or "".
  const std::string& path() const;
  /// Why nothing can be compiled here, as far as names and ELF headers tell; "" if nothing speaks against it. Does not
  /// load NVRTC.
  std::string why_not() const;
  /// Returns "13.0", for example; loads NVRTC if needed. Throws MissingError.
  std::string version();

 private:
  Compiler(std::string why_none, std::unique_ptr<SourceCompiler> without_nvrtc);
  /// Throws CompileError, with the kept source, if a worker failed instead of answering.
  CompileAnswer answer_to(const CompileRequest& request, const SourceUnit& unit);
  const std::string path_, identity_, failed_source_dir_, why_none_;
  const std::unique_ptr<SourceCompiler> compiler_;
};

}  // namespace kernelwright
