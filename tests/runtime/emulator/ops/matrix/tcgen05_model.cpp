#include "runtime/emulator/ops/matrix/tcgen05_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace kernelwright::emulator::test {
namespace {

Tcgen05Form form_of(const MmaCase& c) {
  Tcgen05Form form;
  form.kind = static_cast<Tcgen05Kind>(c.kind);
  form.cta_group = static_cast<std::uint8_t>(c.cta_group);
  form.scale_block = static_cast<std::uint8_t>(c.scale_block);
  form.scale_d = static_cast<std::uint8_t>(c.scale_d);
  form.flags = static_cast<std::uint8_t>((c.weight_stationary ? Tcgen05Form::kWeightStationary : 0) |
                                         (c.a_tensor ? Tcgen05Form::kATensor : 0) | (c.k96 ? Tcgen05Form::kSm103 : 0) |
                                         (c.disabled == std::array<std::uint32_t, 8>{} ? 0 : Tcgen05Form::kLaneMask));
  return form;
}

InstructionDescriptor descriptor_of(const MmaCase& c) {
  InstructionDescriptor descriptor;
  descriptor.kind = c.kind;
  descriptor.a = c.a;
  descriptor.b = c.b;
  descriptor.d = c.d;
  descriptor.m = c.m;
  descriptor.n = c.n;
  descriptor.a_mn_major = c.a_mn_major;
  descriptor.b_mn_major = c.b_mn_major;
  descriptor.negate_a = c.negate_a;
  descriptor.negate_b = c.negate_b;
  descriptor.saturate = c.saturate;
  descriptor.scale = c.scale;
  descriptor.scale_a_id = c.scale_a_id;
  descriptor.scale_b_id = c.scale_b_id;
  descriptor.k96 = c.k96;
  return descriptor;
}

/// Puts codes [size][k] into shared memory at `base`, which is the swizzle's beginning; returns the descriptor.
std::uint64_t store(const MmaCase& c, Cta& cta, const std::uint32_t* codes, std::uint32_t size, std::uint32_t k,
                    MmaElement element, MmaSwizzle swizzle, bool mn_major, std::uint32_t base) {
  const auto in_unit = static_cast<std::uint32_t>(per_unit(c, element));
  const std::uint32_t lines = mn_major ? k : size, across = mn_major ? size : k;
  const Placement placed = placement(swizzle, mn_major, lines, across / in_unit);
  const std::uint32_t begin = base + c.base_offset * 128;
  if (begin + placed.bytes > cta.shared.size()) throw std::runtime_error("the test's shared memory is too small");
  for (std::uint32_t row = 0; row < size; ++row)
    for (std::uint32_t i = 0; i < k; ++i) {
      const std::uint32_t line = mn_major ? i : row, at = mn_major ? row : i;
      const std::uint32_t unit = swizzled(swizzle, begin + placed.place(line, at / in_unit), begin);
      put_bits(cta.shared.data() + unit, std::size_t{at % in_unit} * static_cast<std::size_t>(bits_of(element)),
               bits_of(element), codes[row * k + i]);
    }
  SharedDescriptor descriptor = placed.descriptor;
  descriptor.base_offset = c.base_offset;
  return descriptor.bits(begin);
}

double scale_value(MmaScale scale, std::uint8_t code) {
  return scale == MmaScale::kUe4m3 ? decode_number(kE4m3, code) : std::ldexp(1.0, code - 127);
}

}  // namespace

MmaNumbers draw_numbers(const MmaCase& c) {
  MmaNumbers numbers;
  const std::uint32_t k = depth_of(c);
  std::mt19937 random(c.seed);
  numbers.a.resize(std::size_t{c.m} * k);
  numbers.b.resize(std::size_t{c.n} * k);
  for (std::uint32_t& code : numbers.a) code = draw(c.a, c.whole_numbers, random);
  for (std::uint32_t& code : numbers.b) code = draw(c.b, c.whole_numbers, random);
  numbers.d.resize(std::size_t{c.m} * c.n);
  for (std::uint32_t& cell : numbers.d) {
    const int whole = static_cast<int>(random() % 21) - 10;
    cell = c.d == MmaOutput::kS32   ? static_cast<std::uint32_t>(whole)
           : c.d == MmaOutput::kF16 ? f32_to_f16(static_cast<float>(whole))
                                    : std::bit_cast<std::uint32_t>(static_cast<float>(whole));
  }
  const std::uint32_t scales = c.scale_block ? k / static_cast<std::uint32_t>(c.scale_block) : 0;
  numbers.scale_a.resize(std::size_t{c.m} * scales);
  numbers.scale_b.resize(std::size_t{c.n} * scales);
  for (auto* codes : {&numbers.scale_a, &numbers.scale_b})
    for (std::uint8_t& code : *codes)
      code = static_cast<std::uint8_t>(c.scale == MmaScale::kUe8m0 ? 125 + random() % 5 : 0x30 + random() % 16);
  return numbers;
}

