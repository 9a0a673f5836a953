/// The parts of explain's report that all kernels share, whatever the kind of config.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/bound.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/json/document.h"
#include "kernelwright/generator/plan/memory_map.h"
#include "kernelwright/runtime/store/kernel_store.h"

namespace kernelwright::cli {

/// A compiled kernel, or the reason why there is none.
struct Compiled {
  std::shared_ptr<const Binary> binary;
  std::string why_not;
  bool rejected = false;  // the compiler rejected the source: an error of the library
  int registers() const { return binary ? binary->usage.registers : 0; }
};
Compiled compile_if_possible(KernelStore& store, const Spec& spec);

JsonValue to_json(const Binary& binary);
JsonValue to_json(const std::vector<Choice>& choices);
JsonValue to_json(const std::vector<SkippedRow>& rows);
JsonValue to_json(const std::vector<SharedRegion>& regions);
JsonValue to_json(const TensorMemoryMap& memory);
JsonValue to_json(const std::string& shape, const PredictedBound& bound);

/// Registers, spills, size and warnings, one line each.
std::string resources_text(const Style& style, const Compiled& compiled);
std::string choices_text(const Style& style, const std::vector<Choice>& choices);
/// Rows that a plan skipped, one line each.
std::string passed_over_text(const Style& style, const std::vector<SkippedRow>& rows);
/// All fields, in lines of readable length.
std::string spec_text(const Style& style, const Spec& spec);
std::string shared_map_text(const Style& style, const std::vector<SharedRegion>& regions, int shared_bytes,
                            const ArchInfo& info);

std::string tensor_memory_text(const Style& style, const TensorMemoryMap& memory, const ArchInfo& info);

/// The best that a device could do with each shape; "" without shapes.
struct BoundOfShape {
  std::string shape;
  PredictedBound bound;
};
std::string bounds_text(const Style& style, const std::vector<BoundOfShape>& bounds, std::string_view device);

/// The verb explain, for each kind. The functions print, and return an exit code.
int explain(const Options& options, const NamedConfig& named, const AttentionConfig& config);
int explain(const Options& options, const NamedConfig& named, const GemmConfig& config);
int explain(const Options& options, const NamedConfig& named, const KvWriteConfig& config);
int explain(const Options& options, const NamedConfig& named, const RowOpConfig& config);
int explain(const Options& options, const NamedConfig& named, const RouteConfig& config);
int explain(const Options& options, const NamedConfig& named, const MoeCombineConfig& config);

}  // namespace kernelwright::cli
