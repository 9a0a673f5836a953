// A GEMM from a folder of arrays.
#include "kernelwright/verify/gemm/arrays.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <span>

#include "kernelwright/verify/formats/array_folder.h"
#include "kernelwright/verify/gemm/scaled.h"
#include "kernelwright/verify/kv_write/arrays.h"
#include "kernelwright/verify/parallel.h"

namespace kernelwright {
namespace {

/// Stores `values`, rows of matrix.columns, in the matrix's layout.
void encode(const std::vector<float>& values, HostMatrix& matrix) {
  matrix.allocate();
  const auto columns = static_cast<std::size_t>(matrix.columns);
  parallel_for(static_cast<std::size_t>(matrix.rows), [&](std::size_t row) {
    matrix.set_row(static_cast<std::int64_t>(row), std::span(values).subspan(row * columns, columns));
  });
}

/// `values`, rows of `columns`, with rows `stride` apart.
std::vector<float> spread(const std::vector<float>& values, std::int64_t columns, std::int64_t stride) {
  const std::int64_t rows = columns > 0 ? static_cast<std::int64_t>(values.size()) / columns : 0;
  std::vector<float> result(static_cast<std::size_t>(rows * stride), std::numeric_limits<float>::quiet_NaN());
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < columns; ++column)
      result[static_cast<std::size_t>(row * stride + column)] =
          values[static_cast<std::size_t>(row * columns + column)];
  return result;
}

class Reader {
 public:
  Reader(const GemmProblem& problem, const std::string& folder)
      : problem_(problem), folder_path_(folder), folder_(folder) {
    call_.problem = problem;
    call_.epilogue = parse_epilogue(problem.epilogue);
  }

  GemmCase read() {
    refuse_what_is_not_read();
    const bool transposed = call_.a_is_transposed(), slices = problem_.groups.slices_k();
    const Dim n = Dim::exactly(problem_.n, "n");
    Dim k = slices ? Dim::any() : Dim::exactly(problem_.k, "k");
    const auto a = folder_.read<float>("a", transposed ? std::vector<Dim>{k, Dim::any()} : std::vector{Dim::any(), k});
    Dim m = Dim::any();
    if (a) {
      call_.m = static_cast<int>(a->shape[transposed ? 1 : 0]);
      m = {call_.m, fmt::format("a.npy has {} rows", call_.m)};
      if (transposed) m.why = fmt::format("a.npy, [k, m], has {} columns", call_.m);
    }
    if (slices && a) {
      call_.source_rows = static_cast<int>(a->shape[0]);
      k = {call_.source_rows, fmt::format("a.npy has {} rows", call_.source_rows)};
      const int columns = call_.m;  // of a, and rows of each group's d
      call_.m = columns * problem_.groups.count;
      m = {call_.m, fmt::format("a.npy has {} columns, and there are {} groups", columns, problem_.groups.count)};
    }
    const std::vector<Dim> dims_of_b = call_.b_is_k_major() ? std::vector{n, k} : std::vector{k, n};
    const auto b = folder_.read<float>("b", slices ? dims_of_b : of_groups(dims_of_b));
    const Dim rows_of_a = m;
    if (problem_.groups.gather) {
      read_gather();
      m = {call_.m, fmt::format("gather.npy has {} rows", call_.m)};
    }
    const Epilogue& epilogue = call_.epilogue;
    const bool scatters = problem_.groups.scatter;
    const auto c = epilogue.c ? folder_.read<float>("c", {scatters ? Dim::any() : m, n}) : std::nullopt;
    const auto bias = epilogue.bias ? folder_.read<float>("bias", of_groups({n})) : std::nullopt;
    if (problem_.groups.has_bounds()) read_bounds();
    if (scatters) read_scatter(m, c ? c->shape[0] : 0);
    if (problem_.groups.is_batch()) check_even();
    if (epilogue.alpha) read_number("alpha", call_.alpha);
    if (epilogue.beta) read_number("beta", call_.beta);
    if (epilogue.makes_blocks() && folder_.there("tensor_scale")) read_number("tensor_scale", call_.tensor_scale);
    if (epilogue.rstd) {
      const int sums = (problem_.k + kQuantizedGroup - 1) / kQuantizedGroup;
      if (const auto given =
              folder_.read<float>("squares_a", {{sums, fmt::format("k is {} and a sum has 128", problem_.k)}, m}))
        call_.squares_a = given->values;
      if (folder_.there("rms_eps")) read_number("rms_eps", call_.rms_eps);
    }
    read_scales(rows_of_a, n);
    folder_.require_no_fault();
    if (problem_.kv_write) call_.kv = read_cache_case(*problem_.kv_write, call_.m, folder_path_);
    lay_out(call_);
    encode(a->values, call_.a);
    encode(b->values, call_.b);
    if (c) encode(c->values, call_.c);
    if (bias) encode(bias->values, call_.bias);
    if (epilogue.rstd) call_.squares_a = spread(call_.squares_a, call_.m, call_.squares_a_stride);
    if (call_.has_f32_block_scales()) {
      const int of_even = parts_a() ? problem_.groups.count : 1;
      call_.scale_a = spread(call_.scale_a, call_.rows_of_a() / of_even, call_.scale_a_stride);
      call_.scale_b = spread(call_.scale_b, call_.scale_b_stride, call_.scale_b_stride);
    }
    call_.random_values = false;
    return std::move(call_);
  }

