// Registration and generated code of the attributes.
#include "dialect/attn/Asm.h"
#include "dialect/attn/AttnDialect.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace llmopt::attn;

#include "dialect/attn/AttnAttrInterfaces.cpp.inc"
#include "dialect/attn/AttnEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "dialect/attn/AttnAttrs.cpp.inc"

void AttnDialect::registerAttributes() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialect/attn/AttnAttrs.cpp.inc"
      >();
}

OptionalParseResult llmopt::attn::parseBareAttribute(AsmParser &parser, StringRef *keyword,
                                                     Attribute &attribute) {
  return generatedAttributeParser(parser, keyword, Type(), attribute);
}

LogicalResult llmopt::attn::printBareAttribute(AsmPrinter &printer, Attribute attribute) {
  return generatedAttributePrinter(attribute, printer);
}
