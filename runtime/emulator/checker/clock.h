/// Vector clocks of the checker.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

namespace kernelwright::emulator {

/// What is known to have happened, by agent. Agents are numbered; the cluster's warps come first.
///
/// `all[a]` covers everything that agent a has done up to that time. For warps there is a finer part: `some[w]` covers
/// what the lanes `lanes[w]` have done, for the case that a lane released without its siblings. A join takes the larger
/// time of each entry and unites the lanes of two releases. This union can hide a hazard but never invent one.
struct Times {
  std::vector<std::uint32_t> all, some, lanes;

  void join(const Times& other) {
    if (all.size() < other.all.size()) all.resize(other.all.size());
    if (some.size() < other.some.size()) some.resize(other.some.size()), lanes.resize(other.some.size());
    for (std::size_t i = 0; i < other.all.size(); ++i) all[i] = std::max(all[i], other.all[i]);
    for (std::size_t i = 0; i < other.some.size(); ++i) {
      some[i] = std::max(some[i], other.some[i]);
      lanes[i] |= other.lanes[i];
    }
  }
  bool covers(std::uint32_t agent, int lane, std::uint32_t time) const {
    if (agent < all.size() && all[agent] >= time) return true;
    return agent < some.size() && some[agent] >= time && (lanes[agent] >> lane & 1);
  }
  /// The same, for any lane of the agent.
  bool covers_some(std::uint32_t agent, std::uint32_t time) const {
    return (agent < all.size() && all[agent] >= time) || (agent < some.size() && some[agent] >= time);
  }
};

/// Times of other clusters, by cluster number.
using ClusterTimes = std::map<std::uint32_t, Times>;
inline void join(ClusterTimes& times, const ClusterTimes& other) {
  for (const auto& [cluster, known] : other) times[cluster].join(known);
}

/// Times within a cluster, and five more parts:
///   - `proxy[a]`: how much of agent a's writes a proxy fence has made visible to the asynchronous proxy. The agent is
///     a warp, or the cp.async of a warp.
///   - `tensor[w]`: how much of warp w's work in tensor memory a tcgen05.fence::before_thread_sync (or a commit) has
///     ordered before what follows.
///   - `passed[w]`: warp w has come past this time, though its accesses need not be done.
///   - `ahead`: some griddepcontrol.wait has found that the launches ahead have ended.
///   - `others`: what words of global memory have told about other clusters.
struct Clock : Times {
  std::vector<std::uint32_t> proxy, tensor, passed;
  bool ahead = false;
  ClusterTimes others;

  void resize(std::size_t agents, std::size_t warps) {
    if (all.size() < agents) all.resize(agents);
    if (some.size() < warps) some.resize(warps), lanes.resize(warps);
    if (tensor.size() < warps) tensor.resize(warps);
    if (proxy.size() < warps) proxy.resize(warps);
  }
  bool empty() const { return all.empty(); }
  void clear() {
    std::fill(all.begin(), all.end(), 0);
    std::fill(some.begin(), some.end(), 0);
    std::fill(lanes.begin(), lanes.end(), 0);
    std::fill(proxy.begin(), proxy.end(), 0);
    std::fill(tensor.begin(), tensor.end(), 0);
    std::fill(passed.begin(), passed.end(), 0);
    ahead = false;
    others.clear();
  }
  void join(const Clock& other) {
    ahead |= other.ahead;
    resize(other.all.size(), other.some.size());
    Times::join(other);
    for (std::size_t i = 0; i < other.tensor.size(); ++i) tensor[i] = std::max(tensor[i], other.tensor[i]);
    if (proxy.size() < other.proxy.size()) proxy.resize(other.proxy.size());
    for (std::size_t i = 0; i < other.proxy.size(); ++i) proxy[i] = std::max(proxy[i], other.proxy[i]);
    if (passed.size() < other.passed.size()) passed.resize(other.passed.size());
    for (std::size_t i = 0; i < other.passed.size(); ++i) passed[i] = std::max(passed[i], other.passed[i]);
    emulator::join(others, other.others);
  }
  /// A proxy fence: everything that is known becomes known to the asynchronous proxy.
  void publish() {
    if (proxy.size() < all.size()) proxy.resize(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) proxy[i] = std::max(proxy[i], all[i]);
  }
  void raise(std::uint32_t agent, std::uint32_t time) {
    if (all.size() <= agent) all.resize(agent + 1);
    all[agent] = std::max(all[agent], time);
  }
  bool covers_other(std::uint32_t cluster, std::uint32_t agent, int lane, std::uint32_t time) const {
    const auto known = others.find(cluster);
    return known != others.end() && known->second.covers(agent, lane, time);
  }
  void pass(std::uint32_t warp, std::uint32_t time) {
    if (passed.size() <= warp) passed.resize(warp + 1);
    passed[warp] = std::max(passed[warp], time);
  }
  /// Whether the warp has come past the time, or one of its lanes has released since.
  bool covers_passage(std::uint32_t warp, std::uint32_t time) const {
    return covers_some(warp, time) || (warp < passed.size() && passed[warp] >= time);
  }
  bool covers_proxy(std::uint32_t agent, std::uint32_t time) const {
    return agent < proxy.size() && proxy[agent] >= time;
  }
};

}  // namespace kernelwright::emulator
