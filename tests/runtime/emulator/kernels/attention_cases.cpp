// attention_sm90 compared with a softmax in fp64.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "runtime/emulator/kernels/hopper_buffers.h"
#include "runtime/emulator/kernels/hopper_case_lists.h"

namespace kernelwright::test {
AttentionInputs make_attention_inputs(const HopperAttention& attention, std::uint64_t seed) {
  Random random(seed);
  const auto heads = static_cast<std::size_t>(attention.batch_heads);
  const std::size_t q_count = heads * static_cast<std::size_t>(attention.q_len * attention.variant.head_dim);
  const std::size_t kv_count = heads * static_cast<std::size_t>(attention.kv_len * attention.variant.head_dim);
  AttentionInputs inputs;
  inputs.q = random_bf16(random, q_count);
  inputs.k = random_bf16(random, kv_count);
  inputs.v = random_bf16(random, kv_count);
  const int block = attention.variant.block_n;
  inputs.bias_stride = (attention.kv_len + block - 1) / block * block;
  inputs.bias.resize(heads * static_cast<std::size_t>(inputs.bias_stride));
  for (std::size_t i = 0; i < inputs.bias.size(); ++i)
    inputs.bias[i] = static_cast<int>(i) % inputs.bias_stride < attention.kv_len
                         ? static_cast<float>(random.uniform(-2, 2))
                         : -std::numeric_limits<float>::infinity();
  return inputs;
}

namespace {

/// One row of O in fp64, with a bound per element for the kernel's error.
struct RowReference {
  std::vector<double> value, bound;
};

// The relative error of a weight: half an ulp of bf16 for P, plus the error of the score (an exponent), plus 2 ulp of
// ex2. The error of a score comes from the truncating sums of head_dim products and a few f32 roundings of its terms.
RowReference reference_row(const HopperAttention& attention, const AttentionInputs& inputs, int head, int row) {
  const int d = attention.variant.head_dim;
  const auto at = [&](const std::vector<std::uint16_t>& tensor, int len, int token, int column) {
    const std::size_t index =
        (static_cast<std::size_t>(head) * static_cast<std::size_t>(len) + static_cast<std::size_t>(token)) *
        static_cast<std::size_t>(d);
    return static_cast<double>(bf16_value(tensor[index + static_cast<std::size_t>(column)]));
  };
  const double scale = 1 / std::sqrt(static_cast<double>(d));
  const int keys = attention.variant.causal ? std::min(attention.kv_len, row + 1 + attention.kv_len - attention.q_len)
                                            : attention.kv_len;
  RowReference result{std::vector<double>(static_cast<std::size_t>(d)),
                      std::vector<double>(static_cast<std::size_t>(d))};
  if (keys <= 0) return result;
  std::vector<double> weight(static_cast<std::size_t>(keys));
  double largest = -std::numeric_limits<double>::infinity(), largest_size = 0, score_error = 0, sum = 0;
  for (int key = 0; key < keys; ++key) {
    double score = 0, absolutes = 0;
    for (int i = 0; i < d; ++i) {
      const double product = at(inputs.q, attention.q_len, row, i) * at(inputs.k, attention.kv_len, key, i);
      score += product, absolutes += std::abs(product);
    }
    const double bias = inputs.bias[static_cast<std::size_t>(head) * static_cast<std::size_t>(inputs.bias_stride) +
                                    static_cast<std::size_t>(key)];
    weight[static_cast<std::size_t>(key)] = score * scale + bias;
    largest = std::max(largest, score * scale + bias);
    largest_size = std::max(largest_size, std::abs(score) * scale + std::abs(bias));
    score_error = std::max(score_error, d * 0x1p-23 * absolutes * scale);
  }
  for (double& w : weight) sum += w = std::exp(w - largest);
  const double f32 = 0x1p-23, bf16 = float_format(DType::kBf16).unit_roundoff;
  const double weight_error = 2 * (score_error + 8 * f32 * largest_size) + (4 + keys) * f32;
  for (int i = 0; i < d; ++i) {
    double value = 0, absolutes = 0;
    for (int key = 0; key < keys; ++key) {
      const double product = weight[static_cast<std::size_t>(key)] * at(inputs.v, attention.kv_len, key, i) / sum;
      value += product, absolutes += std::abs(product);
    }
    const double error = (bf16 + weight_error + (keys + 8) * f32) * absolutes;
    result.value[static_cast<std::size_t>(i)] = value;
    result.bound[static_cast<std::size_t>(i)] = error + bf16 * (std::abs(value) + error);
  }
  return result;
}

}  // namespace

void compare_attention(const HopperAttention& attention, const AttentionInputs& inputs, HopperOutcome& outcome) {
  const int d = attention.variant.head_dim;
  for (int head = 0; head < attention.batch_heads; ++head) {
    for (int row = 0; row < attention.q_len; ++row) {
      const RowReference expected = reference_row(attention, inputs, head, row);
      for (int i = 0; i < d; ++i) {
        const auto column = static_cast<std::size_t>(i);
        const std::size_t index = static_cast<std::size_t>(head * attention.q_len + row) * static_cast<std::size_t>(d);
        std::uint16_t bits;
        std::memcpy(&bits, outcome.output.data() + (index + column) * 2, 2);
        const double found = bf16_value(bits), error = std::abs(found - expected.value[column]);
        const double ratio = error == 0 ? 0 : error / expected.bound[column];
        if (ratio > outcome.worst_ratio) outcome.worst_ratio = ratio;
        if (!(ratio <= 1) && outcome.failure.empty())
          outcome.failure = fmt::format("O[{}][{}][{}] is {} and should be {} within {:.3g}", head, row, i, found,
                                        expected.value[column], expected.bound[column]);
      }
    }
  }
}

TensorMap attention_head_map(Device& device, const DeviceBuffer& memory, const HopperAttention& attention, int len,
                             int box_rows) {
  TensorMapRequest request;
  request.address = memory.address();
  request.rank = 3;
  const auto d = static_cast<std::uint64_t>(attention.variant.head_dim);
  request.dims[0] = d, request.dims[1] = static_cast<std::uint64_t>(len);
  request.dims[2] = static_cast<std::uint64_t>(attention.batch_heads);
  request.strides_bytes[0] = d * 2, request.strides_bytes[1] = d * 2 * static_cast<std::uint64_t>(len);
  request.box[0] = 64, request.box[1] = static_cast<std::uint32_t>(box_rows), request.box[2] = 1;
  return tensor_map(device, request);
}

namespace {

HopperOutcome run_attention(const HopperAttention& attention, Device& device, const KernelImage& image,
                            std::uint64_t seed) {
  const AttentionInputs inputs = make_attention_inputs(attention, seed);
  const DeviceBuffer q(device, inputs.q), k(device, inputs.k), v(device, inputs.v), bias(device, inputs.bias);
  const DeviceBuffer o(device, inputs.q.size() * 2);
  const int block_n = attention.variant.block_n;
  AttentionParams params = {};
  params.q = attention_head_map(device, q, attention, attention.q_len, 64);
  params.k = attention_head_map(device, k, attention, attention.kv_len, block_n);
  params.v = attention_head_map(device, v, attention, attention.kv_len, block_n);
  params.bias = bias.pointer<const float>();
  params.o = o.pointer<void>();
  params.q_len = attention.q_len, params.kv_len = attention.kv_len, params.bias_stride = inputs.bias_stride;
  params.scale_log2 =
      static_cast<float>(std::numbers::log2e / std::sqrt(static_cast<double>(attention.variant.head_dim)));
  LaunchConfig config;
  config.grid[0] = static_cast<std::uint32_t>((attention.q_len + kAttentionBlockM - 1) / kAttentionBlockM);
  config.grid[1] = static_cast<std::uint32_t>(attention.batch_heads);
  config.block = kAttentionThreads;
  config.shared_bytes = attention_shared_bytes(attention.variant);
  launch(device, image, "attention_sm90", config, params);

  HopperOutcome outcome;
  outcome.output = o.read();
  outcome.failure = o.guards();
  compare_attention(attention, inputs, outcome);
  return outcome;
}

KernelNotes notes_of(const AttentionVariant& v) {
  const auto stages = static_cast<std::uint32_t>(v.stages);
  const std::uint32_t slot = attention_slot_bytes(v), bias = attention_bias_bytes(v);
  KernelNotes notes;
  notes.roles = {{0, 4, "load"}, {4, 4, "math 0"}, {8, 4, "math 1"}};
  std::uint32_t at = 0;
  const auto add = [&](const char* name, std::uint32_t bytes, std::uint32_t stage_bytes) {
    notes.shared.push_back({at, bytes, name, stage_bytes});
    at += bytes;
  };
  add("Q", attention_q_bytes(v), 0);
  add("K", stages * slot, slot);
  add("V", stages * slot, slot);
  add("bias", stages * bias, bias);
  add("Q full barriers", 2 * 8, 8);
  for (const char* name : {"K full barriers", "V full barriers", "K empty barriers", "V empty barriers"})
    add(name, stages * 8, 8);
  return notes;
}

}  // namespace

HopperCase hopper_attention(const std::string& name, const HopperAttention& attention) {
  const AttentionVariant& v = attention.variant;
  const std::string spec = fmt::format(
      "#define KERNELWRIGHT_WGMMA_N0 {0}\n#define KERNELWRIGHT_WGMMA_N1 {1}\n"
      "#include \"hopper_params.h\"\nnamespace kernelwright::test::spec {{\n"
      "constexpr AttentionVariant kVariant = {{{0}, {1}, {2}, {3}, {4}}};\n}}\n",
      v.head_dim, v.block_n, v.stages, v.causal, v.overlap);
  return {name,
          "attention_sm90",
          "attention_sm90",
          spec,
          notes_of(v),
          [attention](Device& device, const KernelImage& image, std::uint64_t seed) {
            return run_attention(attention, device, image, seed);
          }};
}

std::vector<HopperCase> attention_cases() {
  // At least one block more than the ring has slots; lengths that end inside a tile and inside a block.
  return {
      hopper_attention("attention_d64", {{64, 64, 2, false, false}, 2, 128, 320}),
      hopper_attention("attention_d128", {{128, 64, 2, false, false}, 1, 128, 256}),
      hopper_attention("attention_d128_wide_blocks_ragged", {{128, 128, 2, false, false}, 2, 200, 333}),
      hopper_attention("attention_d64_causal", {{64, 128, 2, true, false}, 1, 256, 300}),
      hopper_attention("attention_d64_overlap", {{64, 64, 3, false, true}, 2, 100, 450}),
      hopper_attention("attention_d128_causal_overlap", {{128, 64, 2, true, true}, 1, 300, 300}),
      hopper_attention("attention_d128_more_queries_than_keys", {{128, 64, 2, true, true}, 1, 200, 70}),
      hopper_attention("attention_d64_one_block", {{64, 128, 2, false, true}, 1, 64, 90}),
  };
}

}  // namespace kernelwright::test
