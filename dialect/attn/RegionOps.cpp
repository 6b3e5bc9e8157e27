#include "dialect/attn/RegionOps.h"

#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using namespace llmopt::attn;

llvm::ArrayRef<llvm::StringLiteral> llmopt::attn::regionOps() {
  static constexpr llvm::StringLiteral ops[] = {
      // Any type.
      "arith.constant", "arith.select",
      // Reals.
      "arith.addf", "arith.cmpf", "arith.divf", "arith.extf", "arith.fptosi", "arith.fptoui",
      "arith.maximumf", "arith.maxnumf", "arith.minimumf", "arith.minnumf", "arith.mulf",
      "arith.negf", "arith.remf", "arith.subf", "arith.truncf",
      // Integers.
      "arith.addi", "arith.andi", "arith.ceildivsi", "arith.ceildivui", "arith.cmpi", "arith.divsi",
      "arith.divui", "arith.extsi", "arith.extui", "arith.floordivsi", "arith.index_cast",
      "arith.index_castui", "arith.maxsi", "arith.maxui", "arith.minsi", "arith.minui",
      "arith.muli", "arith.ori", "arith.remsi", "arith.remui", "arith.shli", "arith.shrsi",
      "arith.shrui", "arith.sitofp", "arith.subi", "arith.trunci", "arith.uitofp", "arith.xori",
      // Functions.
      "math.absf", "math.absi", "math.acos", "math.acosh", "math.asin", "math.asinh", "math.atan",
      "math.atan2", "math.atanh", "math.cbrt", "math.ceil", "math.copysign", "math.cos",
      "math.cosh", "math.ctlz", "math.ctpop", "math.cttz", "math.erf", "math.erfc", "math.exp",
      "math.exp2", "math.expm1", "math.floor", "math.fma", "math.fpowi", "math.ipowi",
      "math.isfinite", "math.isinf", "math.isnan", "math.log", "math.log10", "math.log1p",
      "math.log2", "math.powf", "math.round", "math.roundeven", "math.rsqrt", "math.sin",
      "math.sinh", "math.sqrt", "math.tan", "math.tanh", "math.trunc"};
  return ops;
}

/// What does the same, in ops that are allowed.
static StringRef alternative(StringRef name) {
  return llvm::StringSwitch<StringRef>(name)
      .Case("arith.addui_extended", "arith.addi on i64")
      .Cases({"arith.mulsi_extended", "arith.mului_extended"}, "arith.muli on i64")
      .Case("math.clampf", "arith.maximumf and arith.minimumf")
      .Case("math.isnormal", "math.isfinite, math.absf and arith.cmpf")
      .Case("math.sincos", "math.sin and math.cos")
      .Default("ops on scalars that docs/attn-dialect.md lists");
}

/// The scalars that every target computes with.
static bool isScalar(Type type) {
  if (auto integer = dyn_cast<IntegerType>(type))
    return integer.getWidth() <= 64;
  return isa<IndexType, Float16Type, BFloat16Type, Float32Type, Float64Type>(type);
}

LogicalResult llmopt::attn::verifyRegionOp(Operation &op) {
  StringRef name = op.getName().getStringRef(), dialect = op.getName().getDialectNamespace();
  if (dialect != "arith" && dialect != "math")
    return op.emitOpError()
           << "is not allowed in a mask or score region; arith and math ops on scalars are";
  if (!llvm::is_contained(regionOps(), name))
    return op.emitOpError() << "is not allowed in a mask or score region; use "
                            << alternative(name);
  auto verifyTypes = [&](TypeRange types, StringRef does) -> LogicalResult {
    for (Type type : types)
      if (!isScalar(type))
        return op.emitOpError() << does << " " << type
                                << "; index, integers of up to 64 bits, f16, bf16, f32 and f64 "
                                   "are allowed in a mask or score region";
    return success();
  };
  return success(succeeded(verifyTypes(op.getResultTypes(), "yields")) &&
                 succeeded(verifyTypes(op.getOperandTypes(), "takes")));
}
