// Latent attention on the emulator, with every check on, on each family's kernel. Two machines must give the same bits
// although they differ in everything on which a kernel must not depend. Needs NVRTC and no GPU.
#include <gtest/gtest.h>

#include "end_to_end/attention/cases/attention_cases.h"
#include "support/emulated_attention.h"

namespace kernelwright::latent_emulator_test {
namespace {

using test::expect_right;
using test::expect_same_bits;
using test::inputs_of;
using test::make_checking_engine;
using test::run_checked;

Arch arch_of(Family family) {
  return family == Family::kHopper ? Arch::kSm90a : family == Family::kBlackwell ? Arch::kSm100a : Arch::kSm80;
}

/// The subject of a case: "hopper_latent_c61_h16" is of c61.
std::string subject_of(const CudaCase& test) {
  const std::string rest = test.name.substr(test.name.find("latent_") + 7);
  const std::string first = rest.substr(0, rest.find('_'));
  return first.starts_with("c6") || first == "balanced" ? first : "others";
}

using Subject = std::pair<Family, std::string>;
class LatentOnTheEmulator : public test::OnTheEmulator<Subject> {};

TEST_P(LatentOnTheEmulator, IsRightHoweverItIsScheduled) {
  const auto& [family, subject] = GetParam();
  const Arch arch = arch_of(family);
  Engine few = make_checking_engine(3, emulator::Completion::kRandom, 5, arch),
         many = make_checking_engine(132, emulator::Completion::kLazy, 0, arch),
         as_few = make_checking_engine(3, emulator::Completion::kLazy, 0, arch);
  int found = 0;
  for (const CudaCase& test : latent_cases(family)) {
    if (subject_of(test) != subject) continue;
    ++found;
    SCOPED_TRACE(test.name);
    const AttentionCase call = inputs_of(test);
    const AttentionOutput output = run_checked(few, test, call);
    expect_right(call, output);
    const AttentionOutput other = run_checked(many, test, call);
    if (subject == "balanced") {  // the number of SMs decides where keys are cut
      expect_right(call, other);
      expect_same_bits(output, run_checked(as_few, test, call), "on two machines of as many SMs");
    } else {
      expect_same_bits(output, other, "on two machines");
    }
  }
  EXPECT_GT(found, 0);
}

std::vector<Subject> subjects() {
  std::vector<Subject> list;
  for (const Family family : {Family::kPortable, Family::kHopper, Family::kBlackwell})
    for (const char* subject : {"c61", "c62", "c63", "c64", "c67", "others"}) list.emplace_back(family, subject);
  for (const Family family : {Family::kPortable, Family::kHopper}) list.emplace_back(family, "c66");
  list.emplace_back(Family::kHopper, "balanced");
  return list;
}

INSTANTIATE_TEST_SUITE_P(, LatentOnTheEmulator, testing::ValuesIn(subjects()), [](const auto& info) {
  return std::string(to_string(info.param.first)) + "_" + info.param.second;
});

/// A pair of CTAs that share their loads computes what a single CTA does.
class LatentPair : public test::OnTheEmulator<Family> {};

TEST_P(LatentPair, HasTheBitsOfSingleCtas) {
  Engine engine = make_checking_engine(4, emulator::Completion::kRandom, 3, arch_of(GetParam()));
  for (CudaCase test : latent_cases(GetParam())) {
    if (test.name.find("pair") == std::string::npos) continue;
    SCOPED_TRACE(test.name);
    const AttentionCase call = inputs_of(test);
    const AttentionOutput paired = run_checked(engine, test, call);
    test.schedule.cluster = ClusterShape{1, 1};
    expect_same_bits(paired, run_checked(engine, test, call), "without the pair");
  }
}

INSTANTIATE_TEST_SUITE_P(, LatentPair, testing::Values(Family::kHopper, Family::kBlackwell),
                         [](const auto& info) { return std::string(to_string(info.param)); });

}  // namespace
}  // namespace kernelwright::latent_emulator_test