MmaRun::MmaRun(const MmaCase& given, MmaNumbers numbers)
    : MmaNumbers(std::move(numbers)), c(given), k(depth_of(given)) {
  const std::uint32_t scales = c.scale_block ? k / static_cast<std::uint32_t>(c.scale_block) : 0;
  const auto values = [&](MmaElement element, const std::vector<std::uint32_t>& codes,
                          const std::vector<std::uint8_t>& scale_codes, bool negate) {
    std::vector<double> all;
    for (std::size_t i = 0; i < codes.size(); ++i) {
      double value = value_of(element, codes[i]);
      if (scales != 0)
        value *= scale_value(c.scale, scale_codes[i / k * scales + i % k / static_cast<std::size_t>(c.scale_block)]);
      all.push_back(negate ? -value : value);
    }
    return all;
  };
  a_values = values(c.a, a, scale_a, c.negate_a);
  b_values = values(c.b, b, scale_b, c.negate_b);

  cluster = std::make_unique<Cluster>(Completion::kEager, 0);
  const std::uint32_t rows = c.m / static_cast<std::uint32_t>(c.cta_group),
                      columns = c.n / static_cast<std::uint32_t>(c.cta_group);
  std::uint64_t a_descriptor = 0, b_descriptor = 0;
  for (int rank = 0; rank < c.cta_group; ++rank) {
    auto cta = std::make_unique<Cta>();
    cta->cluster = cluster.get();
    cta->rank = static_cast<std::uint32_t>(rank);
    cta->live_warps = 1;
    cta->shared.assign(96 * 1024, std::byte{0xa5});
    TensorMemory& memory = tensor_memory(*cta);
    memory.allocate({.column = 0, .columns = 512});
    const std::uint32_t *my_a = a.data() + static_cast<std::uint32_t>(rank) * rows * k,
                        *my_b = b.data() + static_cast<std::uint32_t>(rank) * columns * k;
    b_descriptor = store(c, *cta, my_b, columns, k, c.b, c.b_swizzle, c.b_mn_major, 48 * 1024);
    if (!c.a_tensor) a_descriptor = store(c, *cta, my_a, rows, k, c.a, c.a_swizzle, c.a_mn_major, 2 * 1024);
    for (std::uint32_t lane = 0; lane < 128; ++lane) {
      const LaneRow at = lane_row(c, lane);
      if (!at.used) continue;
      for (std::uint32_t n = 0; n < at.columns; ++n)
        *memory.row(lane, kD + n) = d[(static_cast<std::uint32_t>(rank) * rows + at.row) * c.n + at.column + n];
      if (!c.a_tensor) continue;
      // Elements of 4 and 6 bits have a byte each: e2m1 in its bits 5-2, others at its bottom. Packed, none has.
      const int bits = packed(c) ? 4 : std::max(bits_of(c.a), 8), shift = !packed(c) && bits_of(c.a) == 4 ? 2 : 0;
      auto* cells = reinterpret_cast<std::byte*>(memory.row(lane, kA));
      for (std::uint32_t i = 0; i < k; ++i)
        put_bits(cells, std::size_t{i} * static_cast<std::size_t>(bits), bits, my_a[at.row * k + i] << shift);
    }
    const auto put_scales = [&](const std::uint8_t* codes, std::uint32_t size, std::uint32_t column, std::uint32_t id) {
      for (std::uint32_t quarter = 0; quarter < 4; ++quarter)
        for (std::uint32_t row = 0; row < size; ++row)
          for (std::uint32_t i = 0; i < scales; ++i) {
            const std::uint32_t byte = id + i;
            put_bits(reinterpret_cast<std::byte*>(
                         memory.row(quarter * 32 + row % 32, column + row / 32 + byte / 4 * (size > 128 ? 8 : 4))),
                     std::size_t{byte % 4} * 8, 8, codes[row * scales + i]);
          }
    };
    put_scales(scale_a.data() + static_cast<std::uint32_t>(rank) * rows * scales, rows, kScaleA, c.scale_a_id);
    put_scales(scale_b.data(), c.n, kScaleB, c.scale_b_id);
    cluster->ctas.push_back(std::move(cta));
  }

  mma.form = form_of(c);
  instruction_descriptor = descriptor_of(c).bits();
  mma.shape = decode_instruction_descriptor(instruction_descriptor, mma.form);
  mma.layout = layout_of(mma.form, mma.shape);
  for (int rank = 0; rank < c.cta_group; ++rank)
    mma.ctas[static_cast<std::size_t>(rank)] = cluster->ctas[static_cast<std::size_t>(rank)].get();
  mma.num_ctas = static_cast<std::uint32_t>(c.cta_group);
  mma.d = {c.first_lane, kD};
  mma.a = {c.first_lane, kA};
  mma.scale_a = {0, kScaleA};
  mma.scale_b = {0, kScaleB};
  if (!c.a_tensor) mma.a_shared = decode_tensor_descriptor(a_descriptor, "A", c.k96);
  mma.b_shared = decode_tensor_descriptor(b_descriptor, "B", c.k96);
  mma.accumulate = c.accumulate;
  mma.disabled = c.disabled;
}

