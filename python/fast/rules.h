/// What a call of a handle may give, as rules that Python has made of the problem (kernelwright/_rules.py), and the C
/// struct of the launch that follows from them. A call that breaks a rule is a miss: Python's checks then take the
/// call, and say in words what is wrong. So a rule may refuse what is fine, and must not take what Python's checks
/// refuse.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fast/dlpack.h"

namespace kernelwright::fast {

constexpr int kMostArguments = 64, kMostOperands = 40, kMostSizes = 8, kMostDims = 4, kMostDtypes = 8;
constexpr int kMostStructBytes = 1024;

/// What an extent of a tensor must be.
enum class DimKind : std::int32_t {
  kAny,         // any number
  kFixed,       // `value`
  kSize,        // the size `size`, plus `value`
  kAtLeast,     // the size `size`, or more; it gives a size that nothing before it has given
  kPartOfSize,  // the size `size`, divided by `value`; it gives that size if the operand settles sizes
  kScaleBytes,  // as many as the scales of [rows, k] have
  kTimesSize,   // the size `size`, times `value`
};
struct Dim {
  DimKind kind;
  std::int32_t size;
  std::int64_t value;
};

/// Which strides a tensor may have, and what the struct says of them.
enum class Layout : std::int32_t {
  kHeads,        // [batch, token, head, element] or [token, head, element]: three strides, zeros if contiguous
  kTokenScales,  // [batch, token, head] or [token, head]: likewise
  kPageScales,   // [page, head]: likewise, and 0 as the stride of tokens
  kScores,       // [batch, head, token, key]: three strides, 0 for an extent of one, all zeros if contiguous
  kRows,         // [row, element]: the stride of rows
  kPages,        // [row, element]: the stride of rows, in 32 bits; a number beside an address
  kScaleRows,    // [row, element]: the stride of rows, whatever their number
  kContiguous,   // no stride
  kItemBytes,    // contiguous: the bytes of an element, as a size
  kRowStride,    // [row, element]: the stride of rows, as a size
  kCount,        // contiguous, of any rank: the product of the extents is that of the first dim
  kBytes,        // contiguous, of any rank: as many bytes as the dims ask for, or more
  kWorkspace,    // contiguous, of any rank: its size in bytes; a number beside an address
  kBatch,        // [group, row, element]: the stride of rows, and that of groups; 0 for one group
};

struct Operand {
  std::int32_t argument;
  std::uint32_t address_at;  // offset of the address in the struct
  std::uint32_t place_at;    // offset of what the layout writes; kItemBytes, kRowStride: a size
  std::uint32_t groups_at;   // kBatch: offset of the stride of groups
  Layout layout;
  std::int32_t beside;  // the argument with a number beside an address, or -1
  bool required;
  bool settles;  // its extents settle sizes; otherwise they are compared with sizes that others have settled
  bool allocated;
  std::int32_t num_dtypes, num_dims;
  struct {
    std::uint8_t code, bits;
  } dtypes[kMostDtypes];
  Dim dims[kMostDims];
};

/// A size that several operands share.
struct Size {
  std::int32_t argument;  // that may give it, or -1
  std::uint32_t at;
  std::int32_t bytes;  // of the field: 4, 8; 0: the struct has none
  bool required;
};

enum class NumberKind : std::int32_t { kInteger, kFloat, kWindow, kPositive };  // kPositive: a float above 0
struct Number {
  std::int32_t argument;
  NumberKind kind;
  std::uint32_t at;
  std::uint32_t bit;  // of overrides; 0: none
};

struct Rules {
  std::uint32_t struct_bytes, overrides_at;
  std::int32_t num_operands, num_sizes, num_numbers;
  Operand operands[kMostOperands];
  Size sizes[kMostSizes];
  Number numbers[kMostArguments];
  // The size that the page table's stride bounds if nothing else gives it, or -1; and the tokens of a page.
  std::int32_t paged_size, page_table, page_tokens;
  std::int32_t device_types[2], device_id;
  std::int32_t rows_size, k_size;  // of kScaleBytes
  int (*scale_bytes)(const char* to, std::int64_t rows, std::int32_t k, std::uint64_t* bytes);
  char scale_format[16];
};

/// The struct of one launch, while it is built.
struct Launch {
  alignas(8) unsigned char bytes[kMostStructBytes];
  std::int64_t sizes[kMostSizes];
  bool known[kMostSizes];
};

/// An empty struct with its size in front.
void begin(const Rules& rules, Launch& launch);

/// Writes the operand `tensor`, which lies at place `index` of the rules. False: a miss.
bool write_tensor(const Rules& rules, int index, const dlpack::Tensor& tensor, Launch& launch);
/// Writes an operand that is an address, with `beside` as the number beside it.
void write_address(const Rules& rules, int index, std::uint64_t address, std::int64_t beside, Launch& launch);

/// Gives a size. False: another is known.
bool settle(Launch& launch, std::int32_t size, std::int64_t value);
/// The bound that the page table gives, once all operands that settle sizes are written.
void settle_pages(const Rules& rules, Launch& launch);
/// Writes the sizes. False: one is missing, or does not fit into its field.
bool write_sizes(const Rules& rules, Launch& launch);

/// The extents of an operand that the call allocates. False: a size is missing.
bool shape_of(const Rules& rules, const Operand& operand, const Launch& launch, std::int64_t* shape);

template <class T>
void put(Launch& launch, std::uint32_t at, T value) {
  __builtin_memcpy(launch.bytes + at, &value, sizeof value);
}

}  // namespace kernelwright::fast
