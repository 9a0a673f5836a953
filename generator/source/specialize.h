/// Spec -> SourceUnit: all that a compiler needs to build one kernel, as text.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernelwright/generator/digest.h"
#include "kernelwright/generator/source/spec.h"
#include "kernelwright/generator/template_library.h"

namespace kernelwright {

/// A user's own header among those of a unit.
struct UserHeader {
  std::string include;                      // "user/mask.cuh"
  std::string type, file, field;            // as in SpecSource
  std::string subject;                      // the name of the type in static_asserts of the templates
  std::shared_ptr<const std::string> text;  // the unit's header refers to it
};

struct SourceUnit {
  std::string kernel;                 // "attention_portable"
  std::string entry;                  // extern "C" name: kernel, "_" and 16 hex digits of the Spec's digest
  std::string spec_header;            // text of spec.h: named constants and the entry's name
  std::string spec_text;              // canonical_text() of the Spec
  std::string source;                 // the translation unit: includes the template
  std::vector<TemplateFile> headers;  // from memory: templates include nothing else
  std::vector<UserHeader> sources;    // the user's own headers; spec_text has their digests
  Digest closure;
  std::string arch;                  // "sm_90a"
  std::vector<std::string> options;  // NVRTC's, in order
  /// One file that compiles by itself: spec.h and the closure pasted in order (the verb `source`).
  std::string flattened() const;
};

SourceUnit specialize(const Spec& spec);

/// The same with a template that is not embedded: the first file of `closure`, with the headers that it includes.
SourceUnit specialize(const Spec& spec, const TemplateClosure& closure);

/// The text of spec.h alone.
std::string spec_header(const Spec& spec);

}  // namespace kernelwright
