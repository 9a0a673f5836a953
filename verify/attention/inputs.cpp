// Seeded inputs: random values where a query may read, NaN everywhere else.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "kernelwright/generator/checked.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/problem/range_mask.h"
#include "kernelwright/verify/attention/case.h"
#include "kernelwright/verify/attention/policy_reference.h"
#include "kernelwright/verify/attention/records.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/parallel.h"
#include "kernelwright/verify/random.h"

namespace kernelwright {
namespace {

constexpr std::int64_t kMostTokens = std::numeric_limits<std::int32_t>::max();

enum Stream : std::uint64_t {
  kQueries = 1,
  kKeys,
  kValues,
  kPages,
  kScales,
  kSinks,
  kQueryRope,
  kKeyRope,
  kMask,
  kBias
};

std::uint64_t stream_of(Stream operand, std::uint64_t sequence) { return sequence * 16 + operand; }

void fill_normal(Random& random, DType dtype, int head_dim, double magnitude, std::byte* to) {
  float values[1024];
  for (int i = 0; i < head_dim; i += 2) {
    float first, second;
    random.normal_pair(first, second);
    values[i] = static_cast<float>(magnitude) * first;
    if (i + 1 < head_dim) values[i + 1] = static_cast<float>(magnitude) * second;
  }
  encode_row(dtype, {values, static_cast<std::size_t>(head_dim)}, to);
}

void fill_key(const AttentionCase& call, Random& random, std::byte* to) {
  const AttentionProblem& problem = call.problem;
  if (!problem.has_records()) return fill_normal(random, problem.dtype.kv, call.k.head_dim, 1, to);
  // Each scale belongs to latents of another magnitude.
  const int depth = problem.head_dim.qk, latents = problem.head_dim.v;
  std::vector<float> key(static_cast<std::size_t>(depth));
  float magnitude = 1;
  for (int i = 0; i < depth; i += 2) {
    if (i % 128 == 0) magnitude = i < latents ? static_cast<float>(std::exp2(random.uniform(-2, 1))) : 1;
    float first, second;
    random.normal_pair(first, second);
    key[static_cast<std::size_t>(i)] = magnitude * first, key[static_cast<std::size_t>(i) + 1] = magnitude * second;
  }
  encode_record(problem, key, to);
}

void fill_value(const AttentionCase& call, Random& random, int sequence, int key, int kv_head) {
  const DType dtype = call.problem.dtype.kv;
  const int head_dim = call.problem.head_dim.v;
  if (!call.has_value_columns()) return fill_normal(random, dtype, head_dim, 1, call.v_row(sequence, key, kv_head));
  std::byte elements[1024];
  fill_normal(random, dtype, head_dim, 1, elements);
  call.put_value(sequence, key, kv_head, {elements, static_cast<std::size_t>(head_dim)});
}

// Lengths of the sequences, from a list or from one number for all.
std::vector<int> lengths(const AttentionShape& shape, const std::vector<int>& list, int single, const char* field) {
  if (list.empty()) return std::vector<int>(static_cast<std::size_t>(shape.batch), single);
  if (shape.batch != 1 && static_cast<int>(list.size()) != shape.batch)
    throw ConfigError("/shapes/" + shape.name + "/" + field,
                      fmt::format("{} lengths for a batch of {}; one each would do", list.size(), shape.batch));
  return list;
}

void give_memory(HostTensor& tensor, std::int64_t elems) {
  tensor.buffer = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(elems) * bytes_of(tensor.dtype));
  fill_with_nan(tensor.dtype, *tensor.buffer);
}

/// Contiguous, unless keys have padding or heads come first.
void place_key_scales(AttentionCase& call, std::int64_t blocks, std::int64_t tokens, const InputOptions& options) {
  const bool of_pages = call.problem.scales == ScaleKind::kPerPage;
  const std::int64_t heads = call.problem.heads.kv, each = of_pages ? 1 + options.padding_tokens : tokens;
  contract::Strides strides{each * heads, heads, 1};
  if (options.heads_first) strides = {each * heads, 1, each};
  if (of_pages) strides.token = 0;
  call.key_scale_strides = strides;
  call.k_scale.assign(static_cast<std::size_t>(blocks * each * heads), std::numeric_limits<float>::quiet_NaN());
  call.v_scale = call.k_scale;
}

// Blocks of `tokens` tokens: sequences, pages, or one block of all ragged tokens.
void place_keys(AttentionCase& call, std::int64_t blocks, std::int64_t tokens, const InputOptions& options) {
  tokens += options.padding_tokens;
  const int heads = call.problem.heads.kv;
  for (HostTensor* tensor : {&call.k, &call.v}) {
    if (tensor == &call.v && call.problem.is_latent()) {
      call.share_values();
      continue;
    }
    const std::int64_t width = tensor->head_dim * (options.interleave_kv ? 2 : 1);
    tensor->strides = {tokens * heads * width, heads * width, width};
    if (options.heads_first) tensor->strides = {tokens * heads * width, width, tokens * width};
    if (tensor == &call.v && call.has_value_columns()) {
      // Padding stands behind each head.
      const std::int64_t head = (call.problem.kv_layout.page_size + 16 * options.padding_tokens) * tensor->head_dim;
      tensor->strides = {head * heads, 0, head};
      give_memory(*tensor, blocks * heads * head);
    } else if (tensor == &call.v && options.interleave_kv) {
      call.v.buffer = call.k.buffer;
      call.v.offset_bytes = static_cast<std::size_t>(call.k.head_dim) * bytes_of(call.k.dtype);
    } else {
      give_memory(*tensor, blocks * tokens * heads * width);
      // NaN in whichever dtype a byte of a record is read.
      if (call.problem.has_records()) std::ranges::fill(*tensor->buffer, std::byte{0xff});
    }
  }
  if (const std::int64_t rope = call.problem.rope.width; rope > 0) {
    const int parts = options.one_rope ? 1 : heads;
    call.k_rope.strides = {tokens * parts * rope, parts * rope, options.one_rope ? 0 : rope};
    give_memory(call.k_rope, blocks * tokens * parts * rope);
  }
  if (call.has_key_scales()) place_key_scales(call, blocks, tokens, options);
}

void assign_pages(AttentionCase& call, const InputOptions& options) {
  const int size = call.problem.kv_layout.page_size;
  std::vector<int> counts;
  for (const int length : call.kv_lens) counts.push_back((length + size - 1) / size);
  const bool share = options.share_pages && !counts.empty() && counts[0] > 0;
  const std::int64_t pages = std::accumulate(counts.begin(), counts.end(), std::int64_t{options.unused_pages});
  std::vector<std::int32_t> order(static_cast<std::size_t>(pages));
  std::iota(order.begin(), order.end(), 0);
  Random random(options.seed, kPages);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  // One column more than the longest sequence needs, so that every row has a tail.
  call.page_table_stride = (counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end())) + 1;
  call.page_table.assign(static_cast<std::size_t>(call.batch) * call.page_table_stride, 2147480000);
  std::size_t next = 0;
  for (int b = 0; b < call.batch; ++b)
    for (int page = 0; page < counts[b]; ++page) {
      const std::int32_t taken = order[next++];
      const bool shared = share && b > 0 && page == 0 && std::min(size, call.kv_lens[b]) <= call.kv_lens[0] &&
                          call.first_key(b) >= call.first_key(0);
      call.page_table[static_cast<std::size_t>(b) * call.page_table_stride + page] =
          shared ? call.page_table[0] : taken;
    }
  place_keys(call, pages, size, options);
}

