/// Functions compiled for several x86 levels, of which the dynamic linker picks one when the program starts.
///
///   KERNELWRIGHT_TARGET_CLONES void multiply(float* c, const float* a, const float* b) { plain loops }
///
/// The levels are x86-64-v4, -v3 and the baseline: a processor's name would be taken on that very processor only.
/// What such a function calls must be inlined into it to gain anything: a callee compiled for the baseline stays so.
/// KERNELWRIGHT_TARGET_CLONES_FLATTEN asks for that.
#pragma once

#include <cstddef>  // defines __GLIBC__, where it applies

// Sanitizers are not up yet when the linker runs the resolvers; other C libraries than glibc may not run them at all.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__GLIBC__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#pragma GCC diagnostic ignored "-Wdangling-pointer"  // GCC 12 takes a function with clones for a local variable
#define KERNELWRIGHT_TARGET_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#define KERNELWRIGHT_TARGET_CLONES_FLATTEN \
  __attribute__((flatten, target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define KERNELWRIGHT_TARGET_CLONES
#define KERNELWRIGHT_TARGET_CLONES_FLATTEN
#endif
