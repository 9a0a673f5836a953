/// How fast the emulator executes, per core: small PTX kernels, each with one kind of work. Prints millions of warp
/// instructions per second and, for kernels that multiply matrices, GFLOP/s.
///
///   kernelwright_emulator_bench [name…] [--hazards] [--repetitions N]
///
/// Rates are per processor time, so a busy machine disturbs them little. The best of the repetitions is shown beside
/// the median. One emulator thread runs, so a rate is that of one core.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "kernelwright/runtime/emulator/emulator.h"

namespace {

using namespace kernelwright::emulator;

struct Workload {
  std::string name, what, body;
  std::uint32_t grid = 64, block = 128;
  double flop_per_warp = 0;  // in matrix multiplies
  std::string target = "sm_90a", before = "", after = "";
};

constexpr int kIterations = 200;

/// A loop of kIterations around `statements`.
std::string loop(const std::string& statements) {
  return "mov.b32 %n, 0;\nLOOP:\n" + statements + "add.u32 %n, %n, 1;\nsetp.lt.u32 %p7, %n, " +
         std::to_string(kIterations) + ";\n@%p7 bra LOOP;\n";
}

std::string repeat(const std::string& statements, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += statements;
  return text;
}

/// Four accumulators, so that no multiply depends on the one before it, as in a kernel.
std::string four_mmas(const char* types, int num_a, int num_b) {
  std::string text;
  for (int tile = 0; tile < 4; ++tile) {
    const int c = 10 + 4 * tile;
    const std::string d = fmt::format("{{%f{}, %f{}, %f{}, %f{}}}", c, c + 1, c + 2, c + 3);
    text += fmt::format("mma.sync.aligned.{} {}, {}, {}, {};\n", types, d,
                        num_a == 4 ? "{%r10, %r11, %r12, %r13}" : "{%r10, %r11}",
                        num_b == 2 ? "{%r14, %r15}" : "{%r14}", d);
  }
  return text;
}

std::vector<Workload> workloads() {
  std::vector<Workload> all;
  all.push_back({"alu", "integer and float arithmetic in registers",
                 loop(repeat("mad.lo.u32 %r1, %r1, 5, %r2;\nxor.b32 %r2, %r1, %r3;\nadd.u32 %r3, %r3, 7;\n"
                             "fma.rn.f32 %f1, %f1, %f2, %f3;\nadd.rn.f32 %f3, %f3, %f2;\nshl.b32 %r4, %r3, 3;\n",
                             4))});
  all.push_back({"saxpy", "global loads and stores",
                 loop("ld.global.f32 %f1, [%a];\nld.global.f32 %f2, [%b];\nfma.rn.f32 %f2, %f1, 0f40000000, %f2;\n"
                      "st.global.f32 [%b], %f2;\n")});
  std::string reduction = "st.shared.f32 [%s], %f1;\nbar.sync 0;\nld.shared.f32 %f2, [%s];\n";
  for (const int distance : {16, 8, 4, 2, 1})
    reduction += fmt::format("shfl.sync.bfly.b32 %r1, %r2, {}, 31, -1;\nadd.u32 %r2, %r2, %r1;\n", distance);
  all.push_back({"reduction", "shared memory, bar.sync, shfl.sync", loop(reduction + "bar.sync 0;\n")});
  all.push_back({"ldmatrix", "ldmatrix.x4 and .x4.trans",
                 loop(repeat("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%row];\n"
                             "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r5, %r6, %r7, %r8}, [%row];\n",
                             8))});
  all.push_back({"cp.async", "a ring of cp.async.cg, 16 bytes a lane, all or none of them read",
                 loop(repeat("cp.async.cg.shared.global [%row], [%c], 16, %size;\n", 8) +
                      "cp.async.commit_group;\ncp.async.wait_group 1;\n")});
  const auto add_mma = [&](const char* name, const char* types, int num_a, int num_b, double flop) {
    all.push_back({name, types, loop(repeat(four_mmas(types, num_a, num_b), 4)), 64, 128, 16 * kIterations * flop});
  };
  add_mma("mma.bf16", "m16n8k16.row.col.f32.bf16.bf16.f32", 4, 2, 4096);
  add_mma("mma.f16", "m16n8k16.row.col.f32.f16.f16.f32", 4, 2, 4096);
  add_mma("mma.tf32", "m16n8k8.row.col.f32.tf32.tf32.f32", 4, 2, 2048);
  add_mma("mma.e4m3", "m16n8k32.row.col.f32.e4m3.e4m3.f32", 4, 2, 8192);
  all.push_back({"attention",
                 "ldmatrix and mma as an attention loop mixes them: per 64 mma, 24 ldmatrix and 120 others",
                 loop(repeat("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%row];\n", 24) +
                      repeat(four_mmas("m16n8k16.row.col.f32.bf16.bf16.f32", 4, 2), 16) +
                      repeat("fma.rn.f32 %f1, %f1, %f2, %f3;\nmax.f32 %f3, %f1, %f2;\nadd.u32 %r1, %r1, %r2;\n", 40)),
                 8, 128, 64.0 * kIterations * 4096});
  // Four products of 128 x 256 x 16 along K, like a slab of a GEMM. The swizzled rows are 128 bytes, K-major.
  const auto add_tcgen05 = [&](const char* name, const char* kind, std::uint32_t descriptor, double flop) {
    std::string products;
    for (int i = 0; i < 4; ++i)
      products +=
          fmt::format("add.u64 %rd2, %rd0, {0}; @%p1 tcgen05.mma.cta_group::1.kind::{1} [%r5], %rd2, %rd2, {2}, %p6;\n",
                      2 * i, kind, descriptor);
    all.push_back({name, kind, loop(products), 4, 32, 4 * kIterations * flop, "sm_100a",
                   "mov.u32 %row, buffer; tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%row], 256;\n"
                   "ld.shared.b32 %r5, [%row]; elect.sync %r6|%p1, -1; setp.ne.u32 %p6, %size, 0;\n"
                   // The descriptor: 128B swizzle, version 1, 1024 bytes from 8 rows to the next 8.
                   "shr.u32 %r6, %row, 4; cvt.u64.u32 %rd0, %r6; or.b64 %rd0, %rd0, 0x4000404000000000;\n",
                   "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r5, 256;\n"});
  };
  add_tcgen05("tcgen05.bf16", "f16", 1u << 4 | 1u << 7 | 1u << 10 | 32u << 17 | 8u << 24, 2.0 * 128 * 256 * 16);
  add_tcgen05("tcgen05.e4m3", "f8f6f4", 1u << 4 | 32u << 17 | 8u << 24, 2.0 * 128 * 256 * 32);
  return all;
}

std::string text_of(const Workload& work) {
  return ".version 8.7\n.target " + work.target +
         "\n.address_size 64\n.visible .entry k(.param .u64 memory)\n{\n"
         ".reg .b32 %r<32>, %n, %s, %row, %size, %thread;\n.reg .f32 %f<32>;\n.reg .b64 %a, %b, %c, %rd<4>;\n"
         ".reg .pred %p<8>;\n.shared .align 1024 .b8 buffer[40960];\n"
         "mov.u32 %thread, %tid.x;\nld.param.u64 %rd0, [memory];\nmov.u32 %r0, %ctaid.x;\nmov.u32 %r31, %ntid.x;\n"
         "mad.lo.u32 %r0, %r0, %r31, %thread;\nmul.wide.u32 %rd1, %r0, 4;\nadd.u64 %a, %rd0, %rd1;\n"
         "add.u64 %b, %a, 1048576;\nmul.wide.u32 %rd1, %r0, 16;\nadd.u64 %c, %rd0, %rd1;\nmov.u32 %row, buffer;\n"
         "shl.b32 %s, %thread, 2;\nadd.u32 %s, %s, %row;\nshl.b32 %r1, %thread, 4;\nadd.u32 %row, %row, %r1;\n"
         "mov.b32 %size, 16;\nmov.b32 %r1, 1;\nmov.b32 %r2, 2;\nmov.b32 %r3, 3;\nmov.f32 %f1, 0f3f800000;\n"
         "mov.f32 %f2, 0f3f800000;\nmov.f32 %f3, 0f00000000;\n"
         "mov.b32 %r10, 0x3c003800; mov.b32 %r11, 0x38003c00; mov.b32 %r12, 0x3c003c00; mov.b32 %r13, 0x38003800;\n"
         "mov.b32 %r14, 0x38003800; mov.b32 %r15, 0x3400b400;\n"
         "st.shared.v4.b32 [%row], {%r10, %r11, %r12, %r13};\nbar.sync 0;\n" +
         []() {
           std::string zero;
           for (int i = 10; i < 26; ++i) zero += fmt::format("mov.f32 %f{}, 0f00000000;\n", i);
           return zero;
         }() +
         work.before + work.body + work.after +
         "st.global.f32 [%a], %f10;\nst.global.b32 [%b], %r2;\ncp.async.wait_all;\nret;\n}\n";
}

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void measure(const Workload& work, bool hazards, int repetitions) {
  Emulator emulator({.hazards = hazards, .threads = 1});
  const auto module = emulator.load(text_of(work));
  const std::uint64_t memory = emulator.memory().allocate(4 << 20);
  std::memset(reinterpret_cast<void*>(memory), 0, 4 << 20);
  const std::uint64_t parameters[] = {memory};
  std::vector<double> seconds;
  std::uint64_t instructions = 0;
  for (int i = 0; i < repetitions; ++i) {
    const double begin = processor_seconds();
    const LaunchReport report = emulator.launch(*module, "k", {.grid = {work.grid, 1, 1}, .block = {work.block, 1, 1}},
                                                std::as_bytes(std::span(parameters)));
    seconds.push_back(processor_seconds() - begin);
    if (!report.completed) throw std::runtime_error(work.name + ": " + report.fault);
    instructions = report.statistics.warp_instructions;
  }
  std::sort(seconds.begin(), seconds.end());
  const double best = seconds.front(), median = seconds[seconds.size() / 2];
  const auto rate = [&](double amount, double scale) {
    return fmt::format("{:8.1f} {:8.1f}", amount / best * scale, amount / median * scale);
  };
  const double flop = work.flop_per_warp * work.grid * (work.block / 32);
  fmt::print("{:<10} {}  {}  {}\n", work.name, rate(static_cast<double>(instructions), 1e-6),
             flop > 0 ? rate(flop, 1e-9) : std::string(17, ' '), work.what);
}

}  // namespace

int main(int argc, char** argv) {
  bool hazards = false;
  int repetitions = 7;
  std::vector<std::string_view> names;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--hazards")
      hazards = true;
    else if (argument == "--repetitions" && i + 1 < argc)
      repetitions = std::max(1, std::atoi(argv[++i]));
    else
      names.push_back(argument);
  }
  try {
    fmt::print("{:<10} {:>17}  {:>17}\n{:<10} {:>8} {:>8}  {:>8} {:>8}\n", "", "M warp-ins/s", "GFLOP/s", "", "best",
               "median", "best", "median");
    for (const Workload& work : workloads())
      if (names.empty() || std::find(names.begin(), names.end(), work.name) != names.end())
        measure(work, hazards, repetitions);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kernelwright_emulator_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
