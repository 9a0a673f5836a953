// Leases on a server of this test that keeps every value for ever, as a server without times to live does.
#include "kernelwright/runtime/cache/remote/leases.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

namespace kernelwright::leases_test {
namespace {

using std::chrono::milliseconds;
using Lead = RemoteLeases::Lead;

constexpr LeaseTimes kTimes{.life = milliseconds(300), .renewal = milliseconds(50), .patience = milliseconds(800)};

/// The values of a server, which several transports reach.
struct Values {
  std::mutex mutex;
  std::map<std::string, std::vector<std::byte>, std::less<>> of;
  bool are_gone = false;  // nothing is answered to get()
};

class Memory : public RemoteTransport {
 public:
  explicit Memory(Values& values) : values_(values) {}
  const std::string& name() const override { return name_; }
  bool is_local() const override { return true; }
  RemoteReply get(std::string_view name, Deadline) override {
    std::lock_guard hold(values_.mutex);
    if (values_.are_gone) return {};
    const auto at = values_.of.find(name);
    if (at == values_.of.end()) return {.outcome = RemoteOutcome::kAbsent};
    return {.outcome = RemoteOutcome::kDone, .value = at->second};
  }
  RemoteReply put(std::string_view name, std::span<const std::byte> value, Deadline) override {
    std::lock_guard hold(values_.mutex);
    values_.of[std::string(name)] = {value.begin(), value.end()};
    return {.outcome = RemoteOutcome::kDone};
  }
  RemoteReply put_if_absent(std::string_view name, std::span<const std::byte> value, milliseconds, Deadline) override {
    std::lock_guard hold(values_.mutex);
    const bool fresh = values_.of.try_emplace(std::string(name), value.begin(), value.end()).second;
    return {.outcome = fresh ? RemoteOutcome::kDone : RemoteOutcome::kPresent};
  }
  RemoteReply remove_if_equal(std::string_view name, std::span<const std::byte> value, Deadline) override {
    std::lock_guard hold(values_.mutex);
    const auto at = values_.of.find(name);
    if (at == values_.of.end() || !std::ranges::equal(at->second, value)) return {.outcome = RemoteOutcome::kAbsent};
    values_.of.erase(at);
    return {.outcome = RemoteOutcome::kDone};
  }
  /// In one step, as a server of leases does. Else two hosts could replace one value.
  RemoteReply replace_if_equal(std::string_view name, std::span<const std::byte> expected,
                               std::span<const std::byte> value, milliseconds, Deadline) override {
    std::lock_guard hold(values_.mutex);
    const auto at = values_.of.find(name);
    if (at == values_.of.end() || !std::ranges::equal(at->second, expected)) return {.outcome = RemoteOutcome::kAbsent};
    at->second = {value.begin(), value.end()};
    return {.outcome = RemoteOutcome::kDone};
  }

 private:
  Values& values_;
  const std::string name_ = "memory";
};

/// A process of a host that shares `values`.
struct Host {
  explicit Host(Values& values, bool takes = true)
      : server(std::make_unique<Memory>(values), {}), leases(server, takes, kTimes) {}
  Lead ask(const std::string& name) {
    RemoteLeases::Seen seen;
    return leases.ask(name, seen, Deadline::max());
  }
  /// Asks until the answer is another one than kOthers, at most for `most`.
  std::pair<Lead, milliseconds> wait(const std::string& name, milliseconds most = milliseconds(5000)) {
    const Deadline begin = RemoteClock::now();
    RemoteLeases::Seen seen;
    Lead lead = Lead::kOthers;
    while ((lead = leases.ask(name, seen, Deadline::max())) == Lead::kOthers && RemoteClock::now() - begin < most)
      std::this_thread::sleep_for(milliseconds(2));
    return {lead, std::chrono::ceil<milliseconds>(RemoteClock::now() - begin)};
  }
  RemoteServer server;
  RemoteLeases leases;
};

/// Renews a host's leases until it ends.
class Renewal {
 public:
  explicit Renewal(Host& host)
      : thread_([&host](const std::stop_token& stop) {
          while (!stop.stop_requested()) host.leases.renew(), std::this_thread::sleep_for(milliseconds(5));
        }) {}

