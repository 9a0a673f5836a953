/// The verbs, one file each. A verb prints its result on standard output and returns an exit code. It throws errors,
/// and main.cpp turns them into exit codes.
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
int pack(const Options& options);
int plan(const Options& options);
int report(const Options& options);
int trace(const Options& options);
int tune(const Options& options);
int worker(const Options& options);

}  // namespace kernelwright::cli