std::vector<float> draw_scales(const AttentionProblem& problem, Random& random) {
  std::vector<float> scales;
  if (problem.scales == ScaleKind::kPerTensor) scales.resize(1);
  if (problem.scales == ScaleKind::kPerHead) scales.resize(static_cast<std::size_t>(problem.heads.kv));
  for (float& scale : scales) scale = static_cast<float>(random.uniform(0.25, 2));
  return scales;
}

/// Draws scales of keys and values, and of queries that have some, for each head. Of keys, those that a query may read
/// have scales; the others stay NaN.
void draw_key_scales(AttentionCase& call, Random& random) {
  const auto draw = [&](double low, double high) { return static_cast<float>(std::exp2(random.uniform(low, high))); };
  if (call.has_query_scales()) call.q_scale.resize(static_cast<std::size_t>(call.q_tokens) * call.problem.heads.q);
  for (float& scale : call.q_scale) scale = draw(-2, 1);
  for (int b = 0; b < call.batch; ++b)
    for (int key = call.first_key(b); key < call.kv_lens[b]; ++key)
      for (int h = 0; h < call.problem.heads.kv; ++h) {
        const std::size_t at = call.key_scale_index(b, key, h);
        if (std::isnan(call.k_scale[at])) call.k_scale[at] = draw(-2, 1), call.v_scale[at] = draw(-6, 2);
      }
}

