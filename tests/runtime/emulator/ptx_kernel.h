/// Runs a few lines of PTX on the emulator.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "kernelwright/runtime/emulator/emulator.h"

namespace kernelwright::emulator::test {

struct PtxRun {
  LaunchReport report;
  std::vector<std::uint32_t> out;
};

/// The body of an entry `test(out, in)` for `target`. It has registers %p0-15, %h0-15 (b16), %r0-99, %rd0-49, %f0-299.
/// It begins with %rd0 = out, %rd1 = in, %r0 = thread, %r1 = warp, %r2 = lane, %r3 = rank in the cluster. `data` is
/// dynamic shared memory. A return follows the body.
inline std::string ptx_kernel(const std::string& body, const std::string& target = "sm_90a") {
  return ".version 8.8\n.target " + target +
         "\n.address_size 64\n"
         ".extern .shared .align 1024 .b8 data[];\n"
         ".visible .entry test(.param .align 8 .b8 args[16])\n{\n"
         ".reg .pred %p<16>; .reg .b16 %h<16>; .reg .b32 %r<100>; .reg .b64 %rd<50>; .reg .f32 %f<300>;\n"
         "ld.param.u64 %rd0, [args]; ld.param.u64 %rd1, [args+8];\n"
         "mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; mov.u32 %r2, %laneid; mov.u32 %r3, %cluster_ctarank;\n" +
         body + "\nret;\n}\n";
}

/// `in` is copied to device memory; `out_words` words come back.
inline PtxRun run_ptx(const std::string& body, const LaunchShape& shape, Options options,
                      std::span<const std::uint32_t> in = {}, std::size_t out_words = 1024,
                      const std::string& target = "sm_90a") {
  Emulator emulator(options);
  const auto module = emulator.load(ptx_kernel(body, target));
  const std::uint64_t out = emulator.memory().allocate(out_words * 4, "out");
  const std::uint64_t from = emulator.memory().allocate(std::max<std::size_t>(in.size(), 4) * 4, "in");
  std::memset(reinterpret_cast<void*>(out), 0, out_words * 4);
  if (!in.empty()) std::memcpy(reinterpret_cast<void*>(from), in.data(), in.size_bytes());
  const std::uint64_t arguments[] = {out, from};
  PtxRun run;
  run.report = emulator.launch(*module, "test", shape, std::as_bytes(std::span(arguments)));
  run.out.resize(out_words);
  std::memcpy(run.out.data(), reinterpret_cast<const void*>(out), out_words * 4);
  return run;
}

}  // namespace kernelwright::emulator::test
