/// What an ELF file's headers say about it, read without loading it.
#pragma once

#include <string>

namespace kernelwright {

/// Why the loader must not open `path`: words to follow its name ("is cut short: ..."), or "" where nothing speaks
/// against it. A file that is shorter than its headers say ends a program with SIGBUS in the loader or at a later call,
/// so this looks first: a regular file, a shared library for this machine, every segment and section inside the file,
/// and the section names where the headers place them (a download that was allocated and not filled ends in zeros).
/// Reads the headers alone, some kilobytes; what the code bytes are is not looked at.
std::string library_fault(const std::string& path);

}  // namespace kernelwright
