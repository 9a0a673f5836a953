/// Errors between Triton's C functions and C++: calls that fail throw, and what is thrown becomes Triton's error.
#pragma once

#include <string>

#include "kernelwright/generator/error.h"
#include "triton_api.h"

namespace kernelwright::triton {

/// A function of the server has failed.
class ServerError : public Error {
 public:
  ServerError(TRITONSERVER_Error_Code code, const std::string& text) : Error(text), code_(code) {}
  TRITONSERVER_Error_Code code() const { return code_; }

 private:
  TRITONSERVER_Error_Code code_;
};

/// Deletes `error`. Throws ServerError with its code and text, unless it is null.
void check(TRITONSERVER_Error* error);

/// The exception that is being handled, as an error that the caller owns. Call it in a catch block.
TRITONSERVER_Error* current_error() noexcept;

/// Runs `work`. Returns null, or what it threw as an error that the caller owns.
template <class Work>
TRITONSERVER_Error* guarded(Work&& work) noexcept {
  try {
    work();
    return nullptr;
  } catch (...) {
    return current_error();
  }
}

/// A line of the server's log. It fails silently.
void log(TRITONSERVER_LogLevel level, const std::string& text) noexcept;

/// Logs and deletes `error`, unless it is null. For calls after which the work goes on.
void log_failure(TRITONSERVER_Error* error, const char* call) noexcept;

}  // namespace kernelwright::triton
