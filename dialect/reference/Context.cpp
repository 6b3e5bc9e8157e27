#include "dialect/reference/Context.h"

namespace llmopt::reference {

llvm::Error error(const llvm::Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

llvm::Expected<Array> Context::array(const std::string &name) const {
  if (const Array *array = inputs.find(name))
    return *array;
  return error("array '" + name + "' is not bound");
}

llvm::Expected<Array> Context::argument(unsigned index) const {
  return array("arg" + std::to_string(index));
}

llvm::Expected<Number> Context::number(mlir::Attribute owner, unsigned index, mlir::Attribute value) const {
  if (auto arg = llvm::dyn_cast<attn::ArgAttr>(value)) {
    llvm::Expected<Array> array = argument(arg.getIndex());
    if (!array)
      return array.takeError();
    Number number;
    if (array->rank() == 0)
      number.values.push_back(array->at({}));
    else
      for (int64_t h = 0; h < array->shape[0]; ++h)
        number.values.push_back(array->at({h}));
    return number;
  }
  for (const attn::NumberUse &use : op.getNumbers()) {
    if (use.owner != owner || use.index != index)
      continue;
    auto override = inputs.numbers.find(use.name.str());
    if (override != inputs.numbers.end())
      return Number{{use.isFloat ? float(override->second) : override->second}};
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
