// See KernelBuilder.h.
#include "passes/attn/KernelBuilder.h"

#include "dialect/tile/RangeAttr.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"

#include <limits>

using namespace mlir;
using namespace llmopt;
using bundle::BufferRole;
using bundle::SlotKind;

namespace {

Type memoryType(bundle::ElementType type, MLIRContext *context) {
  switch (type) {
  case bundle::ElementType::F32:
    return Float32Type::get(context);
  case bundle::ElementType::F16:
    return Float16Type::get(context);
  case bundle::ElementType::BF16:
    return BFloat16Type::get(context);
  case bundle::ElementType::Bool: // one byte each
  case bundle::ElementType::I8:
    return IntegerType::get(context, 8);
  case bundle::ElementType::U32:
  case bundle::ElementType::I32:
    return IntegerType::get(context, 32);
  case bundle::ElementType::I64:
    break;
  }
  return IntegerType::get(context, 64);
}

} // namespace

KernelBuilder::KernelBuilder(ModuleOp module, Location loc, const Signature &signature,
                             StringRef name)
    : b(module.getContext()), loc(loc), signature(signature) {
  SmallVector<Type> arguments;
  for (const bundle::Slot &slot : signature.slots) {
    if (slot.kind != SlotKind::Pointer) {
      arguments.push_back(b.getIndexType());
      continue;
    }
    Type element = memoryType(signature.buffers[slot.buffer].type, b.getContext());
    arguments.push_back(MemRefType::get({ShapedType::kDynamic}, element));
  }
  arguments.push_back(b.getIndexType());
  b.setInsertionPointToEnd(module.getBody());
  func = func::FuncOp::create(b, loc, name, b.getFunctionType(arguments, {}));
  func->setAttr(tile::kKernelAttr, b.getUnitAttr());
  func.setArgAttr(arguments.size() - 1, tile::kWorkerAttr, b.getUnitAttr());
  b.setInsertionPointToStart(func.addEntryBlock());
  for (auto [i, slot] : llvm::enumerate(signature.slots)) {
    std::string wish = signature.buffers[slot.buffer].name;
    if (slot.kind == SlotKind::Stride)
      wish += "_stride" + std::to_string(slot.dim);
    else if (slot.kind == SlotKind::Extent)
      wish += "_extent" + std::to_string(slot.dim);
    func.getArgument(i).setLoc(named(wish));
  }

  Value array = signature.scalars.empty() ? Value() : pointer(BufferRole::Scalars);
  for (auto [i, entry] : llvm::enumerate(signature.scalars)) {
    Value raw = memref::LoadOp::create(b, loc, array, idx(i));
    if (entry.type == bundle::ScalarType::I64) {
      scalars.push_back(
          called(entry.name, arith::IndexCastOp::create(b, loc, b.getIndexType(), raw)));
      continue;
    }
    if (entry.type == bundle::ScalarType::F64) {
      scalars.push_back(called(entry.name, arith::BitcastOp::create(b, loc, b.getF64Type(), raw)));
      continue;
    }
    Value low = arith::TruncIOp::create(b, loc, b.getI32Type(), raw);
    scalars.push_back(called(entry.name, arith::BitcastOp::create(b, loc, b.getF32Type(), low)));
  }
}

Location KernelBuilder::named(StringRef name) { return NameLoc::get(b.getStringAttr(name), loc); }

Value KernelBuilder::called(StringRef name, Value value) {
  Operation *op = value.getDefiningOp();
  op->setLoc(NameLoc::get(StringAttr::get(op->getContext(), name), op->getLoc()));
  return value;
}

Value KernelBuilder::noted(StringRef note, Value value) {
  Operation *op = value.getDefiningOp();
  if (auto argument = dyn_cast<BlockArgument>(value))
    op = argument.getOwner()->getParentOp();
  op->setAttr(tile::kNoteAttr, StringAttr::get(op->getContext(), note));
  return value;
}

