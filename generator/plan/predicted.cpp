#include "kernelwright/generator/plan/predicted.h"

namespace kernelwright {

double Predicted::term(std::string_view name) const {
  for (const PredictedTerm& term : terms)
    if (term.name == name) return term.microseconds;
  return 0;
}

}  // namespace kernelwright
