// A GEMM from a folder of arrays.
#include "kernelwright/verify/gemm/arrays.h"

#include <fmt/format.h>

#include <limits>
#include <span>

#include "kernelwright/verify/formats/array_folder.h"
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
  Reader(const GemmProblem& problem, const std::string& folder) : problem_(problem), folder_(folder) {
    call_.problem = problem;
    call_.epilogue = parse_epilogue(problem.epilogue);
  }

  GemmCase read() {
    refuse_what_is_not_read();
    const Dim n = Dim::exactly(problem_.n, "n"), k = Dim::exactly(problem_.k, "k");
    const bool transposed = call_.a_is_transposed();
    const auto a = folder_.read<float>("a", transposed ? std::vector<Dim>{k, Dim::any()} : std::vector{Dim::any(), k});
    const auto b = folder_.read<float>("b", call_.b_is_k_major() ? std::vector{n, k} : std::vector{k, n});
    Dim m = Dim::any();
    if (a) {
      call_.m = static_cast<int>(a->shape[transposed ? 1 : 0]);
      m = {call_.m, fmt::format("a.npy has {} rows", call_.m)};
      if (transposed) m.why = fmt::format("a.npy, [k, m], has {} columns", call_.m);
    }
    const Epilogue& epilogue = call_.epilogue;
    const auto c = epilogue.c ? folder_.read<float>("c", {m, n}) : std::nullopt;
    const auto bias = epilogue.bias ? folder_.read<float>("bias", {n}) : std::nullopt;
    if (epilogue.alpha) read_number("alpha", call_.alpha);
    if (epilogue.beta) read_number("beta", call_.beta);
    read_scales(m, n);
    folder_.require_no_fault();
    lay_out(call_);
    encode(a->values, call_.a);
    encode(b->values, call_.b);
    if (c) encode(c->values, call_.c);
    if (bias) encode(bias->values, call_.bias);
    if (call_.has_f32_block_scales()) {
      call_.scale_a = spread(call_.scale_a, call_.m, call_.scale_a_stride);
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
    const bool quantised = is_block_scaled(problem_.dtype.a);
    for (const char* name : {"scale_a", "scale_b"})
      folder_.unread(name, problem_.scales != ScaleKind::kNone && !quantised,
                     quantised ? fmt::format("values become {} here, scales and all", to_string(problem_.dtype.a))
                               : "the problem's scales are none");
    folder_.unread("group_offsets", false, "no problem here has groups");
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
        for (auto* to : {&call_.scale_a, &call_.scale_b})
          list(to == &call_.scale_a ? "scale_a" : "scale_b", {{1, "scales are per_tensor"}}, *to);
        break;
      case ScaleKind::kPerToken:
        list("scale_a", {m}, call_.scale_a);
        list("scale_b", {n}, call_.scale_b);
        break;
      case ScaleKind::kPerBlock:
        if (!call_.has_f32_block_scales()) break;
        list("scale_a", {blocks(problem_.k, "k"), m}, call_.scale_a);
        list("scale_b", {blocks(problem_.n, "n"), blocks(problem_.k, "k")}, call_.scale_b);
        break;
      default: break;
    }
  }

  const GemmProblem& problem_;
  ArrayFolder folder_;
  GemmCase call_;
};

}  // namespace

GemmCase read_case(const GemmProblem& problem, const std::string& folder) { return Reader(problem, folder).read(); }

void write_output(const GemmCase& call, const GemmOutput& output, const std::string& folder) {
  make_output_folder(folder);
  write_elements(folder, "d", {call.m, call.problem.n}, call.problem.dtype.d, output.d);
}

}  // namespace kernelwright