void KernelBuilder::finish() { func::ReturnOp::create(b, loc); }

Value KernelBuilder::slot(int buffer, SlotKind kind, unsigned dim) {
  return func.getArgument(signature.findSlot(buffer, kind, dim));
}

Value KernelBuilder::worker() { return func.getArguments().back(); }
Value KernelBuilder::scalar(int index) { return scalars[index]; }

Value KernelBuilder::idx(int64_t value) { return arith::ConstantIndexOp::create(b, loc, value); }
Value KernelBuilder::add(Value x, Value y) { return arith::AddIOp::create(b, loc, x, y); }
Value KernelBuilder::sub(Value x, Value y) { return arith::SubIOp::create(b, loc, x, y); }
Value KernelBuilder::mul(Value x, Value y) { return arith::MulIOp::create(b, loc, x, y); }
Value KernelBuilder::min(Value x, Value y) { return arith::MinSIOp::create(b, loc, x, y); }
Value KernelBuilder::max(Value x, Value y) { return arith::MaxSIOp::create(b, loc, x, y); }
Value KernelBuilder::floorDiv(Value x, int64_t positive) {
  return arith::FloorDivSIOp::create(b, loc, x, idx(positive));
}
Value KernelBuilder::cmp(arith::CmpIPredicate predicate, Value x, Value y) {
  return arith::CmpIOp::create(b, loc, predicate, x, y);
}
Value KernelBuilder::select(Value condition, Value x, Value y) {
  return arith::SelectOp::create(b, loc, condition, x, y);
}
Value KernelBuilder::toI32(Value index) {
  return arith::IndexCastOp::create(b, loc, b.getI32Type(), index);
}
Value KernelBuilder::f32(double value) {
  return arith::ConstantOp::create(b, loc, b.getF32FloatAttr(value));
}

Value KernelBuilder::perHead(int buffer, Value head) {
  Value raw = memref::LoadOp::create(b, loc, pointer(buffer), mul(head, stride(buffer, 0)));
  Type memory = raw.getType();
  if (isa<FloatType>(memory))
    return memory.isF32() ? raw : arith::ExtFOp::create(b, loc, b.getF32Type(), raw).getResult();
  if (memory.isInteger(32))
    return raw;
  auto limit = [&](int64_t value) -> Value {
    return arith::ConstantOp::create(b, loc, b.getIntegerAttr(memory, value));
  };
  Value clamped = max(min(raw, limit(std::numeric_limits<int32_t>::max())),
                      limit(std::numeric_limits<int32_t>::min()));
  return arith::TruncIOp::create(b, loc, b.getI32Type(), clamped);
}

/// "WorkItem" -> "work_item": names of text that the kernels are printed as.
static std::string snakeCase(StringRef name) {
  std::string result;
  for (char c : name) {
    if (llvm::isUpper(c) && !result.empty())
      result += '_';
    result += llvm::toLower(c);
  }
  return result;
}

std::string KernelBuilder::constantName(StringRef record, StringRef name) {
  return snakeCase(record) + "::" + snakeCase(name);
}

/// What a plan's number can be, least and most, where there is a limit.
static std::optional<std::array<int64_t, 2>> rangeOf(StringRef field, int64_t kvHeads) {
  using Range = std::optional<std::array<int64_t, 2>>;
  return llvm::StringSwitch<Range>(field)
      .Cases({"firstRow", "rowCount", "row"}, Range({0, bundle::kMaxRows}))
      .Cases({"keyBegin", "keyEnd", "keyLen", "queryLen"}, Range({0, bundle::kMaxLength}))
      .Case("position", Range({-bundle::kMaxLength, bundle::kMaxLength}))
      .Case("kvHead", Range({0, kvHeads - 1}))
      .Case("flags", Range({0, bundle::kMixedSequences}))
      .Default(std::nullopt);
}

