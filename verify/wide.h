/// KERNELWRIGHT_WIDE: compiles a function twice, for any x86-64 and for one with AVX2. The loader chooses when the
/// program starts.
#pragma once

// Sanitizers and ifuncs do not work together: the loader resolves ifuncs before a sanitizer has started.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define KERNELWRIGHT_WIDE __attribute__((target_clones("default", "arch=haswell")))
#else
#define KERNELWRIGHT_WIDE
#endif
