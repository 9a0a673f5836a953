// Makes cubins on a machine without a GPU: one binary of a config per architecture, from the cache or through NVRTC.
//
//   compile_only CONFIG.json [ARCH...]          sm_80 sm_90a sm_100a sm_120a if none is named
//
// Exits 3 if there is no NVRTC.
#include <cstdio>
#include <string>
#include <vector>

#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/json/config_json.h"
#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/runtime/store/kernel_store.h"

using namespace kernelwright;

namespace {

void compile(KernelStore& store, const Spec& spec) {
  const std::shared_ptr<const Binary> binary = store.compile(spec);
  std::printf("%-8s %-44s %3d registers %5d spilled bytes %6zu bytes of code\n", binary->arch.c_str(),
              binary->entry.c_str(), binary->usage.registers, binary->usage.spill_stores + binary->usage.spill_loads,
              binary->cubin.size());
}

int run(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: compile_only CONFIG.json [ARCH...]\n");
    return 2;
  }
  std::vector<Arch> archs;
  for (int i = 2; i < argc; ++i) {
    const auto arch = from_string<Arch>(argv[i]);
    if (!arch) throw ConfigError(argv[i], "is no architecture; " + all_words<Arch>() + " are");
    archs.push_back(*arch);
  }
  if (archs.empty()) archs = {Arch::kSm80, Arch::kSm90a, Arch::kSm100a, Arch::kSm120a};

  const Config config = read_config_file(argv[1]);
  const auto* attention = std::get_if<AttentionConfig>(&config);
  if (!attention) throw ConfigError("/kind", "is no \"attention\", the only kind with kernels yet");

  KernelStore store;
  for (const Arch arch : archs) {
    const AttentionPlan plan = plan_attention(attention->problem, attention->schedule, arch);
    compile(store, plan.main);
    if (plan.combine) compile(store, *plan.combine);
  }
  std::printf("%s\n", store.cache().status().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const ConfigError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  } catch (const MissingError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
