/// Small files of named numbers in a cache directory: what its users did over runs, and the limit that was set for it.
/// Text, for people too:
///   kernelwright numbers 1
///   disk_hits 40
///   ...
///   check 0123456789abcdef
/// `check` is the start of the SHA-256 of all lines before it. Files are replaced whole, by rename, so that a reader
/// finds one or none.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "kernelwright/runtime/process/files.h"

namespace kernelwright {

using Numbers = std::map<std::string, std::uint64_t>;

struct NumbersFile {
  Numbers numbers;    // empty where the file is absent or has a fault
  std::string fault;  // what is wrong with the file; "" where it is absent
};

/// Reads `name` in an open directory. Throws nothing but bad_alloc.
NumbersFile read_numbers(int directory, const std::string& name, Trust trust);

/// Replaces `name` in an open directory. 0, or errno's number; then the old file is there as it was.
int write_numbers(int directory, const std::string& name, const Numbers& numbers);

/// Adds to the numbers of `name`; a file with a fault is begun anew. Additions of other processes and threads are not
/// lost where the file system has flock. `first` is what a new file begins with. False if nothing was added: the
/// directory cannot be written, or another process is at it (which takes it a fifth of a millisecond) and still is
/// after `patience_ms`.
bool add_numbers(int directory, const std::string& name, Trust trust, const Numbers& added, const Numbers& first,
                 int patience_ms);

}  // namespace kernelwright
