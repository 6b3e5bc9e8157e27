// Scalar operations of arith, math and memref.
#include "codegen/cuda/emit/Printer.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/ADT/TypeSwitch.h"

#include <numbers>

using namespace mlir;
using namespace llmopt;
using namespace llmopt::cuda;

namespace {

struct Operator {
  const char *symbol;
  Precedence precedence;
};

/// Infix operators of integers and floats.
std::optional<Operator> infix(StringRef name) {
  return llvm::StringSwitch<std::optional<Operator>>(name)
      .Cases({"arith.addi", "arith.addf"}, Operator{"+", Precedence::Sum})
      .Cases({"arith.subi", "arith.subf"}, Operator{"-", Precedence::Sum})
      .Cases({"arith.muli", "arith.mulf"}, Operator{"*", Precedence::Product})
      .Case("arith.divsi", Operator{"/", Precedence::Product})
      .Case("arith.remsi", Operator{"%", Precedence::Product})
      .Case("arith.shli", Operator{"<<", Precedence::Shift})
      .Case("arith.shrsi", Operator{">>", Precedence::Shift})
      .Case("arith.andi", Operator{"&", Precedence::BitAnd})
      .Case("arith.xori", Operator{"^", Precedence::BitXor})
      .Case("arith.ori", Operator{"|", Precedence::BitOr})
      .Default(std::nullopt);
}

/// Functions of the same operands; `f` is put before or after by type (see below).
StringRef function(StringRef name) {
  return llvm::StringSwitch<StringRef>(name)
      .Cases({"arith.minsi", "arith.minui"}, "minimum")
      .Cases({"arith.maxsi", "arith.maxui"}, "maximum")
      .Cases({"arith.floordivsi"}, "floor_div")
      .Cases({"arith.ceildivsi"}, "ceil_div")
      .Case("arith.maxnumf", "fmax")
      .Case("arith.minnumf", "fmin")
      .Case("arith.remf", "fmod")
      .Case("math.exp", "exp")
      .Case("math.expm1", "expm1")
      .Case("math.log", "log")
      .Case("math.log2", "log2")
      .Case("math.log10", "log10")
      .Case("math.log1p", "log1p")
      .Case("math.sqrt", "sqrt")
      .Case("math.rsqrt", "rsqrt")
      .Case("math.cbrt", "cbrt")
      .Case("math.tanh", "tanh")
      .Case("math.sinh", "sinh")
      .Case("math.cosh", "cosh")
      .Case("math.sin", "sin")
      .Case("math.cos", "cos")
      .Case("math.tan", "tan")
      .Case("math.asin", "asin")
      .Case("math.acos", "acos")
      .Case("math.atan", "atan")
      .Case("math.atan2", "atan2")
      .Case("math.erf", "erf")
      .Case("math.erfc", "erfc")
      .Case("math.powf", "pow")
      .Case("math.fma", "fma")
      .Case("math.floor", "floor")
      .Case("math.ceil", "ceil")
      .Case("math.trunc", "trunc")
      .Case("math.round", "round")
      .Case("math.roundeven", "rint")
      .Case("math.absf", "fabs")
      .Case("math.copysign", "copysign")
      .Default("");
}

std::string literal(FloatAttr value) {
  const llvm::APFloat &number = value.getValue();
  bool isDouble = value.getType().isF64();
  if (number.isNaN())
    return isDouble ? "__longlong_as_double(0x7ff8000000000000)" : "__int_as_float(0x7fc00000)";
  if (number.isInfinity())
    return number.isNegative() ? "-infinity" : "infinity";
  if (!isDouble && number.bitwiseIsEqual(llvm::APFloat(std::numbers::log2e_v<float>)))
    return "log2_e";
  if (!isDouble && number.bitwiseIsEqual(llvm::APFloat(std::numbers::ln2_v<float>)))
    return "ln_2";
  llvm::SmallString<32> text;
  llvm::APFloat wide = number;
  bool loses;
  wide.convert(isDouble ? llvm::APFloat::IEEEdouble() : llvm::APFloat::IEEEsingle(),
               llvm::APFloat::rmNearestTiesToEven, &loses);
  wide.toString(text, isDouble ? 17 : 9, 4);
  std::string result = text.str().str();
  if (result.find_first_of(".eE") == std::string::npos)
    result += ".0";
  return result + (isDouble ? "" : "f");
}

Expression compare(arith::CmpFPredicate predicate, const Expression &a, const Expression &b) {
  using P = arith::CmpFPredicate;
  auto plain = [&](const char *op) { return binary(a, op, b, Precedence::Relation); };
  auto equal = [&](const char *op) { return binary(a, op, b, Precedence::Equality); };
  auto negated = [&](const Expression &e) {
    return Expression{"!(" + e.text + ")", Precedence::Unary};
  };
  Expression unordered{
      a.in(Precedence::Equality, true) + " != " + a.in(Precedence::Equality, true) + " || " +
          b.in(Precedence::Equality, true) + " != " + b.in(Precedence::Equality, true),
      Precedence::Or};
  Expression apart{plain("<").text + " || " + plain(">").text, Precedence::Or};
  switch (predicate) {
  case P::AlwaysFalse:
    return {"false"};
  case P::AlwaysTrue:
    return {"true"};
  case P::OEQ:
    return equal("==");
  case P::UNE:
    return equal("!=");
  case P::OLT:
    return plain("<");
  case P::OLE:
    return plain("<=");
  case P::OGT:
    return plain(">");
  case P::OGE:
    return plain(">=");
  case P::ULT:
    return negated(plain(">="));
  case P::ULE:
    return negated(plain(">"));
  case P::UGT:
    return negated(plain("<="));
  case P::UGE:
    return negated(plain("<"));
  case P::ONE:
    return apart;
  case P::UEQ:
    return negated(apart);
  case P::ORD:
    return negated(unordered);
  case P::UNO:
    return unordered;
  }
  return {"false"};
}

bool isUnsigned(arith::CmpIPredicate predicate) { return predicate >= arith::CmpIPredicate::ult; }

bool isNarrowFloat(Type type) { return type.isF16() || type.isBF16(); }

} // namespace

