// Errors and log lines.
#include "errors.h"

#include <new>

#include "kernelwright/runtime/slot/readiness.h"

namespace kernelwright::triton {

void check(TRITONSERVER_Error* error) {
  if (!error) return;
  const ServerError thrown(TRITONSERVER_ErrorCode(error), TRITONSERVER_ErrorMessage(error));
  TRITONSERVER_ErrorDelete(error);
  throw thrown;
}

TRITONSERVER_Error* current_error() noexcept {
  try {
    throw;
  } catch (const ServerError& error) {
    return TRITONSERVER_ErrorNew(error.code(), error.what());
  } catch (const ConfigError& error) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, error.what());
  } catch (const MissingError& error) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, error.what());
  } catch (const NotReadyError& error) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, error.what());
  } catch (const std::bad_alloc&) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, "kernelwright: no memory is left on the host");
  } catch (const std::exception& error) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, error.what());
  } catch (...) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "kernelwright: an exception of an unknown type");
  }
}

void log(TRITONSERVER_LogLevel level, const std::string& text) noexcept {
  if (TRITONSERVER_Error* error = TRITONSERVER_LogMessage(level, "kernelwright", 0, text.c_str()))
    TRITONSERVER_ErrorDelete(error);
}

void log_failure(TRITONSERVER_Error* error, const char* call) noexcept {
  if (!error) return;
  if (TRITONSERVER_Error* failed =
          guarded([&] { log(TRITONSERVER_LOG_ERROR, std::string(call) + ": " + TRITONSERVER_ErrorMessage(error)); }))
    TRITONSERVER_ErrorDelete(failed);
  TRITONSERVER_ErrorDelete(error);
}

}  // namespace kernelwright::triton
