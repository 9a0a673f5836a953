#include "kernelwright/verify/gemm/device.h"

#include <algorithm>
#include <cstring>

#include "contract/scale_atoms.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/verify/formats/float_formats.h"

namespace kernelwright {

DevicePtr GemmDeviceCase::upload(const void* data, std::size_t bytes) {
  const DevicePtr address = memory_.allocate_some(bytes);
  if (bytes) device().copy_to_device(address, data, bytes);
  return address;
}

void GemmDeviceCase::upload_each(const HostMatrix& b) {
  const int count = call_.problem.groups.count;
  std::vector<std::uint64_t> addresses(static_cast<std::size_t>(count), 0);
  for (int g = 0; g < count; ++g) {
    if (call_.rows_of_group(g).count() == 0) continue;
    const std::byte *const first = b.row(b.rows / count * g), *const end = b.row(b.rows / count * (g + 1));
    addresses[static_cast<std::size_t>(g)] = upload(first, static_cast<std::size_t>(end - first));
  }
  tensors_.b = upload(addresses.data(), addresses.size() * sizeof addresses[0]);
  tensors_.b_stride = b.stride;
}

GemmDeviceCase::GemmDeviceCase(Device& device, const GemmCase& call, GemmKernel kernel)
    : DeviceCall(device, call, kernel) {
  const auto matrix = [&](const HostMatrix& host, DevicePtr& address, std::int64_t& stride,
                          std::int64_t& batch_stride) {
    address = upload(host.bytes.data(), host.bytes.size());
    stride = host.stride;
    if (!call.side_by_side) return;
    HostMatrix moved = host;
    for (std::int64_t i = 0; i < host.rows; ++i)
      std::copy(host.row(i), host.row(i + 1), moved.row(place(i, host.rows)));
    if (!moved.bytes.empty()) device.copy_to_device(address, moved.bytes.data(), moved.bytes.size());
    batch_stride = host.stride, stride = host.stride * call.problem.groups.count;
  };
  matrix(call.a, tensors_.a, tensors_.a_stride, tensors_.a_batch_stride);
  if (call.problem.groups.pointers)
    upload_each(call.b);
  else
    matrix(call.b, tensors_.b, tensors_.b_stride, tensors_.b_batch_stride);
  if (call.epilogue.c) matrix(call.c, tensors_.c, tensors_.c_stride, tensors_.c_batch_stride);
  if (call.epilogue.bias) tensors_.bias = upload(call.bias.bytes.data(), call.bias.bytes.size());
  if (is_block_scaled(call.problem.dtype.a)) {
    tensors_.scale_a = upload(call.a.scales.data(), call.a.scales.size());
    tensors_.scale_b = upload(call.b.scales.data(), call.b.scales.size());
  } else if (call.problem.scales != ScaleKind::kNone) {
    tensors_.scale_a = upload(call.scale_a.data(), call.scale_a.size() * sizeof(float));
    tensors_.scale_b = upload(call.scale_b.data(), call.scale_b.size() * sizeof(float));
  }
  if (call.has_f32_block_scales()) {
    tensors_.scale_a_stride = call.scale_a_stride;
    tensors_.scale_b_stride = call.scale_b_stride;
  }
  tensors_.m = call.m;
  if (call.problem.groups.has_bounds()) {
    tensors_.bounds = upload(call.bounds.data(), call.bounds.size() * sizeof(std::int32_t));
    const std::int32_t fine = 0;
    tensors_.status = upload(&fine, sizeof fine);
    tensors_.expected_m = call.planned_rows();
    tensors_.source_rows = call.source_rows;
    if (call.problem.groups.gather)
      tensors_.gather = upload(call.gather.data(), call.gather.size() * sizeof(std::int32_t));
    if (call.problem.groups.scatter)
      tensors_.scatter = upload(call.scatter.data(), call.scatter.size() * sizeof(std::int32_t));
    tensors_.result_rows = call.result_rows;
  }
  if (call.epilogue.alpha) tensors_.alpha = call.alpha;
  if (call.epilogue.beta) tensors_.beta = call.beta;

  row_bytes_ = bytes_of(call.problem.dtype.d, static_cast<std::size_t>(call.d_columns()));
  stride_bytes_ = bytes_of(call.problem.dtype.d, static_cast<std::size_t>(call.d_stride));
  poison_.assign(row(call.rows_of_d()), DeviceMemory::kGuardByte);
  for (std::int64_t i = 0; i < call.rows_of_d(); ++i)
    std::memset(poison_.data() + row(i), DeviceMemory::kNanByte, row_bytes_);
  d_ = memory_.allocate_guarded(poison_.size());
  tensors_.d = d_.data();
  tensors_.d_stride = call.d_stride;
  if (call.side_by_side) {
    tensors_.d_batch_stride = call.d_stride;
    tensors_.d_stride = call.d_stride * call.problem.groups.count;
  }
  if (call.epilogue.quantizes) {
    scale_d_ = memory_.allocate_guarded(static_cast<std::size_t>(call.scale_d_rows() * call.scale_d_stride_bytes()));
    tensors_.scale_d = scale_d_.data();
    tensors_.scale_d_stride = call.scale_d_stride;
    tensors_.tensor_scale = call.tensor_scale;
  }
  add_statistics();
  if (call.kv) add_cache();
  grow_workspace();
}

void GemmDeviceCase::add_cache() {
  kv_.emplace(device(), *call_.kv, KvWriteKernel{});
  kv_tensors_ = kv_->tensors();
  kv_tensors_.q = kv_tensors_.k = kv_tensors_.v = kv_tensors_.q_out = 0;  // the product's, and d
  kv_tensors_.q_strides = kv_tensors_.k_strides = kv_tensors_.v_strides = kv_tensors_.q_out_strides = {};
  tensors_.kv_write = &kv_tensors_;
}

void GemmDeviceCase::add_statistics() {
  if (call_.epilogue.rstd) {
    tensors_.squares_a = upload(call_.squares_a.data(), call_.squares_a.size() * sizeof(float));
    tensors_.squares_a_stride = call_.squares_a_stride;
    tensors_.rms_eps = call_.rms_eps;
  }
  if (call_.epilogue.squares) {
    squares_ =
        memory_.allocate_guarded(static_cast<std::size_t>(call_.squares_rows() * call_.squares_stride) * sizeof(float));
    tensors_.squares = squares_.data();
    tensors_.squares_stride = call_.squares_stride;
  }
  if (call_.epilogue.amax) {
    amax_ = memory_.allocate_guarded(sizeof(float));
    tensors_.amax = amax_.data();
  }
}

void GemmDeviceCase::accumulate_in_place() {
  if (!call_.epilogue.c || call_.problem.dtype.c != call_.problem.dtype.d || call_.c.stride != call_.d_stride)
    throw Error("GemmDeviceCase::accumulate_in_place: d can be c where they agree in dtype and stride");
  for (std::int64_t i = 0; i < call_.rows_of_d(); ++i)
    std::memcpy(poison_.data() + row(place(i)), call_.c.row(i), row_bytes_);
  tensors_.c = tensors_.d;
  tensors_.c_stride = tensors_.d_stride, tensors_.c_batch_stride = tensors_.d_batch_stride;
}

void GemmDeviceCase::poison() {
  wait();
  memory_.renew_guards(d_);
  if (!poison_.empty()) device().copy_to_device(d_.data(), poison_.data(), poison_.size());
  if (call_.epilogue.quantizes) {
    memory_.renew_guards(scale_d_);
    const std::vector<std::byte> pattern(scale_d_.bytes, static_cast<std::byte>(DeviceMemory::kGuardByte));
    if (!pattern.empty()) device().copy_to_device(scale_d_.data(), pattern.data(), pattern.size());
  }
  const auto fill = [&](DeviceMemory::Guarded& memory, std::byte byte) {
    memory_.renew_guards(memory);
    const std::vector<std::byte> pattern(memory.bytes, byte);
    if (!pattern.empty()) device().copy_to_device(memory.data(), pattern.data(), pattern.size());
  };
  if (call_.epilogue.squares) fill(squares_, DeviceMemory::kGuardByte);
  if (call_.epilogue.amax) fill(amax_, std::byte{0});  // launches add to it
  if (kv_) kv_->poison();
  poison_workspace();
}

std::vector<std::byte> GemmDeviceCase::read_rows() {
  wait();
  std::vector<std::byte> bytes(poison_.size());
  if (!bytes.empty()) device().copy_to_host(bytes.data(), d_.data(), bytes.size());
  return bytes;
}

GemmOutput GemmDeviceCase::download() {
  const std::vector<std::byte> bytes = read_rows();
  GemmOutput output;
  output.d.resize(static_cast<std::size_t>(call_.rows_of_d()) * row_bytes_);
  for (std::int64_t i = 0; i < call_.rows_of_d(); ++i)
    std::memcpy(output.d.data() + static_cast<std::size_t>(i) * row_bytes_, bytes.data() + row(place(i)), row_bytes_);
  const std::vector<std::byte> scales = read_scales();
  const std::int64_t columns = call_.scale_d_columns() * call_.scale_d_bytes();
  for (std::int64_t i = 0; i < call_.scale_d_rows(); ++i) {
    const auto from = scales.begin() + i * call_.scale_d_stride_bytes();
    output.scale_d.insert(output.scale_d.end(), from, from + columns);
  }
  for (std::int64_t i = 0; i < call_.squares_rows(); ++i) {
    std::vector<std::byte> sums(static_cast<std::size_t>(call_.m) * sizeof(float));
    device().copy_to_host(
        sums.data(), squares_.data() + static_cast<DevicePtr>(i * call_.squares_stride) * sizeof(float), sums.size());
    output.squares.insert(output.squares.end(), sums.begin(), sums.end());
  }
  output.amax.resize(call_.epilogue.amax ? sizeof(float) : 0);
  if (call_.epilogue.amax) device().copy_to_host(output.amax.data(), amax_.data(), sizeof(float));
  if (kv_) output.kv = kv_->download(), output.kv.q_out.clear();
  return output;
}

std::vector<std::byte> GemmDeviceCase::read_scales() {
  wait();
  std::vector<std::byte> bytes(call_.epilogue.quantizes ? scale_d_.bytes : 0);
  if (!bytes.empty()) device().copy_to_host(bytes.data(), scale_d_.data(), bytes.size());
  return bytes;
}

std::int32_t GemmDeviceCase::status() {
  wait();
  std::int32_t status = 0;
  if (tensors_.status) device().copy_to_host(&status, tensors_.status, sizeof status);
  return status;
}

bool GemmDeviceCase::other_rows_are_intact(const std::vector<std::byte>& bytes) const {
  std::int64_t next = 0;  // the first row that no group so far reaches
  const auto same = [&](std::int64_t first, std::int64_t end) {
    return first >= end || std::equal(bytes.begin() + static_cast<std::ptrdiff_t>(row(first)),
                                      bytes.begin() + static_cast<std::ptrdiff_t>(row(end)),
                                      poison_.begin() + static_cast<std::ptrdiff_t>(row(first)));
  };
  if (call_.problem.groups.scatter) {
    std::vector<bool> written(static_cast<std::size_t>(call_.rows_of_d()), false);
    for (int g = 0; g < call_.problem.groups.count; ++g)
      for (const std::int32_t of_group : call_.written_rows(g))
        written[static_cast<std::size_t>(call_.place_in_d(of_group))] = true;
    for (std::size_t i = 0; i < written.size(); ++i)
      if (const auto at = static_cast<std::int64_t>(i); !written[i] && !same(at, at + 1)) return false;
    return true;
  }
  for (int g = 0; g < call_.problem.groups.count; ++g) {
    const GemmCase::Rows rows = call_.rows_of_group(g);
    if (!same(next, rows.first)) return false;
    next = std::max<std::int64_t>(next, rows.end);
  }
  return same(next, call_.m);
}

bool GemmDeviceCase::blocks_are_intact() {
  const bool atoms = call_.has_atoms_of_d();
  std::vector<bool> written(static_cast<std::size_t>(call_.scale_d_rows()), !call_.problem.groups.any());
  for (int g = 0; call_.problem.groups.any() && g < call_.problem.groups.count; ++g) {
    const GemmCase::Rows rows = call_.rows_of_group(g);
    const std::int64_t first = atoms ? call_.atom_rows_ahead(g) : rows.first,
                       count = atoms ? contract::scale_atom_rows_of_groups(rows.count(), 1) : rows.count();
    std::fill_n(written.begin() + first, count, true);
  }
  const std::vector<std::byte> bytes = read_scales();
  const std::int64_t stride = call_.scale_d_stride_bytes();
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    if ((at % stride >= call_.scale_d_columns() || !written[static_cast<std::size_t>(at / stride)]) &&
        bytes[i] != static_cast<std::byte>(DeviceMemory::kGuardByte))
      return false;
  }
  return true;
}

