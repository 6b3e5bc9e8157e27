// Spec text in, bundles out: the compile function that an application hands to the runtime.
#pragma once

#include "runtime/base/Status.h"
#include "runtime/bundle/Program.h"

#include <string_view>
#include <vector>

namespace llmopt {

struct CompileOptions;

/// Compiles every spec function of a text, in order, for a target ("cpu", "cuda:sm_80").
/// InvalidArgument with the first diagnostic, line and column included, where the text is no
/// spec or cannot be compiled.
runtime::StatusOr<std::vector<bundle::Program>> compileText(std::string_view text,
                                                            std::string_view target = "cpu");
runtime::StatusOr<std::vector<bundle::Program>> compileText(std::string_view text,
                                                            const CompileOptions &options);

} // namespace llmopt
