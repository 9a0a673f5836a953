#include "fast/rules.h"

namespace kernelwright::fast {
namespace {

using dlpack::Tensor;

constexpr std::int64_t kMost32 = 0x7fffffff;

/// Whether extents of more than one have the strides of a tensor without gaps.
bool is_contiguous(const Tensor& tensor) {
  if (!tensor.strides) return true;
  std::int64_t dense = 1;
  for (int i = tensor.ndim; i-- > 0; dense *= tensor.shape[i])
    if (tensor.shape[i] > 1 && tensor.strides[i] != dense) return false;
  return true;
}

bool has_dtype(const Operand& operand, const dlpack::DataType& dtype) {
  if (dtype.lanes != 1) return false;
  for (int i = 0; i < operand.num_dtypes; ++i)
    if (operand.dtypes[i].code == dtype.code && operand.dtypes[i].bits == dtype.bits) return true;
  return false;
}

std::int64_t scale_bytes(const Rules& rules, const Launch& launch) {
  std::uint64_t bytes = 0;
  const std::int64_t rows = launch.sizes[rules.rows_size], k = launch.sizes[rules.k_size];
  const bool fits = rows >= 0 && rows <= kMost32 && k >= 0 && k <= kMost32;
  if (!fits || rules.scale_bytes(rules.scale_format, rows, static_cast<std::int32_t>(k), &bytes) != 0) return -1;
  return static_cast<std::int64_t>(bytes);
}

/// Whether the tensor has elements, and no address: it is a stand-in without memory.
bool is_hollow(const Tensor& tensor) {
  if (tensor.data) return false;
  for (int i = 0; i < tensor.ndim; ++i)
    if (tensor.shape[i] == 0) return false;
  return true;
}

/// The extent that a dim asks for; -1: a size of it is not known.
std::int64_t wanted(const Rules& rules, const Dim& dim, const Launch& launch) {
  switch (dim.kind) {
    case DimKind::kAny: return -1;
    case DimKind::kFixed: return dim.value;
    case DimKind::kSize:
    case DimKind::kAtLeast: return launch.known[dim.size] ? launch.sizes[dim.size] + dim.value : -1;
    case DimKind::kPartOfSize: return launch.known[dim.size] ? launch.sizes[dim.size] / dim.value : -1;
    case DimKind::kTimesSize: {
      std::int64_t product;
      return launch.known[dim.size] && !__builtin_mul_overflow(launch.sizes[dim.size], dim.value, &product) ? product
                                                                                                            : -1;
    }
    case DimKind::kScaleBytes:
      return launch.known[rules.rows_size] && launch.known[rules.k_size] ? scale_bytes(rules, launch) : -1;
  }
  return -1;
}

bool fits(const Rules& rules, const Operand& operand, const Dim& dim, std::int64_t extent, Launch& launch) {
  if (dim.kind == DimKind::kAny) return true;
  if (operand.settles && dim.kind == DimKind::kSize) return settle(launch, dim.size, extent - dim.value);
  std::int64_t whole;
  if (operand.settles && dim.kind == DimKind::kPartOfSize)
    return !__builtin_mul_overflow(extent, dim.value, &whole) && settle(launch, dim.size, whole);
  const bool settles_least = operand.settles && dim.kind == DimKind::kAtLeast && !launch.known[dim.size];
  if (settles_least) return settle(launch, dim.size, extent);
  const std::int64_t want = wanted(rules, dim, launch);
  return want >= 0 && (extent == want || (dim.kind == DimKind::kAtLeast && extent > want));
}

bool has_shape(const Rules& rules, const Operand& operand, const Tensor& tensor, Launch& launch) {
  if (tensor.ndim != operand.num_dims) return false;
  for (int i = 0; i < tensor.ndim; ++i)
    if (!fits(rules, operand, operand.dims[i], tensor.shape[i], launch)) return false;
  return true;
}

/// A tensor of any rank: its elements or bytes against what the dims ask for.
bool has_extent(const Rules& rules, const Operand& operand, const Tensor& tensor, Launch& launch) {
  if (!is_contiguous(tensor)) return false;
  std::int64_t count = 1, want = 1;
  for (int i = 0; i < tensor.ndim; ++i)
    if (__builtin_mul_overflow(count, tensor.shape[i], &count)) return false;
  const std::int64_t bytes = count * (tensor.dtype.bits / 8);
  if (operand.layout == Layout::kWorkspace) {
    put(launch, operand.place_at, static_cast<std::uint64_t>(bytes));
    return true;
  }
  for (int i = 0; i < operand.num_dims; ++i) {
    const std::int64_t extent = wanted(rules, operand.dims[i], launch);
    if (extent < 0 || __builtin_mul_overflow(want, extent, &want)) return false;
  }
  return operand.layout == Layout::kCount ? count == want : bytes >= want;
}

/// False: all are zero, which the C ABI reads as contiguous.
bool put_strides(const Operand& operand, std::int64_t batch, std::int64_t token, std::int64_t head, Launch& launch) {
  if (!batch && !token && !head) return false;
  put(launch, operand.place_at, batch);
  put(launch, operand.place_at + 8, token);
  put(launch, operand.place_at + 16, head);
  return true;
}

/// The strides of batch, token and head. `dims`: those ahead of a head's elements. For an extent of one a framework may
/// give any stride, but the library needs a valid one.
bool write_strides(const Operand& operand, const Tensor& tensor, int dims, std::int64_t elements, Launch& launch) {
  if (is_contiguous(tensor)) return true;
  const std::int64_t *shape = tensor.shape, *strides = tensor.strides;
  const int token_at = dims - 2, head_at = dims - 1;
  const std::int64_t head = shape[head_at] > 1 ? strides[head_at] : elements;
  const std::int64_t densest = shape[head_at] * head > elements ? shape[head_at] * head : elements;
  const std::int64_t token = shape[token_at] > 1 ? strides[token_at] : densest;
  std::int64_t batch = 0;
  if (dims == 3) batch = shape[0] > 1 ? strides[0] : (shape[token_at] > 1 ? shape[token_at] : 1) * token;
  return put_strides(operand, batch, token, head, launch);
}

bool write_heads(const Operand& operand, const Tensor& tensor, Launch& launch) {
  const int last = tensor.ndim - 1;
  if (tensor.shape[last] > 1 && tensor.strides && tensor.strides[last] != 1) return false;
  return write_strides(operand, tensor, last, tensor.shape[last], launch);
}

bool write_page_scales(const Operand& operand, const Tensor& tensor, Launch& launch) {
  if (is_contiguous(tensor)) return true;
  const std::int64_t *shape = tensor.shape, *strides = tensor.strides;
  const std::int64_t head = shape[1] > 1 ? strides[1] : 1, all_heads = shape[1] * head;
  return put_strides(operand, shape[0] > 1 ? strides[0] : all_heads > 1 ? all_heads : 1, 0, head, launch);
}

bool write_scores(const Operand& operand, const Tensor& tensor, Launch& launch) {
  const std::int64_t *shape = tensor.shape, *strides = tensor.strides;
  if (is_contiguous(tensor)) return true;
  if (shape[3] > 1 && strides[3] != 1) return false;
  std::int64_t own[3];
  for (int i = 0; i < 3; ++i) own[i] = shape[i] > 1 ? strides[i] : 0;
  return put_strides(operand, own[0], own[2], own[1], launch);
}

/// The stride of the rows of a matrix, as the size `place_at`.
bool settle_row_stride(const Operand& operand, const Tensor& tensor, Launch& launch) {
  const std::int64_t rows = tensor.shape[0], columns = tensor.shape[1];
  if (tensor.strides && columns > 1 && tensor.strides[1] != 1) return false;
  return settle(launch, static_cast<std::int32_t>(operand.place_at),
                tensor.strides && rows > 1 ? tensor.strides[0] : columns);
}

/// The stride of the rows of a matrix.
bool write_rows(const Operand& operand, const Tensor& tensor, Launch& launch) {
  const std::int64_t rows = tensor.shape[0], columns = tensor.shape[1];
  if (tensor.strides && columns > 1 && tensor.strides[1] != 1) return false;
  const std::int64_t given = tensor.strides ? tensor.strides[0] : columns;
  const bool of_scales = operand.layout == Layout::kScaleRows, of_pages = operand.layout == Layout::kPages;
  if (!of_pages && rows > 1 && columns > 0 && given == 0) return false;
  const std::int64_t stride = rows > 1 || of_scales ? given : columns;
  if (!of_pages) {
    put(launch, operand.place_at, stride);
    return true;
  }
  if (stride > kMost32 || stride < -kMost32) return false;
  put(launch, operand.place_at, static_cast<std::int32_t>(stride));
  return true;
}

/// The strides of rows and of groups.
bool write_batch(const Operand& operand, const Tensor& tensor, Launch& launch) {
  const std::int64_t groups = tensor.shape[0], rows = tensor.shape[1], columns = tensor.shape[2];
  const std::int64_t dense[] = {rows * columns, columns, 1};
  const std::int64_t* const strides = tensor.strides ? tensor.strides : dense;
  if (columns > 1 && strides[2] != 1) return false;
  if ((rows > 1 && strides[1] == 0) || (groups > 1 && rows > 0 && strides[0] == 0)) return false;
  put(launch, operand.place_at, rows > 1 ? strides[1] : columns);
  put(launch, operand.groups_at, groups > 1 ? strides[0] : 0);
  return true;
}

}  // namespace

void begin(const Rules& rules, Launch& launch) {
  __builtin_memset(launch.bytes, 0, rules.struct_bytes);
  put(launch, 0, static_cast<std::size_t>(rules.struct_bytes));
  for (bool& known : launch.known) known = false;
}

bool settle(Launch& launch, std::int32_t size, std::int64_t value) {
  if (launch.known[size]) return launch.sizes[size] == value;
  launch.known[size] = true;
  launch.sizes[size] = value;
  return true;
}

bool write_tensor(const Rules& rules, int index, const Tensor& tensor, Launch& launch) {
  const Operand& operand = rules.operands[index];
  const bool here = (tensor.device.type == rules.device_types[0] || tensor.device.type == rules.device_types[1]) &&
                    tensor.device.id == rules.device_id;
  if (!here || !has_dtype(operand, tensor.dtype) || is_hollow(tensor)) return false;
  const bool any_rank =
      operand.layout == Layout::kCount || operand.layout == Layout::kBytes || operand.layout == Layout::kWorkspace;
  if (!(any_rank ? has_extent : has_shape)(rules, operand, tensor, launch)) return false;
  put(launch, operand.address_at, reinterpret_cast<std::uintptr_t>(tensor.data) + tensor.byte_offset);
  switch (operand.layout) {
    case Layout::kHeads: return write_heads(operand, tensor, launch);
    case Layout::kTokenScales: return write_strides(operand, tensor, tensor.ndim, 1, launch);
    case Layout::kPageScales: return write_page_scales(operand, tensor, launch);
    case Layout::kScores: return write_scores(operand, tensor, launch);
    case Layout::kRows:
    case Layout::kScaleRows:
    case Layout::kPages: return write_rows(operand, tensor, launch);
    case Layout::kContiguous: return is_contiguous(tensor);
    case Layout::kBatch: return write_batch(operand, tensor, launch);
    case Layout::kItemBytes:
      return is_contiguous(tensor) &&
             settle(launch, static_cast<std::int32_t>(operand.place_at), tensor.dtype.bits / 8);
    case Layout::kRowStride: return settle_row_stride(operand, tensor, launch);
    case Layout::kCount:
    case Layout::kBytes:
    case Layout::kWorkspace: return true;
  }
  return false;
}

void write_address(const Rules& rules, int index, std::uint64_t address, std::int64_t beside, Launch& launch) {
  const Operand& operand = rules.operands[index];
  put(launch, operand.address_at, address);
  if (operand.layout == Layout::kPages) put(launch, operand.place_at, static_cast<std::int32_t>(beside));
  if (operand.layout == Layout::kWorkspace) put(launch, operand.place_at, static_cast<std::uint64_t>(beside));
}

void settle_pages(const Rules& rules, Launch& launch) {
  if (rules.paged_size < 0 || launch.known[rules.paged_size]) return;
  std::int32_t stride;
  __builtin_memcpy(&stride, launch.bytes + rules.operands[rules.page_table].place_at, sizeof stride);
  settle(launch, rules.paged_size, std::int64_t{stride} * rules.page_tokens);
}

bool write_sizes(const Rules& rules, Launch& launch) {
  for (int i = 0; i < rules.num_sizes; ++i) {
    const Size& size = rules.sizes[i];
    if (!launch.known[i]) {
      if (size.required) return false;
      continue;
    }
    const std::int64_t value = launch.sizes[i];
    if (value < 0 || (size.bytes == 4 && value > kMost32)) return false;
    if (size.bytes == 4) put(launch, size.at, static_cast<std::int32_t>(value));
    if (size.bytes == 8) put(launch, size.at, value);
  }
  return true;
}

bool shape_of(const Rules& rules, const Operand& operand, const Launch& launch, std::int64_t* shape) {
  for (int i = 0; i < operand.num_dims; ++i) {
    shape[i] = wanted(rules, operand.dims[i], launch);
    if (shape[i] < 0) return false;
  }
  return true;
}

}  // namespace kernelwright::fast
