/// Small files of named numbers in a cache directory: what its users did over runs, and the limit that was set for it.
/// They are text, for people too:
///   kernelwright numbers 1
///   disk_hits 40
///   ...
///   check 0123456789abcdef
/// `check` is the start of the SHA-256 of all lines before it. Files are replaced whole, by rename, so that a reader
/// finds one file or none.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "kernelwright/runtime/process/files.h"

namespace kernelwright {

using Numbers = std::map<std::string, std::uint64_t>;

struct NumbersFile {
  Numbers numbers;    // empty if the file is absent or has a fault
  std::string fault;  // what is wrong with the file; "" if it is absent
};

/// Reads `name` in an open directory. Throws nothing but bad_alloc.
NumbersFile read_numbers(int directory, const std::string& name, Trust trust);

/// Replaces `name` in an open directory. Returns 0, or errno's number; on an error the old file is unchanged.
int write_numbers(int directory, const std::string& name, const Numbers& numbers);

/// Adds to the numbers of `name`; a file with a fault is begun anew. No addition of another process or thread is lost
/// if the file system has flock. A new file begins with `first`. Returns false if nothing was added. Then the directory
/// cannot be written, or another process was still writing after `patience_ms` (a write takes a fifth of a
/// millisecond).
bool add_numbers(int directory, const std::string& name, Trust trust, const Numbers& added, const Numbers& first,
                 int patience_ms);

}  // namespace kernelwright
