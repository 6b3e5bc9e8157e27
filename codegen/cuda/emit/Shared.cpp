// Tiles in shared memory: waits, conversions, and the products that read them.
#include "codegen/cuda/emit/Printer.h"
#include "codegen/cuda/emit/SharedText.h"
#include "codegen/cuda/passes/Products.h"
#include "codegen/cuda/passes/RowTurns.h"
#include "codegen/cuda/passes/SharedAccess.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace llmopt;
using namespace llmopt::cuda;
using tile::Layout;
using tile::LayoutDim;

namespace {

RankedTensorType typeOf(Value tile) { return cast<RankedTensorType>(tile.getType()); }

/// The template argument for a read that ends with the tile's rows.
std::string boundOf(Operation *op, int64_t rows) {
  return op->hasAttr(kBoundedAttr) ? ", " + std::to_string(rows) : "";
}

/// Whether zeros around the tile have no reader, or no room.
bool needsNoPadding(tile::PutOp put) {
  RankedTensorType type = typeOf(put.getTile());
  return put->hasAttr(kUnpaddedAttr) ||
         (type.getDimSize(0) % 16 == 0 && type.getDimSize(1) % 16 == 0);
}

/// Registers begin with two blocks of mma's accumulators side by side.
bool beginsWithTwoBlocks(const Layout &layout) {
  const tile::LayoutAxis pair{2, LayoutDim::Column, 1}, half{2, LayoutDim::Row, 8};
  tile::LayoutAxes axes = layout.registers;
  return axes.size() > 2 && axes[0] == pair && axes[1] == half &&
         axes[2].dim == LayoutDim::Column && axes[2].stride == 8 && axes[2].extent % 2 == 0;
}

} // namespace

std::string Printer::slotOf(Value buffer, Value slot, int64_t ahead) {
  auto type = cast<MemRefType>(buffer.getType());
  std::string base = use(buffer).text;
  if (type.getDimSize(0) == 1)
    return base;
  Expression index = sum(use(slot), number(ahead));
  return base + " + u32(" + index.text + ") % " + std::to_string(type.getDimSize(0)) + " * " +
         std::to_string(slotBytes(type));
}

/// Row addresses as an array, also if there is one of them.
std::string Printer::rowArray(Value rows) {
  std::string variable = variables[rows];
  if (registersOf(rows) > 1)
    return variable;
  std::string array = names.fresh("rows");
  w.line("const i64 " + array + "[1] = {" + variable + "};");
  return array;
}

LogicalResult Printer::printStoreFromShared(tile::StoreOp store) {
  RankedTensorType type = typeOf(store.getTile());
  Type memory = cast<MemRefType>(store.getBase().getType()).getElementType();
  w.line("store_rows<" +
         arguments({typeName(memory), typeName(type.getElementType()),
                    std::to_string(type.getDimSize(0)), std::to_string(type.getDimSize(1)),
                    std::to_string(lanesOfRow(layoutOf(store.getRows()))), std::to_string(warps)}) +
         ">(" +
         arguments({use(store.getBase()).text, rowArray(store.getRows()),
                    store.getStride() ? use(store.getStride()).text : "1",
                    use(store.getTile()).text}) +
         ");");
  return success();
}

LogicalResult Printer::print(tile::GetOp get) {
  if (get.getToken())
    w.line("copy_wait<" + Twine(get.getPending().value_or(0)) + ">();");
  std::string variable = name(get.getTile(), "tile");
  w.line("const " + tileType(tile::sharedOf(get.getTile())) + " " + variable + " = {" +
         slotOf(get.getBuffer(), get.getSlot(), 0) + "};");
  bound[get.getTile()] = {variable};
  return success();
}

