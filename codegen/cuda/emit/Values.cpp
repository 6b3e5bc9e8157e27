// How SSA values become C++ variables and expressions.
#include "codegen/cuda/emit/Printer.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace llmopt;
using namespace llmopt::cuda;
using tile::Layout;
using tile::LayoutDim;

namespace {

RankedTensorType typeOf(Value tile) { return cast<RankedTensorType>(tile.getType()); }

/// Longer expressions get a name also if they are used once.
constexpr size_t kInlineLength = 48, kYieldLength = 80;

} // namespace

/// Line of the spec that `location` leads to; 0 if none is known.
static unsigned lineOf(Location location) {
  unsigned line = 0;
  location->walk([&](Location inner) {
    if (auto place = dyn_cast<FileLineColLoc>(inner))
      line = place.getLine();
    return line ? WalkResult::interrupt() : WalkResult::advance();
  });
  return line;
}

/// Whether a map's value of one use comes from another line than its user: from a region of the
/// spec, whose lines are lines of the text, so that a message about one leads to the other.
bool Printer::hasItsOwnLine(Value value) {
  if (!isa_and_nonnull<tile::MapOp>(value.getParentBlock()->getParentOp()) ||
      isa<BlockArgument>(value))
    return false;
  unsigned line = lineOf(value.getLoc());
  return line && line != lineOf(kernel.getLoc()) && line != lineOf((*value.user_begin())->getLoc());
}

/// Whether a value of one use is what a map yields, perhaps as another integer type.
static bool isYielded(Value value) {
  Operation *user = *value.user_begin();
  if (isa<arith::IndexCastOp>(user) && user->hasOneUse())
    user = *user->user_begin();
  return isa<tile::YieldOp>(user);
}

/// The variable in "int(variable)"; else empty.
static std::string castVariable(Value value, const Expression &expression) {
  StringRef text = expression.text;
  if (!isa_and_nonnull<arith::IndexCastOp>(value.getDefiningOp()) || !text.consume_front("int(") ||
      !text.consume_back(")"))
    return "";
  bool isName = llvm::all_of(text, [](char c) { return llvm::isAlnum(c) || c == '_'; });
  while (text.contains('_') && llvm::all_of(text.rsplit('_').second, llvm::isDigit))
    text = text.rsplit('_').first; // the number that made the name unique
  return isName ? text.str() : "";
}

StringRef llmopt::cuda::nameOf(Value value) {
  Location place = value.getLoc();
  auto result = dyn_cast<OpResult>(value);
  if (auto each = dyn_cast<FusedLoc>(place);
      each && result && each.getLocations().size() == result.getOwner()->getNumResults())
    place = each.getLocations()[result.getResultNumber()];
  auto named = dyn_cast<NameLoc>(place);
  return named ? named.getName().getValue() : StringRef();
}

std::string Printer::name(Value value, StringRef otherwise) {
  StringRef own = nameOf(value);
  return names.fresh(own.empty() ? otherwise : own);
}

Expression Printer::use(Value value) {
  auto known = bound.find(value);
  if (known != bound.end())
    return known->second;
  emitError(value.getLoc()) << "a value of type " << value.getType()
                            << " has no text where it is used";
  complete = false;
  return number(0);
}

/// The one use of a value is the index that several use.
static bool isWidenedOften(Value value) {
  Operation *user = *value.user_begin();
  return user->getNumResults() == 1 && isWidened(user->getResult(0)) && !user->hasOneUse();
}

void Printer::define(Value value, Expression expression) {
  if (value.use_empty())
    return;
  bool isCall = StringRef(expression.text).contains('('),
       isLoad = StringRef(expression.text).contains('[');
  bool named = isa<NameLoc>(value.getLoc()) && (expression.binds != Precedence::Atom || isCall);
  bool here = value.hasOneUse() && !isWidenedOften(value) &&
              value.getUses().begin()->getOwner()->getBlock() == value.getParentBlock() &&
              !hasItsOwnLine(value);
  bool inRegion = isa_and_nonnull<tile::MapOp>(value.getParentBlock()->getParentOp());
  bool atom = expression.binds == Precedence::Atom && !isCall && !named && (!isLoad || inRegion);
  // What a map yields stands right in the assignment.
  bool yields = here && isYielded(value);
  size_t most = yields ? kYieldLength : kInlineLength;
  if (!named &&
      ((atom && expression.text.size() < 24) || (here && expression.text.size() <= most))) {
    bound[value] = expression;
    return;
  }
  StringRef otherwise = value.getType().isInteger(1)      ? "is"
                        : isa<FloatType>(value.getType()) ? "x"
                                                          : "n";
  std::string number = castVariable(value, expression); // goes by its name in another type, too
  if (!number.empty())
    otherwise = number;
  std::string variable = name(value, otherwise);
  w.line("const " + typeName(value.getType()) + " " + variable + " = " + expression.text + ";");
  bound[value] = {variable};
}

