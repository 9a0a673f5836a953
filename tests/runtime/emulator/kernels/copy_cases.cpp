// copy_sm90 compared with a plain loop: every word must be equal.
#include <fmt/format.h>

#include <array>

#include "runtime/emulator/kernels/hopper_buffers.h"
#include "runtime/emulator/kernels/hopper_case_lists.h"

namespace kernelwright::test {
namespace {

using Words = std::vector<std::uint32_t>;

Words random_words(Random& random, std::size_t count) {
  Words words(count);
  for (std::uint32_t& word : words) word = static_cast<std::uint32_t>(random.next());
  return words;
}

/// Compares a buffer of words, checks its guards, and appends it to the outcome.
void check(const DeviceBuffer& memory, const Words& expected, const std::string& what, HopperOutcome& outcome) {
  const Words found = memory.read_as<std::uint32_t>();
  const std::string guards = memory.guards();
  if (outcome.failure.empty() && !guards.empty()) outcome.failure = what + ": " + guards;
  for (std::size_t i = 0; i < expected.size() && outcome.failure.empty(); ++i)
    if (found[i] != expected[i])
      outcome.failure = fmt::format("{}: word {} is {:#x} and should be {:#x}", what, i, found[i], expected[i]);
  const auto* bytes = reinterpret_cast<const std::byte*>(found.data());
  outcome.output.insert(outcome.output.end(), bytes, bytes + found.size() * 4);
}

LaunchConfig config_of(int ctas, int threads, std::uint32_t shared_bytes) {
  LaunchConfig config;
  config.grid[0] = static_cast<std::uint32_t>(ctas);
  config.block = static_cast<std::uint32_t>(threads);
  config.shared_bytes = shared_bytes;
  return config;
}

HopperOutcome run_bulk_copy(Device& device, const KernelImage& image, std::uint64_t seed) {
  constexpr int kChunks = 17, kCtas = 2;  // one CTA has nine, the other eight: three laps
  Random random(seed);
  Words words = random_words(random, kChunks * kBulkChunk);
  const DeviceBuffer from(device, words), to(device, words.size() * 4);
  const BulkCopyParams params{from.pointer<const std::uint32_t>(), to.pointer<std::uint32_t>(), kChunks, 12345};
  launch(device, image, "bulk_copy", config_of(kCtas, kCopyThreads, kBulkSlots * (kBulkChunk * 4 + 8)), params);
  for (std::uint32_t& word : words) word += params.add;
  HopperOutcome outcome;
  check(to, words, "to", outcome);
  return outcome;
}

HopperOutcome run_bulk_reduce(Device& device, const KernelImage& image, std::uint64_t) {
  constexpr int kCtas = 5, kRows = 22, kColumns = 28;  // 32 columns a box from x = 4: over the far edges
  const std::vector<float> zeros(kRows * kColumns);
  const DeviceBuffer sums(device, zeros), flat(device, std::vector<float>(256));
  BulkReduceParams params = {};
  params.sums = matrix_map(device, sums.address(), DType::kF32, kRows, kColumns, 8, 32, Swizzle::kNone);
  params.flat = flat.pointer<float>();
  params.x = 4, params.y = 1;
  launch(device, image, "bulk_reduce", config_of(kCtas, kCopyThreads, 1024), params);
  // Integers below 2^24: the order of the additions makes no difference.
  std::vector<float> expected_sums = zeros, expected_flat(256);
  for (int cta = 0; cta < kCtas; ++cta) {
    for (int i = 0; i < 256; ++i) {
      const auto value = static_cast<float>(cta * 256 + i);
      expected_flat[static_cast<std::size_t>(i)] += value;
      const int row = params.y + cta * 4 + i / 32, column = params.x + i % 32;
      if (row >= 0 && row < kRows && column >= 0 && column < kColumns)
        expected_sums[static_cast<std::size_t>(row * kColumns + column)] += value;
    }
  }
  const auto bits = [](const std::vector<float>& values) {
    Words words(values.size());
    std::memcpy(words.data(), values.data(), words.size() * 4);
    return words;
  };
  HopperOutcome outcome;
  check(flat, bits(expected_flat), "flat", outcome);
  check(sums, bits(expected_sums), "sums", outcome);
  return outcome;
}

HopperOutcome run_cluster_exchange(Device& device, const KernelImage& image, std::uint64_t seed) {
  constexpr int kClusters = 3, kCtas = kClusters * kClusterCtas;
  Random random(seed);
  const Words words = random_words(random, kCtas * kClusterWords);
  const DeviceBuffer from(device, words), to(device, std::size_t{kCtas} * kClusterOutputWords * 4);
  const ClusterExchangeParams params{from.pointer<const std::uint32_t>(), to.pointer<std::uint32_t>()};
  LaunchConfig config = config_of(kCtas, kCopyThreads, kClusterOutputWords * 4 + kClusterWords * 4 + 8);
  config.cluster[0] = kClusterCtas;
  launch(device, image, "cluster_exchange", config, params);
  Words expected;
  for (int cta = 0; cta < kCtas; ++cta) {
    const int rank = cta % kClusterCtas, first = cta - rank;
    const int before = (rank + kClusterCtas - 1) % kClusterCtas, next = (rank + 1) % kClusterCtas;
    for (int i = 0; i < kClusterWords; ++i)
      expected.push_back(words[static_cast<std::size_t>((first + before) * kClusterWords + i)] * 3 +
                         static_cast<std::uint32_t>(before));
    for (int i = 0; i < kSentWords; ++i) expected.push_back(static_cast<std::uint32_t>(next * 1000 + i));
    const auto all = words.begin() + first * kClusterWords;
    expected.insert(expected.end(), all, all + kClusterCtas * kClusterWords);
  }
  HopperOutcome outcome;
  check(to, expected, "to", outcome);
  return outcome;
}

struct Box {
  const char* name;
  DType dtype;
  Swizzle swizzle;
  int rank;
  std::array<int, 5> dims, box, at;  // innermost first
  bool store = false;
};

/// The place of byte `offset` of a dense box in shared memory. 16-byte chunks are permuted within rows of the swizzle's
/// width, by the number of their 128 bytes.
std::size_t swizzled(Swizzle swizzle, std::size_t offset) {
  const std::size_t mask = swizzle == Swizzle::k128B  ? 7
                           : swizzle == Swizzle::k64B ? 3
                           : swizzle == Swizzle::k32B ? 1
                                                      : 0;
  return offset ^ (offset >> 7 & mask) << 4;
}

void run_box(Device& device, const KernelImage& image, const Box& box, Random& random, HopperOutcome& outcome) {
  const std::size_t size = bytes_of(box.dtype);
  TensorMapRequest request;
  request.dtype = box.dtype;
  request.rank = box.rank;
  request.swizzle = box.swizzle;
  std::size_t strides[5] = {size}, box_bytes = size;
  for (int i = 0; i < box.rank; ++i) {
    const auto extent = static_cast<std::size_t>(box.dims[static_cast<std::size_t>(i)]);
    request.dims[i] = extent;
    request.box[i] = static_cast<std::uint32_t>(box.box[static_cast<std::size_t>(i)]);
    box_bytes *= request.box[i];
    std::size_t bytes = strides[i] * extent;
    if (i == 0) bytes = (bytes + 31) / 16 * 16;  // a multiple of 16, and a gap that belongs to no output
    if (i + 1 < 5) strides[i + 1] = bytes;
    if (i + 1 < box.rank) request.strides_bytes[i] = bytes;
  }
  const std::size_t tensor_bytes = box.rank < 5 ? strides[box.rank] : strides[4] * request.dims[4];
  const Words words = random_words(random, (tensor_bytes + 3) / 4);
  const auto* source = reinterpret_cast<const std::byte*>(words.data());
  const DeviceBuffer from(device, words), to(device, words.size() * 4), dump(device, box_bytes);

  TensorBoxParams params = {};
  request.address = from.address();
  params.from = tensor_map(device, request);
  request.address = to.address();
  params.to = tensor_map(device, request);
  params.dump = dump.pointer<std::uint32_t>();
  params.bytes = static_cast<std::uint32_t>(box_bytes);
  params.rank = box.rank;
  std::copy(box.at.begin(), box.at.end(), params.at);
  params.store = box.store;
  launch(device, image, "tensor_box", config_of(1, kCopyThreads, (params.bytes + 127) / 128 * 128 + 8), params);

  Words expected_dump(box_bytes / 4), expected_to(words.size(), 0xffffffffu);
  auto* dumped = reinterpret_cast<std::byte*>(expected_dump.data());
  auto* stored = reinterpret_cast<std::byte*>(expected_to.data());
  for (std::size_t element = 0; element < box_bytes / size; ++element) {
    std::size_t rest = element, offset = 0;
    bool inside = true;
    for (int i = 0; i < box.rank; ++i) {
      const long at = static_cast<long>(rest % request.box[i]) + params.at[i];
      rest /= request.box[i];
      inside = inside && at >= 0 && at < static_cast<long>(request.dims[i]);
      if (inside) offset += static_cast<std::size_t>(at) * strides[i];
    }
    if (!inside) continue;  // zero in shared memory, untouched in `to`
    std::memcpy(dumped + swizzled(box.swizzle, element * size), source + offset, size);
    if (!box.store) continue;
    std::memcpy(stored + offset, source + offset, size);
    // The padding in the last 16 bytes of a row is written too, with the contents of shared memory: zeros.
    const std::size_t column = offset % strides[1], row_bytes = request.dims[0] * size;
    if (box.rank > 1 && column + size == row_bytes) std::memset(stored + offset + size, 0, (16 - row_bytes % 16) % 16);
  }
  check(dump, expected_dump, std::string(box.name) + ": dump", outcome);
  check(to, expected_to, std::string(box.name) + ": stored", outcome);
}

HopperOutcome run_tensor_boxes(Device& device, const KernelImage& image, std::uint64_t seed) {
  using enum DType;
  using enum Swizzle;
  // Stores begin inside, at a multiple of 16 bytes: an H100 takes others for illegal instructions. Loads may begin
  // anywhere.
  static const Box kBoxes[] = {
      {"1d from below 0", kBf16, kNone, 1, {100}, {64}, {-8}},
      {"1d over the end", kF32, kNone, 1, {100}, {32}, {80}},
      {"2d 128B over the corner", kBf16, k128B, 2, {200, 50}, {64, 20}, {152, 40}, true},
      {"2d 128B inside", kF32, k128B, 2, {67, 33}, {32, 16}, {32, 9}, true},
      {"2d 64B from below 0", kBf16, k64B, 2, {90, 40}, {32, 16}, {-8, -3}},
      {"2d 32B of f32", kF32, k32B, 2, {70, 60}, {8, 24}, {64, 50}, true},
      {"2d bytes", kE4m3, kNone, 2, {100, 20}, {48, 10}, {64, 14}, true},
      {"2d 128B of bytes", kE4m3, k128B, 2, {300, 20}, {128, 12}, {208, 3}, true},
      {"2d all outside", kBf16, k128B, 2, {64, 64}, {64, 8}, {1000, 900}, true},
      {"3d 128B over the far corner", kBf16, k128B, 3, {72, 9, 5}, {64, 4, 3}, {16, 7, 3}, true},
      {"3d 32B from below 0", kBf16, k32B, 3, {30, 7, 6}, {16, 5, 4}, {-8, -2, -1}},
      {"4d 64B", kBf16, k64B, 4, {40, 5, 4, 3}, {32, 2, 3, 2}, {-8, 4, -1, 2}},
      {"5d 128B", kF32, k128B, 5, {36, 4, 3, 3, 2}, {32, 2, 2, 2, 2}, {4, -1, 2, -1, 1}},
      {"5d", kBf16, kNone, 5, {20, 3, 3, 2, 4}, {16, 2, 1, 2, 3}, {-8, 2, 1, 1, -1}},
  };
  Random random(seed);
  HopperOutcome outcome;
  for (const Box& box : kBoxes) run_box(device, image, box, random, outcome);
  return outcome;
}

HopperOutcome run_cp_async(Device& device, const KernelImage& image, std::uint64_t seed, const std::string& entry,
                           int threads, int slots) {
  constexpr int kChunks = 8, kValid = 7 * kAsyncChunk + 203;  // ends within 16 bytes
  Random random(seed);
  const Words words = random_words(random, kValid), factors = random_words(random, kChunks * kCopyThreads);
  const DeviceBuffer from(device, words), factor(device, factors), to(device, std::size_t{kChunks} * kAsyncChunk * 4);
  const AsyncCopyParams params{from.pointer<const std::uint32_t>(), factor.pointer<const std::uint32_t>(),
                               to.pointer<std::uint32_t>(), kChunks, kValid};
  const int shared_bytes = slots * (kAsyncChunk * 4 + kCopyThreads * 4 + 16);
  launch(device, image, entry, config_of(1, threads, static_cast<std::uint32_t>(shared_bytes)), params);
  Words expected(kChunks * kAsyncChunk);
  for (std::size_t i = 0; i < words.size(); ++i) expected[i] = words[i] * factors[i / 4];
  HopperOutcome outcome;
  check(to, expected, "to", outcome);
  return outcome;
}

HopperOutcome run_dependent(Device& device, const KernelImage& image, std::uint64_t seed) {
  constexpr int kCount = 64 * kCopyThreads;
  Random random(seed);
  const Words words = random_words(random, kCount);
  const DeviceBuffer from(device, words), middle(device, words.size() * 4), to(device, words.size() * 4);
  const DependentParams params{from.pointer<const std::uint32_t>(), middle.pointer<std::uint32_t>(),
                               to.pointer<std::uint32_t>(), kCount};
  const auto primary = device.load(image, "dependent_primary", 0);
  const auto secondary = device.load(image, "dependent_secondary", 0);
  LaunchConfig config = config_of(kCount / kCopyThreads, kCopyThreads, 0);
  const Stream stream = device.create_stream();
  device.launch(*primary, config, &params, sizeof params, stream);
  config.pdl = true;
  device.launch(*secondary, config, &params, sizeof params, stream);
  device.synchronize(stream);
  device.destroy_stream(stream);
  Words expected(words.size());
  for (std::size_t i = 0; i < words.size(); ++i) expected[i] = words[i] + 2 * words[words.size() - 1 - i] + 1;
  HopperOutcome outcome;
  check(to, expected, "to", outcome);
  return outcome;
}

/// Names for shared memory would say no more than the kernel's few lines do.
HopperCase copy_case(const std::string& entry, decltype(HopperCase::run) run, const std::string& name = {}) {
  return {"copy_" + (name.empty() ? entry : name), "copy_sm90", entry, "", {}, std::move(run)};
}

}  // namespace

std::vector<HopperCase> copy_cases() {
  const auto cp_async = [](const std::string& entry, int threads, int slots) {
    return [=](Device& device, const KernelImage& image, std::uint64_t seed) {
      return run_cp_async(device, image, seed, entry, threads, slots);
    };
  };
  return {
      copy_case("bulk_copy", run_bulk_copy),
      copy_case("bulk_reduce", run_bulk_reduce),
      copy_case("cluster_exchange", run_cluster_exchange),
      copy_case("tensor_box", run_tensor_boxes, "tensor_boxes"),
      copy_case("cp_async_ring", cp_async("cp_async_ring", kAsyncThreads, 3)),
      copy_case("cp_async_groups", cp_async("cp_async_groups", kCopyThreads, 2)),
      copy_case("dependent_secondary", run_dependent, "dependent_launch"),
  };
}

}  // namespace kernelwright::test
