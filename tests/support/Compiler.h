// What tests need that compile specs from text.
#pragma once

#include "codegen/compile/Compile.h"

#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/Error.h"

#include <stdexcept>

namespace llmopt::test {

/// The value, or an exception with the message.
template <typename T> T valueOf(llvm::Expected<T> value) {
  if (!value)
    throw std::runtime_error(llvm::toString(value.takeError()));
  return std::move(*value);
}

/// A context that knows the product's dialects, made once.
inline mlir::MLIRContext &testContext() {
  static mlir::MLIRContext context = [] {
    mlir::DialectRegistry registry;
    registerDialects(registry);
    return mlir::MLIRContext(registry, mlir::MLIRContext::Threading::DISABLED);
  }();
  return context;
}

} // namespace llmopt::test