void fill_rope(AttentionCase& call, const InputOptions& options) {
  const AttentionProblem& problem = call.problem;
  const int width = problem.rope.width;
  const bool ragged = problem.q_layout == QLayout::kRagged;
  for (int b = 0; b < call.batch; ++b) {
    Random queries(options.seed, stream_of(kQueryRope, static_cast<std::uint64_t>(b) << 24)),
        keys(options.seed, stream_of(kKeyRope, static_cast<std::uint64_t>(b) << 24));
    for (int token = 0; token < call.q_lens[b]; ++token)
      for (int h = 0; h < problem.heads.q; ++h)
        fill_normal(queries, problem.rope.dtype, width, options.q_magnitude,
                    ragged ? call.q_rope.row(0, call.q_offsets[b] + token, h) : call.q_rope.row(b, token, h));
    for (int token = call.first_key(b); token < call.kv_lens[b]; ++token)
      for (int h = 0; h < (options.one_rope ? 1 : problem.heads.kv); ++h)
        fill_normal(keys, problem.rope.dtype, width, 1, call.k_rope_row(b, token, h));
  }
}

/// Calls value(row) for each element that some query may read; `row` counts rows of the array.
template <class Value>
void fill_scores(const AttentionCase& call, const ScoreTensor& shape, ScoreArray& array, const Value& value) {
  std::int64_t row = 0;
  for (int b = 0; b < (shape.batch ? call.batch : 1); ++b) {
    // An element that all sequences share is read as far as the longest sequence reads.
    const int queries = shape.batch ? call.q_lens[static_cast<std::size_t>(b)] : call.q_len;
    const int keys = shape.batch ? call.kv_lens[static_cast<std::size_t>(b)] : call.kv_len;
    const int first = shape.batch ? call.first_key(b) : 0;
    for (int h = 0; h < (shape.heads ? call.problem.heads.q : 1); ++h)
      for (int i = 0; i < (shape.q ? queries : 1); ++i, ++row) {
        float* const to = array.values.data() + b * array.batch_stride + h * array.head_stride + i * array.query_stride;
        for (int key = first; key < keys; ++key) to[key] = value(row);
      }
  }
}

void draw_score_tensors(AttentionCase& call, const InputOptions& options) {
  load_references(call);
  const AttentionProblem& problem = call.problem;
  if (const Mask* mask = open_mask(problem.mask).tensor) {
    Random random(options.seed, kMask);
    lay_out(call, mask->tensor, options.padding_tokens, 1, call.mask);
    fill_scores(call, mask->tensor, call.mask,
                [&](std::int64_t row) { return row % 8 != 3 && random.below(4) != 0 ? 1.f : 0.f; });
  }
  if (problem.score_mod.kind != ScoreModKind::kTensor) return;
  Random random(options.seed, kBias);
  lay_out(call, problem.score_mod.tensor, options.padding_tokens, std::numeric_limits<float>::quiet_NaN(), call.bias);
  fill_scores(call, problem.score_mod.tensor, call.bias, [&](std::int64_t) {
    if (random.below(32) == 0) return -std::numeric_limits<float>::infinity();
    float value, unused;
    random.normal_pair(value, unused);
    return value;
  });
  for (float& value : call.bias.values) value = round_to(problem.score_mod.dtype, value);
}

}  // namespace

