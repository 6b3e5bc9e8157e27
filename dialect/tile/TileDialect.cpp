// Registration of the tile dialect.
#include "dialect/tile/TileDialect.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

#include "dialect/tile/TileDialect.cpp.inc"
#include "dialect/tile/TileEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "dialect/tile/TileAttrs.cpp.inc"

#define GET_TYPEDEF_CLASSES
#include "dialect/tile/TileTypes.cpp.inc"

using namespace llmopt::tile;

void TileDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialect/tile/TileAttrs.cpp.inc"
      >();
  addTypes<
#define GET_TYPEDEF_LIST
#include "dialect/tile/TileTypes.cpp.inc"
      >();
  registerOps();
}

bool llmopt::tile::isTile(mlir::Type type) {
  auto tensor = mlir::dyn_cast<mlir::RankedTensorType>(type);
  return tensor && tensor.getRank() == 2 && tensor.hasStaticShape();
}
