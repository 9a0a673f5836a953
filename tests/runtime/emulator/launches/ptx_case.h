/// Kernels of other compilers as PTX files, with their launches as JSON. Tests and kernelwright_mutate run them.
///
///   {"cases": [{
///     "name": "scale_sm90", "ptx": "scale_sm90.ptx", "numbers": {"n": 100},
///     "buffers": {"x": {"random": [100], "dtype": "f32", "seed": 1, "low": -1, "high": 1},
///                 "y": {"zeros": [100], "dtype": "f32", "output": "bits"}},
///     "launches": [{"entry": "scale", "grid": [4], "block": [32], "shared": 0,
///                   "arguments": [{"buffer": "x"}, {"buffer": "y"}, {"i32": 100}]}]}]}
///
/// A buffer is one of
///   {"random": SHAPE, "dtype": T, "seed": S, "low": L, "high": H}   floats of [L, H), or integers of L to H
///   {"zeros": SHAPE, "dtype": T}
///   {"values": [1, 2], "dtype": T}
///   {"addresses": ["x", ["y", 64]]}                                 of buffers, plus bytes
/// "output" says that it is a result, and how runs compare: "bits", or "close" where the order of sums is free.
/// An argument is null (a null pointer), {"buffer": "x", "offset": 64}, {"i32": 3} with any type, or
///   {"tensor_map": {"buffer": "x", "dtype": "f16", "dims": [64, 8], "strides": [128], "box": [64, 8],
///                   "swizzle": "128B"}}                             strides in bytes, of all dimensions but the first
///   {"struct": [[0, ARGUMENT], [8, ARGUMENT]]}                      arguments at offsets; the rest is zero
/// A shape of a launch may leave dimensions out. "pdl": true: the launch may start before the one ahead of it has
/// ended, and the checker assumes that the one ahead uses all of memory. All launches of a case follow each other in
/// one memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "kernelwright/generator/json/document.h"
#include "kernelwright/runtime/emulator/emulator.h"

namespace kernelwright::test {

enum class OutputKind : std::uint8_t { kNone, kBits, kClose };

struct PtxBuffer {
  std::string dtype;
  std::vector<std::int64_t> shape;
  OutputKind output = OutputKind::kNone;
  std::vector<std::byte> bytes;

  std::size_t size() const;            // elements
  double at(std::size_t index) const;  // element `index` as a number
  std::vector<double> values() const;
};

struct PtxCase {
  std::string name;
  std::string file;  // name of the PTX file
  std::string ptx;
  JsonValue json;                                // of the case
  double number(const std::string& name) const;  // of "numbers"; throws Error if there is none
};
inline void PrintTo(const PtxCase& test, std::ostream* out) { *out << test.name; }

/// The names of the cases of a JSON file, without reading their PTX. Throws as read_ptx_cases() does.
std::vector<std::string> ptx_case_names(const std::string& path);

/// The cases of a JSON file whose names contain `filter`, with their PTX from the same folder. Throws Error, which
/// names the file and what is wrong.
std::vector<PtxCase> read_ptx_cases(const std::string& path, const std::string& filter = {});

struct PtxCaseRun {
  std::vector<emulator::HazardReport> hazards;
  std::string fault;  // the first launch that did not reach its end; "" if all did
  std::map<std::string, PtxBuffer> before, after;
  std::uint64_t warp_instructions = 0;

  std::vector<std::byte> outputs() const;  // the bytes of all outputs, in the order of their names
};

/// Runs all launches of `test` with `ptx` in place of its own. Throws Error for a bad description, and PtxError for PTX
/// that is refused.
PtxCaseRun run_ptx_case(const PtxCase& test, const std::string& ptx, const emulator::Options& options);

/// Whether runs agree in all outputs: bits, or for "close" a difference that another order of sums explains.
bool agree(const std::map<std::string, PtxBuffer>& a, const std::map<std::string, PtxBuffer>& b);

}  // namespace kernelwright::test