 private:
  std::jthread thread_;
};

TEST(RemoteLeases, OneHostHoldsALeaseAndGivesItBack) {
  Values values;
  Host first(values), second(values), reader(values, false);
  EXPECT_EQ(reader.ask("a"), Lead::kNobody);
  EXPECT_EQ(first.ask("a"), Lead::kMine);
  EXPECT_TRUE(first.leases.holds("a"));
  EXPECT_EQ(second.ask("a"), Lead::kOthers);
  EXPECT_EQ(reader.ask("a"), Lead::kOthers);
  values.are_gone = true;
  EXPECT_EQ(reader.ask("a"), Lead::kUnknown);
  EXPECT_EQ(second.ask("a"), Lead::kUnknown);
  values.are_gone = false;
  second.leases.give_back("a");  // it is not its own
  EXPECT_EQ(second.ask("a"), Lead::kOthers);
  first.leases.give_back("a");
  EXPECT_FALSE(first.leases.holds_any());
  EXPECT_EQ(second.ask("a"), Lead::kMine);
}

TEST(RemoteLeases, ALeaseIsRecognizedByTheHolderThatDidNotHearOfIt) {
  Values values;
  Host host(values);
  ASSERT_EQ(host.ask("a"), Lead::kMine);
  host.leases.forget("a");
  EXPECT_EQ(host.ask("a"), Lead::kMine);
}

/// The first lease costs a life. After that its holder is known to be gone.
TEST(RemoteLeases, AHolderThatIsGoneIsWaitedForOnce) {
  Values values;
  constexpr int kNames = 30;
  Host dead(values), next(values);
  for (int i = 0; i < kNames; ++i) ASSERT_EQ(dead.ask(std::to_string(i)), Lead::kMine);
  const auto [lead, spent] = next.wait("0");
  EXPECT_EQ(lead, Lead::kMine);
  EXPECT_GE(spent, kTimes.life);
  for (int i = 1; i < kNames; ++i) EXPECT_EQ(next.ask(std::to_string(i)), Lead::kMine) << i;
  Host reader(values, false);  // waits for the holder of now, which does not renew either
  EXPECT_EQ(reader.wait("0").first, Lead::kNobody);
  EXPECT_EQ(reader.ask("1"), Lead::kNobody);
  dead.leases.renew();  // it was only asleep, and learns that it has lost its leases
  std::this_thread::sleep_for(kTimes.renewal);
  dead.leases.renew();
  EXPECT_FALSE(dead.leases.holds_any());
}

TEST(RemoteLeases, AHolderThatRenewsIsWaitedForUntilItIsDone) {
  Values values;
  Host holder(values), other(values);
  ASSERT_EQ(holder.ask("a"), Lead::kMine);
  Lead lead = Lead::kNobody;
  {
    const Renewal renewal(holder);
    lead = other.wait("a", 2 * kTimes.life).first;
  }
  EXPECT_EQ(lead, Lead::kOthers);
}

TEST(RemoteLeases, AHolderThatNeverEndsIsWaitedForUntilPatienceEnds) {
  Values values;
  Host holder(values), other(values);
  for (const char* name : {"a", "b"}) ASSERT_EQ(holder.ask(name), Lead::kMine);
  const Renewal renewal(holder);
  const auto [lead, spent] = other.wait("a");
  EXPECT_EQ(lead, Lead::kMine);
  EXPECT_GE(spent, kTimes.patience);
  EXPECT_EQ(other.ask("b"), Lead::kMine) << "the same holder is not waited for again";
}

/// The one compile of those that wait for a holder that is gone.
TEST(RemoteLeases, OneOfManyTakesTheLeaseOver) {
  Values values;
  Host dead(values);
  ASSERT_EQ(dead.ask("a"), Lead::kMine);
  constexpr int kHosts = 16;
  std::atomic<int> leaders{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < kHosts; ++i)
    threads.emplace_back([&] {
      Host host(values);
      RemoteLeases::Seen seen;
      for (const Deadline end = RemoteClock::now() + 3 * kTimes.life; RemoteClock::now() < end;) {
        if (host.leases.holds("a"))
          host.leases.renew();
        else if (host.leases.ask("a", seen, Deadline::max()) == Lead::kMine)
          ++leaders;
        std::this_thread::sleep_for(milliseconds(2));
      }
    });
  threads.clear();
  EXPECT_EQ(leaders, 1);
}

}  // namespace
}  // namespace kernelwright::leases_test
