// tree<argN>: own token and ancestors among drafted tokens. Also what a tree changes for the
// other masks of an op: their positions.
//
// With base = Lkv - Lq, keys below base stand at their index for every query. Own keys stand
// between base and their index, which is all that is known without the sets: a mask's bounds
// hold below base, with queries anywhere from base to the last one's index, and say nothing
// from base on.
#include "dialect/attn/Asm.h"
#include "dialect/attn/AttnDialect.h"
#include "dialect/attn/EmitUtils.h"
#include "dialect/attn/mask/BoundProof.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace llmopt::attn;

/// Queries that a set tells of.
static constexpr int kSetSize = 64;

Attribute TreeAttr::parse(AsmParser &parser, Type) {
  unsigned arg;
  if (parser.parseLess() || parseArg(parser, arg) || parser.parseGreater())
    return {};
  return TreeAttr::get(parser.getContext(), arg);
}

void TreeAttr::print(AsmPrinter &printer) const { printer << "<arg" << getArg() << '>'; }

void TreeAttr::collectNumbers(SmallVectorImpl<NumberUse> &) const {}

Value TreeAttr::emitPredicate(PairEmitter &e) const {
  OpBuilder &b = e.builder();
  Value base = emit::subtract(e, e.keyLength(), e.queryLength());
  Value own = emit::subtract(e, e.keyIndex(), base);
  Value inOrder = emit::lessEqual(e, own, e.queryIndex());
  // As an unsigned number, a key before the queries is a large one.
  Value beyond =
      arith::CmpIOp::create(b, e.loc(), arith::CmpIPredicate::uge, own, emit::i32(e, kSetSize));
  Value bit = arith::AndIOp::create(b, e.loc(), own, emit::i32(e, kSetSize - 1));
  Value wide = arith::ExtUIOp::create(b, e.loc(), b.getI64Type(), bit);
  Value shifted = arith::ShRUIOp::create(b, e.loc(), e.querySet(getArg()), wide);
  Value inSet = arith::TruncIOp::create(b, e.loc(), b.getI1Type(), shifted);
  return emit::both(e, inOrder, emit::either(e, beyond, inSet));
}

MaskBounds TreeAttr::getBounds(const BoundContext &context) const {
  BoundExpr base = context.keyLen() - context.queryLen();
  MaskBounds bounds;
  bounds.may = IntervalSet::of(-kUnbounded, context.queryHi() + 1);
  bounds.surely = IntervalSet::of(-kUnbounded, base);
  bounds.surely.intervals.push_back({base + kSetSize, context.queryLo() + 1, std::nullopt});
  bounds.exact = false;
  return bounds;
}

TreeAttr llmopt::attn::treeOf(Attribute mask) {
  TreeAttr found;
  if (mask)
    mask.walk([&](TreeAttr tree) { found = tree; });
  return found;
}

// base + k for k < 0; else base + (members of the set below k), counting from the 64th query
// on each one as a member.
Value llmopt::attn::emitTreePosition(OpBuilder &b, Location loc, Value set, Value base, Value own) {
  auto i32 = [&](int value) -> Value {
    return arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(value));
  };
  auto i64 = [&](int64_t value) -> Value {
    return arith::ConstantOp::create(b, loc, b.getI64IntegerAttr(value));
  };
  // The lowest k bits: all but those from k on, which are two shifts away where k is 64.
  Value least = arith::MaxSIOp::create(b, loc, own, i32(0));
  Value count = arith::MinSIOp::create(b, loc, least, i32(kSetSize));
  Value kept = arith::SubIOp::create(b, loc, i32(kSetSize), count);
  Value half = arith::ShRUIOp::create(b, loc, kept, i32(1));
  Value rest = arith::SubIOp::create(b, loc, kept, half);
  Value below = i64(-1);
  for (Value shift : {half, rest}) {
    Value wide = arith::ExtUIOp::create(b, loc, b.getI64Type(), shift);
    below = arith::ShRUIOp::create(b, loc, below, wide);
  }
  Value members = math::CtPopOp::create(b, loc, arith::AndIOp::create(b, loc, set, below));
  Value inSet = arith::TruncIOp::create(b, loc, b.getI32Type(), members);
  Value beyond = arith::SubIOp::create(b, loc, least, count);
  Value before = arith::MinSIOp::create(b, loc, own, i32(0));
  Value place = arith::AddIOp::create(b, loc, arith::AddIOp::create(b, loc, inSet, beyond), before);
  return arith::AddIOp::create(b, loc, base, place);
}

/// Whether no key is visible that the tree hides.
static bool within(Attribute mask) {
  if (isa<TreeAttr>(mask))
    return true;
  auto all = dyn_cast<AndAttr>(mask);
  return all && llvm::any_of(all.getOperands(), within);
}

MaskBounds llmopt::attn::boundsOfMask(MaskAttrInterface mask, const BoundContext &context) {
  MaskBounds bounds = mask.getBounds(context);
  if (isa<TreeAttr>(mask) || !treeOf(mask))
    return bounds;
  BoundExpr base = context.keyLen() - context.queryLen();
  for (IntervalSet *set : {&bounds.may, &bounds.surely})
    for (Interval &interval : set->intervals) {
      auto lowest = [&](BoundExpr &end) { end = substitute(end, BoundSymbol::QueryLo, base); };
      lowest(interval.lo);
      lowest(interval.hi);
      if (interval.thinning)
        for (BoundExpr *part :
             {&interval.thinning->stride, &interval.thinning->phase, &interval.thinning->width})
          lowest(*part);
    }
  MaskBounds before{IntervalSet::of(-kUnbounded, base), IntervalSet::of(-kUnbounded, base)};
  bounds = intersect(bounds, before);
  BoundExpr end = within(mask) ? context.queryHi() + 1 : BoundExpr(kUnbounded);
  MaskBounds own{IntervalSet::of(base, end), IntervalSet::none()};
  bounds.may = unite(bounds, own).may;
  bounds.exact = false;
  return bounds;
}
