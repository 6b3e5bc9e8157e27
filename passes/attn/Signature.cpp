// Arrays, numbers and slots of a spec function; see Signature.h.
#include "passes/attn/Signature.h"

#include "dialect/attn/SpecFunction.h"
#include "dialect/attn/mask/RegionBounds.h"

using namespace mlir;
using namespace llmopt;
using bundle::BufferRole;
using bundle::SlotKind;

namespace {

bundle::ElementType elementTypeOf(Type type) {
  if (type.isF16())
    return bundle::ElementType::F16;
  if (type.isBF16())
    return bundle::ElementType::BF16;
  if (type.isInteger(1))
    return bundle::ElementType::Bool;
  if (type.isInteger(8))
    return bundle::ElementType::I8;
  if (type.isInteger(32))
    return bundle::ElementType::I32;
  if (type.isInteger(64) || type.isIndex())
    return bundle::ElementType::I64;
  return bundle::ElementType::F32;
}

bool isTensor(Type type) { return isa<RankedTensorType>(type); }

} // namespace

FailureOr<Signature> Signature::of(func::FuncOp spec) {
  FailureOr<attn::SpecOps> ops = attn::specOps(spec);
  if (failed(ops))
    return failure();
  Signature s;
  s.append = ops->append;
  s.attention = ops->attention;
  s.merge = ops->merge;
  constexpr int64_t kMaxHeads = 65536;
  if (s.attention && s.attention.getQueryHeads() > kMaxHeads) {
    s.attention.emitOpError() << "has " << s.attention.getQueryHeads() << " query heads; at most "
                              << kMaxHeads << " are allowed";
    return failure();
  }
  if (s.append) {
    s.addTensor("new_k", BufferRole::NewKey, s.append.getKeys().getType());
    s.addTensor("new_v", BufferRole::NewValue, s.append.getValues().getType());
    s.addTensor("slots", BufferRole::SlotMapping, s.append.getSlots().getType());
    s.addCache(s.append.getCache().getType());
  }
  if (s.attention)
    s.addAttention();
  if (s.merge) {
    s.addTensor("partials", BufferRole::PartialIn, s.merge.getPartials().getType());
    s.addTensor("partial_lse", BufferRole::PartialLseIn, s.merge.getLses().getType());
    s.addTensor("o", BufferRole::Output, s.merge.getOutput().getType(), /*output=*/true);
    if (s.merge.getLse())
      s.addTensor("lse", BufferRole::Lse, s.merge.getLse().getType(), /*output=*/true);
  }
  if (s.attention)
    s.addCaptured();
  s.addPlan();
  return s;
}

int Signature::addBuffer(StringRef name, BufferRole role, Type element, ArrayRef<int64_t> extents,
                         bool output) {
  int index = buffers.size();
  bundle::Buffer buffer;
  buffer.name = name.str();
  buffer.role = role;
  buffer.type = elementTypeOf(element);
  buffer.output = output;
  for (int64_t extent : extents)
    buffer.extents.push_back(ShapedType::isDynamic(extent) ? -1 : extent);
  buffers.push_back(std::move(buffer));
  slots.push_back({SlotKind::Pointer, unsigned(index)});
  return index;
}

void Signature::addTensor(StringRef name, BufferRole role, Type type, bool output) {
  auto tensor = cast<RankedTensorType>(type);
  int buffer = addBuffer(name, role, tensor.getElementType(), tensor.getShape(), output);
  for (unsigned dim = 0; dim < tensor.getRank(); ++dim)
    slots.push_back({SlotKind::Stride, unsigned(buffer), dim});
  // The standalone merge takes its number of partials and heads from the arrays.
  if (role == BufferRole::PartialIn)
    for (unsigned dim = 0; dim < 3; ++dim)
      slots.push_back({SlotKind::Extent, unsigned(buffer), dim});
}

