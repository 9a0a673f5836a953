// Many processes of several hosts ask for one key at the same time. With the rights for it, each host is a network
// namespace, and a wire of its own leads to the server.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <sys/prctl.h>

#include "runtime/cache/remote_cache.h"

namespace kernelwright::remote_fleet_test {
namespace {

using std::chrono::milliseconds;
using test::start_child;
using test::test_binary, test::test_key;
using test::wait_for;
using ::testing::Ge;
using ::testing::Le;

constexpr int kMostSeconds = 60;

struct Fleet {
  int hosts, processes;  // of each host
  bool kills_holder;     // the first process that compiles is killed while it does
};

/// Runs a program by its words. True if it ends well.
bool run(const std::string& words) { return std::system((words + " 2>/dev/null >&2").c_str()) == 0; }

bool wait_for_file(const std::string& path) {
  for (int i = 0; i < kMostSeconds * 500; ++i) {
    if (access(path.c_str(), F_OK) == 0) return true;
    usleep(2000);
  }
  return false;
}

class RemoteFleet : public test::RemoteCacheTest {
 protected:
  /// What one process does: it waits for all others, then asks. 0: the kernel was right.
  int ask_as_process(const CacheOptions& options, const Fleet& fleet) {
    CubinCache cache(options);
    test::write_file(folder_ / ("ready-" + std::to_string(getpid())), "");
    if (!wait_for_file(folder_ / "gate")) return 1;
    const auto binary = cache.get_or_compile(test_key(), [&] {
      const int fd = open((folder_ / "count").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
      const bool first = write(fd, "x", 1) == 1 && lseek(fd, 0, SEEK_CUR) == 1;
      close(fd);
      std::this_thread::sleep_for(milliseconds(300));
      if (first && fleet.kills_holder) kill(getpid(), SIGKILL);
      return test_binary();
    });
    if (const auto failures = cache.remote_counters().failures; failures > 0)
      test::write_file(folder_ / ("late-" + std::to_string(getpid())), std::to_string(failures));
    return *binary == test_binary() ? 0 : 2;
  }

  /// What a host does: it starts its processes, and returns how many of them did not get the right kernel.
  int run_host(const CacheOptions& options, const Fleet& fleet) {
    std::vector<pid_t> processes;
    for (int i = 0; i < fleet.processes; ++i)
      processes.push_back(start_child([&] {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        return ask_as_process(options, fleet);
      }));
    int wrong = 0;
    for (const pid_t process : processes) wrong += wait_for(process, kMostSeconds) != 0;
    return wrong;
  }

  std::size_t files(const std::string& prefix) const {
    std::size_t count = 0;
    for (const auto& item : std::filesystem::directory_iterator(folder_.path()))
      count += item.path().filename().string().starts_with(prefix);
    return count;
  }

  /// Opens the gate once all processes are ready, and returns how many did not get the right kernel.
  int open_gate_and_wait(const std::vector<pid_t>& hosts, const Fleet& fleet) {
    const auto all = static_cast<std::size_t>(fleet.hosts * fleet.processes);
    for (int i = 0; i < kMostSeconds * 100 && files("ready-") < all; ++i) usleep(10'000);
    test::write_file(folder_ / "gate", "");
    int wrong = 0;
    for (const pid_t host : hosts) wrong += wait_for(host, kMostSeconds);
    return wrong;
  }

  void expect_compiles(const Fleet& fleet, int wrong) {
    const std::size_t compiles = test::read_file(folder_ / "count").size();
    EXPECT_EQ(wrong, fleet.kills_holder ? 1 : 0);  // the process that was killed
    // A host compiles for itself if the server does not answer it in time, which a machine with much work may cause.
    EXPECT_THAT(compiles, Le((fleet.kills_holder ? 2u : 1u) + files("late-")));
    EXPECT_THAT(compiles, Ge(1u));
  }

  void run_on_loopback(const Fleet& fleet) {
    std::vector<pid_t> hosts;
    for (int i = 0; i < fleet.hosts; ++i)
      hosts.push_back(start_child([&, options = host("host" + std::to_string(i), true)] {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        return run_host(options, fleet);
      }));
    expect_compiles(fleet, open_gate_and_wait(hosts, fleet));
  }

  /// On a thread of its own, whose namespace is the server's. "": done; else why it could not be.
  std::string run_on_wires(const Fleet& fleet) {
    if (unshare(CLONE_NEWNET) != 0) return "needs the right to make network namespaces";
    if (!run("ip link set lo up")) return "ip is missing; install iproute2";
    const int port = test::free_port();
    test::LocalServer server(test::redis_words(port, {"--bind", "0.0.0.0", "--protected-mode", "no"}), port);
    if (!server.ready()) return "Redis did not start in a network namespace";
    std::vector<pid_t> hosts;
    for (int i = 0; i < fleet.hosts; ++i) {
      const std::string name = "host" + std::to_string(i), net = "10.77." + std::to_string(i) + ".";
      CacheOptions options = host(name, true);
      options.remote.address = "redis://" + net + "1:" + std::to_string(port);
      const pid_t child = start_child([&] {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (unshare(CLONE_NEWNET) != 0) return 100;
        test::write_file(folder_ / (name + "-alone"), "");
        if (!wait_for_file(folder_ / (name + "-wired"))) return 101;
        if (!run("ip addr add " + net + "2/24 dev wire && ip link set wire up")) return 102;
        return run_host(options, fleet);
      });
      hosts.push_back(child);
      const std::string ours = "wire" + std::to_string(i);
      const bool wired = wait_for_file(folder_ / (name + "-alone")) &&
                         run("ip link add " + ours + " type veth peer name wire netns " + std::to_string(child) +
                             " && ip addr add " + net + "1/24 dev " + ours + " && ip link set " + ours + " up");
      if (!wired) {
        for (const pid_t one : hosts) kill(one, SIGKILL), wait_for(one);
        return "needs veth, which connects network namespaces";
      }
      test::write_file(folder_ / (name + "-wired"), "");
    }
    expect_compiles(fleet, open_gate_and_wait(hosts, fleet));
    return "";
  }
};

TEST_F(RemoteFleet, EightProcessesOfFourHostsCompileAKeyOnce) { run_on_loopback({4, 2, false}); }

TEST_F(RemoteFleet, OneOfThoseThatWaitForAKilledHolderCompiles) { run_on_loopback({4, 2, true}); }

/// In every second fleet, the holder is killed.
TEST_F(RemoteFleet, SixtyFourProcessesOfEightNamespacesCompileAKeyOnce) {
  const char* asked = std::getenv("KERNELWRIGHT_FLEETS");  // CONTRIBUTING.md
  const int fleets = asked ? std::atoi(asked) : 1;
  ASSERT_GT(fleets, 0);
  for (int i = 0; i < fleets; ++i) {
    SCOPED_TRACE(i);
    std::string reason;
    std::thread([&] { reason = run_on_wires({8, 8, i % 2 == 1}); }).join();
    if (!reason.empty()) GTEST_SKIP() << reason << "; the fleet of eight processes needs none";
    for (const auto& item : std::filesystem::directory_iterator(folder_.path()))
      if (item.path().extension() != ".pem" && item.path().extension() != ".pub")
        std::filesystem::remove_all(item.path());
  }
}

}  // namespace
}  // namespace kernelwright::remote_fleet_test
