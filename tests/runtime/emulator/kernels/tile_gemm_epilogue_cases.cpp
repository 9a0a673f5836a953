// gemm_sm90 at the end of its tiles, and with operands where k is not innermost, against sums in fp64.
#include <fmt/format.h>

#include <cmath>
#include <deque>
#include <numbers>
#include <utility>

#include "runtime/emulator/kernels/hopper_buffers.h"
#include "runtime/emulator/kernels/tile_gemm.h"

namespace kernelwright::test {
namespace {

/// D[m][n] = activation(alpha A[m][k] B[n][k]^T + bias[n]) + beta C[m][n]; sizes are the problem's, whoever is swapped.
struct EpilogueCase {
  TileGemmCase gemm;
  float alpha = 1, beta = 1;
  int c_padding = 0;    // elements between rows of c
  bool c_is_d = false;  // c is what d held: dtypes alike, no padding
};

std::size_t count(int rows, int columns) { return static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns); }

/// A row-major matrix: its values, each one of `dtype`, and their bytes.
struct Matrix {
  DType dtype;
  int rows, columns, stride;
  std::vector<float> values;  // [rows][stride], NaN past the columns

  float at(int row, int column) const { return values[count(row, stride) + static_cast<std::size_t>(column)]; }
  std::vector<std::byte> bytes(bool transposed = false) const {
    std::vector<float> stored = values;
    if (transposed)
      for (int row = 0; row < rows; ++row)
        for (int column = 0; column < columns; ++column)
          stored[count(column, rows) + static_cast<std::size_t>(row)] = at(row, column);
    std::vector<std::byte> encoded(stored.size() * bytes_of(dtype));
    encode_row(dtype, stored, encoded.data());
    return encoded;
  }
};

/// Normal values, or integers in [-limit, limit], of which half are 0.
Matrix random_matrix(Random& random, DType dtype, int rows, int columns, int limit, int padding = 0) {
  Matrix matrix{dtype, rows, columns, columns + padding, {}};
  matrix.values.assign(count(rows, matrix.stride), std::nanf(""));
  for (int row = 0; row < rows; ++row)
    for (int column = 0; column < columns; ++column) {
      float pair[2] = {};
      if (limit == 0)
        random.normal_pair(pair[0], pair[1]);
      else if (random.below(2))
        pair[0] = static_cast<float>(static_cast<int>(random.below(static_cast<std::uint64_t>(2 * limit + 1))) - limit);
      matrix.values[count(row, matrix.stride) + static_cast<std::size_t>(column)] = round_to(dtype, pair[0]);
    }
  return matrix;
}

/// What the kernel computes of a sum, and how far f32 may be from it.
struct Activated {
  double value, error;
};
/// Each function's error follows from its parts: a product or sum 2^-24, an exponential 2^-22 and what its argument's
/// rounding makes of it, a reciprocal 2^-23.
Activated activated(Activation activation, double x) {
  switch (activation) {
    case Activation::kNone: return {x, 0};
    case Activation::kRelu: return {std::max(x, 0.0), 0};
    case Activation::kSilu: {
      const double y = x / (1 + std::exp(-x));
      return {y, std::abs(y) * (std::abs(x) * 0x1p-22 + 0x1p-21)};
    }
    case Activation::kGelu: {
      const double other = std::abs(x) * std::erfc(std::abs(x) / std::numbers::sqrt2) / 2, y = std::max(x, 0.0) - other;
      return {y, other * (x * x * 0x1p-22 + 0x1p-20) + std::abs(y) * 0x1p-23};
    }
    case Activation::kGeluTanh: {
      const double u = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x), y = x / (1 + std::exp(-2 * u));
      return {y, std::abs(y) * (std::abs(u) * 0x1p-20 + 0x1p-21)};
    }
  }
  return {};
}

struct Inputs {
  Matrix a, b, bias, c;  // [m][k], [n][k], [1][n], [m][n]
};

