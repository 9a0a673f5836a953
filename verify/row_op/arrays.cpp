// Steps over rows from a folder of arrays.
#include "kernelwright/verify/row_op/arrays.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "contract/block_scales.h"
#include "kernelwright/verify/formats/array_folder.h"
#include "kernelwright/verify/formats/block_formats.h"
#include "kernelwright/verify/formats/float_formats.h"

namespace kernelwright {

RowOpCase read_case(const RowOpProblem& problem, const std::string& path) {
  ArrayFolder folder(path);
  RowOpCase call;
  call.problem = problem;
  const bool given = problem.scales.kind == ScaleKind::kPerTensor;
  const bool two_rows = call.adds() || call.merges();
  const std::string input = fmt::format("input is {}", to_string(problem.input));
  folder.unread("residual", two_rows, input);
  folder.unread("lse", call.merges(), input);
  folder.unread("residual_lse", call.merges(), input);
  folder.unread("weight", call.has_weights(), "the problem's norm has no weights");
  folder.unread("scale", given, fmt::format("its scales are {}", to_string(problem.scales.kind)));
  folder.unread("tensor_scale", call.has_atoms(), fmt::format("dtype.out is {}", to_string(problem.dtype.out)));
  const Dim width = Dim::exactly(problem.width, "width");
  const Dim read = problem.input == RowInput::kGateUp
                       ? Dim{2 * problem.width, fmt::format("rows have gates and ups, and width is {}", problem.width)}
                       : width;
  const auto x = folder.read<float>("x", {Dim::any(), read});
  if (x) call.rows = x->shape[0];
  const Dim rows = x ? Dim{call.rows, fmt::format("x.npy has {} rows", call.rows)} : Dim::any();
  if (two_rows)
    if (const auto residual = folder.read<float>("residual", {rows, width}))
      call.residual = encode_all(problem.dtype.in, residual->values);
  if (call.merges()) {
    const Dim heads = Dim::exactly(problem.heads, "heads");
    if (const auto lse = folder.read<float>("lse", {rows, heads})) call.lse = lse->values;
    if (const auto lse = folder.read<float>("residual_lse", {rows, heads})) call.residual_lse = lse->values;
  }
  if (call.has_weights())
    if (const auto weight = folder.read<float>("weight", {width}))
      call.weight = encode_all(problem.dtype.in, weight->values);
  if (given)
    if (const auto scale = folder.read<float>("scale", {{1, "scales are per_tensor"}}))
      call.given_scale = scale->values[0];
  if (call.has_atoms() && folder.there("tensor_scale"))
    if (const auto scale = folder.read<float>("tensor_scale", {{1, "it is one number"}}))
      call.tensor_scale = scale->values[0];
  folder.require_no_fault();
  call.x = encode_all(problem.dtype.in, x->values);
  lay_out_rows(call, 0);
  return call;
}

namespace {

void write_lses(const RowOpCase& call, const std::vector<std::byte>& bytes, const std::string& folder) {
  std::vector<float> lses;
  for (std::int64_t row = 0; row < call.rows; ++row)
    for (int head = 0; head < call.problem.heads; ++head) {
      float lse;
      std::memcpy(&lse, bytes.data() + 4 * call.lse_at(row, static_cast<std::size_t>(head)), sizeof lse);
      lses.push_back(lse);
    }
  write_npy(folder + "/lse_out.npy", {call.rows, call.problem.heads}, lses);
}

}  // namespace

void write_output(const RowOpCase& call, const RowOpOutput& output, const std::string& folder) {
  make_output_folder(folder);
  const RowOpProblem& problem = call.problem;
  // Rows of a drawn case may have gaps.
  const auto write = [&](const char* name, const std::vector<std::byte>& bytes, DType dtype, std::int64_t stride) {
    write_rows(folder, name, {call.rows, problem.width}, dtype, stride, bytes);
  };
  write("out", output.out, problem.dtype.out, call.out_stride);
  if (call.adds()) write("residual_out", output.residual_out, problem.dtype.in, call.residual_out_stride);
  if (call.merges()) write_lses(call, output.lse_out, folder);
  if (output.scale.empty()) return;
  std::vector<float> scales;
  const auto scale_at = [&](std::int64_t at) {
    float scale;
    std::memcpy(&scale, output.scale.data() + at * 4, sizeof scale);
    scales.push_back(scale);
  };
  std::vector<std::int64_t> shape{call.rows};
  if (call.has_atoms()) {
    const int vector = scale_vector(problem.dtype.out), atoms = contract::scale_atoms_of_row(problem.width, vector);
    shape.push_back(problem.width / vector);
    for (std::int64_t row = 0; row < call.rows; ++row)
      for (int block = 0; block < problem.width / vector; ++block)
        scales.push_back(
            decode_scale(problem.dtype.out,
                         static_cast<std::uint8_t>(
                             output.scale[static_cast<std::size_t>(contract::block_scale_offset(atoms, row, block))])));
  } else if (call.scale_blocks() > 0) {
    shape = call.scale_columns() ? std::vector{call.scale_blocks(), call.rows}
                                 : std::vector{call.rows, call.scale_blocks()};
    for (std::int64_t i = 0; i < shape[0]; ++i)
      for (std::int64_t j = 0; j < shape[1]; ++j) scale_at(i * call.scale_stride + j);
  } else {
    for (std::int64_t row = 0; row < call.rows; ++row) scale_at(row);
  }
  write_npy(folder + "/scale.npy", shape, scales);
}

}  // namespace kernelwright