/// `text` as the unsigned type of the same width.
static Expression asUnsigned(Type type, const Expression &e) {
  if (type.isInteger(1))
    return e;
  const char *name = type.isInteger(8)    ? "u8"
                     : type.isInteger(16) ? "u16"
                     : type.isInteger(32) ? "u32"
                                          : "u64";
  return {std::string(name) + "(" + e.text + ")"};
}

bool llmopt::cuda::isWidened(Value value) {
  auto cast = value.getDefiningOp<arith::IndexCastOp>();
  return cast && cast.getIn().getType().isInteger(32) && !isa<NameLoc>(cast.getLoc());
}

Expression Printer::asInt(Value value) {
  return isWidened(value) ? use(value) : Expression{"int(" + use(value).text + ")"};
}

static Value withoutCasts(Value value) {
  while (auto cast = value.getDefiningOp<arith::IndexCastOp>())
    value = cast.getIn();
  return value;
}

/// What differs between a thread's elements comes last: the rest is computed once for all.
std::optional<Expression> Printer::lessThanColumn(Operation *op, const Expression &less) {
  if (!current || !isa<arith::SubIOp>(op) || !op->getResult(0).getType().isInteger(32) ||
      withoutCasts(op->getOperand(0)) != current->map.getColumnIndex())
    return std::nullopt;
  Expression ofThread = threadPart(current->space, tile::LayoutDim::Column);
  Expression ofElement =
      coordinate(current->space.registers, tile::LayoutDim::Column, current->index);
  return sum(binary(ofThread, "-", less, Precedence::Sum), ofElement);
}

std::optional<Expression> Printer::partOfCoordinate(Operation *op) {
  IntegerAttr divisor;
  if (!current || !isa<arith::DivUIOp, arith::RemUIOp>(op) ||
      !matchPattern(op->getOperand(1), m_Constant(&divisor)) || divisor.getInt() <= 0)
    return std::nullopt;
  Value value = withoutCasts(op->getOperand(0));
  bool isRow = value == current->map.getRowIndex();
  if (!isRow && value != current->map.getColumnIndex())
    return std::nullopt;
  std::optional<SplitCoordinate> split =
      splitCoordinate(current->space, isRow ? tile::LayoutDim::Row : tile::LayoutDim::Column,
                      divisor.getInt(), current->index);
  if (!split)
    return std::nullopt;
  Expression part = isa<arith::DivUIOp>(op) ? split->quotient : split->rest;
  return op->getResult(0).getType().isIndex() ? Expression{"i64(" + part.text + ")"} : part;
}