LogicalResult Printer::print(tile::PutOp put) {
  Layout layout = layoutOf(put.getTile());
  RankedTensorType type = typeOf(put.getTile());
  std::string element = typeName(type.getElementType()), to = names.fresh("to");
  std::string tile = tileType(layoutOfBuffer(put.getBuffer()));
  // Where rows are not turned, all that a thread stores is constants from its first element.
  bool isStraight = layoutOfBuffer(put.getBuffer()).getSpan() == 1 && layout.registerCount() > 2 &&
                    needsNoPadding(put);
  std::string place = isStraight ? "elements_from<" + element + ">(" + tile + "{" +
                                       use(put.getBuffer()).text + "}, " +
                                       threadPart(layout, LayoutDim::Row).text + ", " +
                                       threadPart(layout, LayoutDim::Column).text + ")"
                                 : "{" + use(put.getBuffer()).text + "}";
  w.line("const " + (isStraight ? "auto" : tile) + " " + to + " = " + place + ";");
  std::string copies = isFirstCopy(layout);
  if (!copies.empty())
    w.open("if (" + copies + ")");
  bool even = type.getDimSize(1) % 2 == 0;
  bool packed = even && isPacked(put.getTile()), pairs = even && holdsPairs(put.getTile());
  bool blocks =
      pairs && isStraight && beginsWithTwoBlocks(layout) && inside(type, layout, number(0)).empty();
  forEachRegister(
      layout,
      blocks            ? 8
      : packed || pairs ? 2
                        : 1,
      [&](const Expression &index) {
        if (blocks) {
          w.line("store_two_blocks(" +
                 arguments({to, coordinate(layout.registers, LayoutDim::Row, index).text,
                            coordinate(layout.registers, LayoutDim::Column, index).text,
                            "&" + this->element(put.getTile(), index).text}) +
                 ");");
          return;
        }
        std::string condition = inside(type, layout, index);
        std::string value = this->element(put.getTile(), index).text;
        if (pairs)
          value += ", " + this->element(put.getTile(), sum(index, number(1))).text;
        if (packed)
          value =
              variables[put.getTile()] +
              (registersOf(put.getTile()) > 1 ? "[" + index.in(Precedence::Product) + " / 2]" : "");
        std::string address =
            isStraight
                ? to + ".at(" + coordinate(layout.registers, LayoutDim::Row, index).text + ", " +
                      coordinate(layout.registers, LayoutDim::Column, index).text + ")"
                : elementAt(element, to, layout, index);
        w.line((condition.empty() ? "" : "if (" + condition + ") ") + "store_shared(" + address +
               ", " + value + ");");
      });
  if (!copies.empty())
    w.close();
  if (!needsNoPadding(put))
    w.line("clear_padding<" +
           arguments({element, std::to_string(type.getDimSize(0)),
                      std::to_string(type.getDimSize(1)), std::to_string(32 * warps)}) +
           ">(" + to + ");");
  return success();
}

LogicalResult Printer::print(tile::ConvertOp convert) {
  Value from = convert.getTile(), to = convert.getResult();
  if (isFromLanes(convert)) {
    declare(to);
    forEachRegister(layoutOf(to), 1, [&](const Expression &index) {
      w.line(element(to, index).text + " = " + fromLane(convert, index) + ";");
    });
    return success();
  }
  if (!tile::sharedOf(from))
    return convert.emitOpError("changes the layout of registers; tile-gpu-stage lowers it");
  Layout layout = layoutOf(to);
  RankedTensorType type = typeOf(to);
  std::string source = use(from).text, element = typeName(type.getElementType());
  std::string variable = declare(to);
  if (loadsByMatrix(convert)) {
    int64_t depth = llvm::divideCeil(type.getDimSize(1), 16);
    int64_t blocks = registersOf(to) / (4 * depth);
    w.line("load_first_operand<" + Twine(blocks) + ", " + Twine(depth) +
           boundOf(convert, type.getDimSize(0)) + ">(" + variable + ", " + source + ", " +
           warpRow(layout) + ");");
    return success();
  }
  auto value = [&](const Expression &index) {
    std::string condition = inside(type, layout, index);
    std::string read =
        "load_shared<" + element + ">(" + elementAt(element, source, layout, index) + ")";
    return condition.empty() ? read : condition + " ? " + read + " : " + element + "{}";
  };
  forEachRegister(layout, isPacked(to) ? 2 : 1, [&](const Expression &index) {
    if (!isPacked(to)) {
      w.line(this->element(to, index).text + " = " + value(index) + ";");
      return;
    }
    w.line(variable + (registersOf(to) > 1 ? "[" + index.in(Precedence::Product) + " / 2]" : "") +
           " = pack_bits<" + element + ">(" + value(index) + ", " + value(sum(index, number(1))) +
           ");");
  });
  return success();
}