 private:
  void refuse_what_is_not_read() {
    const Epilogue& epilogue = call_.epilogue;
    const auto of_epilogue = [&](const char* name, bool is_read) {
      folder_.unread(name, is_read, fmt::format("the epilogue, \"{}\", has no {}", problem_.epilogue, name));
    };
    of_epilogue("c", epilogue.c);
    of_epilogue("bias", epilogue.bias);
    of_epilogue("alpha", epilogue.alpha);
    of_epilogue("beta", epilogue.beta);
    folder_.unread("squares_a", epilogue.rstd, "the epilogue has no rstd");
    folder_.unread("tensor_scale", epilogue.makes_blocks(), fmt::format("dtype.d is {}", to_string(problem_.dtype.d)));
    const bool quantised = is_block_scaled(problem_.dtype.a);
    for (const char* name : {"scale_a", "scale_b"})
      folder_.unread(name, problem_.scales != ScaleKind::kNone && !quantised,
                     quantised ? fmt::format("values become {} here, scales and all", to_string(problem_.dtype.a))
                               : "the problem's scales are none");
    folder_.unread("gather", problem_.groups.gather, "the problem's groups do not gather");
    folder_.unread("scatter", problem_.groups.scatter, "the problem's groups do not scatter");
    for (const GroupBounds bounds : {GroupBounds::kStarts, GroupBounds::kEnds, GroupBounds::kCounts}) {
      const std::string name(to_string(bounds));
      const bool is_read = problem_.groups.has_bounds() && problem_.groups.bounds == bounds;
      folder_.unread(name, is_read,
                     problem_.groups.has_bounds()
                         ? fmt::format("the bounds of the problem's groups are {}", to_string(problem_.groups.bounds))
                         : "the problem has no groups with bounds");
    }
  }

  /// Whether each group has rows of its own of the scales of a.
  bool parts_a() const { return problem_.groups.is_even() && !problem_.groups.gather; }

  /// What a group has `dims` of, of all groups.
  std::vector<Dim> of_groups(std::vector<Dim> dims) const {
    if (problem_.groups.any()) dims.insert(dims.begin(), Dim::exactly(problem_.groups.count, "groups.count"));
    return dims;
  }

  /// With gather, a has the rows of tokens, and gather.npy as many rows as d.
  void read_gather() {
    call_.source_rows = call_.m;
    const auto array = folder_.read<std::int32_t>("gather", {Dim::any()});
    if (!array) return;
    call_.gather = array->values;
    call_.m = static_cast<int>(call_.gather.size());
    for (std::int32_t& source : call_.gather)
      if (source < 0 || source >= call_.source_rows) source = -1;  // a row of zeros
  }