bool GemmDeviceCase::scales_are_intact() {
  if (!call_.epilogue.quantizes) return true;
  if (!memory_.guards_are_intact(scale_d_)) return false;
  if (call_.epilogue.makes_blocks()) return blocks_are_intact();
  // Which columns of the matrix of scales belong to rows of d that a launch writes, of each masked group its own.
  const bool even = call_.problem.groups.is_even();
  const auto blocks = static_cast<std::size_t>(call_.d_columns() / kQuantizedGroup);
  std::vector<bool> written(static_cast<std::size_t>(call_.m), !call_.problem.groups.any());
  for (int g = 0; call_.problem.groups.any() && g < call_.problem.groups.count; ++g) {
    const GemmCase::Rows rows = call_.rows_of_group(g);
    std::fill(written.begin() + rows.first, written.begin() + rows.end, true);
  }
  const std::vector<std::byte> bytes = read_scales();
  const auto stride = static_cast<std::size_t>(call_.scale_d_stride),
             columns = static_cast<std::size_t>(call_.scale_d_columns());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::size_t line = i / 4 / stride, column = i / 4 % stride;
    const std::size_t row = (even ? line / blocks * columns : 0) + column;
    if ((column >= columns || !written[row]) && bytes[i] != static_cast<std::byte>(DeviceMemory::kGuardByte))
      return false;
  }
  return true;
}

