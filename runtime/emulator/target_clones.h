/// KERNELWRIGHT_TARGET_CLONES before a function: it is compiled once for each level of x86 processors, and the one that
/// fits is picked when the program is loaded. For loops that are worth vectorising; no flag of the build changes.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KERNELWRIGHT_SANITIZED 1  // their run time is not up yet when the loader asks which clone to take
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define KERNELWRIGHT_SANITIZED 1
#endif
#endif

// Levels, not names of processors: "arch=haswell" is taken on that very processor only, not on later ones.
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(KERNELWRIGHT_SANITIZED)
#define KERNELWRIGHT_TARGET_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define KERNELWRIGHT_TARGET_CLONES
#endif
