#include "kernelwright/verify/kv_write/case.h"

#include <cmath>
#include <cstring>

#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/formats/value_columns.h"

namespace kernelwright {

int KvWriteCase::heads(HeadsOf of) const {
  if (of == HeadsOf::kQ) return problem.q_out ? problem.heads.q : 0;
  if (of == HeadsOf::kV && !problem.v_out) return 0;
  return problem.heads.kv;
}

int KvWriteCase::head_dim(HeadsOf of) const { return of == HeadsOf::kV ? problem.head_dim.v : problem.head_dim.qk; }

float KvWriteCase::scale_at(const std::byte* from) const {
  if (problem.scales.ue8m0) return std::ldexp(1.f, static_cast<int>(*from) - 127);
  float scale;
  std::memcpy(&scale, from, sizeof scale);
  return scale;
}

ScaleKind KvWriteCase::scales(HeadsOf of) const {
  return of == HeadsOf::kQ ? problem.scales.q : of == HeadsOf::kK ? problem.scales.k : problem.scales.v;
}

std::int64_t KvWriteCase::keys_of_page() const {
  switch (problem.kv_layout.kind) {
    case KvLayoutKind::kPaged: return problem.kv_layout.page_size;
    case KvLayoutKind::kPadded: return kv_len;
    case KvLayoutKind::kRagged: break;
  }
  return 1;
}

std::int64_t KvWriteCase::slots() const {
  switch (problem.kv_layout.kind) {
    case KvLayoutKind::kPaged: return std::int64_t{num_pages} * problem.kv_layout.page_size;
    case KvLayoutKind::kPadded: return std::int64_t{batch} * kv_len;
    case KvLayoutKind::kRagged: break;
  }
  return kv_tokens;
}

std::int64_t KvWriteCase::slot_of(std::int64_t token) const {
  const auto t = static_cast<std::size_t>(token);
  std::int64_t slot = -1;
  if (problem.index == CacheIndex::kSlots) {
    slot = slot_mapping[t];
  } else {
    const std::int64_t sequence = batch_indices[t], position = positions[t];
    if (sequence < 0 || sequence >= batch || position < 0) return -1;
    if (problem.kv_layout.kind == KvLayoutKind::kPadded) {
      if (position >= kv_len) return -1;
      slot = sequence * kv_len + position;
    } else {
      const std::int64_t size = problem.kv_layout.page_size;
      if (position / size >= page_table_stride) return -1;
      const std::int64_t page = page_table[static_cast<std::size_t>(sequence * page_table_stride + position / size)];
      if (page < 0 || page >= num_pages) return -1;
      slot = page * size + position % size;
    }
  }
  return slot >= 0 && slot < slots() ? slot : -1;
}

std::size_t KvWriteCase::cache_byte(HeadsOf of, std::int64_t slot, int head, int element) const {
  const CacheView& view = of == HeadsOf::kK ? k_cache : v_cache;
  const std::int64_t keys = keys_of_page(), key = slot % keys;
  std::int64_t at = slot / keys * view.strides.batch + head * view.strides.head;
  if (of == HeadsOf::kV && problem.v_layout == VLayout::kColumns) {
    at += element * keys + place_in_column(key);
  } else {
    at += key * view.strides.token + element;
  }
  return view.offset + static_cast<std::size_t>(at) * bytes_of(problem.dtype.kv);
}

void KvWriteCase::decode(HeadsOf of, std::int64_t token, int head, double* to) const {
  const HeadStrides& strides = of == HeadsOf::kQ ? q_strides : of == HeadsOf::kK ? k_strides : v_strides;
  std::int64_t element = token * strides.token + head * strides.head;
  if (packed_rows && of != HeadsOf::kQ) {
    element += std::int64_t{problem.heads.q} * problem.head_dim.qk;
    if (of == HeadsOf::kV) element += std::int64_t{problem.heads.kv} * problem.head_dim.qk;
  }
  const std::vector<std::byte>& bytes = packed_rows || of == HeadsOf::kQ ? q : of == HeadsOf::kK ? k : v;
  const std::size_t size = bytes_of(problem.dtype.in);
  decode_row(problem.dtype.in, bytes.data() + static_cast<std::size_t>(element) * size,
             static_cast<std::size_t>(head_dim(of)), to);
}

double KvWriteCase::weight(HeadsOf of, int head, int element) const {
  const QkNorm& norm = problem.qk_norm;
  if (of == HeadsOf::kV || !norm.weight) return 1;
  const std::vector<std::byte>& bytes = of == HeadsOf::kQ ? q_weight : k_weight;
  const int at = (norm.kind == NormKind::kRmsAllHeads ? head * head_dim(of) : 0) + element;
  double value = 0;
  decode_row(problem.dtype.in, bytes.data() + static_cast<std::size_t>(at) * bytes_of(problem.dtype.in), 1, &value);
  return value + norm.weight_offset;
}

namespace {

double elements(const KvWriteCase& call, HeadsOf of) {
  return static_cast<double>(call.tokens) * call.heads(of) * call.head_dim(of);
}

}  // namespace

double KvWriteCase::operations() const {
  constexpr double kOfElement = 12;
  double count = 0;
  for (const HeadsOf of : kAllHeads) count += kOfElement * elements(*this, of);
  return count;
}

double KvWriteCase::bytes() const {
  double count = 0;
  for (const HeadsOf of : kAllHeads) {
    count += elements(*this, of) * static_cast<double>(bits_of(problem.dtype.in) + bits_of(dtype_out(of))) / 8;
    if (scales(of) == ScaleKind::kPerToken) count += 4.0 * static_cast<double>(tokens) * heads(of);
  }
  return count;
}

}  // namespace kernelwright
