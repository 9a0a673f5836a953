// How key tiles are shared out among teams of CTAs, and how CTAs meet that have parts of the same rows: the policies by
// themselves, in small kernels on the emulator. Needs NVRTC and no GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "contract/even_shares.h"
#include "kernelwright/generator/template_library.h"
#include "kernelwright/runtime/compile/compiler.h"
#include "kernelwright/runtime/emulator/emulator.h"

namespace kernelwright::even_shares_test {
namespace {

using Words = std::vector<std::uint32_t>;

struct Buffer {
  emulator::GlobalMemory& memory;
  const DevicePtr address;
  Buffer(emulator::GlobalMemory& where, const Words& words) : memory(where), address(where.allocate(words.size() * 4)) {
    std::memcpy(reinterpret_cast<void*>(address), words.data(), words.size() * 4);
    memory.host_wrote(address, words.size() * 4);
  }
  ~Buffer() { memory.free(address); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void read(Words& words) const { std::memcpy(words.data(), reinterpret_cast<const void*>(address), words.size() * 4); }
};

/// A kernel of (u32* in, u32* out, int n) on the emulator, with every check on.
class SmallKernel {
 public:
  SmallKernel(const char* header, const std::string& body) {
    SourceUnit unit;
    unit.kernel = unit.entry = "small";
    unit.spec_header = unit.spec_text = "#pragma once\n";
    unit.headers = template_closure(header).files;
    unit.source = fmt::format(
        "#include \"{}\"\nusing namespace kernelwright;\n"
        "extern \"C\" __global__ void __launch_bounds__(64) small(unsigned* in, unsigned* out, int n) {{\n{}}}\n",
        header, body);
    unit.arch = "sm_90a";
    unit.options = {"--gpu-architecture=sm_90a", "--std=c++17", "-default-device", "--minimal"};
    module_ = emulator_.load(Compiler().compile(unit).ptx);
  }

  /// Launches `ctas` CTAs of `threads` threads. `in` is written back.
  Words run(Words& in, std::size_t results, std::uint32_t ctas, std::uint32_t threads, int n) {
    Words out(results, 0xdead);
    Buffer given(emulator_.memory(), in), made(emulator_.memory(), out);
    struct {
      DevicePtr in, out;
      int n;
    } parameters{given.address, made.address, n};
    const emulator::LaunchReport report =
        emulator_.launch(*module_, "small", {.grid = {ctas}, .block = {threads}},
                         {reinterpret_cast<const std::byte*>(&parameters), sizeof(DevicePtr) * 2 + sizeof(int)});
    EXPECT_TRUE(report.completed) << report.fault;
    for (const auto& hazard : report.hazards) ADD_FAILURE() << hazard.text();
    given.read(in);
    made.read(out);
    return out;
  }

 private:
  static emulator::Options options() {
    emulator::Options options;
    options.hazards = true;
    options.completion = emulator::Completion::kRandom;
    return options;
  }
  emulator::Emulator emulator_{options()};
  std::shared_ptr<const emulator::LoadedModule> module_;
};

class EvenShares : public testing::Test {
 protected:
  void SetUp() override {
    if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }
};

/// One part of a sequence, as a team found it.
struct Found {
  int team, sequence, begin, end, part, parts;
};

class Shares {
 public:
  /// in: costs. out: for each team the number of its parts, then those.
  std::vector<Found> of(Words costs, int teams) {
    const Words out = kernel_.run(costs, static_cast<std::size_t>(teams) * kRoom, static_cast<std::uint32_t>(teams), 64,
                                  static_cast<int>(costs.size()));
    std::vector<Found> found;
    for (int team = 0; team < teams; ++team) {
      const std::uint32_t* at = out.data() + team * kRoom;
      const std::uint32_t count = *at++;
      if (count > kMost) {
        ADD_FAILURE() << count << " parts of team " << team;
        return {};
      }
      for (std::uint32_t i = 0; i < count; ++i, at += 5)
        found.push_back({team, static_cast<int>(at[0]), static_cast<int>(at[1]), static_cast<int>(at[2]),
                         static_cast<int>(at[3]), static_cast<int>(at[4])});
    }
    return found;
  }

