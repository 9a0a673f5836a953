// Choices of experts from a folder of arrays.
#include "kernelwright/verify/route/arrays.h"

#include <fmt/format.h>

#include <bit>
#include <set>
#include <vector>

#include "kernelwright/verify/formats/array_folder.h"

namespace kernelwright {
namespace {

/// Each local expert belongs to one expert at most.
void check_local_ids(ArrayFolder& folder, const RouteCase& call) {
  std::set<std::int32_t> seen;
  for (const std::int32_t id : call.local_ids) {
    if (id < -1 || id >= call.problem.local_experts)
      return folder.fault("local_ids", fmt::format("{} is not -1, and not below local_experts, which is {}", id,
                                                   call.problem.local_experts));
    if (id >= 0 && !seen.insert(id).second)
      return folder.fault("local_ids", fmt::format("two experts have the local number {}", id));
  }
}

}  // namespace

RouteCase read_case(const RouteProblem& problem, const std::string& path) {
  ArrayFolder folder(path);
  RouteCase call;
  call.problem = problem;
  folder.unread("bias", problem.bias, "the problem has no bias");
  folder.unread("local_ids", call.is_mapped(), "local_experts is 0");
  const Dim experts = Dim::exactly(problem.experts, "experts");
  folder.unread("logits", !problem.is_given(), "experts are given");
  folder.unread("ids", problem.is_given(), "experts are chosen by logits");
  folder.unread("weights", problem.is_given(), "weights are made of logits");
  if (call.is_mapped())
    if (const auto ids = folder.read<std::int32_t>("local_ids", {experts})) {
      call.local_ids = ids->values;
      check_local_ids(folder, call);
    }
  if (problem.is_given()) {
    const auto ids = folder.read<std::int32_t>("ids", {Dim::any(), Dim::exactly(problem.top_k, "top_k")});
    folder.require_no_fault();
    const auto weights =
        folder.read<float>("weights", {Dim::exactly(ids->shape[0], "tokens"), Dim::exactly(problem.top_k, "top_k")});
    folder.require_no_fault();
    call.tokens = ids->shape[0], call.logits_stride = problem.experts;
    call.ids = ids->values, call.weights = weights->values;
    return call;
  }
  const auto logits = folder.read<float>("logits", {Dim::any(), experts});
  if (problem.bias)
    if (const auto bias = folder.read<float>("bias", {experts})) call.bias = bias->values;
  folder.require_no_fault();
  call.tokens = logits->shape[0];
  call.logits_stride = problem.experts;
  call.logits = encode_all(problem.dtype, logits->values);
  return call;
}

void write_output(const RouteCase& call, const RouteOutput& output, const std::string& folder) {
  make_output_folder(folder);
  const auto write = [&](const char* name, const std::vector<std::int64_t>& shape,
                         const std::vector<std::int32_t>& words) {
    write_npy(folder + "/" + name + ".npy", shape, words);
  };
  const auto write_floats = [&](const char* name, const std::vector<std::int64_t>& shape,
                                const std::vector<std::int32_t>& words, std::size_t count) {
    std::vector<float> values;
    for (std::size_t i = 0; i < count; ++i) values.push_back(std::bit_cast<float>(words[i]));
    write_npy(folder + "/" + name + ".npy", shape, values);
  };
  const std::vector<std::int64_t> pairs{call.tokens, call.problem.top_k};
  if (!call.problem.is_given()) {
    write("ids", pairs, output.ids);
    write_floats("weights", pairs, output.weights, output.weights.size());
  }
  if (!call.problem.sort) return;
  const std::int32_t rows = output.starts.back();
  write("starts", {call.buckets() + 1}, output.starts);
  write("positions", pairs, output.positions);
  write("source_rows", {rows}, {output.source_rows.begin(), output.source_rows.begin() + rows});
  write_floats("sorted_weights", {rows}, output.sorted_weights, static_cast<std::size_t>(rows));
}

}  // namespace kernelwright
