#include "runtime/emulator/kernels/tile_gemm_epilogue.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>
#include <utility>

#include "contract/shared_slab.h"
#include "runtime/emulator/kernels/hopper_buffers.h"

namespace kernelwright::test {
namespace {

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

/// The kernel's result for a sum, and how far f32 may be from it.
struct Activated {
  double value, error;
};
/// Each function's error follows from its parts: 2^-24 for a product or sum; for an exponential 2^-22 plus the effect
/// of its argument's rounding; 2^-23 for a reciprocal.
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
  // Bias and c lie behind an element that is not theirs, or at the start of an allocation.
  const std::size_t shift = epilogue.misaligned ? bytes_of(spec.c) : 0;
  const auto shifted = [&](std::vector<std::byte> bytes) {
    bytes.insert(bytes.begin(), shift, std::byte{0xff});
    return bytes;
  };
  const bool a_turned = spec.layout == OperandLayout::kTn || spec.layout == OperandLayout::kTt;
  const bool b_turned = spec.layout == OperandLayout::kTn || spec.layout == OperandLayout::kNn;
  const DeviceBuffer a(device, in.a.bytes(a_turned)), b(device, in.b.bytes(b_turned)),
      bias(device, shifted(in.bias.bytes())), c(device, shifted(in.c.bytes())),
      d(device, count(m, n) * bytes_of(spec.d));
  if (epilogue.c_is_d) device.copy_to_device(d.address(), in.c.bytes().data(), count(m, n) * bytes_of(spec.d));

  contract::GemmParams params = {};
  const int slab = contract::kGemmSlabBytes / static_cast<int>(bytes_of(spec.a));
  const auto map = [&](const DeviceBuffer& operand, DType dtype, int rows, bool turned, int box_rows, int sharers) {
    return turned ? matrix_map(device, operand.address(), dtype, k, rows, slab / sharers, contract::slab_width(128) / 2)
                  : matrix_map(device, operand.address(), dtype, rows, k, box_rows / sharers, slab);
  };
  if (spec.swap_ab) {
    params.a = map(b, spec.b, n, b_turned, spec.block_m, 1);
    params.b = map(a, spec.a, m, a_turned, spec.block_n, spec.cluster_m);
  } else {
    params.a = map(a, spec.a, m, a_turned, spec.block_m, 1);
    params.b = map(b, spec.b, n, b_turned, spec.block_n, spec.cluster_m);
  }
  set_output(gemm, device, d.address(), params);
  params.bias = bias.pointer<std::byte>() + shift;
  params.c = epilogue.c_is_d ? d.pointer<std::byte>() : c.pointer<std::byte>() + shift;
  params.c_stride = in.c.stride;
  params.alpha = epilogue.alpha, params.beta = epilogue.beta;
  launch_tile_gemm(gemm, device, image, params);

  HopperOutcome outcome;
  outcome.output = d.read();
  outcome.failure = d.guards();
  compare(epilogue, in, outcome);
  return outcome;
}

}  // namespace

HopperCase tile_gemm(const std::string& name, const EpilogueCase& epilogue) {
  HopperCase test = tile_gemm(name, epilogue.gemm, nullptr);
  test.run = [epilogue](Device& device, const KernelImage& image, std::uint64_t seed) {
    return run(epilogue, device, image, seed);
  };
  return test;
}

}  // namespace kernelwright::test