std::string Printer::typeName(Type type) {
  if (type.isIndex() || type.isInteger(64))
    return "i64";
  if (type.isInteger(32))
    return "int";
  if (type.isInteger(1))
    return "bool";
  if (type.isInteger(8))
    return "i8";
  if (type.isInteger(16))
    return "short";
  if (type.isF32())
    return "float";
  if (type.isF64())
    return "double";
  if (type.isBF16())
    return "bf16";
  if (type.isF16())
    return "f16";
  return "";
}

Layout Printer::layoutOf(Value tile) { return tile::fragmentOf(tile).getLayout(); }

/// Whether registers 2 i and 2 i + 1 hold neighbours of a row.
static bool inPairs(const Layout &layout) {
  return !layout.registers.empty() && layout.registers[0].dim == LayoutDim::Column &&
         layout.registers[0].stride == 1 && layout.registers[0].extent % 2 == 0;
}

bool Printer::isPacked(Value tile) {
  Type element = typeOf(tile).getElementType();
  return (element.isF16() || element.isBF16()) && inPairs(layoutOf(tile));
}

bool Printer::holdsPairs(Value tile) {
  return typeOf(tile).getElementType().isF32() && inPairs(layoutOf(tile));
}

int64_t Printer::registersOf(Value tile) {
  return layoutOf(tile).registerCount() / (isPacked(tile) ? 2 : 1);
}

std::string Printer::elementName(Value tile) {
  return isPacked(tile) ? "u32" : typeName(typeOf(tile).getElementType());
}

std::string Printer::declare(Value tile, StringRef init) {
  std::string variable = name(tile, "t");
  int64_t count = registersOf(tile);
  std::string text = elementName(tile) + " " + variable;
  bool filled = false;
  if (count > 1) {
    text += "[" + std::to_string(count) + "]";
    if (init == "0.0f" || init == "0") {
      text += " = {}", filled = true;
    } else if (!init.empty() && count <= 4) {
      text += " = {";
      for (int64_t i = 0; i < count; ++i)
        text += (i ? ", " : "") + init.str();
      text += "}", filled = true;
    }
  } else if (!init.empty()) {
    text += " = " + init.str(), filled = true;
  }
  w.line(text + ";");
  if (!filled && !init.empty())
    fill(variable, count, init.str());
  variables[tile] = variable;
  return variable;
}

void Printer::fill(const std::string &variable, int64_t count, const std::string &value) {
  w.unrolled("i", count);
  w.line(variable + "[i] = " + value + ";");
  w.close();
}

Expression Printer::element(Value tile, const Expression &index) {
  if (auto constant = bound.find(tile); constant != bound.end())
    return constant->second;
  std::string variable = variables.lookup(tile);
  auto at = [&](const std::string &i) {
    return registersOf(tile) == 1 ? variable : variable + "[" + i + "]";
  };
  if (!isPacked(tile))
    return {at(index.text)};
  std::string pair = index.in(Precedence::Product) + " / 2";
  std::string half = index.in(Precedence::Product) + " % 2";
  return {"unpack<" + typeName(typeOf(tile).getElementType()) + ">(" + at(pair) + ", " + half +
          ")"};
}

bool Printer::diesAt(Value value, Operation *op) {
  // The rest of a turn behind `continue` goes on where its loop's body stopped.
  Block *home = op->getBlock();
  auto branch = dyn_cast<scf::IfOp>(home->getParentOp());
  bool isRest = branch && home == branch.elseBlock() && skipsTurn(branch);
  if (isRest && value.getParentBlock() == branch->getBlock())
    home = branch->getBlock();
  if (!variables.count(value) || value.getParentBlock() != home)
    return false;
  return llvm::all_of(value.getUsers(), [&](Operation *user) {
    if (user == op || (isRest && user == branch.thenYield()))
      return true;
    if (Operation *ancestor = op->getBlock()->findAncestorOpInBlock(*user))
      return ancestor != op && ancestor->isBeforeInBlock(op);
    Operation *ancestor = home->findAncestorOpInBlock(*user);
    return isRest && ancestor && ancestor->isBeforeInBlock(branch);
  });
}

std::string Printer::takeOver(Value value, Value operand, Operation *op) {
  if (auto place = places.find(value); place != places.end())
    return variables[value] = place->second;
  bool same = operand && diesAt(operand, op) && registersOf(operand) == registersOf(value) &&
              elementName(operand) == elementName(value);
  if (!same)
    return declare(value);
  std::string variable = variables[operand];
  variables[value] = variable;
  return variable;
}

void Printer::copyTile(const std::string &to, Value from) {
  int64_t count = registersOf(from);
  if (auto constant = bound.find(from); constant != bound.end()) {
    if (count == 1)
      w.line(to + " = " + constant->second.text + ";");
    else
      fill(to, count, constant->second.text);
    return;
  }
  std::string source = variables.lookup(from);
  if (source == to)
    return;
  if (count == 1)
    w.line(to + " = " + source + ";");
  else
    fill(to, count, source + "[i]");
}

