/// What a process has only so much of: memory, address space, file descriptors, threads. Where one runs out the input
/// is not wrong and no result is, so that scripts get an exit code of its own and people the resource by name.
#pragma once

#include <exception>
#include <optional>
#include <string>

namespace kernelwright::cli {

/// "file descriptors ran out: this process may hold 16 (ulimit -n); a higher limit would do" if that, or another of
/// them, is why `error` was thrown. Libraries keep the system's words alone (dlopen's errors, NVRTC's), so that the
/// text is looked at as well.
std::optional<std::string> exhausted_resource(const std::exception& error);
std::optional<std::string> exhausted_resource(const std::string& text);

/// Where this process has a limit of address space: an abort() from now on ends it with exit code kMissing and the
/// limit's name. NVRTC's LLVM aborts when an allocation fails; so does a thread of ours that nobody can throw to.
void name_limit_on_abort();

}  // namespace kernelwright::cli
