/// What an ELF file's headers say about it, read without loading the file.
#pragma once

#include <string>

namespace kernelwright {

/// Why the loader must not open `path`: words that follow its name ("is cut short: ..."), or "" if no fault is found. A
/// file that is shorter than its headers say ends a program with SIGBUS, in the loader or at a later call. So this
/// function looks first. It must be a regular file, and a shared library for this machine. Every segment and section
/// must lie inside the file, and the section names where the headers place them: a download that was allocated and not
/// filled ends in zeros. Reads only the headers, some kilobytes; it does not look at the code.
std::string library_fault(const std::string& path);

}  // namespace kernelwright
