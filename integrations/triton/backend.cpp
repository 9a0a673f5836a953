// The functions that Triton Inference Server calls. Each returns null or an error; no exception leaves them.
#include "errors.h"
#include "instance.h"

namespace kernelwright::triton {
namespace {

/// The state that `get`, a function of the server, returns for `owner`; null if there is none.
template <class State, class Owner>
State* state_of(TRITONSERVER_Error* (*get)(Owner*, void**), Owner* owner) {
  void* state = nullptr;
  check(get(owner, &state));
  return static_cast<State*>(state);
}

/// Makes `owner`'s state, which the server then keeps for us.
template <class Owner, class State>
void keep(TRITONSERVER_Error* (*set)(Owner*, void*), Owner* owner, std::unique_ptr<State> state) {
  check(set(owner, state.get()));
  state.release();
}

template <class State, class Owner>
TRITONSERVER_Error* remove(TRITONSERVER_Error* (*get)(Owner*, void**), Owner* owner) {
  return guarded([&] { delete state_of<State>(get, owner); });
}

/// One response and one release, whatever fails. Returns the moments of a request that succeeded.
Moments answer(Instance& instance, TRITONBACKEND_ModelInstance* handle, TRITONBACKEND_Request* request) noexcept {
  TRITONBACKEND_Response* response = nullptr;
  Moments moments;
  TRITONSERVER_Error* error = guarded([&] {
    check(TRITONBACKEND_ResponseNew(&response, request));
    moments = instance.execute(request, response);
  });
  const bool succeeded = !error;
  if (response)
    log_failure(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error),
                "TRITONBACKEND_ResponseSend");
  if (error && response)
    TRITONSERVER_ErrorDelete(error);  // the client has it
  else
    log_failure(error, "TRITONBACKEND_ResponseNew");
  log_failure(TRITONBACKEND_ModelInstanceReportStatistics(handle, request, succeeded, moments.start,
                                                          moments.compute_start, moments.compute_end, moments.end),
              "TRITONBACKEND_ModelInstanceReportStatistics");
  log_failure(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL), "TRITONBACKEND_RequestRelease");
  return succeeded ? moments : Moments{};
}

void require_api() {
  std::uint32_t major = 0, minor = 0;
  check(TRITONBACKEND_ApiVersion(&major, &minor));
  if (major != TRITONBACKEND_API_VERSION_MAJOR || minor < TRITONBACKEND_API_VERSION_MINOR)
    throw ServerError(TRITONSERVER_ERROR_UNSUPPORTED, "kernelwright: the server has backend API " +
                                                          std::to_string(major) + "." + std::to_string(minor) +
                                                          "; 1.10 and later 1.x are accepted");
}

}  // namespace
}  // namespace kernelwright::triton

using namespace kernelwright::triton;

TRITONSERVER_Error* TRITONBACKEND_Initialize(TRITONBACKEND_Backend* backend) {
  return guarded([&] {
    require_api();
    keep(TRITONBACKEND_BackendSetState, backend, std::make_unique<Engines>());
  });
}

TRITONSERVER_Error* TRITONBACKEND_Finalize(TRITONBACKEND_Backend* backend) {
  return remove<Engines>(TRITONBACKEND_BackendState, backend);
}

TRITONSERVER_Error* TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model) {
  return guarded([&] {
    TRITONBACKEND_Backend* backend = nullptr;
    check(TRITONBACKEND_ModelBackend(model, &backend));
    auto& engines = *state_of<Engines>(TRITONBACKEND_BackendState, backend);
    keep(TRITONBACKEND_ModelSetState, model, std::make_unique<Model>(model, engines));
  });
}

TRITONSERVER_Error* TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model) {
  return remove<Model>(TRITONBACKEND_ModelState, model);
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance* instance) {
  return guarded([&] {
    TRITONBACKEND_Model* model = nullptr;
    check(TRITONBACKEND_ModelInstanceModel(instance, &model));
    const auto& state = *state_of<Model>(TRITONBACKEND_ModelState, model);
    keep(TRITONBACKEND_ModelInstanceSetState, instance, std::make_unique<Instance>(instance, state));
  });
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance* instance) {
  return remove<Instance>(TRITONBACKEND_ModelInstanceState, instance);
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance* handle,
                                                       TRITONBACKEND_Request** requests, std::uint32_t count) {
  // An error from here would leave all requests with the server. So only this call may fail, ahead of any of them.
  Instance* instance = nullptr;
  if (TRITONSERVER_Error* error =
          guarded([&] { instance = state_of<Instance>(TRITONBACKEND_ModelInstanceState, handle); }))
    return error;
  for (std::uint32_t i = 0; i < count; ++i) {
    // Each request is a launch of its own, and so an execution of its own in the server's statistics.
    const Moments moments = answer(*instance, handle, requests[i]);
    if (moments.end > 0)
      log_failure(TRITONBACKEND_ModelInstanceReportBatchStatistics(handle, 1, moments.start, moments.compute_start,
                                                                   moments.compute_end, moments.end),
                  "TRITONBACKEND_ModelInstanceReportBatchStatistics");
  }
  return nullptr;
}
