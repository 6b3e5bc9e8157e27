// Verifier of attn.attention's clauses: what they say, and the args and regions they name.
#include "dialect/attn/Asm.h"
#include "dialect/attn/AttentionVerify.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/SmallBitVector.h"

using namespace mlir;
using namespace llmopt::attn;

namespace {

/// Checks each arg where a clause names it; in the end every arg must have been named.
class ArgVerifier {
public:
  explicit ArgVerifier(AttentionOp op) : op(op), used(op.getArgs().size()) {}

  /// A run-time number: a scalar, or a tensor with one value a head.
  LogicalResult verifyNumber(const NumberUse &number) {
    auto arg = dyn_cast_if_present<ArgAttr>(number.value);
    if (!arg)
      return success();
    if (failed(use(number.name, arg.getIndex())))
      return failure();
    Type type = op.getArgs()[arg.getIndex()].getType();
    Type element = perHeadElement(type);
    if (!element)
      element = type;
    if (number.isFloat) {
      if (element.isF32())
        return success();
      return op.emitOpError() << number.name << " takes arg" << arg.getIndex()
                              << " as f32 or tensor<" << op.getQueryHeads() << "xf32>, got "
                              << type;
    }
    if (element.isSignlessInteger(32) || element.isSignlessInteger(64) ||
        (element.isIndex() && element == type))
      return success();
    return op.emitOpError() << number.name << " takes arg" << arg.getIndex()
                            << " as index, i32, i64, tensor<" << op.getQueryHeads()
                            << "xi32> or tensor<" << op.getQueryHeads() << "xi64>, got " << type;
  }

  LogicalResult verifySink(ArgAttr sink) {
    if (failed(use("sink", sink.getIndex())))
      return failure();
    Type type = op.getArgs()[sink.getIndex()].getType();
    Type element = perHeadElement(type);
    if (element && element.isF32())
      return success();
    return op.emitOpError() << "sink takes arg" << sink.getIndex() << " as tensor<"
                            << op.getQueryHeads() << "xf32>, got " << type;
  }

  /// A tensor with an element for each pair of query and key.
  LogicalResult verifyPairs(StringRef what, unsigned index, StringRef elements,
                            llvm::function_ref<bool(Type)> isElement) {
    if (failed(use(what, index)))
      return failure();
    Type given = op.getArgs()[index].getType();
    auto type = dyn_cast<RankedTensorType>(given);
    if (!type || type.getRank() != 4 || !isElement(type.getElementType()) || type.getEncoding())
      return op.emitOpError() << what << " takes arg" << index << " as a tensor (B, H, Lq, Lkv) of "
                              << elements << ", got " << given;
    static constexpr StringLiteral names[] = {"batch", "query heads", "query length", "key length"};
    for (auto [axis, wanted] : llvm::enumerate(pairExtents())) {
      int64_t extent = type.getDimSize(axis);
      if (ShapedType::isDynamic(extent) || extent == 1 || extent == wanted)
        continue;
      if (ShapedType::isDynamic(wanted) && extent > 0)
        continue;
      auto diagnostic = op.emitOpError() << what << " takes arg" << index << " with extent 1";
      if (!ShapedType::isDynamic(wanted))
        diagnostic << " or " << wanted;
      else
        diagnostic << " or more";
      return diagnostic << " in dimension " << axis << " (" << names[axis] << "), got " << given;
    }
    return success();
  }

  /// A set of own queries for each query.
  LogicalResult verifyQuerySets(unsigned index) {
    if (failed(use("tree", index)))
      return failure();
    ArrayRef<int64_t> wanted = op.getQueryType().getShape().drop_back(2);
    Type given = op.getArgs()[index].getType();
    auto type = dyn_cast<RankedTensorType>(given);
    if (type && type.getElementType().isSignlessInteger(64) && !type.getEncoding() &&
        succeeded(verifyCompatibleShape(type.getShape(), wanted)))
      return success();
    return op.emitOpError() << "tree takes arg" << index << " as "
                            << RankedTensorType::get(wanted, IntegerType::get(op.getContext(), 64))
                            << ", one set for each query, got " << given;
  }

  /// All args that `attribute`, of whatever dialect, mentions count as used.
  LogicalResult markMentioned(StringRef what, Attribute attribute) {
    LogicalResult result = success();
    attribute.walk([&](ArgAttr arg) {
      if (succeeded(result))
        result = use(what, arg.getIndex());
    });
    return result;
  }

  LogicalResult verifyAllUsed() {
    int unused = used.find_first_unset();
    if (unused >= 0)
      return op.emitOpError() << "arg" << unused << " is named by no clause";
    return success();
  }

private:
  LogicalResult use(StringRef what, unsigned index) {
    if (index >= used.size())
      return op.emitOpError() << what << " names arg" << index << ", but the op has " << used.size()
                              << (used.size() == 1 ? " arg" : " args");
    used.set(index);
    return success();
  }

  /// The elements of a tensor with one value for each query head, else null.
  Type perHeadElement(Type type) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (!tensor || tensor.getRank() != 1 || tensor.getDimSize(0) != op.getQueryHeads() ||
        tensor.getEncoding())
      return {};
    return tensor.getElementType();
  }

