#include "kernelwright/runtime/attention/data.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "contract/attention_latent_record.h"
#include "contract/key_range.h"
#include "kernelwright/runtime/attention/arguments.h"
#include "kernelwright/runtime/launch/bad_data.h"

namespace kernelwright::detail {
namespace {

class Checker {
 public:
  Checker(const LoadedAttention& kernel, const AttentionTensors& tensors) : kernel_(kernel), tensors_(tensors) {}

  std::vector<std::string> run() {
    const AttentionSpec& spec = kernel_.spec;
    const auto batch = static_cast<std::size_t>(tensors_.batch);
    std::vector<std::int64_t> q_lens(batch, tensors_.q_len), kv_lens(batch, tensors_.kv_len);
    if (spec.q_layout == QLayout::kRagged)
      read_offsets("q_offsets", tensors_.q_offsets, "q_tokens", tensors_.q_tokens, q_lens);
    for (std::size_t b = 0; spec.q_layout == QLayout::kRagged && b < batch; ++b)
      if (q_lens[b] > tensors_.q_len) {
        text_.add("q_offsets: sequence {} has {} queries, above q_len {}; the first {} are computed", b, q_lens[b],
                  tensors_.q_len, tensors_.q_len);
        q_lens[b] = tensors_.q_len;
      }
    if (spec.kv_layout == KvLayoutKind::kRagged) {
      const std::int64_t tokens = kv_tokens_of(tensors_);
      read_offsets("kv_offsets", tensors_.kv_offsets, "kv_tokens",
                   tokens > 0 ? tokens : std::numeric_limits<std::int32_t>::max(), kv_lens);
    } else if (tensors_.kv_lengths) {
      read_lengths(q_lens, kv_lens);
    }
    std::vector<std::int64_t> starts(batch, 0);
    if (tensors_.kv_starts) read_starts(kv_lens, starts);
    if (spec.kv_layout == KvLayoutKind::kPaged && tensors_.page_table) read_pages(q_lens, kv_lens, starts);
    const bool of_keys = scales_differ_by_key(spec.scales);  // they lie beside tokens or pages
    if (spec.scales != ScaleKind::kNone && !of_keys && !spec.has_records()) {
      read_scales("k_scale", tensors_.k_scale, "scores");
      if (!spec.latent) read_scales("v_scale", tensors_.v_scale, "values");
    }
    if (of_keys) {
      const ResolvedStrides strides = resolve_strides(kernel_, tensors_);
      for (std::size_t b = 0; b < batch; ++b) {
        if (q_lens[b] <= 0 || starts[b] >= kv_lens[b]) continue;
        const std::int64_t first = first_key(q_lens[b], kv_lens[b], starts[b]);
        read_key_scales("k_scale", tensors_.k_scale, strides.k_scale, b, first, kv_lens[b],
                        "it multiplies scores all the same");
        read_key_scales("v_scale", tensors_.v_scale, strides.v_scale, b, first, kv_lens[b],
                        "values weigh as if it were 2^-60, or 2^100 if it is infinite");
      }
    }
    if (spec.has_records()) {
      const TensorStrides keys = resolve_strides(kernel_, tensors_).k;
      for (std::size_t b = 0; b < batch; ++b)
        if (q_lens[b] > 0 && starts[b] < kv_lens[b])
          read_record_scales(keys, b, first_key(q_lens[b], kv_lens[b], starts[b]), kv_lens[b]);
    }
    return text_.take();
  }

 private:
  template <class T = std::int32_t>
  std::vector<T> read(DevicePtr from, std::size_t count) const {
    std::vector<T> values(count);
    kernel_.device->copy_to_host(values.data(), from, count * sizeof(T));
    return values;
  }

  /// Lengths of sequences as kernels see them (policy/attention_item.cuh).
  void read_offsets(const char* name, DevicePtr from, const char* extent, std::int64_t tokens,
                    std::vector<std::int64_t>& lengths) {
    const std::vector<std::int32_t> offsets = read(from, lengths.size() + 1);
    const auto bounded = [&](std::int32_t offset) {
      return offset < 0 ? tokens : std::min<std::int64_t>(offset, tokens);
    };
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      if (offsets[i] < 0)
        text_.add("{}[{}] is {}; it is read as {} {}", name, i, offsets[i], extent, tokens);
      else if (offsets[i] > tokens)
        text_.add("{}[{}] is {}, above {} {}; it is read as {}", name, i, offsets[i], extent, tokens, tokens);
      if (i == 0) continue;
      const std::int64_t count = bounded(offsets[i]) - bounded(offsets[i - 1]);
      if (offsets[i] >= 0 && offsets[i] < offsets[i - 1])
        text_.add("{}[{}] is {}, below {}[{}], {}; sequence {} is read as empty", name, i, offsets[i], name, i - 1,
                  offsets[i - 1], i - 1);
      lengths[i - 1] = std::max<std::int64_t>(count, 0);
    }
  }

