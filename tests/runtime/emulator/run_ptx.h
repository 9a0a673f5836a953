/// Runs PTX statements on one warp (or CTA) of the emulator, with 32-bit inputs and outputs by lane.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "kernelwright/runtime/emulator/emulator.h"
#include "runtime/emulator/ptx_text.h"

namespace kernelwright::test {

using Words = std::vector<std::uint32_t>;

/// The names that statements may use: %lane; %i0, %i1, … (b32: input i of this thread); %memory (b64: a global buffer),
/// %shared (b32: `shared_bytes` of shared memory). They leave results in %o0, %o1, …. Scratch registers: %h, %r, %rd,
/// %f, %d, %p, %q.
struct PtxRun {
  std::string statements;
  std::vector<Words> inputs;  // [input][thread]
  std::size_t num_outputs = 0;
  std::uint32_t threads = 32;
  std::uint32_t shared_bytes = 4096;
  std::vector<std::byte> memory = std::vector<std::byte>(4096);
  emulator::Options options = {.hazards = true, .threads = 1};
  std::string target = "sm_90a";
};

struct PtxResult {
  std::vector<Words> outputs;  // [output][thread]
  std::vector<std::byte> memory;
  emulator::LaunchReport report;

  template <class T>
  T at(std::size_t offset) const {
    T value;
    std::memcpy(&value, memory.data() + offset, sizeof value);
    return value;
  }
};

inline std::string text_of(const PtxRun& run) {
  std::string text =
      ".visible .entry k(.param .u64 in, .param .u64 out, .param .u64 mem)\n{\n"
      ".reg .b32 %lane, %shared, %i<32>, %o<32>, %r<32>;\n.reg .b64 %memory, %in, %out, %bytes, %rd<16>;\n"
      ".reg .b16 %h<16>;\n.reg .f32 %f<32>;\n.reg .f64 %d<32>;\n.reg .pred %p<8>;\n.reg .b128 %q<4>;\n"
      ".shared .align 128 .b8 buffer[" +
      std::to_string(run.shared_bytes) +
      "];\n"
      "mov.u32 %lane, %laneid;\nmov.u32 %shared, buffer;\nmov.u32 %r0, %tid.x;\n"
      "ld.param.u64 %in, [in];\nld.param.u64 %out, [out];\nld.param.u64 %memory, [mem];\n"
      "mul.wide.u32 %bytes, %r0, 4;\nadd.u64 %in, %in, %bytes;\nadd.u64 %out, %out, %bytes;\n";
  for (std::size_t i = 0; i < run.inputs.size(); ++i)
    text += "ld.global.b32 %i" + std::to_string(i) + ", [%in+" + std::to_string(i * run.threads * 4) + "];\n";
  text += run.statements + "\n";
  for (std::size_t i = 0; i < run.num_outputs; ++i)
    text += "st.global.b32 [%out+" + std::to_string(i * run.threads * 4) + "], %o" + std::to_string(i) + ";\n";
  return module_of(text + "ret;\n}\n", run.target);
}

/// Throws PtxError for code that cannot be decoded; a fault is in the report.
inline PtxResult run_ptx(const PtxRun& run) {
  emulator::Emulator machine(run.options);
  const auto module = machine.load(text_of(run));
  const auto bytes = [&](std::size_t words) { return words * run.threads * 4 + 4; };
  const std::uint64_t in = machine.memory().allocate(bytes(run.inputs.size()));
  const std::uint64_t out = machine.memory().allocate(bytes(run.num_outputs));
  const std::uint64_t memory = machine.memory().allocate(run.memory.size());
  for (std::size_t i = 0; i < run.inputs.size(); ++i)
    std::memcpy(reinterpret_cast<std::byte*>(in) + i * run.threads * 4, run.inputs[i].data(), run.threads * 4);
  std::memcpy(reinterpret_cast<void*>(memory), run.memory.data(), run.memory.size());
  const std::uint64_t parameters[] = {in, out, memory};
  PtxResult result;
  result.report = machine.launch(*module, "k", {.block = {run.threads, 1, 1}}, std::as_bytes(std::span(parameters)));
  for (std::size_t i = 0; i < run.num_outputs; ++i) {
    result.outputs.emplace_back(run.threads);
    std::memcpy(result.outputs.back().data(), reinterpret_cast<const std::byte*>(out) + i * run.threads * 4,
                run.threads * 4);
  }
  result.memory.resize(run.memory.size());
  std::memcpy(result.memory.data(), reinterpret_cast<const void*>(memory), run.memory.size());
  return result;
}

/// A run that must end well: no fault, no hazard.
inline PtxResult run_clean(const PtxRun& run) {
  PtxResult result = run_ptx(run);
  EXPECT_EQ(result.report.fault, "") << text_of(run);
  for (const emulator::HazardReport& hazard : result.report.hazards) ADD_FAILURE() << hazard.text();
  return result;
}

inline std::vector<std::byte> bytes_of_words(const Words& words) {
  std::vector<std::byte> bytes(words.size() * 4);
  std::memcpy(bytes.data(), words.data(), bytes.size());
  return bytes;
}

/// Different in every word: multiplicative hashing of the index.
inline Words scrambled(std::size_t count, std::uint32_t seed = 1) {
  Words words(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t x = static_cast<std::uint32_t>(i) * 0x9e3779b9u + seed * 0x85ebca6bu;
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    words[i] = x ^ x >> 16;
  }
  return words;
}

}  // namespace kernelwright::test
