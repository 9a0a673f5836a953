/// The functions of NVRTC that we call, under NVRTC's names. They are declared here, because nvrtc.h comes with a
/// toolkit or with a wheel of 60 MB, and building needs neither. All of them are found with dlsym.
#pragma once

#include <cstddef>

namespace kernelwright::nvrtc {

using Result = int;  // a C enum
inline constexpr Result kSuccess = 0;
struct ProgramOfNvrtc;
using ProgramHandle = ProgramOfNvrtc*;

using nvrtcVersion = Result(int* major, int* minor);
using nvrtcGetErrorString = const char*(Result result);
using nvrtcCreateProgram = Result(ProgramHandle* program, const char* source, const char* name, int num_headers,
                                  const char* const* headers, const char* const* include_names);
using nvrtcDestroyProgram = Result(ProgramHandle* program);
using nvrtcCompileProgram = Result(ProgramHandle program, int num_options, const char* const* options);
using nvrtcGetProgramLogSize = Result(ProgramHandle program, std::size_t* size);
using nvrtcGetProgramLog = Result(ProgramHandle program, char* log);
using nvrtcGetCUBINSize = Result(ProgramHandle program, std::size_t* size);
using nvrtcGetCUBIN = Result(ProgramHandle program, char* cubin);
using nvrtcGetPTXSize = Result(ProgramHandle program, std::size_t* size);
using nvrtcGetPTX = Result(ProgramHandle program, char* ptx);
using nvrtcSetFlowCallback = Result(ProgramHandle program, int (*callback)(void*, void*), void* payload);

}  // namespace kernelwright::nvrtc