  /// Batch, query heads, query length and key length, as far as the types tell them.
  std::array<int64_t, 4> pairExtents() {
    int64_t unknown = ShapedType::kDynamic;
    std::array<int64_t, 4> extents = {unknown, op.getQueryHeads(), unknown, unknown};
    if (!op.isRaggedQuery()) {
      extents[0] = op.getQueryType().getDimSize(0);
      extents[2] = op.getQueryType().getDimSize(1);
    }
    if (!op.isPaged() && !op.isRaggedKv()) {
      auto key = cast<RankedTensorType>(op.getKey().getType());
      if (ShapedType::isDynamic(extents[0]))
        extents[0] = key.getDimSize(0);
      extents[3] = key.getDimSize(1);
    }
    return extents;
  }

  AttentionOp op;
  llvm::SmallBitVector used;
};

} // namespace

static LogicalResult verifyNumbers(ArgVerifier &args, ArrayRef<NumberUse> numbers) {
  for (const NumberUse &number : numbers)
    if (failed(args.verifyNumber(number)))
      return failure();
  return success();
}

static LogicalResult verifyMaskClause(AttentionOp op, ArgVerifier &args) {
  Attribute mask = op.getMaskAttr();
  if (!mask)
    return success();
  auto interface = dyn_cast<MaskAttrInterface>(mask);
  if (!interface)
    return op.emitOpError() << "mask does not implement MaskAttrInterface: " << mask;
  SmallVector<NumberUse> numbers;
  interface.collectNumbers(numbers);
  if (failed(verifyNumbers(args, numbers)) || failed(args.markMentioned("mask", mask)))
    return failure();

  LogicalResult result = success();
  mask.walk([&](DenseMaskAttr dense) {
    if (succeeded(result))
      result = args.verifyPairs("dense", dense.getArg(), "i1 or i8", [](Type type) {
        return type.isSignlessInteger(1) || type.isSignlessInteger(8);
      });
  });
  TreeAttr first;
  mask.walk([&](TreeAttr tree) {
    if (succeeded(result))
      result = args.verifyQuerySets(tree.getArg());
    if (succeeded(result) && first && first != tree)
      result = op.emitOpError() << "mask has trees of arg" << first.getArg() << " and arg"
                                << tree.getArg() << "; the queries of an op form one tree";
    first = tree;
  });
  return result;
}

static LogicalResult verifyScoreClauses(AttentionOp op, ArgVerifier &args) {
  if (!op.getScoresAttr())
    return success();
  for (auto [index, score] : llvm::enumerate(op.getScoresAttr())) {
    auto interface = dyn_cast<ScoreAttrInterface>(score);
    if (!interface)
      return op.emitOpError() << "score " << index
                              << " does not implement ScoreAttrInterface: " << score;
    SmallVector<NumberUse> numbers;
    interface.collectNumbers(numbers);
    if (failed(verifyNumbers(args, numbers)) || failed(args.markMentioned("score", score)))
      return failure();
    auto bias = dyn_cast<BiasAttr>(score);
    if (bias && failed(args.verifyPairs("bias", bias.getArg(), "f32, f16 or bf16", isDataType)))
      return failure();
  }
  return success();
}

static LogicalResult verifyScale(AttentionOp op, ArgVerifier &args) {
  Attribute scale = op.getScaleAttr();
  if (!scale)
    return success();
  if (failed(verifyFloat([&] { return op.emitOpError(); }, scale, "scale")))
    return failure();
  return args.verifyNumber({Attribute(), 0, "scale", scale, true});
}

/// Every region is named, mask regions by `custom`, score regions once and in order.
static LogicalResult verifyRegionNames(AttentionOp op) {
  unsigned maskRegions = op.getNumMaskRegions(), next = maskRegions;
  if (ArrayAttr scores = op.getScoresAttr())
    for (auto [index, score] : llvm::enumerate(scores)) {
      auto custom = dyn_cast<CustomScoreAttr>(score);
      if (!custom)
        continue;
      if (next >= op.getBodies().size())
        return op.emitOpError() << "score " << index << " needs a region, but the op has "
                                << op.getBodies().size();
      if (custom.getRegion() != next)
        return op.emitOpError() << "score " << index << " must name region " << next
                                << " (score regions follow mask regions, in order), got "
                                << custom.getRegion();
      ++next;
    }

  llvm::SmallBitVector named(maskRegions);
  LogicalResult result = success();
  if (Attribute mask = op.getMaskAttr())
    mask.walk([&](CustomMaskAttr custom) {
      if (custom.getRegion() < maskRegions)
        named.set(custom.getRegion());
      else if (succeeded(result))
        result = op.emitOpError() << "mask names region " << custom.getRegion()
                                  << ", but the op has " << maskRegions
                                  << (maskRegions == 1 ? " mask region" : " mask regions");
    });
  if (failed(result))
    return failure();
  int unnamed = named.find_first_unset();
  if (unnamed >= 0)
    return op.emitOpError() << "mask region " << unnamed
                            << " is named by no custom mask; write custom<" << unnamed
                            << "> in the mask clause";
  return success();
}

LogicalResult llmopt::attn::verifyClauses(AttentionOp op) {
  ArgVerifier args(op);
  if (failed(verifyMaskClause(op, args)) || failed(verifyScale(op, args)) ||
      failed(verifyScoreClauses(op, args)))
    return failure();
  if (op.getSinkAttr() && failed(args.verifySink(op.getSinkAttr())))
    return failure();
  if (failed(args.verifyAllUsed()) || failed(verifyRegionNames(op)))
    return failure();

  SplitAttr split = op.getSplitAttr();
  ScheduleAttr schedule = op.getScheduleAttr();
  if (split && schedule && schedule.getBatchInvariant() && split.getCount() > 1)
    return op.emitOpError() << "batch_invariant needs split(length = N) or split(none), got "
                               "split(count = "
                            << split.getCount() << ")";
  return success();
}
