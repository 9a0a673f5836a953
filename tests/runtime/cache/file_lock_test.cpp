#include "kernelwright/runtime/cache/file_lock.h"

#include <gmock/gmock.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <chrono>
#include <thread>

#include "runtime/cache/testing.h"

namespace kernelwright {
namespace {

using test::files_in;
using test::start_child;
using test::TempFolder;
using test::wait_for;
using ::testing::HasSubstr;

Digest name_of(int variant) { return sha256("lock " + std::to_string(variant)); }

TEST(FileLock, ExcludesAnotherHolderUntilItIsReleased) {
  TempFolder folder;
  const LockDirectory directory(folder.path());
  ASSERT_NE(directory.kind(), LockKind::kNone) << directory.status();
  FileLock first, second;
  EXPECT_EQ(first.acquire(directory, name_of(1), 0), LockOutcome::kHeld);
  EXPECT_EQ(second.acquire(directory, name_of(1), 20), LockOutcome::kTimedOut);
  EXPECT_FALSE(second.held());
  first.release();
  EXPECT_EQ(second.acquire(directory, name_of(1), 0), LockOutcome::kHeld);
}

TEST(FileLock, KeysDoNotWaitForOneAnotherEvenInOneFile) {
  TempFolder folder;
  const LockDirectory directory(folder.path());
  if (directory.kind() != LockKind::kOfd) GTEST_SKIP() << "whole-file locks: " << directory.status();
  Digest a = name_of(1), b = name_of(2);
  b.bytes[0] = a.bytes[0];
  FileLock first, second;
  EXPECT_EQ(first.acquire(directory, a, 0), LockOutcome::kHeld);
  EXPECT_EQ(second.acquire(directory, b, 0), LockOutcome::kHeld);
  EXPECT_EQ(files_in(folder.path()), 1u);
}

TEST(FileLock, TheKernelReleasesTheLockOfAKilledHolder) {
  TempFolder folder;
  const LockDirectory directory(folder.path());
  const pid_t child = start_child([&] {
    FileLock lock;
    if (lock.acquire(directory, name_of(1), 0) != LockOutcome::kHeld) return 1;
    test::write_file(folder / "ready", "");
    pause();
    return 0;
  });
  while (access((folder / "ready").c_str(), F_OK) != 0) usleep(500);
  FileLock lock;
  EXPECT_EQ(lock.acquire(directory, name_of(1), 20), LockOutcome::kTimedOut);
  kill(child, SIGKILL);
  wait_for(child);
  EXPECT_EQ(lock.acquire(directory, name_of(1), 0), LockOutcome::kHeld);
  EXPECT_TRUE(std::filesystem::exists(folder / name_of(1).hex().substr(0, 2))) << "lock files are never deleted";
}

TEST(FileLock, AForkedChildHoldsNothingAndKeepsNothingAlive) {
  TempFolder folder;
  const LockDirectory directory(folder.path());
  auto lock = std::make_unique<FileLock>();
  ASSERT_EQ(lock->acquire(directory, name_of(1), 0), LockOutcome::kHeld);
  int gate[2];
  ASSERT_EQ(pipe(gate), 0);
  const pid_t child = start_child([&] {
    if (lock->held()) return 1;
    FileLock other;
    if (other.acquire(directory, name_of(1), 0) != LockOutcome::kTimedOut) return 2;  // the parent's still stands
    char byte;
    return read(gate[0], &byte, 1) == 1 ? 0 : 3;
  });
  usleep(20'000);
  lock->release();
  FileLock again;
  EXPECT_EQ(again.acquire(directory, name_of(1), 0), LockOutcome::kHeld) << "the child lives and holds nothing";
  EXPECT_EQ(write(gate[1], "x", 1), 1);
  EXPECT_EQ(wait_for(child, 10), 0);
  close(gate[0]);
  close(gate[1]);
}

TEST(FileLock, AWaitEndsWhenTheLockIsNoLongerNeeded) {
  TempFolder folder;
  const LockDirectory directory(folder.path());
  FileLock first, second;
  ASSERT_EQ(first.acquire(directory, name_of(1), 0), LockOutcome::kHeld);
  int asked = 0;
  EXPECT_EQ(second.acquire(directory, name_of(1), 60'000, [&] { return ++asked == 3; }), LockOutcome::kNotNeeded);
}

TEST(LockDirectory, IsPrivateAndItsFilesStay) {
  TempFolder folder;
  const LockDirectory directory(folder / "locks");
  struct stat info {};
  ASSERT_EQ(stat((folder / "locks").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  EXPECT_EQ(files_in(folder / "locks"), 0u) << "the probe leaves nothing";
  { FileLock().acquire(directory, name_of(1), 0); }
  EXPECT_EQ(files_in(folder / "locks"), 1u);
}

TEST(LockDirectory, RefusesWhatOthersMayWrite) {
  TempFolder folder;
  chmod(folder.path().c_str(), 0777);
  const LockDirectory directory(folder.path());
  EXPECT_EQ(directory.kind(), LockKind::kNone);
  EXPECT_THAT(directory.status(), HasSubstr("no locks between processes: "));
  EXPECT_THAT(directory.status(), HasSubstr("writable by others"));
  FileLock lock;
  EXPECT_EQ(lock.acquire(directory, name_of(1), 1000), LockOutcome::kUnavailable);
}

TEST(LockDirectory, RefusesAnOverlay) {
  TempFolder folder;
  for (const char* part : {"lower", "upper", "work", "merged"}) std::filesystem::create_directory(folder / part);
  const std::string options =
      "lowerdir=" + (folder / "lower") + ",upperdir=" + (folder / "upper") + ",workdir=" + (folder / "work");
  if (mount("overlay", (folder / "merged").c_str(), "overlay", 0, options.c_str()) != 0)
    GTEST_SKIP() << "needs the right to mount an overlay";
  const LockDirectory directory(folder / "merged");
  EXPECT_EQ(directory.kind(), LockKind::kNone);
  EXPECT_THAT(directory.status(), HasSubstr("(overlay)"));
  {  // a cache whose locks are refused works, and so does one that lies on the overlay itself
    CubinCache cache({.directory = folder / "merged/cache", .lock_directory = folder / "merged"});
    EXPECT_EQ(*cache.get_or_compile(test::test_key(), [] { return test::test_binary(); }), test::test_binary());
    EXPECT_EQ(cache.counters().writes, 1u);
    EXPECT_NE(CubinCache({.directory = folder / "merged/cache"}).find(test::test_key()), nullptr);
  }
  umount2((folder / "merged").c_str(), MNT_DETACH);
}

TEST(LockDirectory, PrefersTheRunTimeDirectoryAndFallsBackToSharedMemory) {
  TempFolder folder;
  EXPECT_EQ(wait_for(start_child([&] {
              setenv("XDG_RUNTIME_DIR", folder.path().c_str(), 1);
              if (LockDirectory().path() != folder / "kernelwright") return 1;
              setenv("XDG_RUNTIME_DIR", "/nonexistent", 1);
              return LockDirectory().path() == "/dev/shm/kernelwright-" + std::to_string(geteuid()) ? 0 : 2;
            })),
            0);
}

}  // namespace
}  // namespace kernelwright