void Signature::addCache(attn::KvCacheType cache) {
  if (findBuffer(BufferRole::KeyPool) >= 0)
    return;
  int64_t dynamic = ShapedType::kDynamic;
  auto pool = [&](StringRef name, BufferRole role, int64_t dim) {
    SmallVector<int64_t> extents{dynamic};
    if (cache.getInterleaved())
      extents.push_back(2);
    int64_t page = cache.getPageSize(), heads = cache.getKvHeads();
    extents.append({cache.getHeadMajor() ? heads : page, cache.getHeadMajor() ? page : heads, dim});
    int buffer = addBuffer(name, role, cache.getElementType(), extents);
    // The innermost stride is 1 by definition of the cache.
    for (unsigned d = 0; d + 1 < extents.size(); ++d)
      slots.push_back({SlotKind::Stride, unsigned(buffer), d});
  };
  if (cache.getInterleaved()) {
    pool("kv_pool", BufferRole::KeyPool, cache.getHeadDim());
    return;
  }
  pool("k_pool", BufferRole::KeyPool, cache.getHeadDim());
  pool("v_pool", BufferRole::ValuePool, cache.getVDim());
}

void Signature::addAttention() {
  Type i32 = IntegerType::get(attention.getContext(), 32);
  int64_t dynamic = ShapedType::kDynamic;
  addTensor("q", BufferRole::Query, attention.getQuery().getType());
  if (attn::KvCacheType cache = attention.getCacheType()) {
    addCache(cache);
    if (cache.getIndptr()) {
      addBuffer("kv_indptr", BufferRole::TableIndptr, i32, {dynamic});
      addBuffer("kv_indices", BufferRole::BlockTable, i32, {dynamic});
    } else {
      addBuffer("block_table", BufferRole::BlockTable, i32, {dynamic, dynamic});
    }
  } else {
    addTensor("k", BufferRole::Key, attention.getKey().getType());
    addTensor("v", BufferRole::Value, attention.getValue().getType());
  }
  if (attention.isRaggedQuery())
    addBuffer("cu_seqlens_q", BufferRole::CuSeqlensQ, i32, {dynamic});
  if (attention.isRaggedKv())
    addBuffer("cu_seqlens_kv", BufferRole::CuSeqlensKv, i32, {dynamic});
  else if (attention.getSequences())
    addBuffer("kv_len", BufferRole::KvLen, i32, {dynamic});
  addArgs();
  addTensor("o", BufferRole::Output, attention.getOutput().getType(), /*output=*/true);
  if (attention.getLse())
    addTensor("lse", BufferRole::Lse, attention.getLse().getType(), /*output=*/true);
  addNumbers();
}

void Signature::addArgs() {
  attn::ArgAttr sink = attention.getSinkAttr();
  attn::TreeAttr tree = attn::treeOf(attention.getMaskAttr());
  for (auto [i, operand] : llvm::enumerate(attention.getArgs())) {
    std::string name = ("arg" + Twine(i)).str();
    if (!isTensor(operand.getType())) {
      args.push_back(-1);
      scalarArgs.push_back(addScalar(name, operand.getType(), {}));
      continue;
    }
    auto type = cast<RankedTensorType>(operand.getType());
    BufferRole role = BufferRole::PerHead;
    if (sink && sink.getIndex() == i)
      role = BufferRole::SinkLogit;
    else if (tree && tree.getArg() == i)
      role = BufferRole::Tree;
    else if (type.getRank() == 4)
      role = type.getElementType().isInteger() ? BufferRole::DenseMask : BufferRole::Bias;
    args.push_back(buffers.size());
    scalarArgs.push_back(-1);
    addTensor(name, role, type);
  }
}