namespace {

/// Called before anything is added up or allocated: checks that offsets and page numbers hold the tokens, and that
/// memory holds the operands.
void check_sizes(const AttentionCase& call, const AttentionShape& shape, const InputOptions& options) {
  const std::string at = "/shapes/" + shape.name;
  const std::int64_t page = call.problem.kv_layout.page_size;
  const bool paged = call.problem.kv_layout.kind == KvLayoutKind::kPaged && page > 0;
  CheckedInt pages = options.unused_pages;
  for (const int length : call.kv_lens)
    if (paged) pages += (length + page - 1) / page;
  if (!pages.at_most(kMostTokens))
    throw ConfigError(at, fmt::format("its keys take more than the {} pages that a table numbers", kMostTokens));
  CheckedInt keys = CheckedInt(call.batch) * (CheckedInt(call.kv_len) + options.padding_tokens);
  if (call.problem.kv_layout.kind == KvLayoutKind::kRagged)
    keys = CheckedInt(call.kv_offsets.back()) + options.padding_tokens;
  if (paged) keys = pages * (CheckedInt(page) + options.padding_tokens);
  const auto [qk, v] = call.problem.head_dim;
  const auto& heads = call.problem.heads;
  const struct {
    const char* name;
    CheckedInt elements;
  } operands[] = {{"queries", CheckedInt(call.q_tokens) * heads.q * std::max(qk, v)},
                  {"keys", keys * heads.kv * (qk + v)}};
  for (const auto& [name, elements] : operands)
    if (!(elements * 4).at_most(kMostBytes))
      throw ConfigError(at, fmt::format("its {} take more than {} bytes, which no memory has", name, kMostBytes));
}

}  // namespace

AttentionCase shape_only(const AttentionProblem& problem, const AttentionShape& shape) {
  AttentionCase call;
  call.problem = problem;
  call.q_lens = lengths(shape, shape.q_lens, shape.q_len, "q_lens");
  call.kv_lens = lengths(shape, shape.kv_lens, shape.kv_len, "kv_lens");
  if (call.q_lens.size() != call.kv_lens.size()) {  // a list for one of q and kv sets the batch of both
    if (shape.kv_lens.empty()) call.kv_lens.assign(call.q_lens.size(), shape.kv_len);
    if (shape.q_lens.empty()) call.q_lens.assign(call.kv_lens.size(), shape.q_len);
  }
  if (call.q_lens.size() != call.kv_lens.size())
    throw ConfigError("/shapes/" + shape.name + "/kv_lens",
                      fmt::format("{} lengths, and q_lens has {}; one each for the same sequences would do",
                                  call.kv_lens.size(), call.q_lens.size()));
  const auto differ = [](const std::vector<int>& list) {
    return std::adjacent_find(list.begin(), list.end(), std::not_equal_to<>()) != list.end();
  };
  if (problem.q_layout == QLayout::kPadded && differ(call.q_lens))
    throw ConfigError("/shapes/" + shape.name + "/q_lens", "padded queries have one length; q_layout ragged would do");
  for (const auto& [lengths, field, ragged] :
       {std::tuple(&call.q_lens, "q_lens", problem.q_layout == QLayout::kRagged),
        std::tuple(&call.kv_lens, "kv_lens", problem.kv_layout.kind == KvLayoutKind::kRagged)}) {
    CheckedInt sum = 0;
    for (const int length : *lengths) sum += length;
    if (ragged && !sum.at_most(kMostTokens))
      throw ConfigError("/shapes/" + shape.name + "/" + field,
                        fmt::format("{} sequences are {} tokens, and offsets count to {}", lengths->size(),
                                    sum.or_most(), kMostTokens));
  }
  lay_out(call);
  if (!shape.kv_starts.empty() && shape.kv_starts.size() != call.kv_lens.size())
    throw ConfigError(
        "/shapes/" + shape.name + "/kv_starts",
        fmt::format("{} starts for {} sequences; one each would do", shape.kv_starts.size(), call.kv_lens.size()));
  call.kv_starts.assign(shape.kv_starts.begin(), shape.kv_starts.end());
  call.scale = 1 / std::sqrt(static_cast<float>(problem.head_dim.qk));
  call.softcap = static_cast<float>(problem.score_mod.cap);
  call.window = problem.mask.window;
  const bool prompt = problem.cache_length == CacheLength::kPrompt;
  if (problem.kv_layout.kind == KvLayoutKind::kPaged ||
      (problem.kv_layout.kind == KvLayoutKind::kPadded && (differ(call.kv_lens) || prompt)))
    call.kv_lengths.assign(call.kv_lens.begin(), call.kv_lens.end());
  for (std::size_t b = 0; prompt && b < call.kv_lengths.size(); ++b)
    if ((call.kv_lengths[b] -= call.q_lens[b]) < 0)
      throw ConfigError("/shapes/" + shape.name + "/kv_lens",
                        fmt::format("sequence {} has {} keys and {} queries, each with a key of its own (cache_length "
                                    "\"prompt\"); {} keys would do",
                                    b, call.kv_lens[b], call.q_lens[b], call.q_lens[b]));
  return call;
}

