// The quantise kernel on the emulator must give the bits of the host's quantisers, for all values, rows and k.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include "kernelwright/generator/error.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/gemm/case.h"
#include "kernelwright/verify/random.h"
#include "support/emulated_gemm.h"

namespace kernelwright {
namespace {

using test::expect_no_reports;
using test::make_checking_engine;

constexpr std::byte kUnwritten{0xa5};

/// Rows of one dtype, with NaN after each.
HostMatrix rows_of(DType dtype, int rows, int k, int padding, const std::function<float(int, int)>& value) {
  HostMatrix x{dtype, rows, k, k + padding, {}, {}};
  x.allocate();
  std::vector<float> values(static_cast<std::size_t>(k));
  for (int row = 0; row < rows; ++row) {
    for (int i = 0; i < k; ++i) values[static_cast<std::size_t>(i)] = value(row, i);
    x.set_row(row, values);
  }
  return x;
}

/// The expected output of the kernel: elements with the gaps between rows unchanged, and scales of whole atoms.
HostMatrix quantized(const HostMatrix& x, DType to, int padding, float tensor_scale) {
  HostMatrix out{to, x.rows, x.columns, x.columns + padding, {}, {}};
  out.allocate();
  std::fill(out.bytes.begin(), out.bytes.end(), kUnwritten);
  std::fill(out.scales.begin(), out.scales.end(), std::byte{0});
  std::vector<double> exact(static_cast<std::size_t>(x.columns));
  for (std::int64_t row = 0; row < x.rows; ++row) {
    x.decode(row, 0, exact.size(), exact.data());
    std::vector<float> values(exact.begin(), exact.end());
    if (tensor_scale != 1)
      for (float& value : values) value /= tensor_scale;
    out.set_row(row, values);
  }
  return out;
}

class Memory {
 public:
  Memory(Device& device, const std::vector<std::byte>& bytes)
      : device_(device), address(device.allocate(std::max<std::size_t>(bytes.size(), 16))) {
    device.copy_to_device(address, bytes.data(), bytes.size());
  }
  ~Memory() { device_.free(address); }
  Memory(const Memory&) = delete;
  std::vector<std::byte> read(std::size_t bytes) const {
    std::vector<std::byte> read(bytes);
    device_.copy_to_host(read.data(), address, bytes);
    return read;
  }

 private:
  Device& device_;