void compare(const EpilogueCase& epilogue, const Inputs& in, HopperOutcome& outcome) {
  const TileGemmCase& gemm = epilogue.gemm;
  const auto& [m, n, k, exact] = gemm.size;
  const DType dtype = gemm.spec.d;
  const FloatFormat format = float_format(dtype);
  for (int row = 0; row < m; ++row)
    for (int column = 0; column < n; ++column) {
      const float* const a = &in.a.values[count(row, k)];
      const float* const b = &in.b.values[count(column, k)];
      double sum = 0, absolutes = 0;
      for (int i = 0; i < k; ++i) {
        const double product = static_cast<double>(a[i]) * b[i];
        sum += product;
        absolutes += std::abs(product);
      }
      // One f32 addition that truncates loses 2^-23 of the larger operand, and tensor cores truncate.
      double error = k * 0x1p-23 * absolutes;
      if (gemm.spec.alpha) sum *= epilogue.alpha, error = (error + std::abs(sum) * 0x1p-24) * std::abs(epilogue.alpha);
      if (gemm.spec.bias) sum += in.bias.at(0, column), error += std::abs(sum) * 0x1p-23;
      const Activated inner = activated(gemm.spec.activation, sum);
      error = 1.13 * error + inner.error;  // no activation is steeper
      double value = inner.value;
      if (gemm.spec.adds_c)
        value += epilogue.beta * static_cast<double>(in.c.at(row, column)), error += std::abs(value) * 0x1p-23;
      std::uint32_t bits = 0;
      std::memcpy(&bits, outcome.output.data() + (count(row, n) + static_cast<std::size_t>(column)) * bytes_of(dtype),
                  bytes_of(dtype));
      const double found = decode_float(dtype, bits);
      if (dtype == DType::kE4m3 || dtype == DType::kE5m2) value = std::clamp(value, -format.largest, format.largest);
      const double bound = error + format.unit_roundoff * (std::abs(value) + error) + format.half_smallest;
      const double ratio = std::abs(found - value) / bound;
      const bool wrong = exact ? bits != encode_float(dtype, static_cast<float>(value)) : !(ratio <= 1);
      if (!exact && ratio > outcome.worst_ratio) outcome.worst_ratio = ratio;
      if (wrong && outcome.failure.empty())
        outcome.failure = fmt::format("D[{}][{}] is {} and should be {}{}", row, column, found, value,
                                      exact ? " to the bit" : fmt::format(" within {:.3g}", bound));
    }
}

HopperOutcome run(const EpilogueCase& epilogue, Device& device, const KernelImage& image, std::uint64_t seed) {
  const TileGemmCase& gemm = epilogue.gemm;
  const GemmSpec& spec = gemm.spec;
  const auto [m, n, k, exact] = gemm.size;
  Random random(seed);
  const int limit = exact ? kExactLimit : 0;
  Inputs in = {random_matrix(random, spec.a, m, k, limit), random_matrix(random, spec.b, n, k, limit), {}, {}};
  if (spec.bias) in.bias = random_matrix(random, spec.c, 1, n, limit);
  if (spec.adds_c) in.c = random_matrix(random, spec.c, m, n, limit, epilogue.c_padding);
  const DeviceBuffer a(device, in.a.bytes()), b(device, in.b.bytes()), bias(device, in.bias.bytes()),
      c(device, in.c.bytes()), d(device, count(m, n) * bytes_of(spec.d));
  if (epilogue.c_is_d) device.copy_to_device(d.address(), in.c.bytes().data(), count(m, n) * bytes_of(spec.d));

  contract::GemmParams params = {};
  const int slab = contract::kGemmSlabBytes / static_cast<int>(bytes_of(spec.a));
  const int tile_rows = spec.block_m, tile_columns = spec.block_n / spec.cluster_m;
  params.a = matrix_map(device, a.address(), spec.a, m, k, spec.swap_ab ? tile_columns : tile_rows, slab);
  params.b = matrix_map(device, b.address(), spec.b, n, k, spec.swap_ab ? tile_rows : tile_columns, slab);
  if (spec.swap_ab) std::swap(params.a, params.b);
  set_output(gemm, device, d.address(), params);
  params.bias = bias.pointer<void>(), params.c = epilogue.c_is_d ? d.pointer<void>() : c.pointer<void>();
  params.c_stride = in.c.stride;
  params.alpha = epilogue.alpha, params.beta = epilogue.beta;
  launch_tile_gemm(gemm, device, image, params);

  HopperOutcome outcome;
  outcome.output = d.read();
  outcome.failure = d.guards();
  compare(epilogue, in, outcome);
  return outcome;
}

HopperCase tile_gemm(const std::string& name, const EpilogueCase& epilogue) {
  HopperCase test = tile_gemm(name, epilogue.gemm, nullptr);
  test.run = [epilogue](Device& device, const KernelImage& image, std::uint64_t seed) {
    return run(epilogue, device, image, seed);
  };
  return test;
}

class List {
 public:
  /// Ragged m, n and k, and more tiles than CTAs, unless `size` says otherwise; all of the epilogue but an activation.
  /// `change` says what else the Spec has.
  template <class Change>
  EpilogueCase& add(const std::string& name, const Change& change, const GemmSize& size = {200, 264, 200},
                    int ctas = 2) {
    EpilogueCase epilogue{{tile_gemm_spec(), size, ctas, 2}, 0.5f, -2, 8};
    GemmSpec& spec = epilogue.gemm.spec;
    spec.alpha = spec.bias = spec.adds_c = true;
    change(spec);
    cases_.push_back({name, epilogue});
    return cases_.back().second;
  }
  std::vector<HopperCase> take() const {
    std::vector<HopperCase> all;
    for (const auto& [name, epilogue] : cases_) all.push_back(tile_gemm(name, epilogue));
    return all;
  }

 private:
  std::deque<std::pair<std::string, EpilogueCase>> cases_;
};

