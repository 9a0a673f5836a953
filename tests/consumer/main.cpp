// Uses one function of each library in the package, to check that both link with everything they need.
#include <cstdio>
#include <string_view>

#include "kernelwright/generator/digest.h"
#include "kernelwright/runtime/engine/engine.h"
#include "kernelwright/runtime/process/events.h"

int main(int argc, char**) {
  if (argc > 1) kernelwright::Engine engine;  // never: to be linked is enough
  const std::string name = kernelwright::sha256("abc").hex();
  const std::string_view event = kernelwright::to_string(kernelwright::EventKind::kCompile);
  std::printf("sha256(abc) = %s, event = %.*s\n", name.c_str(), static_cast<int>(event.size()), event.data());
  return name.substr(0, 8) == "ba7816bf" && !event.empty() ? 0 : 1;
}
