/// JSON <-> Config; nothing else reads or writes configs. The format is that of docs/config.md.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/problem/config.h"

namespace kernelwright {

/// Reads a config. Bounded in time and memory whatever `json` holds; writes nothing anywhere.
/// Throws ConfigError with every violation at once, each with its JSON path: unknown, repeated and missing keys, wrong
/// types, values out of range, and fields that contradict each other on any architecture (contradictions(),
/// validate.h). A text that is no JSON has one violation, whose place is a line and a column. What a kernel family or
/// an architecture lacks is not judged here: see validate().
///
/// Headers of policies are given by their text alone: a text has no folder that a file could be relative to.
Config read_config(std::string_view json);
/// As above, of a config in `folder`, where headers of policies and their references are.
Config read_config(std::string_view json, const std::string& folder);

/// As read_config, from a file. Also throws ConfigError, with the file as its place, for a path that is missing, is no
/// regular file (a FIFO or device is refused without being opened) or is larger than 1 MiB (refused unread).
Config read_config_file(const std::string& path);

/// What messages say that a file should be, and how long it may be.
struct FileNature {
  const char* name = "a config";
  const char* is = "a JSON file";
  std::size_t most_bytes = 1 << 20;
};
/// The text of a config's or a tuned row's file, or of one of another nature, under the same rules as
/// read_config_file().
std::string read_small_file(const std::string& path, const FileNature& nature = {});

/// The config as JSON that read_config reads back to an equal value. Fields at their default are left out, apart from
/// those that a config must have.
std::string write_config(const Config& config);

}  // namespace kernelwright
