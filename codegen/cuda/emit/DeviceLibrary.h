// The device functions (codegen/cuda/device/*.cuh), embedded in this program.
#pragma once

#include "llvm/ADT/StringRef.h"

#include <string>

namespace llmopt::cuda {

/// The definitions that `text` needs, by name, and those that they need themselves, in an
/// order in which each comes after what it uses.
std::string deviceFunctionsFor(llvm::StringRef text);

/// All device text: part of a kernel's key.
llvm::StringRef deviceLibraryText();

} // namespace llmopt::cuda