int Signature::addScalar(StringRef name, Type type, Attribute value) {
  bundle::Scalar scalar;
  scalar.name = name.str();
  for (unsigned n = 1; llvm::any_of(scalars, [&](auto &s) { return s.name == scalar.name; }); ++n)
    scalar.name = (name + "_" + Twine(n)).str();
  scalar.type = type.isF64()           ? bundle::ScalarType::F64
                : isa<FloatType>(type) ? bundle::ScalarType::F32
                                       : bundle::ScalarType::I64;
  scalar.required = !value;
  // What the type does not hold would wrap. The runtime holds all integers to 32 bits.
  if (auto integer = dyn_cast<IntegerType>(type); integer && integer.getWidth() < 32) {
    unsigned width = integer.getWidth();
    scalar.least = width == 1 ? 0 : double(APInt::getSignedMinValue(width).getSExtValue());
    scalar.most = width == 1 ? 1 : double(APInt::getSignedMaxValue(width).getSExtValue());
  }
  if (auto integer = dyn_cast_or_null<IntegerAttr>(value))
    scalar.intDefault = integer.getInt(), scalar.floatDefault = integer.getInt();
  if (auto number = dyn_cast_or_null<FloatAttr>(value))
    scalar.floatDefault = number.getValueAsDouble();
  scalars.push_back(std::move(scalar));
  return scalars.size() - 1;
}

void Signature::addNumbers() {
  Builder b(attention.getContext());
  for (const attn::NumberUse &use : attention.getNumbers()) {
    Type type = use.isFloat ? Type(b.getF32Type()) : b.getI64Type();
    bool known = llvm::any_of(numbers, [&](const NumberEntry &entry) {
      return entry.owner == use.owner && entry.index == use.index;
    });
    if (known)
      continue;
    NumberSlot slot;
    slot.isFloat = use.isFloat;
    if (auto arg = dyn_cast<attn::ArgAttr>(use.value)) {
      slot.buffer = args[arg.getIndex()];
      slot.scalar = scalarArgs[arg.getIndex()];
      // The planner bounds a per-head number by its smallest and largest value.
      if (slot.buffer >= 0) {
        slot.scalar = addScalar(buffers[slot.buffer].name, type, {});
        scalars[slot.scalar].required = false; // the array is
        scalars[slot.scalar].perHeadBuffer = slot.buffer;
      }
    } else {
      slot.scalar = addScalar(use.name, type, use.value);
    }
    // An argument of several uses keeps the strictest limit.
    if (bundle::Scalar &scalar = scalars[slot.scalar]; slot.buffer < 0 && scalar.least < use.least)
      scalar.least = use.least, scalar.advice = use.advice.str();
    numbers.push_back({use.owner, use.index, slot});
  }
}

/// Scalar arguments of the function that regions read are run-time numbers: `argN` where they are
/// operand N of args too, else `userN`, N the number of the function's argument.
void Signature::addCaptured() {
  llvm::SmallDenseSet<unsigned> seen;
  auto visit = [&](Operation *inner) {
    for (Value value : inner->getOperands()) {
      auto argument = dyn_cast<BlockArgument>(value);
      if (!argument || argument.getOwner() != attention->getBlock() ||
          !seen.insert(argument.getArgNumber()).second)
        continue;
      auto operands = attention.getArgs();
      auto operand = llvm::find(operands, argument);
      int scalar =
          operand != operands.end()
              ? scalarArgs[operand - operands.begin()]
              : addScalar(("user" + Twine(argument.getArgNumber())).str(), argument.getType(), {});
      capturedScalars.push_back({argument.getArgNumber(), scalar});
    }
  };
  for (Region &body : attention.getBodies())
    body.walk(visit);
}

int Signature::addPlanBuffer(StringRef name, BufferRole role, bundle::ElementType element) {
  bundle::Buffer buffer;
  buffer.name = name.str();
  buffer.role = role;
  buffer.type = element;
  buffer.extents = {-1};
  buffers.push_back(std::move(buffer));
  slots.push_back({SlotKind::Pointer, unsigned(buffers.size() - 1)});
  return buffers.size() - 1;
}

void Signature::addPlan() {
  using E = bundle::ElementType;
  addPlanBuffer("plan.item_offsets", BufferRole::ItemOffsets, E::U32);
  addPlanBuffer("plan.items", BufferRole::Items, E::U32);
  addPlanBuffer("plan.rows", BufferRole::Rows, E::U32);
  addPlanBuffer("plan.sequences", BufferRole::Sequences, E::I64);
  addPlanBuffer("plan.scalars", BufferRole::Scalars, E::I64);
  addPlanBuffer("plan.partial_out", BufferRole::PartialOut, E::F32);
  addPlanBuffer("plan.partial_lse", BufferRole::PartialLse, E::F32);
  addPlanBuffer("plan.merge_offsets", BufferRole::MergeOffsets, E::U32);
  addPlanBuffer("plan.merges", BufferRole::Merges, E::U32);
  addPlanBuffer("plan.counters", BufferRole::Counters, E::I64);
}

