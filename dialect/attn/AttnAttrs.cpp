// Registration and generated code of the attributes.
#include "dialect/attn/Asm.h"
#include "dialect/attn/AttnDialect.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/StringExtras.h"
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

/// Adds A's mnemonic where A is a mask that is written by it.
template <typename A> static void addMaskName(SmallVectorImpl<StringRef> &names) {
  constexpr bool isMask = std::is_base_of_v<MaskAttrInterface::Trait<A>, A>;
  if (isMask && !llvm::is_one_of<A, AndAttr, OrAttr, NotAttr>::value)
    names.push_back(A::getMnemonic());
}

template <typename... A> static SmallVector<StringRef> maskNamesAmong() {
  SmallVector<StringRef> names;
  (addMaskName<A>(names), ...);
  return names;
}

std::string llmopt::attn::maskNames() {
  return llvm::join(maskNamesAmong<
#define GET_ATTRDEF_LIST
#include "dialect/attn/AttnAttrs.cpp.inc"
                        >(),
                    ", ");
}

LogicalResult llmopt::attn::printBareAttribute(AsmPrinter &printer, Attribute attribute) {
  return generatedAttributePrinter(attribute, printer);
}