void ping_pong(GemmSpec& spec) { spec.block_m = 64, spec.roles = Roles::kPingPong; }
void plain(GemmSpec& spec) { spec.alpha = spec.bias = spec.adds_c = false; }

void epilogues(List& list) {
  list.add("f16", [](GemmSpec& spec) { plain(spec), spec.a = spec.b = spec.d = DType::kF16; });
  list.add("bias_c_relu", [](GemmSpec& spec) { spec.activation = Activation::kRelu; });
  list.add("bias_c_f16_relu_ping_pong",
           [](GemmSpec& spec) {
             ping_pong(spec), spec.block_n = 176, spec.c = DType::kF16, spec.activation = Activation::kRelu;
           },
           {200, 360, 136});
  list.add(
      "bias_c_f32_cluster2", [](GemmSpec& spec) { spec.cluster_m = 2, spec.c = DType::kF32; }, {300, 264, 72}, 4);
  list.add(
      "bias_c_halves_of_k", [](GemmSpec& spec) { spec.split_k = 2; }, {200, 200, 456}, 8);
  EpilogueCase& in_place = list.add("c_is_d", [](GemmSpec& spec) { spec.alpha = spec.bias = false; });
  in_place.c_is_d = true, in_place.c_padding = 0;
  list.add("alpha", [](GemmSpec& spec) { plain(spec), spec.alpha = true; });
  list.add("bias", [](GemmSpec& spec) { plain(spec), spec.bias = true; });
  for (const auto& [name, activation] :
       {std::pair{"silu", Activation::kSilu}, {"gelu", Activation::kGelu}, {"gelu_tanh", Activation::kGeluTanh}}) {
    const auto act = activation;
    list.add(name, [act](GemmSpec& spec) { spec.activation = act, spec.d = DType::kF32, spec.c = DType::kF32; },
             {64, 256, 64, false});
    list.add(std::string(name) + "_alone", [act](GemmSpec& spec) { plain(spec), spec.activation = act; },
             {64, 256, 64, false});
  }
}

void dtypes(List& list) {
  for (const auto& [name, dtype] : {std::pair{"f32", DType::kF32}, {"e4m3", DType::kE4m3}, {"e5m2", DType::kE5m2}}) {
    const auto d = dtype;
    list.add(fmt::format("d_{}", name), [d](GemmSpec& spec) { plain(spec), spec.d = d; }, {200, 272, 200});
    list.add(fmt::format("d_{}_tail_bias_c", name),
             [d](GemmSpec& spec) {
               ping_pong(spec), spec.block_n = 176, spec.d = d, spec.c = d == DType::kF32 ? d : DType::kBf16;
             },
             {130, 368, 72});
    list.add(
        fmt::format("d_{}_halves_of_k", name), [d](GemmSpec& spec) { spec.split_k = 2, spec.d = d; }, {200, 208, 456},
        8);
  }
  list.add("d_f32_tail_of_8", [](GemmSpec& spec) { spec.block_n = 40, spec.d = DType::kF32; }, {130, 120, 72});
}

/// Weights take the tile's rows, a few tokens its columns.
void swapped(List& list) {
  for (const int columns : {8, 16, 24, 32, 40, 64, 72, 128})
    list.add(
        fmt::format("swapped_{}", columns),
        [columns](GemmSpec& spec) { spec.swap_ab = true, spec.block_n = columns, spec.activation = Activation::kRelu; },
        {columns - 3, 200, 200});
  for (const auto& [name, dtype] :
       {std::pair{"f16", DType::kF16}, {"f32", DType::kF32}, {"e4m3", DType::kE4m3}, {"e5m2", DType::kE5m2}}) {
    const auto d = dtype;
    list.add(fmt::format("swapped_d_{}", name),
             [d](GemmSpec& spec) {
               spec.swap_ab = true, spec.block_n = 72, spec.d = d, spec.c = d == DType::kF32 ? d : DType::kF16;
             },
             {150, 208, 72});
    list.add(fmt::format("swapped_ping_pong_d_{}", name),
             [d](GemmSpec& spec) {
               ping_pong(spec), spec.swap_ab = true, spec.block_n = 136, spec.d = d,
                                spec.c = d == DType::kF32 ? d : DType::kF16;
             },
             {150, 208, 72});
  }
  list.add("swapped_silu",
           [](GemmSpec& spec) { spec.swap_ab = true, spec.block_n = 16, spec.activation = Activation::kSilu; },
           {13, 200, 64, false});
  list.add(
      "swapped_halves_of_k", [](GemmSpec& spec) { spec.swap_ab = true, spec.split_k = 2; }, {100, 200, 456}, 4);
}

}  // namespace

std::vector<HopperCase> tile_gemm_epilogue_cases() {
  List list;
  epilogues(list);
  dtypes(list);
  swapped(list);
  return list.take();
}

}  // namespace kernelwright::test
