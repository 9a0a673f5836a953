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

/// Throws MissingError with the limit's name where this process has so little address space that the dynamic loader may
/// end it, with exit code 127 and words of its own, before NVRTC or a thread of ours can fail in an orderly way. For
/// verbs that compile or launch.
void require_address_space();

}  // namespace kernelwright::cli
