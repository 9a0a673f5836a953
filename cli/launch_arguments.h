/// The parameters of an entry of PTX, as `kernelwright emulate --args` makes them.
///
/// --args is a JSON list with an argument for each parameter:
///
///   null                                                 a null pointer
///   {"i32": -3}                                          a number of that type
///   {"hex": "00ff 12"}                                   bytes, for a struct that is passed by value
///   {"npy": "p.npy", "by_value": true}                   the same, from a file
///   {"npy": "x.npy"}                                     the address of a buffer with the file's contents
///   {"npy": "x.npy", "dtype": "bf16"}                    the same: f32 values are rounded, uint16 is taken as bits
///   {"zeros": [64, 32], "dtype": "f32"}                  the address of a buffer
///   {"random": [64, 32], "dtype": "f16", "seed": 7}      the same; floats of [-1, 1), integers of 0 to 127
///
/// Both forms of a struct take "pointers": {"16": {"npy": "x.npy"}}, buffers whose addresses stand at those offsets.
/// A buffer takes "out": "y.npy", a file to which it is written after the launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/options.h"
#include "kernelwright/runtime/emulator/machine/memory.h"
#include "kernelwright/runtime/emulator/ptx/module.h"

namespace kernelwright::cli {

struct LaunchBuffer {
  std::string parameter;
  std::uint64_t address = 0;
  std::vector<std::byte> before;
  // With --args:
  std::string descr;  // NumPy's word for the elements
  std::vector<std::int64_t> shape;
  std::string out;  // the file to write, or ""

  std::size_t changed_bytes() const;
};

struct LaunchArguments {
  std::vector<std::byte> parameters;
  std::vector<LaunchBuffer> buffers;

  /// Writes the buffers that name a file. Throws ConfigError.
  void write_back() const;
};

/// Makes a buffer in `memory` that holds buffer.before, and returns its address.
std::uint64_t place(LaunchBuffer& buffer, emulator::GlobalMemory& memory);

/// From --args: a file, or the list itself. Throws ConfigError, which names the argument, what was found and what is
/// accepted.
LaunchArguments arguments_of(const emulator::Entry& entry, const Options& options, emulator::GlobalMemory& memory);

}  // namespace kernelwright::cli
