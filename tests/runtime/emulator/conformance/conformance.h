/// Conformance files. Each is one small PTX module, with comments that say on what inputs to run it and how to compare
/// its outputs. The same file runs on the emulator and on a GPU. The outputs of a GPU are recorded beside the file, and
/// are taken as right.
///
/// README.md of the folder `ptx`, where the files are, describes the format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernelwright/runtime/device/backend.h"

namespace kernelwright::test {

/// An element of a buffer: "f32", "bf16", "u64", "b8".
struct ElementType {
  std::string_view name;
  int bits = 32;
  enum class Kind { kUnsigned, kSigned, kFloat } kind = Kind::kUnsigned;
  std::size_t bytes() const { return static_cast<std::size_t>(bits) / 8; }
};
/// Throws std::runtime_error for a name that is none.
const ElementType& element_type(std::string_view name);
/// The value of a code of a floating-point type, and the nearest code of a value.
double value_of(const ElementType& type, std::uint64_t code);
std::uint64_t code_of(const ElementType& type, double value);

/// How far an output may be from the recorded one.
struct Comparison {
  enum class Kind {
    kBits,      // bit for bit
    kExact,     // the same number; NaN is NaN, whatever its payload
    kUlp,       // `bound` codes apart at most; NaN where NaN was
    kRelative,  // |a - b| <= absolute + bound * |b|; NaN where NaN was
  } kind = Kind::kBits;
  double bound = 0, absolute = 0;
};

struct ConformanceBuffer {
  enum class Role { kIn, kOut, kInOut } role = Role::kIn;
  std::string name;
  const ElementType* type = nullptr;
  std::size_t count = 0;
  std::vector<std::byte> contents;  // before the launch; of an output: 0xa5
  Comparison comparison;
  std::size_t parameter_offset = 0;  // of its address
  std::size_t bytes() const { return count * type->bytes(); }
};

struct ConformanceMap {
  std::string name, buffer;
  TensorMapRequest request;  // complete except for the address
  std::size_t parameter_offset = 0;
};

struct ConformanceCase {
  std::filesystem::path file;
  std::string family;  // the folder's name
  std::string name;    // the file's, without .ptx
  std::string text;    // of the module
  std::string target;  // "sm_90a"
  LaunchConfig launch;
  std::vector<ConformanceBuffer> buffers;
  std::vector<ConformanceMap> maps;
  std::size_t parameter_bytes = 0;
};

/// Reads one file and makes its inputs. Throws std::runtime_error with the file, the line and the text found there.
ConformanceCase read_conformance_case(const std::filesystem::path& file);
/// All .ptx files in the folders of `folder`, or the one file that it is, sorted.
std::vector<std::filesystem::path> conformance_files(const std::filesystem::path& folder);

/// The contents of the buffers that a launch may write, by name.
using Outputs = std::map<std::string, std::vector<std::byte>>;

/// Something that runs conformance cases.
class ConformanceDevice {
 public:
  virtual ~ConformanceDevice() = default;
  virtual std::string name() const = 0;
  /// Throws the device's error if the device refuses the module or the launch fails.
  virtual Outputs run(const ConformanceCase& test) = 0;
};
/// With hazard checks: a hazard is thrown as std::runtime_error.
std::unique_ptr<ConformanceDevice> make_emulator_conformance_device();
/// In conformance_cuda.cpp. Throws MissingError if there is no GPU.
std::unique_ptr<ConformanceDevice> make_cuda_conformance_device();

/// The parameters of a launch, from the address that each buffer got (in order) and the encoded maps (in order).
std::vector<std::byte> conformance_parameters(const ConformanceCase& test, const std::vector<std::uint64_t>& addresses,
                                              const std::vector<TensorMap>& maps);

/// The result of comparing one output.
struct Agreement {
  std::size_t compared = 0, differing = 0;  // values; differing: beyond the bound
  std::string worst;                        // "0", "3 ulp", "1.2e-06"
  std::string first;                        // "[17]: 0x3f800001 (1.0000001), recorded 0x3f800000 (1)"
};
Agreement compare_output(const ConformanceBuffer& buffer, const std::vector<std::byte>& found,
                         const std::vector<std::byte>& recorded);

/// A folder's recorded.txt: outputs by file and buffer.
class Recorded {
 public:
  /// Empty if the file does not exist.
  static Recorded read(const std::filesystem::path& file);
  /// The outputs of one case, or null. Throws std::runtime_error if they do not have its buffers' sizes.
  const Outputs* find(const ConformanceCase& test) const;
  void set(const ConformanceCase& test, Outputs outputs);
  void write(const std::filesystem::path& file, const std::string& device) const;

 private:
  std::map<std::string, Outputs> outputs_;            // by case
  std::map<std::string, std::size_t> element_bytes_;  // "case/buffer": for write()
};
std::filesystem::path recorded_file(const ConformanceCase& test);

}  // namespace kernelwright::test
