/// Resources of which a process has a limited amount: memory, address space, file descriptors, threads. If one runs
/// out, neither the input nor a result is wrong. So scripts get a separate exit code, and people read the resource's
/// name.
#pragma once

#include <exception>
#include <optional>
#include <string>

namespace kernelwright::cli {

/// "file descriptors ran out: this process may hold 16 (ulimit -n); ...", with a remedy, if an exhausted resource is
/// why `error` was thrown. Some libraries pass on only the system's words (dlopen's errors, NVRTC's), so this function
/// also searches the text.
std::optional<std::string> exhausted_resource(const std::exception& error);
std::optional<std::string> exhausted_resource(const std::string& text);

/// If this process has a limit of address space: from now on an abort() ends it with exit code kMissing and the limit's
/// name. NVRTC's LLVM aborts when an allocation fails. So does a thread of the library to whose caller no exception can
/// go.
void name_limit_on_abort();

/// Throws MissingError with the limit's name if this process has very little address space. Otherwise the dynamic
/// loader might end the process, with exit code 127 and its own words, before NVRTC or the library can report the
/// failure. For verbs that compile or launch.
void require_address_space();

}  // namespace kernelwright::cli
