#include "kernelwright/runtime/emulator/program/modifier_order.h"

#include <algorithm>

namespace kernelwright::emulator {
namespace {

// Names of several words. The name of every other instruction is its first word.
constexpr std::string_view kNames[] = {
    "bar.arrive",
    "bar.cta.arrive",
    "bar.cta.red",
    "bar.cta.sync",
    "bar.red",
    "bar.sync",
    "bar.warp.sync",
    "barrier.cluster.arrive",
    "barrier.cluster.wait",
    "barrier.cta",
    "barrier.cta.red",
    "barrier.red",
    "brx.idx",
    "clusterlaunchcontrol.query_cancel",
    "clusterlaunchcontrol.try_cancel.async",
    "cp.async",
    "cp.async.bulk",
    "cp.async.bulk.commit_group",
    "cp.async.bulk.prefetch",
    "cp.async.bulk.prefetch.tensor",
    "cp.async.bulk.tensor",
    "cp.async.bulk.wait_group",
    "cp.async.commit_group",
    "cp.async.mbarrier.arrive",
    "cp.async.wait_all",
    "cp.async.wait_group",
    "cp.reduce.async.bulk",
    "cp.reduce.async.bulk.tensor",
    "createpolicy.cvt",
    "createpolicy.fractional",
    "createpolicy.range",
    "cvt.pack",
    "cvta.to",
    "div.full",
    "dp2a.hi",
    "dp2a.lo",
    "fence.proxy",
    "griddepcontrol.launch_dependents",
    "griddepcontrol.wait",
    "mad.hi",
    "mad.lo",
    "mad.wide",
    "mad24.hi",
    "mad24.lo",
    "madc.hi",
    "madc.lo",
    "mbarrier.arrive",
    "mbarrier.arrive.expect_tx",
    "mbarrier.arrive_drop",
    "mbarrier.arrive_drop.expect_tx",
    "mbarrier.complete_tx",
    "mbarrier.expect_tx",
    "mbarrier.init",
    "mbarrier.inval",
    "mbarrier.pending_count",
    "mbarrier.test_wait",
    "mbarrier.test_wait.parity",
    "mbarrier.try_wait",
    "mbarrier.try_wait.parity",
    "membar.proxy",
    "mul.hi",
    "mul.lo",
    "mul.wide",
    "mul24.hi",
    "mul24.lo",
    "red.async",
    "setmaxnreg.dec",
    "setmaxnreg.inc",
    "shf.l",
    "shf.r",
    "st.async",
    "tcgen05.alloc",
    "tcgen05.commit",
    "tcgen05.cp",
    "tcgen05.dealloc",
    "tcgen05.fence::after_thread_sync",
    "tcgen05.fence::before_thread_sync",
    "tcgen05.ld",
    "tcgen05.ld.red",
    "tcgen05.mma",
    "tcgen05.mma.sp",
    "tcgen05.mma.ws",
    "tcgen05.mma.ws.sp",
    "tcgen05.relinquish_alloc_permit",
    "tcgen05.shift",
    "tcgen05.st",
    "tcgen05.wait::ld",
    "tcgen05.wait::st",
    "tensormap.cp_fenceproxy",
    "tensormap.replace",
    "wgmma.commit_group",
    "wgmma.fence",
    "wgmma.mma_async",
    "wgmma.mma_async.sp",
    "wgmma.wait_group",
};

/// The number of parts of `name` if `parts` begin with it; otherwise 0.
std::size_t words_at_front(std::string_view name, std::span<const std::string_view> parts) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::size_t dot = name.find('.');
    if (name.substr(0, dot) != parts[i]) return 0;
    if (dot == std::string_view::npos) return i + 1;
    name.remove_prefix(dot + 1);
  }
  return 0;
}

// Types such as b32, f16x2, b4x16_p64, e4m3x2, pred. b1024 always stands beside the type of the value and distinguishes
// nothing.
bool is_type(std::string_view modifier) {
  static constexpr std::string_view kNamed[] = {"bf16", "tf32", "e4m3",  "e5m2",  "e2m1",
                                                "e2m3", "e3m2", "ue8m0", "ue4m3", "pred"};
  const auto digits = [&] {
    std::size_t count = 0;
    while (count < modifier.size() && modifier[count] >= '0' && modifier[count] <= '9') ++count;
    modifier.remove_prefix(count);
    return count != 0;
  };
  if (modifier == "b1024") return false;
  const auto* named = std::find_if(std::begin(kNamed), std::end(kNamed),
                                   [&](std::string_view name) { return modifier.starts_with(name); });
  if (named != std::end(kNamed)) {
    modifier.remove_prefix(named->size());
  } else {
    if (modifier.empty() || std::string_view("busf").find(modifier.front()) == std::string_view::npos) return false;
    modifier.remove_prefix(1);
    if (!digits()) return false;
  }
  if (modifier.starts_with('x')) {
    modifier.remove_prefix(1);
    if (!digits()) return false;
  }
  if (modifier.starts_with("_p")) {
    modifier.remove_prefix(2);
    if (!digits()) return false;
  }
  return modifier.empty();
}

}  // namespace

std::size_t name_length(std::span<const std::string_view> parts) {
  std::size_t longest = 1;
  for (const std::string_view name : kNames) longest = std::max(longest, words_at_front(name, parts));
  return longest;
}

ModifierGroup group_of(std::string_view modifier) {
  static constexpr std::string_view kSpaces[] = {"global", "shared", "shared::cta",  "shared::cluster",
                                                 "local",  "param",  "param::entry", "const"};
  if (std::find(std::begin(kSpaces), std::end(kSpaces), modifier) != std::end(kSpaces)) return ModifierGroup::kSpace;
  if (modifier == "row" || modifier == "col") return ModifierGroup::kLayout;
  return is_type(modifier) ? ModifierGroup::kType : ModifierGroup::kFree;
}

}  // namespace kernelwright::emulator