  /// Reads where rows go in d, which has `rows` of them, or if that is 0 as many as they say. Refuses indices that a
  /// launch would not write, and two rows that go to one place. Bounds have been read.
  void read_scatter(const Dim& m, std::int64_t rows) {
    const auto array = folder_.read<std::int32_t>("scatter", {m});
    if (!array || call_.bounds.empty()) return;
    call_.scatter = array->values;
    std::int64_t largest = -1;
    std::vector<std::int64_t> in_groups;
    for (int g = 0; g < problem_.groups.count; ++g) {
      const GemmCase::Rows of_group = call_.rows_of_group(g);
      for (int row = of_group.first; row < of_group.end; ++row) {
        in_groups.push_back(row);
        largest = std::max<std::int64_t>(largest, array->values[static_cast<std::size_t>(row)]);
      }
    }
    call_.result_rows = static_cast<int>(rows > 0 ? rows : std::max<std::int64_t>(1, largest + 1));
    std::map<std::int32_t, std::int64_t> taken;
    for (const std::int64_t row : in_groups) {
      const std::int32_t place = array->values[static_cast<std::size_t>(row)];
      if (place < -1 || place >= call_.result_rows)
        folder_.fault("scatter", fmt::format("element {} is {}; it takes -1 to {}, the rows that d has", row, place,
                                             call_.result_rows - 1));
      if (const auto [other, fresh] = taken.emplace(place, row); place >= 0 && !fresh)
        folder_.fault("scatter", fmt::format("elements {} and {} are both {}, and two rows cannot be one of d",
                                             other->second, row, place));
    }
  }

  /// Reads the bounds, and refuses those that do not fit: a kernel would compute nothing.
  void read_bounds() {
    const std::string name(to_string(problem_.groups.bounds));
    const int count = problem_.groups.count, more = problem_.groups.bounds == GroupBounds::kStarts ? 1 : 0;
    const auto array = folder_.read<std::int32_t>(
        name, {{count + more, fmt::format("groups.count is {}{}", count, more ? ", and the last group ends" : "")}});
    if (!array) return;
    call_.bounds = array->values;
    const bool masked = problem_.groups.kind == GroupKind::kMasked;
    if (masked) check_even();
    int before = 0;
    const int most = masked ? call_.m / count : problem_.groups.slices_k() ? call_.source_rows : call_.m;
    for (std::size_t i = 0; i < call_.bounds.size(); ++i) {
      const int bound = call_.bounds[i];
      if (bound < (masked ? 0 : before) || bound > most)
        throw ConfigError("/inputs/" + name + ".npy",
                          fmt::format("element {} is {}; it takes {} to {}, the rows that there are", i, bound,
                                      masked ? 0 : before, most));
      before = bound;
    }
  }

  /// Each group has as many rows.
  void check_even() const {
    if (call_.m % problem_.groups.count != 0)
      throw ConfigError("/inputs/a.npy", fmt::format("has {} rows, not the same number for each of {} groups", call_.m,
                                                     problem_.groups.count));
  }

  void read_number(const char* name, float& number) {
    if (!folder_.there(name)) return;
    if (const auto array = folder_.read<float>(name, {{1, "it is one number"}})) number = array->values[0];
  }