FailureOr<Expression> Printer::scalarExpression(Operation *op) {
  SmallVector<Expression> in;
  for (Value operand : op->getOperands())
    in.push_back(isWidened(operand) ? Expression{"i64(" + use(operand).text + ")"} : use(operand));
  Type type = op->getResult(0).getType();
  StringRef name = op->getName().getStringRef();
  auto cast = [&](StringRef to, const Expression &e) {
    return Expression{to.str() + "(" + e.text + ")"};
  };
  auto call = [&](StringRef callee) {
    std::string text = callee.str() + "(";
    for (auto [i, e] : llvm::enumerate(in))
      text += (i ? ", " : "") + e.text;
    return Expression{text + ")"};
  };
  // Narrow floats are computed in float and rounded.
  bool narrow =
      isNarrowFloat(type) &&
      !isa<arith::ExtFOp, arith::TruncFOp, arith::SelectOp, arith::BitcastOp, arith::ConstantOp>(
          op);
  for (auto [i, operand] : llvm::enumerate(op->getOperands()))
    if (isNarrowFloat(operand.getType()) && !isa<arith::SelectOp, arith::BitcastOp>(op))
      in[i] = cast("to_f32", in[i]);
  auto rounded = [&](Expression e) {
    return narrow ? cast(type.isF16() ? "to_f16" : "to_bf16", e) : e;
  };

  if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
    if (auto value = dyn_cast<FloatAttr>(constant.getValue())) {
      std::string text = literal(value);
      Expression e{text, text[0] == '-' ? Precedence::Unary : Precedence::Atom};
      return isNarrowFloat(type) ? cast(type.isF16() ? "to_f16" : "to_bf16", e) : e;
    }
    if (auto splat = dyn_cast<SplatElementsAttr>(constant.getValue())) {
      if (auto value = dyn_cast<FloatAttr>(splat.getSplatValue<Attribute>())) {
        std::string text = value.getValue().isZero() ? "0.0f" : literal(value);
        return Expression{text, text[0] == '-' ? Precedence::Unary : Precedence::Atom};
      }
      return number(splat.getSplatValue<IntegerAttr>().getInt());
    }
    if (auto value = dyn_cast<IntegerAttr>(constant.getValue())) {
      if (type.isInteger(1))
        return Expression{value.getValue().isZero() ? "false" : "true"};
      if (std::string known = constants.lookup(value.getInt()); !known.empty())
        return Expression{known};
      Expression e = number(value.getInt());
      if (value.getValue().getSignificantBits() > 32)
        e.text += "ll";
      return e;
    }
  }
  if (auto compareInts = dyn_cast<arith::CmpIOp>(op)) {
    const char *symbols[] = {"==", "!=", "<", "<=", ">", ">=", "<", "<=", ">", ">="};
    auto predicate = compareInts.getPredicate();
    Type operand = compareInts.getLhs().getType();
    if (auto constant = op->getAttrOfType<StringAttr>(tile::kConstantAttr))
      in[1] = {constant.getValue().str()};
    if (isUnsigned(predicate))
      in[0] = asUnsigned(operand, in[0]), in[1] = asUnsigned(operand, in[1]);
    Precedence binds =
        predicate <= arith::CmpIPredicate::ne ? Precedence::Equality : Precedence::Relation;
    return binary(in[0], symbols[unsigned(predicate)], in[1], binds);
  }
  if (auto compareFloats = dyn_cast<arith::CmpFOp>(op))
    return compare(compareFloats.getPredicate(), in[0], in[1]);
  if (isa<arith::SelectOp>(op))
    return Expression{in[0].in(Precedence::Or) + " ? " + in[1].in(Precedence::Or) + " : " +
                          in[2].in(Precedence::Or),
                      Precedence::Conditional};
  if (type.isInteger(1) && isa<arith::AndIOp, arith::OrIOp>(op))
    return isa<arith::AndIOp>(op) ? binary(in[0], "&&", in[1], Precedence::And)
                                  : binary(in[0], "||", in[1], Precedence::Or);
  if (type.isInteger(1) && isa<arith::XOrIOp>(op))
    return binary(in[0], "!=", in[1], Precedence::Equality);
  if (isa<arith::DivUIOp, arith::RemUIOp, arith::ShRUIOp, arith::CeilDivUIOp>(op)) {
    if (std::optional<Expression> part = partOfCoordinate(op))
      return *part;
    in[0] = asUnsigned(type, in[0]);
    // A literal takes the type of the other side.
    if (!matchPattern(op->getOperand(1), m_Constant()) || isa<arith::CeilDivUIOp>(op))
      in[1] = asUnsigned(type, in[1]);
    if (isa<arith::CeilDivUIOp>(op))
      return cast(typeName(type), call("ceil_div"));
    const char *symbol = isa<arith::DivUIOp>(op) ? "/" : isa<arith::RemUIOp>(op) ? "%" : ">>";
    Precedence binds = isa<arith::ShRUIOp>(op) ? Precedence::Shift : Precedence::Product;
    return cast(typeName(type), binary(in[0], symbol, in[1], binds));
  }
  if (isa<arith::MinUIOp, arith::MaxUIOp>(op)) {
    in[0] = asUnsigned(type, in[0]), in[1] = asUnsigned(type, in[1]);
    return cast(typeName(type), call(isa<arith::MinUIOp>(op) ? "minimum" : "maximum"));
  }
  if (auto division = dyn_cast<arith::FloorDivSIOp>(op)) {
    IntegerAttr by;
    if (matchPattern(division.getRhs(), m_Constant(&by)) && by.getValue().isPowerOf2())
      return binary(in[0], ">>", number(by.getValue().logBase2()), Precedence::Shift);
  }
  if (isa<arith::FloorDivSIOp, arith::CeilDivSIOp, arith::MinSIOp, arith::MaxSIOp>(op)) {
    // A literal gets the other operand's type.
    for (auto [i, operand] : llvm::enumerate(op->getOperands()))
      if (matchPattern(operand, m_Constant()) && !type.isInteger(32))
        in[i] = cast(typeName(type), in[i]);
  }
  if (auto constant = op->getAttrOfType<StringAttr>(tile::kConstantAttr))
    in[1] = {constant.getValue().str()};
  if (std::optional<Expression> part = lessThanColumn(op, in.size() > 1 ? in[1] : number(0)))
    return *part;
  if (std::optional<Operator> known = infix(name)) {
    Expression e = binary(in[0], known->symbol, in[1], known->precedence);
    if (type.isInteger(8) || type.isInteger(16))
      return cast(typeName(type), e);
    return rounded(e);
  }
  if (isa<arith::IndexCastOp, arith::ExtSIOp, arith::TruncIOp, arith::SIToFPOp>(op)) {
    if (type.isInteger(1))
      return binary(binary(in[0], "&", number(1), Precedence::BitAnd), "!=", number(0),
                    Precedence::Equality);
    Type from = op->getOperand(0).getType();
    if (isa<arith::ExtSIOp>(op) && from.isInteger(1))
      return Expression{in[0].in(Precedence::Or) + " ? -1 : 0", Precedence::Conditional};
    if (isNarrowFloat(type))
      return rounded(cast("float", in[0]));
    if (typeName(type) == typeName(from))
      return in[0];
    return cast(typeName(type), in[0]);
  }
  if (isa<arith::IndexCastUIOp, arith::ExtUIOp, arith::UIToFPOp>(op)) {
    Expression e = asUnsigned(op->getOperand(0).getType(), in[0]);
    if (isNarrowFloat(type))
      return rounded(cast("float", e));
    return cast(typeName(type), e);
  }
  if (isa<arith::FPToSIOp>(op))
    return cast(typeName(type), in[0]);
  if (isa<arith::FPToUIOp>(op))
    return cast(typeName(type), cast("u64", in[0]));
  if (isa<arith::ExtFOp>(op))
    return type.isF64() ? cast("double", in[0]) : in[0];
  if (isa<arith::TruncFOp>(op)) {
    if (type.isF32())
      return cast("float", in[0]);
    Expression single = op->getOperand(0).getType().isF64() ? cast("float", in[0]) : in[0];
    return cast(type.isF16() ? "to_f16" : "to_bf16", single);
  }
  if (isa<arith::BitcastOp>(op)) {
    Type from = op->getOperand(0).getType();
    if (type.isF32() && from.isInteger(32))
      return cast("__int_as_float", in[0]);
    if (type.isInteger(32) && from.isF32())
      return cast("__float_as_int", in[0]);
    if (type.isF64() && from.isInteger(64))
      return cast("__longlong_as_double", in[0]);
  }
  if (isa<arith::NegFOp>(op))
    return rounded({"-" + in[0].in(Precedence::Unary, true), Precedence::Unary});
  if (isa<arith::DivFOp>(op))
    return rounded(type.isF64() ? binary(in[0], "/", in[1], Precedence::Product) : call("divide"));
  if (isa<arith::MaximumFOp, arith::MinimumFOp>(op) && !type.isF64())
    return rounded(call(isa<arith::MaximumFOp>(op) ? "max_nan" : "min_nan"));
  if (isa<math::Exp2Op>(op))
    return rounded(call(type.isF64() ? "exp2" : "exp2_approx"));
  if (auto log = dyn_cast<math::Log2Op>(op);
      log && type.isF32() && bitEnumContainsAll(log.getFastmath(), arith::FastMathFlags::afn))
    return call("log2_approx");
  if (isa<math::AbsIOp>(op))
    return call("llabs");
  if (isa<math::CtPopOp>(op))
    return cast(typeName(type), cast("__popcll", asUnsigned(op->getOperand(0).getType(), in[0])));
  if (StringRef callee = function(name); !callee.empty()) {
    bool single = isa<FloatType>(type) && !type.isF64();
    return rounded(call(single ? (callee + "f").str() : callee.str()));
  }
  return op->emitOpError() << "has no form in CUDA C++; arith and math operations on scalars of "
                              "32 or 64 bits have one";
}

