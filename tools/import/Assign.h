// One step of a function that may fail.
#pragma once

#include "runtime/base/Status.h"

/// Declares `name` as the value of a StatusOr, or leaves with its failure.
#define LLMOPT_ASSIGN(name, expression)                                                            \
  auto name##OrFailure = (expression);                                                             \
  if (!name##OrFailure)                                                                            \
    return name##OrFailure.status();                                                               \
  auto &name = *name##OrFailure