int Signature::findBuffer(BufferRole role) const {
  for (auto [i, buffer] : llvm::enumerate(buffers))
    if (buffer.role == role)
      return i;
  return -1;
}

int Signature::findSlot(int buffer, SlotKind kind, unsigned dim) const {
  for (auto [i, slot] : llvm::enumerate(slots))
    if (int(slot.buffer) == buffer && slot.kind == kind && slot.dim == dim)
      return i;
  return -1;
}

NumberSlot Signature::number(Attribute owner, unsigned index) const {
  for (const NumberEntry &entry : numbers)
    if (entry.owner == owner && entry.index == index)
      return entry.slot;
  return {};
}

int Signature::captured(BlockArgument argument) const {
  for (auto [number, scalar] : capturedScalars)
    if (number == argument.getArgNumber())
      return scalar;
  return -1;
}

//===----------------------------------------------------------------------===//
// Bounds
//===----------------------------------------------------------------------===//

namespace {

/// Bounds over the signature's scalar slots; regions are judged by the mask attribute.
class SlotBounds final : public attn::BoundContext {
public:
  explicit SlotBounds(const Signature &signature) : signature(signature) {}

  attn::BoundExpr numberMin(Attribute owner, unsigned index) const override {
    return bound(owner, index, attn::BoundExprKind::ScalarMin);
  }
  attn::BoundExpr numberMax(Attribute owner, unsigned index) const override {
    return bound(owner, index, attn::BoundExprKind::ScalarMax);
  }
  attn::MaskBounds regionBounds(unsigned index) const override {
    attn::AttentionOp op = signature.attention;
    return attn::regionBounds(op.getBodies()[index], *this);
  }
  std::optional<attn::BoundExpr> captured(Value value) const override {
    auto argument = dyn_cast<BlockArgument>(value);
    int scalar = argument ? signature.captured(argument) : -1;
    if (scalar < 0)
      return std::nullopt;
    return attn::BoundExpr::scalar(scalar);
  }

private:
  attn::BoundExpr bound(Attribute owner, unsigned index, attn::BoundExprKind perHead) const {
    NumberSlot slot = signature.number(owner, index);
    return attn::BoundExpr::scalar(slot.scalar,
                                   slot.buffer >= 0 ? perHead : attn::BoundExprKind::Scalar);
  }

  const Signature &signature;
};

} // namespace

attn::MaskBounds llmopt::boundsOf(const Signature &signature) {
  attn::AttentionOp op = signature.attention;
  if (attn::MaskAttrInterface mask = op.getMaskInterface())
    return attn::boundsOfMask(mask, SlotBounds(signature));
  return {attn::IntervalSet::all(), attn::IntervalSet::all()};
}

bool llmopt::mayMixSequences(const Signature &signature) {
  attn::AttentionOp op = signature.attention;
  if (!op.getCacheType() || !op.isRaggedQuery())
    return false;
  // What a row reads besides its query must follow from the item's keys, its head and position.
  for (const bundle::Buffer &buffer : signature.buffers)
    switch (buffer.role) {
    case BufferRole::Query:
    case BufferRole::KeyPool:
    case BufferRole::ValuePool:
    case BufferRole::BlockTable:
    case BufferRole::TableIndptr:
    case BufferRole::CuSeqlensQ:
    case BufferRole::KvLen:
    case BufferRole::PerHead:
    case BufferRole::SinkLogit:
    case BufferRole::Output:
    case BufferRole::Lse:
      break;
    default:
      if (buffer.role < BufferRole::ItemOffsets)
        return false;
    }
  // A region's last four arguments are sequence, head, query position and key.
  return llvm::all_of(op.getBodies(), [](Region &body) {
    Block &block = body.front();
    return block.getArgument(block.getNumArguments() - 4).use_empty();
  });
}
