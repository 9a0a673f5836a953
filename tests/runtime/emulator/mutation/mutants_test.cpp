// The changes of kernelwright_mutate: each is found at its place, is named by its source line, and touches nothing
// else.
#include "runtime/emulator/mutation/mutants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/emulator/ptx/parser.h"
#include "runtime/emulator/mutation/equivalents.h"
#include "runtime/emulator/ptx_kernel.h"

namespace kernelwright::test {
namespace {

using testing::ElementsAre;

std::string kernel(const std::string& body) { return emulator::test::ptx_kernel(body); }

/// "change: replacement" of all mutants of the only site.
std::vector<std::string> changes_of(const std::string& body) {
  const std::string ptx = kernel(body);
  const std::vector<SyncSite> sites = sync_sites(ptx);
  EXPECT_EQ(sites.size(), 1u) << body;
  std::vector<std::string> changes;
  for (const SyncSite& site : sites)
    for (const Mutant& mutant : mutants_of(site, 0)) {
      changes.push_back(mutant.change + ": " + mutant.replacement);
      const auto module = emulator::parse_ptx(with_replacement(ptx, site, mutant.replacement));
      EXPECT_EQ(module->entries.at(0).refusal, "") << changes.back();
    }
  return changes;
}

TEST(Mutants, AreFoundAmongOtherInstructions) {
  const std::string ptx = kernel(R"(
    // bar.sync 0; is a comment
    L1: @%p1 bar.sync 0;
    cp.async.bulk.commit_group; add.u32 %r4, %r5, 1;
    mov.b64 {%r6, %r7}, %rd3; { .reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%r4]; }
  )");
  std::vector<std::string> texts;
  for (const SyncSite& site : sync_sites(ptx)) {
    texts.push_back(site.text());
    EXPECT_EQ(site.entry, "test");
    EXPECT_EQ(ptx.substr(site.begin, site.end - site.begin), site.text() + ";");
  }
  EXPECT_THAT(texts, ElementsAre("@%p1 bar.sync 0", "cp.async.bulk.commit_group",
                                 "mbarrier.arrive.shared::cta.b64 state, [%r4]"));
}

TEST(Mutants, DeleteAndAlterByWhatTheInstructionSays) {
  EXPECT_THAT(changes_of("wgmma.wait_group.sync.aligned 1;"),
              ElementsAre("delete: ", "one group less: wgmma.wait_group.sync.aligned 2;"));
  EXPECT_THAT(changes_of("cp.async.bulk.wait_group 0;"),
              ElementsAre("delete: ", "one group less: cp.async.bulk.wait_group 1;",
                          ".read added: cp.async.bulk.wait_group.read 0;"));
  EXPECT_THAT(changes_of("@!%p2 mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0;"),
              ElementsAre("delete: @!%p2 setp.ne.u32 %p1, 1, 0;",
                          "parity flipped: @!%p2 mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 1;"));
  EXPECT_THAT(changes_of("mbarrier.arrive.expect_tx.shared::cta.b64 %rd1, [%r1], %r2;"),
              ElementsAre("delete: ",
                          "16 bytes more: { .reg .b32 %kw_changed; add.s32 %kw_changed, %r2, 16; "
                          "mbarrier.arrive.expect_tx.shared::cta.b64 %rd1, [%r1], %kw_changed; }",
                          "16 bytes less: { .reg .b32 %kw_changed; add.s32 %kw_changed, %r2, -16; "
                          "mbarrier.arrive.expect_tx.shared::cta.b64 %rd1, [%r1], %kw_changed; }"));
  EXPECT_THAT(changes_of("ld.global.acquire.gpu.b32 %r1, [%rd1];"),
              ElementsAre("relaxed: ld.global.relaxed.gpu.b32 %r1, [%rd1];",
                          "scope of a CTA: ld.global.acquire.cta.b32 %r1, [%rd1];"));
  EXPECT_THAT(changes_of("fence.acq_rel.gpu;"), ElementsAre("delete: ", "scope of a CTA: fence.acq_rel.cta;"));
  EXPECT_THAT(changes_of("bar.sync 3, 64;"),
              ElementsAre("delete: ", "32 threads more: bar.sync 3, 96;", "32 threads less: bar.sync 3, 32;"));
}

TEST(Mutants, AreNamedByTheLinesThatTheyWereInlinedThrough) {
  const std::string ptx = kernel(
                              "\t.loc\t1 40 3\n"
                              "\t.loc\t2 7 5, function_name $name, inlined_at 1 40 3\n"
                              "bar.sync 0;\n") +
                          "\t.file\t1 \"kernel.cu\"\n\t.file\t2 \"ptx/barrier.cuh\"\n";
  const std::vector<SyncSite> sites = sync_sites(ptx);
  ASSERT_EQ(sites.size(), 1u);
  EXPECT_THAT(sites[0].frames, ElementsAre(SourceFrame{"ptx/barrier.cuh", 7}, SourceFrame{"kernel.cu", 40}));
}

TEST(Equivalents, HaveReasonsAndFourFields) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("kernelwright-equivalents-" + std::to_string(::getpid()));
  const auto read = [&](const std::string& text) {
    std::ofstream(path) << text;
    return read_equivalents(path);
  };
  std::vector<Equivalent> entries =
      read("# a comment\n\na* | k.cu: if (x || y) wait(); | bar.sync | delete\n  why,\n  and more\n");
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].reason, "why, and more");
  EXPECT_EQ(find_equivalent(entries, {"ab", "k.cu: if (x || y) wait();", "bar.sync", "delete"}), &entries[0]);
  EXPECT_EQ(find_equivalent(entries, {"b", "k.cu: if (x || y) wait();", "bar.sync", "delete"}), nullptr);
  entries = read("a | k.cu: wait(); < k.cu: end(); | bar.sync | delete\n  why\n");
  const auto found = [&](std::vector<std::string> callers) {
    return find_equivalent(entries, {"a", "k.cu: wait();", "bar.sync", "delete", std::move(callers)}) != nullptr;
  };
  EXPECT_FALSE(found({}));
  EXPECT_FALSE(found({"k.cu: begin();"}));
  EXPECT_TRUE(found({"k.cu: begin();", "k.cu: end();"}));
  EXPECT_THROW(read("a | b | c | d\n"), Error);
  EXPECT_THROW(read("a | b | c\n  why\n"), Error);
  EXPECT_THROW(read("  why\n"), Error);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace kernelwright::test
