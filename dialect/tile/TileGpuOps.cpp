// Layout attributes and verifiers of the ops that only GPUs use.
#include "dialect/tile/TileDialect.h"

#include "mlir/IR/DialectImplementation.h"

using namespace mlir;
using namespace llmopt::tile;

FragmentAttr llmopt::tile::fragmentOf(Value tile) {
  auto type = dyn_cast<RankedTensorType>(tile.getType());
  return type ? dyn_cast_or_null<FragmentAttr>(type.getEncoding()) : FragmentAttr();
}

SharedAttr llmopt::tile::sharedOf(Value tile) {
  auto type = dyn_cast<RankedTensorType>(tile.getType());
  return type ? dyn_cast_or_null<SharedAttr>(type.getEncoding()) : SharedAttr();
}

FragmentAttr FragmentAttr::get(MLIRContext *context, const Layout &layout) {
  return get(context, layout.registers, layout.lanes, layout.warps);
}

Layout FragmentAttr::getLayout() const {
  return {LayoutAxes(getRegisters()), LayoutAxes(getLanes()), LayoutAxes(getWarps())};
}

static ParseResult parseAxes(AsmParser &parser, StringRef unit, LayoutAxes &axes) {
  auto one = [&]() -> ParseResult {
    LayoutAxis axis{0, LayoutDim::Replica, 0};
    StringRef dim;
    if (parser.parseInteger(axis.extent))
      return failure();
    SMLoc loc = parser.getCurrentLocation();
    if (parser.parseKeyword(&dim))
      return failure();
    if (axis.extent < 1)
      return parser.emitError(loc) << "axis of extent " << axis.extent << "; 1 or more is wanted";
    if (dim == "copies") {
      axes.push_back(axis);
      return success();
    }
    if (dim != "rows" && dim != "columns")
      return parser.emitError(loc) << "'" << dim << "' is no axis; rows, columns or copies is";
    axis.dim = dim == "rows" ? LayoutDim::Row : LayoutDim::Column;
    axes.push_back(axis);
    return parser.parseInteger(axes.back().stride);
  };
  if (parser.parseKeyword(unit) ||
      parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, one))
    return failure();
  return success();
}

Attribute FragmentAttr::parse(AsmParser &parser, Type) {
  Layout layout;
  if (parser.parseLess() || parseAxes(parser, "registers", layout.registers) ||
      parser.parseComma() || parseAxes(parser, "lanes", layout.lanes) || parser.parseComma() ||
      parseAxes(parser, "warps", layout.warps) || parser.parseGreater())
    return {};
  return get(parser.getContext(), layout);
}

void FragmentAttr::print(AsmPrinter &printer) const { printer << "<" << getLayout().str() << ">"; }

LogicalResult CopyAsyncOp::verify() {
  auto rows = cast<RankedTensorType>(getRows().getType());
  auto buffer = cast<MemRefType>(getBuffer().getType());
  auto space = dyn_cast_or_null<SharedAttr>(buffer.getMemorySpace());
  if (!space || !buffer.hasStaticShape())
    return emitOpError() << "copies into " << buffer
                         << "; a buffer of static shape in memory space #tile.shared is wanted";
  if (rows.getDimSize(0) != buffer.getDimSize(1))
    return emitOpError() << "has addresses of " << rows.getDimSize(0) << " rows for a buffer of "
                         << buffer.getDimSize(1);
  Type memory = cast<MemRefType>(getBase().getType()).getElementType();
  if (memory != buffer.getElementType())
    return emitOpError() << "copies " << memory << " into " << buffer.getElementType()
                         << "; a copy does not convert";
  return success();
}

LogicalResult ConvertOp::verify() {
  auto from = cast<RankedTensorType>(getTile().getType());
  auto to = cast<RankedTensorType>(getResult().getType());
  if (from.getShape() != to.getShape() || from.getElementType() != to.getElementType())
    return emitOpError() << "makes " << to << " of " << from << "; only the layout may change";
  return success();
}
