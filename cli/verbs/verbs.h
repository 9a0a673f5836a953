/// The verbs, a file each. They print their result on standard output and return an exit code; what goes wrong they
/// throw, and main.cpp turns it into one.
#pragma once

#include "cli/options.h"

namespace kernelwright::cli {

int run(const Options& options);
int compile(const Options& options);
int bench(const Options& options);
int explain(const Options& options);
int source(const Options& options);
int ptx(const Options& options);
int sass(const Options& options);
int cache(const Options& options);
int doctor(const Options& options);
int emulate(const Options& options);
int trace(const Options& options);
int tune(const Options& options);

}  // namespace kernelwright::cli
