/// JSON <-> Config; no other code reads or writes configs. docs/config.md has the format.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/problem/config.h"
#include "kernelwright/generator/problem/moe.h"

namespace kernelwright {

class JsonValue;  // json/document.h

/// Reads a config. Time and memory are bounded for any `json`; nothing is written anywhere. Throws ConfigError with
/// every violation at once, each with its JSON path: unknown, repeated and missing keys, wrong types, values out of
/// range. Fields that contradict each other on any architecture are violations too (contradictions(), validate.h). A
/// text that is no JSON has one violation, whose place is a line and a column. What a kernel family or an architecture
/// lacks is not judged here: see validate().
///
/// Headers of policies must be given by their text: this function has no folder that a file could be relative to.
Config read_config(std::string_view json);
/// As above, for a config in `folder`; headers of policies and their references are relative to it.
Config read_config(std::string_view json, const std::string& folder);
/// As the first read_config(), for a value that is already parsed.
Config config_from_json(const JsonValue& json);

/// As the first read_config(), and also of kind "moe": a layer of several kernels, which has no schedule and no shapes.
std::variant<Config, MoeConfig> read_config_or_layer(std::string_view json);

/// As read_config, from a file. Also throws ConfigError, with the file as its place, for a path that is missing or is
/// no regular file, and for a file larger than 1 MiB. A FIFO or device is refused before it is opened, and a large file
/// before it is read.
Config read_config_file(const std::string& path);

/// What messages call the file, and the most bytes that it may have.
struct FileNature {
  const char* name = "a config";
  const char* is = "a JSON file";
  std::size_t most_bytes = 1 << 20;
};
/// The text of the file of a config, a tuned row, or something else that `nature` describes, under the same rules as
/// read_config_file().
std::string read_small_file(const std::string& path, const FileNature& nature = {});

/// Writes the config as JSON that read_config reads back to an equal value. Fields at their default are left out,
/// except those that a config must have.
std::string write_config(const Config& config);
/// The same as a value.
JsonValue config_to_json(const Config& config);

}  // namespace kernelwright
