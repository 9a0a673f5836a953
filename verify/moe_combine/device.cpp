#include "kernelwright/verify/moe_combine/device.h"

#include "kernelwright/generator/error.h"
#include "kernelwright/verify/formats/float_formats.h"

namespace kernelwright {

MoeCombineDeviceCase::MoeCombineDeviceCase(Device& device, const MoeCombineCase& call, MoeCombineKernel kernel)
    : OutputsCall(device, kernel), call_(call) {
  tensors_.tokens = call.tokens, tensors_.num_rows = call.num_rows;
  tensors_.rows_stride = call.rows_stride, tensors_.out_stride = call.out_stride;
  tensors_.residual_stride = call.residual_stride;
  tensors_.rows = upload_some(call.rows);
  tensors_.positions = upload_some(call.positions);
  if (call.problem.weighted) tensors_.weights = upload_some(call.weights);
  if (call.problem.residual) tensors_.residual = upload_some(call.residual);
  tensors_.out = output(bytes_of(call.problem.dtype.out) * static_cast<std::size_t>(call.tokens * call.out_stride),
                        &MoeCombineOutput::out);
}

void MoeCombineDeviceCase::take_inputs(const MoeCombineCase& other) {
  copy(tensors_.rows, other.rows);
  copy(tensors_.positions, other.positions);
  copy(tensors_.weights, other.weights);
  copy(tensors_.residual, other.residual);
}

void MoeCombineDeviceCase::add_in_place() {
  if (call_.problem.dtype.in != call_.problem.dtype.out || call_.out_stride != call_.residual_stride)
    throw Error("MoeCombineDeviceCase::add_in_place: out can be the residual where they agree in dtype and stride");
  in_place_ = true;
  tensors_.residual = tensors_.out;
}

void MoeCombineDeviceCase::put_inputs_back() {
  if (in_place_) copy(tensors_.out, call_.residual);
}

}  // namespace kernelwright
