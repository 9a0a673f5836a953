/// Every conformance file on the emulator, compared with the GPU's recorded outputs.
#include "runtime/emulator/conformance/conformance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <random>

#include "kernelwright/runtime/emulator/program/modifier_order.h"
#include "kernelwright/runtime/emulator/ptx/parser.h"
#include "support/paths.h"

namespace kernelwright::test {
namespace {

std::filesystem::path folder() { return source_dir() / "tests" / "runtime" / "emulator" / "conformance" / "ptx"; }

std::string test_name(const std::filesystem::path& file) {
  std::string name = file.parent_path().filename().string() + "_" + file.stem().string();
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
  return name;
}

/// Paths as texts: gtest prints each parameter while it makes the list of tests, and a path element by element.
std::vector<std::string> files() {
  std::vector<std::string> names;
  for (const std::filesystem::path& file : conformance_files(folder())) names.push_back(file.string());
  return names;
}

class Conformance : public testing::TestWithParam<std::string> {};

TEST_P(Conformance, EmulatorAgreesWithWhatTheGpuWrote) {
  const ConformanceCase test = read_conformance_case(GetParam());
  const Outputs found = make_emulator_conformance_device()->run(test);
  const Recorded recorded = Recorded::read(recorded_file(test));
  const Outputs* truth = recorded.find(test);
  if (!truth) GTEST_SKIP() << "it runs; no GPU's outputs are recorded";
  for (const ConformanceBuffer& buffer : test.buffers) {
    if (buffer.role == ConformanceBuffer::Role::kIn) continue;
    const Agreement agreement = compare_output(buffer, found.at(buffer.name), truth->at(buffer.name));
    EXPECT_EQ(agreement.differing, 0u) << buffer.name << agreement.first;
  }
}

INSTANTIATE_TEST_SUITE_P(Files, Conformance, testing::ValuesIn(files()),
                         [](const auto& info) { return test_name(info.param); });

/// `opcode` with its modifiers in another order that means the same.
std::string reordered(const std::vector<std::string_view>& parts, std::mt19937_64& random) {
  using emulator::ModifierGroup;
  std::vector<std::string_view> order = parts;
  const auto modifiers = order.begin() + static_cast<std::ptrdiff_t>(emulator::name_length(parts));
  std::shuffle(modifiers, order.end(), random);
  for (const ModifierGroup group : {ModifierGroup::kType, ModifierGroup::kSpace, ModifierGroup::kLayout}) {
    const auto in_group = [&](std::string_view part) { return emulator::group_of(part) == group; };
    auto next = parts.begin() + (modifiers - order.begin());
    for (auto at = modifiers; at != order.end(); ++at) {
      if (!in_group(*at)) continue;
      next = std::find_if(next, parts.end(), in_group);
      *at = *next++;
    }
  }
  std::string text;
  for (const std::string_view part : order) text += (text.empty() ? "" : ".") + std::string(part);
  return text;
}

// ptxas 13.0 accepted the files shuffled by these rules, except one whose target it no longer has. Code that depends on
// the place of an opcode's parts would fail here.
TEST(Conformance, HoldsWithModifiersInAnotherOrder) {
  std::mt19937_64 random(/*seed=*/20261122);
  std::map<std::filesystem::path, Recorded> recorded_of_folder;
  int changed = 0;
  for (const std::filesystem::path& file : conformance_files(folder())) {
    SCOPED_TRACE(file.string());
    ConformanceCase test = read_conformance_case(file);
    const auto [recorded, is_new] = recorded_of_folder.try_emplace(file.parent_path());
    if (is_new) recorded->second = Recorded::read(recorded_file(test));
    const Outputs* truth = recorded->second.find(test);
    if (!truth) continue;
    const auto module = emulator::parse_ptx(test.text);
    for (const emulator::Instruction& instruction : module->entries.at(0).instructions) {
      const bool in_text = instruction.opcode.data() >= module->text.data() &&
                           instruction.opcode.data() < module->text.data() + module->text.size();
      if (instruction.parts.size() < 3 || !in_text) continue;  // ld.param of a call has another spelling by now
      const std::string other = reordered(instruction.parts, random);
      test.text.replace(static_cast<std::size_t>(instruction.opcode.data() - module->text.data()), other.size(), other);
      changed += other != instruction.opcode;
    }
    const Outputs found = make_emulator_conformance_device()->run(test);
    for (const ConformanceBuffer& buffer : test.buffers) {
      if (buffer.role == ConformanceBuffer::Role::kIn) continue;
      const Agreement agreement = compare_output(buffer, found.at(buffer.name), truth->at(buffer.name));
      EXPECT_EQ(agreement.differing, 0u) << buffer.name << agreement.first;
    }
  }
  EXPECT_GT(changed, 5000);
}

}  // namespace
}  // namespace kernelwright::test