  void read_lengths(const std::vector<std::int64_t>& q_lens, std::vector<std::int64_t>& lengths) {
    const std::vector<std::int32_t> given = read(tensors_.kv_lengths, lengths.size());
    const bool prompt = kernel_.spec.cache_length == CacheLength::kPrompt;
    const std::int64_t most = tensors_.kv_len;
    for (std::size_t b = 0; b < lengths.size(); ++b) {
      const std::int64_t own = prompt ? q_lens[b] : 0, length = given[b] + own;
      if (given[b] < 0)
        text_.add("kv_lengths[{}] is {}; it is read as 0", b, given[b]);
      else if (length > most && prompt)
        text_.add("kv_lengths[{}] is {} beside {} queries, above kv_len {}; it is read as {}", b, given[b], own, most,
                  std::max<std::int64_t>(most - own, 0));
      else if (length > most)
        text_.add("kv_lengths[{}] is {}, above kv_len {}; it is read as {}", b, given[b], most, most);
      lengths[b] = std::min(std::max<std::int64_t>(given[b], 0) + own, most);
    }
  }

  void read_starts(const std::vector<std::int64_t>& kv_lens, std::vector<std::int64_t>& starts) {
    const std::vector<std::int32_t> given = read(tensors_.kv_starts, starts.size());
    for (std::size_t b = 0; b < starts.size(); ++b) {
      if (given[b] < 0)
        text_.add("kv_starts[{}] is {}; it is read as 0", b, given[b]);
      else if (given[b] > kv_lens[b])
        text_.add("kv_starts[{}] is {}, above the sequence's {} keys; it is read as {}", b, given[b], kv_lens[b],
                  kv_lens[b]);
      starts[b] = contract::first_key_of(given[b], static_cast<int>(kv_lens[b]));
    }
  }

  /// The first key that some query of a sequence sees.
  std::int64_t first_key(std::int64_t q_len, std::int64_t kv_len, std::int64_t start) const {
    const AttentionSpec& spec = kernel_.spec;
    const Window window = tensors_.window.value_or(kernel_.window);
    const contract::KeyRangeNumbers numbers{window.left, window.right, std::max(spec.chunk, 1), kernel_.chunk_reach};
    return contract::key_range(spec.mask, numbers, static_cast<int>(kv_len - q_len), static_cast<int>(kv_len),
                               static_cast<int>(start))
        .low;
  }

  void read_pages(const std::vector<std::int64_t>& q_lens, const std::vector<std::int64_t>& kv_lens,
                  const std::vector<std::int64_t>& starts) {
    const std::int64_t size = kernel_.spec.page_size, pages = tensors_.num_pages;
    const auto stride = static_cast<std::size_t>(tensors_.page_table_stride);
    for (std::size_t b = 0; b < kv_lens.size(); ++b) {
      if (q_lens[b] <= 0 || starts[b] >= kv_lens[b]) continue;
      const auto first = static_cast<std::size_t>(first_key(q_lens[b], kv_lens[b], starts[b]) / size);
      const auto end = static_cast<std::size_t>((kv_lens[b] + size - 1) / size);
      if (end <= first) continue;
      const DevicePtr row = tensors_.page_table + (b * stride + first) * sizeof(std::int32_t);
      const std::vector<std::int32_t> entries = read(row, end - first);
      for (std::size_t i = 0; i < entries.size(); ++i) {
        if (entries[i] < 0)
          text_.add("page_table[{}, {}] is {}, which is no page; its keys are read as zeros", b, first + i, entries[i]);
        else if (pages > 0 && entries[i] >= pages)
          text_.add("page_table[{}, {}] is {}, and there are pages 0 to {}; its keys are read as zeros", b, first + i,
                    entries[i], pages - 1);
      }
    }
  }

  /// Kernels compute with any number. What is 0, negative or not finite has no writer of a cache made.
  static bool is_scale(float scale) { return scale > 0 && !std::isinf(scale); }
  void read_scales(const char* name, DevicePtr from, const char* what) {
    const bool per_head = kernel_.spec.scales == ScaleKind::kPerHead;
    const std::vector<float> scales = read<float>(from, per_head ? static_cast<std::size_t>(kernel_.kv_heads) : 1);
    for (std::size_t i = 0; i < scales.size(); ++i)
      if (!is_scale(scales[i]))
        text_.add("{}[{}] is {}, and a scale is finite and above 0; it multiplies {} all the same", name, i, scales[i],
                  what);
  }

  /// Calls read(place, begin, low, high) for each block of the keys [first, last) of a sequence. The block lies at
  /// `place`, and its first key is key `begin` of the sequence. Keys `low` to `high` of the block are in the range.
  template <class Read>
  void each_block(std::size_t sequence, std::int64_t first, std::int64_t last, const TensorStrides& strides,
                  const Read& read) const {
    const bool paged = kernel_.spec.kv_layout == KvLayoutKind::kPaged;
    const std::int64_t block = paged ? kernel_.spec.page_size : last;  // keys between two look-ups
    for (std::int64_t begin = first / block * block; begin < last; begin += block) {
      const std::int64_t place = block_of(sequence, begin / block, strides);
      if (place < 0) continue;  // no page: read_pages() has the words
      read(place, begin, std::max(first - begin, std::int64_t{0}), std::min(last - begin, block));
    }
  }

