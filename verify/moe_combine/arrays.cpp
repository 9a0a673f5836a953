// Sums over the rows of tokens' experts from a folder of arrays.
#include "kernelwright/verify/moe_combine/arrays.h"

#include <fmt/format.h>

#include "kernelwright/verify/formats/array_folder.h"
#include "kernelwright/verify/formats/float_formats.h"

namespace kernelwright {

MoeCombineCase read_case(const MoeCombineProblem& problem, const std::string& path) {
  ArrayFolder folder(path);
  MoeCombineCase call;
  call.problem = problem;
  folder.unread("weights", problem.weighted, "weighted is false");
  folder.unread("residual", problem.residual, "residual is false");
  const Dim width = Dim::exactly(problem.width, "width"), top_k = Dim::exactly(problem.top_k, "top_k");
  const auto rows = folder.read<float>("rows", {Dim::any(), width});
  const auto positions = folder.read<std::int32_t>("positions", {Dim::any(), top_k});
  if (positions) call.tokens = positions->shape[0];
  const Dim tokens = positions ? Dim{call.tokens, fmt::format("positions.npy has {} tokens", call.tokens)} : Dim::any();
  if (problem.weighted)
    if (const auto weights = folder.read<float>("weights", {tokens, top_k})) call.weights = weights->values;
  if (problem.residual)
    if (const auto residual = folder.read<float>("residual", {tokens, width}))
      call.residual = encode_all(problem.dtype.in, residual->values);
  folder.require_no_fault();
  call.num_rows = rows->shape[0];
  call.rows = encode_all(problem.dtype.in, rows->values);
  call.positions = positions->values;
  call.rows_stride = call.residual_stride = call.out_stride = problem.width;
  return call;
}

void write_output(const MoeCombineCase& call, const MoeCombineOutput& output, const std::string& folder) {
  make_output_folder(folder);
  write_rows(folder, "out", {call.tokens, call.problem.width}, call.problem.dtype.out, call.out_stride, output.out);
}

}  // namespace kernelwright