Value KernelBuilder::field(BufferRole role, Value record, const RecordField &field) {
  Value place = mul(record, idx(field.bytes / field.size));
  place.getDefiningOp()->setAttr(tile::kConstantAttr,
                                 b.getStringAttr(constantName(field.record, "words")));
  if (role == BufferRole::Items || role == BufferRole::Merges)
    called("item_at", place);
  else if (role == BufferRole::Sequences)
    called("sequence_at", place);
  Value index = add(place, idx(field.offset / field.size));
  std::string name = (role == BufferRole::Rows ? "entry_" : "") + snakeCase(field.field);
  auto raw = memref::LoadOp::create(b, named(name), pointer(role), index);
  raw->setAttr(tile::kConstantAttr, b.getStringAttr(constantName(field.record, field.field)));
  attn::AttentionOp attention = signature.attention;
  if (auto range = rangeOf(field.field, attention ? attention.getKvHeads() : 1))
    raw->setAttr(tile::kRangeAttr, b.getDenseI64ArrayAttr(*range));
  if (field.isSigned)
    return arith::IndexCastOp::create(b, loc, b.getIndexType(), raw);
  return arith::IndexCastUIOp::create(b, loc, b.getIndexType(), raw);
}

Value KernelBuilder::entry(BufferRole role, Value entry) {
  Value raw = memref::LoadOp::create(b, loc, pointer(role), entry);
  return arith::IndexCastUIOp::create(b, loc, b.getIndexType(), raw);
}

void KernelBuilder::forEach(StringRef name, Value lo, Value hi, int64_t step,
                            std::function<void(Value)> body) {
  auto loop = scf::ForOp::create(b, loc, lo, hi, idx(step));
  loop.getInductionVar().setLoc(named(name));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  body(loop.getInductionVar());
}

SmallVector<Value>
KernelBuilder::forEach(Value lo, Value hi, ValueRange init,
                       std::function<SmallVector<Value>(Value, ValueRange)> body) {
  auto loop = scf::ForOp::create(b, loc, lo, hi, idx(1), init);
  loop.getInductionVar().setLoc(named("step"));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  SmallVector<Value> next = body(loop.getInductionVar(), loop.getRegionIterArgs());
  scf::YieldOp::create(b, loc, next);
  return SmallVector<Value>(loop.getResults());
}

std::pair<Value, Value> KernelBuilder::range(BufferRole offsets) {
  Value first = entry(offsets, worker());
  Value last = called("items_end", entry(offsets, add(worker(), idx(1))));
  return {first, last};
}

RankedTensorType KernelBuilder::tileType(int64_t rows, int64_t columns, Type element) {
  return RankedTensorType::get({rows, columns}, element);
}

Value KernelBuilder::splat(int64_t rows, int64_t columns, double value) {
  RankedTensorType type = tileType(rows, columns, b.getF32Type());
  return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, float(value)));
}

Type KernelBuilder::elementType(int buffer) {
  return memoryType(signature.buffers[buffer].type, b.getContext());
}

Value KernelBuilder::map(RankedTensorType type, ValueRange inputs, MapBody body) {
  auto map = tile::MapOp::create(b, loc, TypeRange{type}, inputs, ArrayAttr());
  OpBuilder::InsertionGuard guard(b);
  Block *block = b.createBlock(&map.getBody());
  for (Value input : inputs)
    block->addArgument(cast<RankedTensorType>(input.getType()).getElementType(), loc);
  Value row = block->addArgument(b.getI32Type(), loc);
  Value column = block->addArgument(b.getI32Type(), loc);
  SmallVector<Value> results = body(b, block->getArguments().drop_back(2), row, column);
  tile::YieldOp::create(b, loc, results);
  return map.getResult(0);
}

Value KernelBuilder::reduce(tile::Combiner combiner, Value tile) {
  auto type = cast<RankedTensorType>(tile.getType());
  return tile::ReduceOp::create(b, loc, tileType(type.getDimSize(0), 1, type.getElementType()),
                                combiner, tile);
}