AttentionCase make_inputs(const AttentionProblem& problem, const AttentionShape& shape, const InputOptions& options) {
  AttentionCase call = shape_only(problem, shape);
  if (options.interleave_kv && call.k.head_dim != call.v.head_dim)
    throw ConfigError("/problem/head_dim", "keys and values of different sizes cannot be interleaved");
  check_sizes(call, shape, options);
  give_memory(call.q, call.q_tokens * problem.heads.q * call.q.head_dim);
  if (problem.rope.width > 0) give_memory(call.q_rope, call.q_tokens * problem.heads.q * problem.rope.width);
  switch (problem.kv_layout.kind) {
    case KvLayoutKind::kPadded: place_keys(call, call.batch, call.kv_len, options); break;
    case KvLayoutKind::kRagged: place_keys(call, 1, call.kv_offsets.back(), options); break;
    case KvLayoutKind::kPaged: assign_pages(call, options); break;
  }

  // Each operand, sequence and block of tokens has its own stream of random numbers. So the values do not depend on how
  // many threads draw them, and a sequence keeps its values in every layout.
  struct Block {
    Stream operand;
    int sequence, first, last;
  };
  std::vector<Block> blocks;
  constexpr int kTokens = 256;
  for (int b = 0; b < call.batch; ++b) {
    for (int from = 0; from < call.q_lens[b]; from += kTokens)
      blocks.push_back({kQueries, b, from, std::min(from + kTokens, call.q_lens[b])});
    for (const Stream operand : {kKeys, kValues})
      for (int from = 0; from < call.kv_lens[b]; from += kTokens)
        blocks.push_back({operand, b, from, std::min(from + kTokens, call.kv_lens[b])});
  }
  const auto shares_first_page = [&](int b) {  // sequence 0 writes the page that the sequences share
    return options.share_pages && problem.kv_layout.kind == KvLayoutKind::kPaged && b > 0 && call.kv_lens[b] > 0 &&
           call.page_table[static_cast<std::size_t>(b) * call.page_table_stride] == call.page_table[0];
  };
  parallel_for(blocks.size(), [&](std::size_t item) {
    const auto [operand, b, first, last] = blocks[item];
    Random random(options.seed,
                  stream_of(operand, static_cast<std::uint64_t>(b) << 24 | static_cast<std::uint64_t>(first)));
    const int shared = operand != kQueries && shares_first_page(b) ? problem.kv_layout.page_size : 0;
    const int skipped = operand == kQueries ? 0 : std::max(shared, call.first_key(b));
    for (int token = std::max(first, skipped); token < last; ++token)
      for (int h = 0; h < (operand == kQueries ? problem.heads.q : problem.heads.kv); ++h) {
        if (operand == kQueries)
          fill_normal(random, problem.dtype.q, call.q.head_dim, options.q_magnitude, call.q_row(b, token, h));
        else if (operand == kKeys)
          fill_key(call, random, call.k_row(b, token, h));
        else if (!problem.is_latent())
          fill_value(call, random, b, token, h);
      }
  });

  if (problem.rope.width > 0) fill_rope(call, options);
  Random scales(options.seed, kScales);
  if (call.has_key_scales())
    draw_key_scales(call, scales);
  else
    call.k_scale = draw_scales(problem, scales),
    call.v_scale = problem.is_latent() ? call.k_scale : draw_scales(problem, scales);
  draw_score_tensors(call, options);
  if (problem.sinks) {
    Random sinks(options.seed, kSinks);
    call.sinks.resize(static_cast<std::size_t>(problem.heads.q));
    for (float& sink : call.sinks) {
      float unused;
      sinks.normal_pair(sink, unused);
    }
  }
  return call;
}

}  // namespace kernelwright
