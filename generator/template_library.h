/// The folder templates/, embedded at build time, because a server has no source tree.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernelwright/generator/digest.h"

namespace kernelwright {

struct TemplateFile {
  std::string path;       // as templates include it: "tile/kv_buffer.cuh"
  std::string_view text;  // lives as long as the program
  Digest digest;          // of the text
};

/// A template and every file that it includes, directly or not, in order of first inclusion ("spec.h" left out). Also
/// the hash of their paths and digests. Safe from any number of threads. Throws Error if `path` is not embedded.
struct TemplateClosure {
  std::vector<TemplateFile> files;  // the template itself first
  Digest digest;
};
const TemplateClosure& template_closure(std::string_view path);

/// The path of a kernel's template: the file with the kernel's name, in any folder below kernels/. Throws Error if
/// there is none.
std::string_view kernel_template(std::string_view kernel);

/// Whether `path` is the path of an embedded file.
bool is_template(std::string_view path) noexcept;

}  // namespace kernelwright
