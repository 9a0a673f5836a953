#include "kernelwright/runtime/kv_write/data.h"

#include <cmath>
#include <cstdint>
#include <unordered_map>

#include "kernelwright/runtime/launch/bad_data.h"

namespace kernelwright::detail {
namespace {

class KvWriteChecker {
 public:
  KvWriteChecker(const LoadedKvWrite& kernel, const KvWriteTensors& tensors)
      : kernel_(kernel), spec_(kernel.spec), t_(tensors), tokens_(static_cast<std::size_t>(tensors.tokens)) {}

  std::vector<std::string> run() {
    const bool rotates = spec_.rope != RopeStyle::kNone, by_position = spec_.index == CacheIndex::kPositions;
    const bool streams = spec_.section_first + spec_.section_second + spec_.section_third > 0;
    if (rotates || by_position) read_positions(streams ? 3 : 1);
    skipped_.assign(tokens_, false);
    if (by_position)
      read_places();
    else
      read_slots();
    if (rotates) check_angles();
    check_scales("q_scale", t_.q_scale, spec_.q_scales, spec_.q_heads);
    check_scales("k_scale", t_.k_scale, spec_.k_scales, spec_.kv_heads);
    check_scales("v_scale", t_.v_scale, spec_.v_scales, spec_.kv_heads);
    return text_.take();
  }

 private:
  template <class T>
  std::vector<T> read(DevicePtr from, std::size_t count) const {
    std::vector<T> values(count);
    kernel_.device->copy_to_host(values.data(), from, count * sizeof(T));
    return values;
  }

  void read_positions(std::size_t streams) {
    if (t_.position_bytes == 8) {
      positions_ = read<std::int64_t>(t_.positions, streams * tokens_);
    } else {
      const std::vector<std::int32_t> narrow = read<std::int32_t>(t_.positions, streams * tokens_);
      positions_.assign(narrow.begin(), narrow.end());
    }
  }

  /// Two tokens of one place: which of them stays is a matter of time.
  void settle(std::size_t token, std::int64_t row) {
    const auto [first, is_new] = first_at_.emplace(row, token);
    if (!is_new) text_.add("tokens {} and {} have one place of the cache; either may stay", first->second, token);
  }

  void read_slots() {
    const std::vector<std::int64_t> slots = read<std::int64_t>(t_.slot_mapping, tokens_);
    const std::int64_t count = spec_.kv_layout == KvLayoutKind::kPaged    ? std::int64_t{t_.num_pages} * spec_.page_size
                               : spec_.kv_layout == KvLayoutKind::kPadded ? std::int64_t{t_.batch} * t_.kv_len
                                                                          : t_.kv_tokens;
    for (std::size_t i = 0; i < tokens_; ++i) {
      skipped_[i] = slots[i] < 0;
      if (skipped_[i]) continue;
      if (slots[i] >= count)
        text_.add("slot_mapping[{}] is {}, and the cache has slots 0 to {}; the token is not written", i, slots[i],
                  count - 1);
      else
        settle(i, slots[i]);
    }
  }

  void read_places() {
    const std::vector<std::int32_t> sequences = read<std::int32_t>(t_.batch_indices, tokens_);
    const bool is_paged = spec_.kv_layout == KvLayoutKind::kPaged;
    std::vector<std::int32_t> pages;
    if (is_paged)
      pages = read<std::int32_t>(t_.page_table,
                                 static_cast<std::size_t>(t_.batch) * static_cast<std::size_t>(t_.page_table_stride));
    const std::int64_t keys = is_paged ? std::int64_t{t_.page_table_stride} * spec_.page_size : std::int64_t{t_.kv_len};
    for (std::size_t i = 0; i < tokens_; ++i) {
      skipped_[i] = sequences[i] < 0;
      const std::int64_t position = positions_[i];
      if (skipped_[i]) continue;
      if (sequences[i] >= t_.batch)
        text_.add("batch_indices[{}] is {}, and there are sequences 0 to {}; the token is not written", i, sequences[i],
                  t_.batch - 1);
      else if (position < 0 || position >= keys)
        text_.add("positions[{}] is {}, and a sequence of the cache has {} keys; the token is not written", i, position,
                  keys);
      else if (is_paged)
        settle_page(i, sequences[i], position, pages);
      else
        settle(i, sequences[i] * keys + position);
    }
  }

  void settle_page(std::size_t token, std::int64_t sequence, std::int64_t position,
                   const std::vector<std::int32_t>& pages) {
    const std::int64_t entry = position / spec_.page_size;
    const std::int32_t page = pages[static_cast<std::size_t>(sequence * t_.page_table_stride + entry)];
    if (page < 0)
      text_.add("page_table[{}, {}] is {}, which is no page; token {} is not written", sequence, entry, page, token);
    else if (page >= t_.num_pages)
      text_.add("page_table[{}, {}] is {}, and there are pages 0 to {}; token {} is not written", sequence, entry, page,
                t_.num_pages - 1, token);
    else
      settle(token, std::int64_t{page} * spec_.page_size + position % spec_.page_size);
  }

  /// Padding has any positions, so tokens that are skipped are left alone.
  void check_angles() {
    for (std::size_t i = 0; i < positions_.size(); ++i) {
      const std::int64_t position = positions_[i];
      if (skipped_[i % tokens_] || (position >= 0 && position < t_.cos_sin_rows)) continue;
      text_.add("positions[{}] is {}, and cos_sin has {} rows; it is read as row {}", i, position, t_.cos_sin_rows,
                position < 0 ? 0 : t_.cos_sin_rows - 1);
    }
  }

  void check_scales(const char* name, DevicePtr from, ScaleKind kind, int heads) {
    if (kind != ScaleKind::kPerTensor && kind != ScaleKind::kPerHead) return;
    const std::vector<float> scales =
        read<float>(from, kind == ScaleKind::kPerHead ? static_cast<std::size_t>(heads) : 1);
    for (std::size_t i = 0; i < scales.size(); ++i)
      if (!(scales[i] > 0) || std::isinf(scales[i]))
        text_.add("{}[{}] is {}; a scale is finite and above 0", name, i, scales[i]);
  }

  const LoadedKvWrite& kernel_;
  const KvWriteSpec& spec_;
  const KvWriteTensors& t_;
  std::size_t tokens_;
  std::vector<std::int64_t> positions_;  // [streams, tokens]
  std::vector<bool> skipped_;
  std::unordered_map<std::int64_t, std::size_t> first_at_;
  BadData text_;
};

}  // namespace

std::vector<std::string> find_bad_data(const LoadedKvWrite& kernel, const KvWriteTensors& given, Stream stream) {
  const KvWriteTensors tensors = resolved(kernel.spec, given);
  if (tensors.tokens <= 0 || !broken_rules(kernel, tensors).empty()) return {};  // launch() has the words
  if (kernel.device->capture_state(stream) != CaptureState::kNone) return {};
  kernel.device->synchronize(stream);
  return find_bad_places(kernel, tensors);
}

std::vector<std::string> find_bad_places(const LoadedKvWrite& kernel, const KvWriteTensors& tensors) {
  return KvWriteChecker(kernel, tensors).run();
}

}  // namespace kernelwright::detail