 public:
  const DevicePtr address;
};

struct Options {
  int padding = 0;        // elements after each row of the output
  std::size_t shift = 0;  // elements of x in front of the first
  float tensor_scale = 1;
  bool pdl = false;
};

void expect_bits_of_the_host(Engine& engine, const HostMatrix& x, DType to, const Options& options = {}) {
  SCOPED_TRACE(std::string(to_string(x.dtype)) + " to " + std::string(to_string(to)) + ", rows " +
               std::to_string(x.rows) + ", k " + std::to_string(x.columns));
  const HostMatrix want = quantized(x, to, options.padding, options.tensor_scale);
  std::vector<std::byte> shifted(options.shift * bytes_of(x.dtype));
  shifted.insert(shifted.end(), x.bytes.begin(), x.bytes.end());
  Device& device = engine.device(0);
  const Memory from(device, shifted);
  const Memory elements(device, std::vector<std::byte>(want.bytes.size() + 64, kUnwritten));
  const Memory scales(device, std::vector<std::byte>(want.scales.size() + 64, kUnwritten));
  QuantizeTensors tensors;
  tensors.x = from.address + options.shift * bytes_of(x.dtype);
  tensors.elements = elements.address;
  tensors.scales = scales.address;
  tensors.rows = static_cast<int>(x.rows);
  tensors.k = static_cast<int>(x.columns);
  tensors.x_stride = x.stride;
  tensors.elements_stride = want.stride;
  tensors.tensor_scale = options.tensor_scale;
  tensors.pdl = options.pdl;
  Stream stream = device.create_stream();
  engine.quantize({x.dtype, to}, tensors, stream);
  device.synchronize(stream);
  device.destroy_stream(stream);
  expect_no_reports(engine);

  const auto with_guard = [](std::vector<std::byte> bytes) {
    bytes.insert(bytes.end(), 64, kUnwritten);
    return bytes;
  };
  const auto compare = [](const std::vector<std::byte>& have, const std::vector<std::byte>& wanted, const char* what) {
    const auto differs = std::mismatch(have.begin(), have.end(), wanted.begin()).first;
    EXPECT_EQ(have, wanted) << what << ": byte " << differs - have.begin() << " is the first that differs";
  };
  compare(scales.read(want.scales.size() + 64), with_guard(want.scales), "scales");
  compare(elements.read(want.bytes.size() + 64), with_guard(want.bytes), "elements");
}

constexpr DType kFormats[] = {DType::kMxfp8, DType::kMxfp4, DType::kNvfp4};

class QuantizeOnTheEmulator : public test::OnTheEmulator<Arch> {
 protected:
  Engine engine_ = make_checking_engine(4, emulator::Completion::kRandom, 1, GetParam());
};

TEST_P(QuantizeOnTheEmulator, GivesTheBitsOfTheHostForRandomValues) {
  for (const DType from : {DType::kF32, DType::kBf16, DType::kF16})
    for (const DType to : kFormats) {
      Random random(static_cast<std::uint64_t>(from) * 10 + static_cast<std::uint64_t>(to));
      float factor = 1, left = 0;
      const HostMatrix x = rows_of(from, 9, 544, 8, [&](int, int i) {
        if (i % 16 == 0) factor = std::ldexp(1.f, static_cast<int>(random.below(24)) - 12);
        float value;
        random.normal_pair(value, left);
        return value * factor;
      });
      expect_bits_of_the_host(engine_, x, to, {.padding = 32});
    }
}

TEST_P(QuantizeOnTheEmulator, GivesTheBitsOfTheHostForEveryBf16) {
  for (const DType to : kFormats)
    for (const std::uint32_t step : {1u, 257u, 40503u}) {  // neighbours in a block; and values far from each other
      const HostMatrix x = rows_of(DType::kBf16, 64, 1024, 0, [&](int row, int i) {
        return decode_float(DType::kBf16,
                            (static_cast<std::uint32_t>(row) * 1024 + static_cast<std::uint32_t>(i)) * step % 65536);
      });
      expect_bits_of_the_host(engine_, x, to);
    }
}

TEST_P(QuantizeOnTheEmulator, GivesTheBitsOfTheHostForTiesAndTheirNeighbours) {
  // Quarters, eighths and so on of the block's largest value, moved by a bit of f32 at most.
  for (const DType to : kFormats) {
    Random random(5);
    float largest = 1;
    const HostMatrix x = rows_of(DType::kF32, 16, 512, 0, [&](int, int i) {
      if (i % 32 == 0) largest = std::ldexp(static_cast<float>(8 + random.below(8)), static_cast<int>(random.below(9)));
      const float tie = largest * std::ldexp(static_cast<float>(random.below(64)), -static_cast<int>(random.below(14)));
      const float value = std::min(largest * 1.5f, tie);
      const auto moved = std::bit_cast<std::uint32_t>(value) + static_cast<std::uint32_t>(random.below(3));
      return std::bit_cast<float>(value == 0 ? 0 : moved - 1) * (random.below(2) ? 1.f : -1.f);
    });
    expect_bits_of_the_host(engine_, x, to);
  }
}

TEST_P(QuantizeOnTheEmulator, GivesTheBitsOfTheHostForAnyF32) {
  for (const DType to : kFormats) {
    Random random(6);
    const HostMatrix x = rows_of(DType::kF32, 16, 512, 4, [&](int row, int i) {
      // One NaN in 256 would spoil one block in eight: rows without any, too.
      auto bits = static_cast<std::uint32_t>(random.next());
      if (row % 2) bits &= 0xbfffffff;
      if (row % 4 == 3 && i % 64 < 32) bits &= 0x807fffff;  // subnormals
      return std::bit_cast<float>(bits);
    });
    expect_bits_of_the_host(engine_, x, to);
  }
}

TEST_P(QuantizeOnTheEmulator, WritesRowsAndScalesAtEveryEdge) {
  const auto value = [](int row, int i) { return static_cast<float>((row * 37 + i * 11) % 101 - 50); };
  for (const DType to : kFormats)
    for (const auto& [rows, k] : {std::pair{1, 32}, {127, 96}, {129, 128}, {3, 288}, {40, 256}})
      expect_bits_of_the_host(engine_, rows_of(DType::kF16, rows, k, 1, value), to, {.padding = 64, .shift = 1});
}

TEST_P(QuantizeOnTheEmulator, DividesByTheTensorsScaleFirst) {
  const HostMatrix x = rows_of(DType::kBf16, 5, 64, 0, [](int row, int i) { return static_cast<float>(row * 64 + i); });
  for (const DType to : kFormats)
    expect_bits_of_the_host(engine_, x, to, {.tensor_scale = 0.3f, .pdl = GetParam() >= Arch::kSm90a});
}

// The arithmetic of each: without conversions, with those to e4m3, and with all.
INSTANTIATE_TEST_SUITE_P(Archs, QuantizeOnTheEmulator, testing::Values(Arch::kSm80, Arch::kSm90a, Arch::kSm100a),
                         [](const auto& info) { return std::string(to_string(info.param)); });

class Quantize : public testing::Test {
 protected:
  void SetUp() override {
    if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }
  Engine engine_ = make_checking_engine(2, emulator::Completion::kRandom, 1, Arch::kSm80);
};

TEST_F(Quantize, RefusesArgumentsThatDoNotFit) {
  const QuantizeKernel kernel = engine_.prepare(QuantizeProblem{DType::kBf16, DType::kNvfp4});
  const auto refusal = [&](const std::function<void(QuantizeTensors&)>& change) {
    QuantizeTensors tensors{.x = 0x10000, .elements = 0x20000, .scales = 0x30000, .rows = 4, .k = 64};
    change(tensors);
    try {
      kernel.launch(tensors, nullptr);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  EXPECT_EQ(refusal([](auto& t) { t.x = 0x10001; }),
            "/tensors/x: address 0x10001 is not a multiple of 2; give an aligned one");
  EXPECT_EQ(refusal([](auto& t) { t.x_stride = 63; }), "/tensors/x_stride: 63 is less than the 64 elements of a row");
  EXPECT_EQ(refusal([](auto& t) { t.elements_stride = 80; }),
            "/tensors/elements_stride: 80 elements of nvfp4 put rows off their 16-byte boundaries; pad rows to a "
            "multiple of 32");
  EXPECT_EQ(refusal([](auto& t) { t.elements = t.x + 16; }),
            "/tensors/elements: overlaps x, which is still read while elements are written");
  EXPECT_EQ(refusal([](auto& t) { t.scales = t.x - 496; }),
            "/tensors/scales: overlaps x, which is still read while scales are written");
  EXPECT_EQ(refusal([](auto& t) { t.scales = 0; }), "/tensors/scales: is null; give a device address");
  EXPECT_EQ(refusal([](auto& t) { t.tensor_scale = 0; }),
            "/tensors/tensor_scale: 0 does not divide; give a finite number above 0");
  EXPECT_EQ(refusal([](auto& t) { t.k = 48; }),
            "/tensors/k: 48 is no whole number of blocks; it takes a multiple of 32");
  EXPECT_EQ(refusal([](auto& t) { t.rows = -1; }), "/tensors/rows: -1 is negative");
  EXPECT_EQ(refusal([](auto& t) { t.pdl = true; }),
            "/tensors/pdl: is true, and sm_80 has no programmatic dependent launch, which begins with sm_90; leave it "
            "false");
  EXPECT_EQ(refusal([](auto& t) { t = {.rows = 0, .k = 64}; }), "nothing");
  EXPECT_EQ(refusal([](auto& t) { t = {.rows = 4, .k = 0}; }), "nothing");
}

TEST_F(Quantize, MakesTheOperandsThatAGemmReads) {
  Engine engine = make_checking_engine(4, emulator::Completion::kRandom, 1, Arch::kSm100a);
  Device& device = engine.device(0);
  for (const DType format : kFormats) {
    const GemmProblem problem = test::gemm_problem(format, DType::kF32, 136, 160, "acc", ScaleKind::kPerBlock);
    const GemmCase call = make_gemm_inputs(problem, {"few", 70, true}, {.seed = 3});
    // Quantising an operand's values gives the operand back.
    const auto quantize = [&](const HostMatrix& operand, const Memory& elements, const Memory& scales) {
      const HostMatrix x = rows_of(DType::kF32, static_cast<int>(operand.rows), problem.k, 0, [&](int row, int i) {
        double value;
        operand.decode(row, i, 1, &value);
        return static_cast<float>(value);
      });
      const Memory from(device, x.bytes);
      engine.quantize({DType::kF32, format},
                      {.x = from.address,
                       .elements = elements.address,
                       .scales = scales.address,
                       .rows = static_cast<int>(operand.rows),
                       .k = problem.k,
                       .elements_stride = operand.stride},
                      nullptr);
      device.synchronize(nullptr);
    };
    const auto fresh = [](std::size_t bytes) { return std::vector<std::byte>(bytes, kUnwritten); };
    const Memory a(device, fresh(call.a.bytes.size())), scale_a(device, fresh(call.a.scales.size()));
    const Memory b(device, fresh(call.b.bytes.size())), scale_b(device, fresh(call.b.scales.size()));
    quantize(call.a, a, scale_a);
    quantize(call.b, b, scale_b);
    EXPECT_EQ(a.read(call.a.bytes.size()), call.a.bytes);
    test::expect_right(call, test::run_checked(engine, call, {}, [&](GemmTensors& tensors) {
                         tensors.a = a.address;
                         tensors.b = b.address;
                         tensors.scale_a = scale_a.address;
                         tensors.scale_b = scale_b.address;
                       }));
  }
}

TEST_F(Quantize, IsPreparedOnceAndFoundByItsProblem) {
  const QuantizeProblem problem{DType::kF32, DType::kMxfp4};
  EXPECT_FALSE(engine_.find(problem));
  const QuantizeKernel kernel = engine_.prepare(problem);
  EXPECT_EQ(engine_.find(problem), kernel);
  EXPECT_EQ(engine_.prepare(problem), kernel);
  EXPECT_FALSE(engine_.find(QuantizeProblem{DType::kF32, DType::kNvfp4}));
  EXPECT_EQ(kernel.state(), KernelState::kReady);
  EXPECT_EQ(kernel.key().size(), 64u);
  EXPECT_NE(kernel.binary(), nullptr);
}

}  // namespace
}  // namespace kernelwright