LogicalResult Printer::print(tile::MmaOp mma) {
  Value a = mma.getA(), b = mma.getB(), c = mma.getC();
  Layout layout = layoutOf(mma.getResult());
  RankedTensorType aType = typeOf(a), cType = typeOf(c);
  std::string variable;
  if (auto constant = bound.find(c); constant != bound.end())
    variable = declare(mma.getResult(), constant->second.text);
  else if (diesAt(c, mma))
    variable = takeOver(mma.getResult(), c, mma);
  else
    copyTile(variable = declare(mma.getResult()), c);

  // Functions take arrays; a tile of one register is a plain variable.
  std::string array = variable;
  if (layout.registerCount() == 1) {
    array = names.fresh("sum");
    w.line("float " + array + "[1] = {" + variable + "};");
  }
  auto finish = [&]() {
    if (array != variable)
      w.line(variable + " = " + array + "[0];");
    return success();
  };
  std::string second = use(b).text;
  int64_t slice = cType.getDimSize(0) / mma.getSlices();
  if (mma.getSlices() > 1) {
    int64_t bRows = typeOf(b).getDimSize(0) / mma.getSlices();
    if (bRows % 8)
      return mma.emitOpError() << "has slices of " << bRows
                               << " rows of b; a multiple of 8 is "
                                  "wanted in shared memory";
    // The slice of the warp's rows, as rows of b: whole warps belong to a slice.
    tile::LayoutAxes axes;
    int64_t run = 0;
    for (tile::LayoutAxis axis : layout.warps) {
      if (axis.dim == LayoutDim::Row && axis.stride < slice) {
        run = slice / axis.stride; // warps of one slice
        axes.push_back({run, LayoutDim::Replica, 0});
        axis = {axis.extent / run, LayoutDim::Row, slice};
      }
      axis.stride = axis.stride / slice * bRows;
      axes.push_back(axis);
    }
    second += ".from_row(" + coordinate(axes, LayoutDim::Row, {"warp"}).text + ")";
  }
  std::string element = typeName(aType.getElementType());
  int64_t depth = aType.getDimSize(1);
  if (onTensorCores(mma)) {
    bool inRegisters = !tile::sharedOf(a);
    std::string first = inRegisters ? variables[a] : use(a).text;
    std::string row = inRegisters ? "" : ", " + warpRow(firstOperandOf(mma, warps));
    int64_t blocks = llvm::divideCeil(cType.getDimSize(1), 8);
    w.line(std::string("product") + (mma.getTransposeB() ? "_transposed" : "") + "<" +
           arguments({element, std::to_string(layout.registerCount() / (4 * blocks)),
                      std::to_string(blocks), std::to_string(llvm::divideCeil(depth, 16))}) +
           boundOf(mma, aType.getDimSize(0)) + ">(" + arguments({array, first, second}) + row +
           ");");
    return finish();
  }
  int64_t run = mma.getTransposeB() ? 1 : 4;
  int64_t blocks = llvm::divideCeil(cType.getDimSize(1), 8 * run);
  int64_t rows = layout.registerCount() / (blocks * run);
  w.line(std::string("plain_product") + (mma.getTransposeB() ? "_transposed" : "") + "<" +
         arguments({element, std::to_string(rows), std::to_string(blocks), std::to_string(depth),
                    std::to_string(llvm::alignTo(aType.getDimSize(0), 16))}) +
         ">(" + arguments({array, use(a).text, second, threadPart(layout, LayoutDim::Row).text}) +
         ");");
  return finish();
}