void MmaRun::perform() {
  check_places(mma);
  emulator::perform(mma);
}

double MmaRun::value(std::uint32_t cell) const {
  return c.d == MmaOutput::kS32   ? static_cast<std::int32_t>(cell)
         : c.d == MmaOutput::kF16 ? decode_number(kF16, cell)
                                  : std::bit_cast<float>(cell);
}

double MmaRun::expected(std::uint32_t row, std::uint32_t n, double* bound) const {
  double sum = c.accumulate ? std::ldexp(before(row, n), -c.scale_d) : 0, size = std::fabs(sum);
  for (std::uint32_t i = 0; i < k; ++i) {
    const double product = a_values[row * k + i] * b_values[n * k + i];
    sum += product;
    size += std::fabs(product);
  }
  if (c.saturate) sum = std::clamp(sum, -2147483648.0, 2147483647.0);
  const bool exact = c.whole_numbers && !c.scale_block && c.scale_d == 0;
  double off = exact ? 0 : size * (k + 2) * std::ldexp(1.0, -24);
  if (c.d == MmaOutput::kF16) {
    if (exact)
      sum = decode_number(kF16, f32_to_f16(static_cast<float>(sum)));
    else
      off += std::fabs(sum) * std::ldexp(1.0, -11) + std::ldexp(1.0, -24);
  }
  if (bound) *bound = off;
  return sum;
}

std::vector<std::uint32_t> MmaRun::cells() const {
  std::vector<std::uint32_t> all(d.size());
  std::vector<int> found(d.size());
  const std::uint32_t rows = c.m / static_cast<std::uint32_t>(c.cta_group);
  for (std::uint32_t rank = 0; rank < cluster->ctas.size(); ++rank)
    for (std::uint32_t lane = 0; lane < 128; ++lane) {
      const LaneRow at = lane_row(c, lane);
      for (std::uint32_t i = 0; at.used && i < at.columns; ++i) {
        const std::size_t element = std::size_t{rank * rows + at.row} * c.n + at.column + i;
        all[element] = *tensor_memory(*cluster->ctas[rank]).row(lane, kD + i);
        ++found[element];
      }
    }
  if (std::any_of(found.begin(), found.end(), [](int times) { return times != 1; }))
    throw std::runtime_error("an element of D has no place of its own");
  return all;
}

std::string mismatch(const MmaRun& run) {
  const std::vector<std::uint32_t> cells = run.cells();
  for (std::uint32_t row = 0; row < run.c.m; ++row)
    for (std::uint32_t n = 0; n < run.c.n; ++n) {
      double bound = 0;
      const double expected = run.expected(row, n, &bound), found = run.value(cells[row * run.c.n + n]);
      if (!(std::fabs(found - expected) <= bound))
        return fmt::format("row {}, column {}: {} instead of {}, which is {} off", row, n, found, expected,
                           std::fabs(found - expected));
    }
  return "";
}

}  // namespace kernelwright::emulator::test