  void read_scales(const Dim& m, const Dim& n) {
    const auto list = [&](const char* name, const std::vector<Dim>& dims, std::vector<float>& to) {
      if (auto array = folder_.read<float>(name, dims)) to = std::move(array->values);
    };
    const auto blocks = [](int elements, const char* name) {
      return Dim{(elements + kScaleBlock - 1) / kScaleBlock,
                 fmt::format("{} is {} and a scale serves 128", name, elements)};
    };
    switch (problem_.scales) {
      case ScaleKind::kPerTensor:
        list("scale_a", {{1, "scales are per_tensor"}}, call_.scale_a);
        list("scale_b", {{problem_.groups.count, "scales are per_tensor"}}, call_.scale_b);
        break;
      case ScaleKind::kPerToken:
        list("scale_a", {m}, call_.scale_a);
        list("scale_b", of_groups({n}), call_.scale_b);
        break;
      case ScaleKind::kPerBlock: {
        if (!call_.has_f32_block_scales()) break;
        const Dim of_k = blocks(problem_.k, "k");
        if (parts_a()) {
          const int capacity = call_.m / problem_.groups.count;
          list("scale_a", of_groups({of_k, {capacity, fmt::format("a group has room for {} rows", capacity)}}),
               call_.scale_a);
        } else {
          list("scale_a", {of_k, m}, call_.scale_a);
        }
        const int rows_of_b = scale_rows_of_b(problem_.n, call_.epilogue.gated);
        const Dim of_n = call_.epilogue.gated
                             ? Dim{rows_of_b, fmt::format("half of n is {} and a scale serves 128", problem_.n / 2)}
                             : blocks(problem_.n, "n");
        list("scale_b", of_groups({of_n, of_k}), call_.scale_b);
        break;
      }
      default: break;
    }
  }

  const GemmProblem& problem_;
  const std::string folder_path_;
  ArrayFolder folder_;
  GemmCase call_;
};

}  // namespace

GemmCase read_case(const GemmProblem& problem, const std::string& folder) { return Reader(problem, folder).read(); }

namespace {

/// The scales of a block-scaled d, a row for each row of d; 0 of rows of no group.
std::vector<float> scales_by_row(const GemmCase& call, const GemmOutput& output) {
  const int together = call.epilogue.scaled_columns(), blocks = call.d_columns() / together;
  std::vector<float> scales(static_cast<std::size_t>(call.m) * static_cast<std::size_t>(blocks), 0.f);
  const auto add = [&](const GemmCase& of, const GemmOutput& from, std::int64_t first) {
    for (int row = 0; row < of.m; ++row)
      for (int block = 0; block < blocks; ++block)
        scales[static_cast<std::size_t>((first + row) * blocks + block)] = scale_of_d(of, from, row, block * together);
  };
  if (!call.problem.groups.any()) add(call, output, 0);
  for (int g = 0; call.problem.groups.any() && g < call.problem.groups.count; ++g)
    add(call.dense_group(g), {{}, scales_of_group(call, output, g), {}, {}}, call.rows_of_group(g).first);
  return scales;
}

}  // namespace

void write_output(const GemmCase& call, const GemmOutput& output, const std::string& folder) {
  make_output_folder(folder);
  write_elements(folder, "d", {call.rows_of_d(), call.d_columns()}, call.problem.dtype.d, output.d);
  if (call.kv) {
    KvWriteCase without_queries = *call.kv;  // these are d
    without_queries.problem.q_out = false;
    write_output(without_queries, output.kv, folder);
  }
  if (call.epilogue.amax) write_elements(folder, "amax", {1}, DType::kF32, output.amax);
  if (call.epilogue.squares)
    write_elements(folder, "squares", {call.squares_rows(), call.m}, DType::kF32, output.squares);
  if (!call.epilogue.quantizes) return;
  if (call.epilogue.makes_blocks()) {
    const int blocks = call.d_columns() / call.epilogue.scaled_columns();
    return write_npy(folder + "/scale_d.npy", {call.m, blocks}, scales_by_row(call, output));
  }
  std::vector<std::int64_t> shape{call.scale_d_rows(), call.scale_d_columns()};
  if (const std::int64_t groups = call.problem.groups.count; call.problem.groups.is_even())
    shape = {groups, shape[0] / groups, shape[1]};
  write_elements(folder, "scale_d", shape, DType::kF32, output.scale_d);
}

}  // namespace kernelwright
