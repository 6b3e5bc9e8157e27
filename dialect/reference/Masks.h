// The oracle's own predicate for every mask, written from the dialect's text.
#pragma once

#include "dialect/reference/Context.h"

#include <functional>

namespace llmopt::reference {

/// True where the pair's key is visible.
using Predicate = std::function<bool(const Pair &)>;

/// The predicate of a mask attribute; everything is visible for a null one.
llvm::Expected<Predicate> compileMask(mlir::Attribute mask, const Context &context);

/// Teaches the oracle a mask attribute of another dialect, by its TypeID. Call it where
/// the plugin is loaded, before any evaluation.
using MaskCompiler = std::function<llvm::Expected<Predicate>(mlir::Attribute, const Context &)>;
void registerMask(mlir::TypeID kind, MaskCompiler compiler);

} // namespace llmopt::reference