bool GemmDeviceCase::squares_are_intact() {
  if (!memory_.guards_are_intact(squares_)) return false;
  std::vector<std::byte> bytes(squares_.bytes);
  if (!bytes.empty()) device().copy_to_host(bytes.data(), squares_.data(), bytes.size());
  for (std::size_t i = 0; i < bytes.size(); ++i)
    if (static_cast<std::int64_t>(i / sizeof(float)) % call_.squares_stride >= call_.m &&
        bytes[i] != static_cast<std::byte>(DeviceMemory::kGuardByte))
      return false;
  return true;
}

bool GemmDeviceCase::guards_are_intact() {
  const std::vector<std::byte> bytes = read_rows();
  if (!memory_.guards_are_intact(d_) || !scales_are_intact()) return false;
  if (call_.epilogue.amax && !memory_.guards_are_intact(amax_)) return false;
  if (call_.epilogue.squares && !squares_are_intact()) return false;
  if (kv_ && !kv_->guards_are_intact()) return false;
  if (call_.problem.groups.has_bounds() && !other_rows_are_intact(bytes)) return false;
  const auto is_guard = [](std::byte byte) { return byte == DeviceMemory::kGuardByte; };
  for (std::int64_t i = 0; i < call_.rows_of_d(); ++i) {
    const auto row_end = bytes.begin() + static_cast<std::ptrdiff_t>(row(i) + row_bytes_);
    const auto next_row = bytes.begin() + static_cast<std::ptrdiff_t>(row(i + 1));
    if (!std::all_of(row_end, next_row, is_guard)) return false;
  }
  return true;
}

}  // namespace kernelwright