  /// Of the keys [first, last) of a sequence; `then` says what a kernel does with a scale that is none.
  void read_key_scales(const char* name, DevicePtr from, const TensorStrides& strides, std::size_t sequence,
                       std::int64_t first, std::int64_t last, const char* then) {
    const bool per_page = kernel_.spec.scales == ScaleKind::kPerPage;
    const std::int64_t heads = kernel_.kv_heads;
    each_block(
        sequence, first, last, strides,
        [&](std::int64_t place, std::int64_t begin, std::int64_t low, std::int64_t high) {
          const std::int64_t start = low * strides.token,
                             end = (high - 1) * strides.token + (heads - 1) * strides.head + 1;
          const std::vector<float> scales = read<float>(from + static_cast<DevicePtr>(place + start) * sizeof(float),
                                                        static_cast<std::size_t>(end - start));
          for (std::int64_t key = low; key < (per_page ? low + 1 : high); ++key)
            for (std::int64_t head = 0; head < heads; ++head) {
              const float scale = scales[static_cast<std::size_t>((key - low) * strides.token + head * strides.head)];
              if (is_scale(scale)) continue;
              text_.add("{} of sequence {}, key {}, head {} is {}, and a scale is finite and above 0; {}", name,
                        sequence, begin + key, head, scale, then);
            }
        });
  }

  /// The same of scales that lie in the keys. Strides are in bytes, of which a record's elements have one each.
  void read_record_scales(const TensorStrides& strides, std::size_t sequence, std::int64_t first, std::int64_t last) {
    const int latents = kernel_.spec.head_dim_v, blocks = latents / contract::kLatentScaleBlock;
    const std::int64_t at = contract::latent_key(kernel_.spec.head_dim_qk, latents, true).scales;
    const auto bytes = static_cast<std::int64_t>(blocks * sizeof(float));
    each_block(
        sequence, first, last, strides,
        [&](std::int64_t place, std::int64_t begin, std::int64_t low, std::int64_t high) {
          const std::vector<std::byte> held =
              read<std::byte>(tensors_.k + static_cast<DevicePtr>(place + low * strides.token + at),
                              static_cast<std::size_t>((high - 1 - low) * strides.token + bytes));
          for (std::int64_t key = low; key < high; ++key)
            for (int block = 0; block < blocks; ++block) {
              float scale;
              std::memcpy(&scale, held.data() + (key - low) * strides.token + block * std::int64_t{sizeof scale},
                          sizeof scale);
              if (is_scale(scale)) continue;
              text_.add(
                  "k of sequence {}, key {}: scale {} of its record is {}, and a scale is finite and above 0; it "
                  "multiplies latents all the same",
                  sequence, begin + key, block, scale);
            }
        });
  }

  /// Where the scales of a sequence's block of keys begin: of a page, or of all keys. -1: there is no such page.
  std::int64_t block_of(std::size_t sequence, std::int64_t block, const TensorStrides& strides) const {
    if (kernel_.spec.kv_layout == KvLayoutKind::kPadded) return static_cast<std::int64_t>(sequence) * strides.batch;
    if (kernel_.spec.kv_layout == KvLayoutKind::kRagged) {
      const std::int32_t offset = read(tensors_.kv_offsets + sequence * sizeof(std::int32_t), 1)[0];
      return offset < 0 ? -1 : offset * strides.token;  // read_offsets() has the words
    }
    const std::size_t entry =
        sequence * static_cast<std::size_t>(tensors_.page_table_stride) + static_cast<std::size_t>(block);
    const std::int32_t page = read(tensors_.page_table + entry * sizeof(std::int32_t), 1)[0];
    return page < 0 || (tensors_.num_pages > 0 && page >= tensors_.num_pages) ? -1 : page * strides.batch;
  }

  const LoadedAttention& kernel_;
  const AttentionTensors& tensors_;
  BadData text_;
};

}  // namespace

std::vector<std::string> find_bad_data(const LoadedAttention& kernel, const AttentionTensors& given, Stream stream) {
  if (given.batch <= 0 || given.q_len <= 0) return {};  // launch() has nothing to do
  AttentionTensors tensors = given;
  try {
    if (kernel.spec.latent) tensors = values_in_keys(given);
  } catch (const ConfigError&) {
    return {};  // launch() has the words
  }
  if (!broken_rules(kernel, tensors, resolve_strides(kernel, tensors)).empty()) return {};  // launch() has the words
  if (kernel.device->capture_state(stream) != CaptureState::kNone) return {};
  kernel.device->synchronize(stream);
  return Checker(kernel, tensors).run();
}

}  // namespace kernelwright::detail
