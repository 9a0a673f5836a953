/// kernelwright_conformance: runs conformance files on one device, and prints what agrees with the recorded outputs.
///
///   kernelwright_conformance --device emulator DIR              compares the emulator with the recordings
///   kernelwright_conformance --device cuda DIR                  compares a GPU with the recordings
///   kernelwright_conformance --device cuda --record OUT DIR     records a GPU's outputs in OUT/<family>/recorded.txt,
///                                                               and compares the emulator with them
///
/// --table FILE writes the table to a file as well. --values FILE writes the inputs and outputs of each case, for
/// `make_conformance.py --model FILE`. DIR is a folder of families or one .ptx file. Exit code: 0 all agree, 1 some do
/// not, 2 the call was wrong.
#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <set>

#include "runtime/emulator/conformance/conformance.h"

namespace kernelwright::test {
namespace {

struct Arguments {
  std::string device = "emulator";
  std::filesystem::path folder, record, table, values;
};

bool read_arguments(int count, char** given, Arguments& arguments) {
  for (int i = 1; i < count; ++i) {
    const std::string_view word = given[i];
    const bool valued = i + 1 < count;
    if (word == "--device" && valued)
      arguments.device = given[++i];
    else if (word == "--record" && valued)
      arguments.record = given[++i];
    else if (word == "--table" && valued)
      arguments.table = given[++i];
    else if (word == "--values" && valued)
      arguments.values = given[++i];
    else if (word.rfind("--", 0) == 0 || !arguments.folder.empty())
      return false;
    else
      arguments.folder = word;
  }
  const bool known = arguments.device == "cuda" || arguments.device == "emulator";
  return known && !arguments.folder.empty() && (arguments.record.empty() || arguments.device == "cuda");
}

std::string words_of(const Comparison& comparison) {
  switch (comparison.kind) {
    case Comparison::Kind::kBits: return "bits";
    case Comparison::Kind::kExact: return "exact";
    case Comparison::Kind::kUlp: return fmt::format("{:g} ulp", comparison.bound);
    case Comparison::Kind::kRelative: return fmt::format("{:g} + {:g} |x|", comparison.absolute, comparison.bound);
  }
  return {};
}

/// "in a f32 3f800000 …" for each buffer.
std::string values_of(const ConformanceCase& test, const Outputs& outputs) {
  std::string text = fmt::format("case {}/{}\n", test.family, test.name);
  for (const ConformanceBuffer& buffer : test.buffers) {
    const bool in = buffer.role == ConformanceBuffer::Role::kIn;
    const std::vector<std::byte>& bytes = in ? buffer.contents : outputs.at(buffer.name);
    text += fmt::format("{} {} {}", in ? "in" : "out", buffer.name, buffer.type->name);
    for (std::size_t i = 0; i < buffer.count; ++i) {
      std::uint64_t code = 0;
      std::memcpy(&code, bytes.data() + i * buffer.type->bytes(), buffer.type->bytes());
      text += fmt::format(" {:x}", code);
    }
    text += "\n";
  }
  return text;
}

class Run {
 public:
  explicit Run(const Arguments& arguments) : arguments_(arguments) {
    if (arguments.device == "cuda")
      device_ = make_cuda_conformance_device();
    else
      device_ = make_emulator_conformance_device();
    if (!arguments.record.empty()) checked_ = make_emulator_conformance_device();
  }

  int run() {
    line("| case | output | values | bound | worst | result |\n|---|---|---|---|---|---|\n");
    for (const auto& file : conformance_files(arguments_.folder)) one(file);
    for (const auto& [family, recorded] : written_)
      recorded.write(arguments_.record / family / "recorded.txt", device_->name());
    std::string summary = fmt::format("\n{} outputs agree, {} differ, {} cases failed, {} cases are not recorded",
                                      agreed_, differed_, failed_, unrecorded_);
    if (checked_) summary += fmt::format("; {} against {}", checked_->name(), device_->name());
    line(summary + "\n");
    for (const std::string& note : notes_) line("- " + note + "\n");
    if (!arguments_.values.empty()) std::ofstream(arguments_.values) << values_;
    if (!arguments_.table.empty()) std::ofstream(arguments_.table) << table_;
    return differed_ + failed_ == 0 ? 0 : 1;
  }

 private:
  void line(const std::string& text) {
    std::fputs(text.c_str(), stdout);
    table_ += text;
  }
  void one(const std::filesystem::path& file) {
    std::string at = file.parent_path().filename().string() + "/" + file.stem().string();
    try {
      const ConformanceCase test = read_conformance_case(file);
      const Outputs on_device = device_->run(test);
      if (!arguments_.values.empty()) values_ += values_of(test, on_device);
      if (checked_) {
        written_[test.family].set(test, on_device);
        return compare(test, at, checked_->run(test), on_device);
      }
      const Recorded recorded = Recorded::read(recorded_file(test));
      const Outputs* truth = recorded.find(test);
      if (truth) return compare(test, at, on_device, *truth);
      ++unrecorded_;
      line(fmt::format("| {} | | | | | not recorded |\n", at));
    } catch (const std::exception& error) {
      ++failed_;
      line(fmt::format("| {} | | | | | failed |\n", at));
      notes_.push_back(fmt::format("{}: {}", at, error.what()));
    }
  }
  void compare(const ConformanceCase& test, const std::string& at, const Outputs& found, const Outputs& truth) {
    for (const ConformanceBuffer& buffer : test.buffers) {
      if (buffer.role == ConformanceBuffer::Role::kIn) continue;
      const Agreement agreement = compare_output(buffer, found.at(buffer.name), truth.at(buffer.name));
      const bool agrees = agreement.differing == 0;
      ++(agrees ? agreed_ : differed_);
      line(fmt::format("| {} | {} | {} | {} | {} | {} |\n", at, buffer.name, agreement.compared,
                       words_of(buffer.comparison), agreement.worst,
                       agrees ? "agrees" : fmt::format("{} differ", agreement.differing)));
      if (!agrees) notes_.push_back(fmt::format("{} {}{}", at, buffer.name, agreement.first));
    }
  }

  const Arguments& arguments_;
  std::unique_ptr<ConformanceDevice> device_, checked_;
  std::map<std::string, Recorded> written_;  // by family
  std::vector<std::string> notes_;
  std::string table_, values_;
  int agreed_ = 0, differed_ = 0, failed_ = 0, unrecorded_ = 0;
};

}  // namespace
}  // namespace kernelwright::test

int main(int count, char** given) {
  kernelwright::test::Arguments arguments;
  if (!kernelwright::test::read_arguments(count, given, arguments)) {
    std::fputs(
        "usage: kernelwright_conformance [--device cuda|emulator] [--record OUT] [--table FILE] [--values FILE] DIR\n"
        "--record OUT needs --device cuda; DIR is a folder of families or a .ptx file\n",
        stderr);
    return 2;
  }
  try {
    return kernelwright::test::Run(arguments).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
