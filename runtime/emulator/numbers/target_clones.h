/// Functions that are compiled for several x86 levels. The dynamic linker picks one version when the program starts.
///
///   KERNELWRIGHT_TARGET_CLONES void multiply(float* c, const float* a, const float* b) { plain loops }
///
/// The levels are x86-64-v4, -v3 and the baseline. A processor's name instead of a level would match that very
/// processor only. A callee must be inlined into such a function to gain anything: otherwise it is compiled for the
/// baseline. KERNELWRIGHT_TARGET_CLONES_FLATTEN asks for this inlining.
#pragma once

#include <cstddef>  // defines __GLIBC__ on glibc

// No clones under sanitizers, which are not ready when the linker runs the resolvers. None on C libraries other than
// glibc, which may not run the resolvers at all.
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
