#include "dialect/reference/Context.h"

#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/SmallString.h"

#include <algorithm>

namespace llmopt::reference {

llvm::Error error(const llvm::Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

std::vector<LiteralNumber> literalNumbers(attn::AttentionOp op) {
  std::vector<LiteralNumber> literals;
  std::map<std::string, int> uses;
  for (const attn::NumberUse &use : op.getNumbers()) {
    if (llvm::isa<attn::ArgAttr>(use.value))
      continue;
    int before = uses[use.name.str()]++;
    literals.push_back({use.name.str() + (before ? "_" + std::to_string(before) : ""), use});
  }
  return literals;
}

llvm::Expected<Array> Context::array(const std::string &name) const {
  if (const Array *array = inputs.find(name))
    return *array;
  return error("array '" + name + "' is not bound");
}

llvm::Expected<Array> Context::argument(unsigned index) const {
  return array("arg" + std::to_string(index));
}

static std::string textOf(double value) {
  llvm::SmallString<24> text;
  llvm::APFloat(value).toString(text);
  return text.str().str();
}

/// `value` of a number for all heads, unless the caller may not give it.
static llvm::Expected<Number> checked(attn::AttentionOp op, mlir::Attribute owner, unsigned index,
                                      const std::string &name, double value) {
  for (const attn::NumberUse &use : op.getNumbers()) {
    if (use.owner != owner || use.index != index || value >= use.least)
      continue;
    std::string advice = use.advice.empty() ? "" : "; " + use.advice.str();
    return error("number '" + name + "' is " + textOf(value) + "; " + textOf(use.least) +
                 " and more are allowed" + advice);
  }
  return Number{{value}};
}

llvm::Expected<Number> Context::number(mlir::Attribute owner, unsigned index,
                                       mlir::Attribute value) const {
  if (auto arg = llvm::dyn_cast<attn::ArgAttr>(value)) {
    llvm::Expected<Array> array = argument(arg.getIndex());
    if (!array)
      return array.takeError();
    if (array->rank() == 0)
      return checked(op, owner, index, "arg" + std::to_string(arg.getIndex()), array->at({}));
    Number number;
    // Beyond every position all integers mean the same, and a double holds these exactly.
    constexpr double kFar = 0x1p31;
    for (int64_t h = 0; h < array->shape[0]; ++h)
      number.values.push_back(isFloat(array->type) ? array->at({h})
                                                   : std::clamp(array->at({h}), -kFar, kFar));
    return number;
  }
  for (const LiteralNumber &literal : literalNumbers(op)) {
    if (literal.use.owner != owner || literal.use.index != index)
      continue;
    auto override = inputs.numbers.find(literal.name);
    if (override != inputs.numbers.end())
      return checked(op, owner, index, literal.name,
                     literal.use.isFloat ? float(override->second) : override->second);
  }
  if (auto integer = llvm::dyn_cast<mlir::IntegerAttr>(value))
    return Number{{double(integer.getValue().getSExtValue())}};
  if (auto real = llvm::dyn_cast<mlir::FloatAttr>(value))
    return Number{{double(float(real.getValueAsDouble()))}};
  std::string text;
  llvm::raw_string_ostream(text) << value;
  return error("number " + text + " is neither a literal nor #attn.arg");
}

} // namespace llmopt::reference
