// Text of attn's attributes that is shared by the attributes and the clauses of
// attn.attention: numbers, mask expressions, options. Internal to the dialect.
//
// A number is a literal or `argN`: 4096, 0.5, arg1.
#pragma once

#include "mlir/IR/OpImplementation.h"

namespace llmopt::attn {

class SplitAttr;
class ScheduleAttr;

enum class NumberKind { Integer, Float };

/// Parse a number: an i64 IntegerAttr, an f64 FloatAttr or an #attn.arg.
mlir::ParseResult parseNumber(mlir::AsmParser &parser, NumberKind kind, mlir::Attribute &number);
void printNumber(mlir::AsmPrinter &printer, mlir::Attribute number);

/// Parse `argN`.
mlir::ParseResult parseArg(mlir::AsmParser &parser, unsigned &index);

/// `<number>` after a mnemonic; null after an error.
mlir::Attribute parseBracketedNumber(mlir::AsmParser &parser, NumberKind kind);
void printBracketedNumber(mlir::AsmPrinter &printer, mlir::Attribute number);

using EmitError = llvm::function_ref<mlir::InFlightDiagnostic()>;

/// An integer number called `what`: #attn.arg, or i64 from `least` to 2^31 - 1.
mlir::LogicalResult verifyInteger(EmitError emitError, mlir::Attribute number, llvm::StringRef what,
                                  int64_t least);
/// A float number called `what`: #attn.arg, or a finite f64.
mlir::LogicalResult verifyFloat(EmitError emitError, mlir::Attribute number, llvm::StringRef what);
/// An operand of a mask expression called `what`.
mlir::LogicalResult verifyMask(EmitError emitError, mlir::Attribute mask, const llvm::Twine &what);

/// Parse an attn attribute without its `#attn.` prefix. No value when the keyword in
/// front names none; the keyword is consumed and returned.
mlir::OptionalParseResult parseBareAttribute(mlir::AsmParser &parser, llvm::StringRef *keyword,
                                             mlir::Attribute &attribute);
/// What a mask expression may name: "causal, window, ...".
std::string maskNames();
/// Print an attn attribute without its `#attn.` prefix; failure when it is foreign.
mlir::LogicalResult printBareAttribute(mlir::AsmPrinter &printer, mlir::Attribute attribute);

/// expression := term (`or` term)*, term := factor (`and` factor)*,
/// factor := `not` factor | `(` expression `)` | mnemonic [`<` ... `>`] | #attribute
mlir::ParseResult parseMaskExpression(mlir::AsmParser &parser, mlir::Attribute &mask);
void printMaskExpression(mlir::AsmPrinter &printer, mlir::Attribute mask);

/// `none`, `count = N` or `length = N`; null after an error.
SplitAttr parseSplitBody(mlir::AsmParser &parser);
void printSplitBody(mlir::AsmPrinter &printer, SplitAttr split);
/// `rows = N`, `keys = N`, `batch_invariant`, some of them; null after an error.
ScheduleAttr parseScheduleBody(mlir::AsmParser &parser);
void printScheduleBody(mlir::AsmPrinter &printer, ScheduleAttr schedule);

} // namespace llmopt::attn