 private:
  static constexpr int kRoom = 1024, kMost = (kRoom - 1) / 5;
  SmallKernel kernel_{"policy/even_shares.cuh", R"(
    __shared__ __align__(8) unsigned char scratch[policy::even_scratch(64)];
    const int teams = gridDim.x, team = blockIdx.x;
    const policy::TeamShare share = policy::find_share<64>(
        team, teams, n, true, static_cast<unsigned>(__cvta_generic_to_shared(scratch)),
        [&](int i) { return static_cast<int>(in[i]); });
    if (threadIdx.x > 0) return;
    unsigned count = 0, *to = out + team * 1024 + 1;
    for (policy::EvenWalk walk(share); walk.goes_on(n);) {
      const int cost = in[walk.sequence()], tiles = cost > 0 ? cost - contract::kSequenceTiles : 0;
      const policy::KeyPart part = walk.part(tiles);
      if (cost > 0 && part.exists) {
        ++count;
        *to++ = walk.sequence(), *to++ = part.begin, *to++ = part.end, *to++ = part.part, *to++ = part.parts;
      }
      walk.next(cost, teams);
    }
    out[team * 1024] = count;
  )"};
};

/// Every tile of every sequence belongs to one team, and the parts are numbered in order.
void expect_shared_out(const Words& costs, int teams, const std::vector<Found>& found) {
  std::vector<std::vector<Found>> of(costs.size());
  for (const Found& part : found) of[static_cast<std::size_t>(part.sequence)].push_back(part);
  for (std::size_t i = 0; i < costs.size(); ++i) {
    SCOPED_TRACE(fmt::format("sequence {} of {}, cost {}, {} teams", i, costs.size(), costs[i], teams));
    if (costs[i] == 0) {
      EXPECT_TRUE(of[i].empty());
      continue;
    }
    const int tiles = static_cast<int>(costs[i]) - contract::kSequenceTiles;
    ASSERT_FALSE(of[i].empty());
    int at = 0;
    for (std::size_t part = 0; part < of[i].size(); ++part) {
      EXPECT_EQ(of[i][part].begin, at);
      EXPECT_EQ(of[i][part].part, static_cast<int>(part));
      EXPECT_EQ(of[i][part].parts, static_cast<int>(of[i].size()));
      EXPECT_EQ(of[i][part].team, of[i][0].team + static_cast<int>(part))
          << "the merge counts teams from the first one";
      at = of[i][part].end;
    }
    EXPECT_EQ(at, tiles);
  }
}

TEST_F(EvenShares, CoverEveryTileOnceAndCostTheSame) {
  Shares shares;
  std::mt19937 draw(7);
  for (const int sequences : {1, 2, 5, 33, 64, 65, 200})
    for (const int teams : {1, 3, 66}) {
      Words costs(static_cast<std::size_t>(sequences));
      const int longest = sequences < 10 ? 700 : 60;
      for (std::uint32_t& cost : costs)
        cost = draw() % 7 == 0 ? 0 : contract::kSequenceTiles + draw() % static_cast<unsigned>(longest);
      const std::vector<Found> found = shares.of(costs, teams);
      expect_shared_out(costs, teams, found);
      const int total = std::accumulate(costs.begin(), costs.end(), 0);
      const int most = static_cast<int>(*std::max_element(costs.begin(), costs.end()));
      const int share = total == 0 ? 0 : contract::even_share(total, most, sequences, teams);
      if (share == 0) continue;
      std::vector<int> tiles(static_cast<std::size_t>(teams));
      for (const Found& part : found) tiles[static_cast<std::size_t>(part.team)] += part.end - part.begin;
      EXPECT_LE(*std::max_element(tiles.begin(), tiles.end()), share);
    }
}

TEST_F(EvenShares, LeaveSequencesWholeWhereCuttingGivesNothing) {
  Shares shares;
  const Words alike(6, 40);
  for (const Found& part : shares.of(alike, 3)) EXPECT_EQ(part.parts, 1) << "three teams take two each";
  const Words one{400};
  EXPECT_EQ(shares.of(one, 5).size(), 5u);
  const Words short_one{static_cast<std::uint32_t>(contract::kSequenceTiles) + 2};
  EXPECT_EQ(shares.of(short_one, 5).size(), 1u);
}

TEST_F(EvenShares, OfNoRowsAreEmpty) {
  Shares shares;
  EXPECT_TRUE(shares.of(Words(9, 0), 4).empty());
}

TEST_F(EvenShares, CtasMeetInAnyMemoryAndNobodyWaitsForever) {
  // in: the words of a meeting. out: the role of each CTA.
  SmallKernel kernel("policy/joint_merge.cuh", R"(
    if (threadIdx.x > 0) return;
    const policy::Meeting meeting(reinterpret_cast<uint64_t*>(in));
    const uint32_t number = meeting.open();
    out[blockIdx.x] = meeting.wait(meeting.arrive(number, n), n);
  )");
  enum : std::uint32_t { kShare, kAll, kNothing };  // policy::Meeting::Role
  Words words{0x12345678, 0x9abcdef0, 0xffffffff, 0};
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(kernel.run(words, 3, 3, 32, 3), Words(3, kShare)) << "all have come";
    EXPECT_EQ(kernel.run(words, 2, 2, 32, 3), Words(2, kNothing)) << "the third does not come while they wait";
    EXPECT_EQ(kernel.run(words, 1, 1, 32, 3), Words(1, kAll)) << "the others have left their parts";
  }
}

}  // namespace
}  // namespace kernelwright::even_shares_test
