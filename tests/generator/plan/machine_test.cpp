// The table of machines: a row for every architecture, and classes told apart by a device's name.
#include "kernelwright/generator/plan/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "kernelwright/generator/attention/predicted.h"
#include "kernelwright/generator/problem/arch.h"

namespace kernelwright {
namespace {

TEST(MachineClasses, EveryArchitectureHasAUsualOneAndItsOwnFamilyHasRates) {
  for (const ArchInfo& arch : all_archs()) {
    const MachineClass& machine = usual_machine(arch.arch);
    EXPECT_EQ(machine.arch, arch.arch) << arch.name;
    EXPECT_EQ(machine.word, "") << arch.name;
    EXPECT_EQ(machine.gemm != nullptr, arch.own.has_value()) << arch.name;
    EXPECT_EQ(machine.timeline, machine_rates(arch.arch)) << arch.name;
  }
}

TEST(MachineClasses, EveryDeviceClassHasOneRowOfItsArchitecture) {
  std::map<DeviceClass, int> rows;
  for (const MachineClass& machine : machine_classes()) {
    ++rows[machine.device];
    EXPECT_EQ(machine.arch, arch_of(machine.device)) << machine.name;
    EXPECT_GT(machine.sms, 0) << machine.name;
    if (machine.timeline) {
      EXPECT_EQ(machine.sms, machine.timeline->sms) << machine.name;
    }
  }
  for (const auto& [device, word] : EnumTable<DeviceClass>::entries) EXPECT_EQ(rows[device], 1) << word;
}

TEST(MachineClasses, ADeviceIsKnownByItsName) {
  EXPECT_EQ(machine_of("NVIDIA H100 80GB HBM3", Arch::kSm90a).name, "H100 SXM");
  EXPECT_EQ(machine_of("NVIDIA H200", Arch::kSm90a).name, "H200");
  EXPECT_EQ(machine_of("NVIDIA H200 NVL", Arch::kSm90a).name, "H200");
  EXPECT_EQ(machine_of("NVIDIA GH200 480GB", Arch::kSm90a).name, "H100 SXM") << "its memory is another";
  EXPECT_EQ(machine_of("NVIDIA H20", Arch::kSm90a).name, "H100 SXM");
  EXPECT_EQ(machine_of("NVIDIA H200", Arch::kSm100a).name, "B200") << "the architecture decides first";
  EXPECT_EQ(machine_of("", Arch::kSm80).name, "A100 80GB");
}

TEST(MachineClasses, AnH200ReadsFasterThanAnH100AndMultipliesAsFast) {
  const MachineClass &h100 = usual_machine(Arch::kSm90a), &h200 = machine_of("NVIDIA H200", Arch::kSm90a);
  EXPECT_EQ(h200.matrix_operations_per_s, h100.matrix_operations_per_s);
  EXPECT_NEAR(h200.bytes_per_s / h100.bytes_per_s, 4.8 / 3.35, 1e-9);
  EXPECT_NEAR(h200.timeline->read_gb_s / h100.timeline->read_gb_s, 4.8 / 3.35, 1e-3);
  EXPECT_NEAR(h200.timeline->write_gb_s / h100.timeline->write_gb_s, 4.8 / 3.35, 1e-3);
  EXPECT_EQ(h200.gemm, h100.gemm) << "choices are the same until one is measured";

  AttentionProblem decode;
  decode.heads = {32, 8};
  decode.max_q_len = 1;
  const AttentionPlan plan = plan_by_model(decode, {}, Arch::kSm90a);
  AttentionShape shape;
  shape.batch = 64, shape.q_len = 1, shape.kv_len = 8192;
  const auto of_h100 = predict(plan, decode, shape), of_h200 = predict(plan, decode, shape, h200);
  ASSERT_TRUE(of_h100 && of_h200);
  EXPECT_EQ(of_h100->microseconds, predict(plan, decode, shape, h100)->microseconds);
  EXPECT_NEAR(of_h100->term("memory") / of_h200->term("memory"), 4.8 / 3.35, 0.01) << "a decode waits for its keys";
  EXPECT_LT(of_h200->microseconds, of_h100->microseconds);
}

}  // namespace
}  // namespace kernelwright
