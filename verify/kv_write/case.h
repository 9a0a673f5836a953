/// One call that writes a cache, on the host: operands in the layout that a kernel reads. The reference and the devices
/// share this struct.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernelwright/generator/problem/kv_write.h"

namespace kernelwright {

/// The heads of a token.
enum class HeadsOf { kQ, kK, kV };
inline constexpr HeadsOf kAllHeads[] = {HeadsOf::kQ, HeadsOf::kK, HeadsOf::kV};

/// How the cache lies in memory.
enum class CacheOrder {
  kNhd,           // [pages, keys, heads, head_dim], keys and values apart
  kHnd,           // [pages, heads, keys, head_dim]
  kPackedTokens,  // [pages, keys, heads, keys' elements then values']
  kPackedHeads,   // [pages, heads, keys, keys' elements then values']
};

/// Elements from one page, token or head to the next.
struct HeadStrides {
  std::int64_t batch = 0, token = 0, head = 0;
};

/// One tensor inside of a buffer: the first element, and strides in elements.
struct CacheView {
  std::size_t offset = 0;  // bytes
  HeadStrides strides;
};

struct KvWriteCase {
  KvWriteProblem problem;
  std::int64_t tokens = 0;
  int num_pages = 0, batch = 0, kv_len = 0, page_table_stride = 0;
  std::int64_t kv_tokens = 0;
  int cos_sin_rows = 0, position_bytes = 4;

  std::vector<std::byte> q, k, v;  // dtype.in; with packed rows they are one buffer, q
  bool packed_rows = false;        // a row has all heads of q, then of k, then of v
  HeadStrides q_strides, k_strides, v_strides;
  std::vector<std::byte> q_weight, k_weight;  // dtype.in
  std::vector<float> cos_sin;
  std::vector<std::int64_t> positions;  // [streams, tokens]
  std::vector<std::int64_t> slot_mapping;
  std::vector<std::int32_t> batch_indices, page_table;
  std::vector<float> q_scale, k_scale, v_scale;  // those that are given

  bool wrong_places = false;  // as KvWriteInputOptions has it

  CacheView k_cache, v_cache;  // in one buffer
  std::size_t cache_bytes = 0;

  int streams() const { return problem.rope.sections.pairs() > 0 ? 3 : 1; }
  int heads(HeadsOf of) const;  // 0 for queries that are not written
  int head_dim(HeadsOf of) const;
  DType dtype_out(HeadsOf of) const { return of == HeadsOf::kQ ? problem.dtype.q : problem.dtype.kv; }
  ScaleKind scales(HeadsOf of) const;
  /// Bytes of a scale that the kernel makes.
  std::size_t scale_bytes() const { return problem.scales.ue8m0 ? 1 : sizeof(float); }
  /// The scale at `from`.
  float scale_at(const std::byte* from) const;
  /// Keys of a page, or of a sequence; 1 for a ragged cache.
  std::int64_t keys_of_page() const;
  /// Rows of the whole cache.
  std::int64_t slots() const;
  /// The row of a token in the cache; -1: it is not written.
  std::int64_t slot_of(std::int64_t token) const;
  /// The byte of the cache at which an element of a slot's head begins.
  std::size_t cache_byte(HeadsOf of, std::int64_t slot, int head, int element = 0) const;
  /// A head of a token as it is read, and its weight.
  void decode(HeadsOf of, std::int64_t token, int head, double* to) const;
  double weight(HeadsOf of, int head, int element) const;

  /// Elements that are written, times a dozen operations.
  double operations() const;
  /// Bytes of what is read and written, each counted once.
  double bytes() const;
};

/// The outputs of a kernel. Bytes that it did not write hold DeviceMemory::kGuardByte.
struct KvWriteOutput {
  std::vector<std::byte> q_out, cache;
  std::vector<std::byte> q_scale, k_scale, v_scale;  // f32, those that the kernel makes
  bool operator==(const KvWriteOutput&) const = default;
};

struct KvWriteInputOptions {
  std::uint64_t seed = 0;
  CacheOrder order = CacheOrder::kNhd;
  bool packed_rows = false;
  int position_bytes = 4;
  bool wrong_places = false;  // some past the end of the cache, and some positions outside of the table
};

/// Seeded inputs: normal data, distinct slots in random order. A shape with `check` also has tokens that are skipped.
KvWriteCase make_kv_write_inputs(const KvWriteProblem& problem, const KvWriteShape& shape,
                                 const KvWriteInputOptions& options = {});

/// Lays out the operands of a case whose sizes are known: rows without gaps, and a cache of kNhd.
void lay_out_dense(KvWriteCase& call);

/// The case without data: for counting operations and bytes.
KvWriteCase shape_only(const KvWriteProblem& problem, const KvWriteShape& shape);

}  // namespace kernelwright