void Printer::forEachRegister(const Layout &layout, int64_t step,
                              llvm::function_ref<void(const Expression &)> body) {
  int64_t count = layout.registerCount();
  if (count <= step)
    return body(number(0));
  w.unrolled("i", count, step);
  body({"i"});
  w.close();
}

/// What a thread's row or column in this layout is for: a word for its name, and a comment.
static std::pair<std::string, std::string> describe(const Layout &layout, LayoutDim dim) {
  // Lanes before the first axis along `dim` share the coordinate.
  int64_t sharing = 1, extent = 1, replicas = 1;
  for (const tile::LayoutAxis &axis : layout.lanes) {
    if (axis.dim == dim) {
      extent = axis.extent;
      break;
    }
    sharing *= axis.extent;
    if (axis.dim == LayoutDim::Replica)
      replicas *= axis.extent;
  }
  bool isRow = dim == LayoutDim::Row;
  std::string what = isRow ? "row" : "column";
  if (isRow ? sharing == 4 && extent == 8 : extent == 4 && sharing == 1) {
    std::string comment = "this thread's first " + what + " in a fragment of mma.m16n8k16";
    for (const tile::LayoutAxis &axis : layout.warps)
      if (isRow && axis.dim == dim)
        comment += "; each warp has " + std::to_string(axis.stride) + " rows of its own";
    if (!isRow)
      comment += ". Element i of a fragment of 16 rows lies i / 2 % 2 * 8 rows and i % 2 + i / 4 * "
                 "8 columns "
                 "further on";
    return {"mma", comment};
  }
  if (isRow && sharing > 1 && sharing == replicas)
    return {"copy", "this thread's first row of a tile that is copied, with " +
                        std::to_string(sharing - 1) + " neighbours"};
  bool isShared = llvm::any_of(
      layout.lanes, [](const tile::LayoutAxis &axis) { return axis.dim == LayoutDim::Replica; });
  if (isRow && layout.registers.empty() && isShared)
    return {"thread",
            "the row of a tile whose address this thread looks up, for its neighbours, too"};
  return {"thread", "this thread's first " + what + " of a tile"};
}

Expression Printer::threadPart(const Layout &layout, LayoutDim dim) {
  Expression text =
      sum(coordinate(layout.warps, dim, {"warp"}), coordinate(layout.lanes, dim, {"lane"}));
  if (text.binds == Precedence::Atom)
    return text;
  for (const ThreadConstant &known : threadConstants)
    if (known.expression == text.text)
      return {known.name};
  auto [use, comment] = describe(layout, dim);
  std::string variable = names.freshOutside(use + (dim == LayoutDim::Row ? "_row" : "_column"));
  threadConstants.push_back({variable, text.text, comment});
  return {variable};
}

std::string Printer::elementAt(const std::string &element, const std::string &tile,
                               const Layout &layout, const Expression &index, int64_t slice,
                               const Expression &first) {
  Expression row = sum(first, threadPart(layout, LayoutDim::Row)),
             rows = coordinate(layout.registers, LayoutDim::Row, index);
  if (slice && slice < layout.cover().first) {
    Layout threads = layout, registers = layout;
    threads.registers.clear(), registers.lanes.clear(), registers.warps.clear();
    if (splitCoordinate(layout, LayoutDim::Row, slice, index))
      row = splitCoordinate(threads, LayoutDim::Row, slice, index)->rest,
      rows = splitCoordinate(registers, LayoutDim::Row, slice, index)->rest;
    else
      row = {"(" + sum(row, rows).text + ") % " + std::to_string(slice)}, rows = number(0);
  }
  Expression columns = coordinate(layout.registers, LayoutDim::Column, index);
  std::string text = "element_at<" + element + ">(" + tile + ", " + row.text + ", " +
                     threadPart(layout, LayoutDim::Column).text;
  if (rows.text != "0" || columns.text != "0")
    text += ", " + rows.text + ", " + columns.text;
  return text + ")";
}

Expression Printer::rowOf(const Layout &layout, const Expression &index) {
  return sum(threadPart(layout, LayoutDim::Row),
             coordinate(layout.registers, LayoutDim::Row, index));
}

Expression Printer::columnOf(const Layout &layout, const Expression &index) {
  return sum(threadPart(layout, LayoutDim::Column),
             coordinate(layout.registers, LayoutDim::Column, index));
}

std::string Printer::warpRow(const Layout &layout) {
  return coordinate(layout.warps, LayoutDim::Row, {"warp"}).text;
}

std::string Printer::inside(RankedTensorType type, const Layout &layout, const Expression &index) {
  auto [rows, columns] = layout.cover();
  std::string text;
  if (rows > type.getDimSize(0))
    text = rowOf(layout, index).text + " < " + std::to_string(type.getDimSize(0));
  if (columns > type.getDimSize(1))
    text += (text.empty() ? "" : " && ") + columnOf(layout, index).text + " < " +
            std::to_string(type.getDimSize(1));
  return text;
}