LogicalResult Printer::scalar(Operation *op) {
  if (op->getNumResults() != 1 || op->getNumRegions() != 0)
    return op->emitOpError("has no form in CUDA C++");
  if (isWidened(op->getResult(0))) {
    bound[op->getResult(0)] = use(op->getOperand(0));
    return success();
  }
  FailureOr<Expression> expression = scalarExpression(op);
  if (failed(expression))
    return failure();
  Value value = op->getResult(0);
  if (isa<arith::ConstantOp>(op))
    bound[value] = *expression;
  else
    define(value, *expression);
  return success();
}

LogicalResult Printer::print(memref::LoadOp load) {
  Value index = load.getIndices()[0];
  std::string at = use(index).text;
  if (auto constant = load->getAttrOfType<StringAttr>(tile::kConstantAttr)) {
    // A constant 0 is gone.
    auto added = withoutCasts(index).getDefiningOp<arith::AddIOp>();
    bool ends = added && matchPattern(added.getRhs(), m_Constant());
    at = sum(use(ends ? added.getLhs() : index), {constant.getValue().str()}).text;
  }
  std::string text = use(load.getMemRef()).text + "[" + at + "]";
  // A cast right behind it takes the load along.
  Operation *next = load->getNextNode();
  bool taken = next && load->hasOneUse() && *load->user_begin() == next &&
               isa<arith::IndexCastOp, arith::IndexCastUIOp, arith::TruncIOp, arith::ExtFOp>(next);
  if (taken) {
    bound[load] = {text};
    return success();
  }
  std::string variable = name(load, "x");
  w.line("const " + typeName(load.getType()) + " " + variable + " = " + text + ";");
  bound[load] = {variable};
  return success();
}

LogicalResult Printer::print(memref::StoreOp store) {
  w.line(use(store.getMemRef()).text + "[" + use(store.getIndices()[0]).text +
         "] = " + use(store.getValueToStore()).text + ";");
  return success();
}
