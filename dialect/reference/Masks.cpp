#include "dialect/reference/Masks.h"

#include "dialect/reference/Region.h"

#include "llvm/ADT/DenseMap.h"

#include <cmath>

namespace llmopt::reference {

namespace {

llvm::DenseMap<mlir::TypeID, MaskCompiler> &plugins() {
  static llvm::DenseMap<mlir::TypeID, MaskCompiler> table;
  return table;
}

/// A stride or chunk size: below 1 at run time counts as 1.
int64_t atLeastOne(double number) { return std::max<int64_t>(1, int64_t(number)); }

int64_t floorDiv(int64_t a, int64_t b) { return a / b - (a % b < 0); } ///< b > 0
int64_t floorMod(int64_t a, int64_t b) { return a - b * floorDiv(a, b); }

llvm::Expected<Predicate> window(attn::WindowAttr mask, const Context &context) {
  llvm::Expected<Number> left = context.number(mask, 0, mask.getLeft());
  if (!left)
    return left.takeError();
  if (!mask.getTwoSided())
    return [w = *left](const Pair &p) {
      return p.queryPosition - int64_t(w.of(p.head)) + 1 <= p.key && p.key <= p.queryPosition;
    };
  llvm::Expected<Number> right = context.number(mask, 1, mask.getRight());
  if (!right)
    return right.takeError();
  return [l = *left, r = *right](const Pair &p) {
    int64_t before = int64_t(l.of(p.head)), after = int64_t(r.of(p.head));
    return (before < 0 || p.key >= p.queryPosition - before) &&
           (after < 0 || p.key <= p.queryPosition + after);
  };
}

llvm::Expected<Predicate> dense(attn::DenseMaskAttr mask, const Context &context) {
  llvm::Expected<Array> array = context.argument(mask.getArg());
  if (!array)
    return array.takeError();
  return [a = *array](const Pair &p) {
    return a.broadcastAt({p.batch, p.head, p.queryIndex, p.keyIndex}) != 0;
  };
}

/// The formula of attn::TreeAttr.
bool treeSees(const Pair &p) {
  int64_t own = p.keyIndex - (p.keyLength - p.queryLength);
  if (own > p.queryIndex)
    return false;
  return own < 0 || own >= 64 || (p.treeSet >> own & 1) == 1;
}

llvm::Expected<Predicate> custom(attn::CustomMaskAttr mask, const Context &context) {
  if (mask.getRegion() >= context.op.getBodies().size())
    return error("mask region " + llvm::Twine(mask.getRegion()) + " does not exist");
  llvm::Expected<Region> region =
      Region::compile(context.op.getBodies()[mask.getRegion()], context);
  if (!region)
    return region.takeError();
  return [r = *region](const Pair &p) { return r.visible(p); };
}

/// The operands of `and` and `or`.
llvm::Expected<std::vector<Predicate>> compileAll(llvm::ArrayRef<mlir::Attribute> masks,
                                                  const Context &context) {
  std::vector<Predicate> predicates;
  for (mlir::Attribute mask : masks) {
    llvm::Expected<Predicate> predicate = compileMask(mask, context);
    if (!predicate)
      return predicate.takeError();
    predicates.push_back(*predicate);
  }
  return predicates;
}

} // namespace

void registerMask(mlir::TypeID kind, MaskCompiler compiler) {
  plugins()[kind] = std::move(compiler);
}

llvm::Expected<Predicate> compileMask(mlir::Attribute mask, const Context &context) {
  if (!mask)
    return [](const Pair &) { return true; };
  if (auto causal = llvm::dyn_cast<attn::CausalAttr>(mask)) {
    if (causal.getAlignment() == attn::Alignment::TopLeft)
      return [](const Pair &p) { return p.key <= p.queryIndex; };
    return [](const Pair &p) { return p.key <= p.queryPosition; };
  }
  if (auto attr = llvm::dyn_cast<attn::WindowAttr>(mask))
    return window(attr, context);
  if (auto attr = llvm::dyn_cast<attn::SinkAttr>(mask)) {
    llvm::Expected<Number> count = context.number(mask, 0, attr.getCount());
    if (!count)
      return count.takeError();
    return [n = *count](const Pair &p) { return p.key < int64_t(n.of(p.head)); };
  }
  if (auto attr = llvm::dyn_cast<attn::DilatedAttr>(mask)) {
    llvm::Expected<Number> stride = context.number(mask, 0, attr.getStride());
    if (!stride)
      return stride.takeError();
    return [n = *stride](const Pair &p) {
      return floorMod(p.queryPosition - p.key, atLeastOne(n.of(p.head))) == 0;
    };
  }
  if (auto attr = llvm::dyn_cast<attn::ChunkedAttr>(mask)) {
    llvm::Expected<Number> size = context.number(mask, 0, attr.getSize());
    if (!size)
      return size.takeError();
    return [n = *size](const Pair &p) {
      int64_t chunk = atLeastOne(n.of(p.head));
      return floorDiv(p.queryPosition, chunk) == floorDiv(p.key, chunk);
    };
  }
  if (auto attr = llvm::dyn_cast<attn::DenseMaskAttr>(mask))
    return dense(attr, context);
  if (llvm::isa<attn::TreeAttr>(mask))
    return treeSees;
  if (auto attr = llvm::dyn_cast<attn::CustomMaskAttr>(mask))
    return custom(attr, context);
  if (auto attr = llvm::dyn_cast<attn::NotAttr>(mask)) {
    llvm::Expected<Predicate> inner = compileMask(attr.getOperand(), context);
    if (!inner)
      return inner.takeError();
    return [f = *inner](const Pair &p) { return !f(p); };
  }
  if (auto attr = llvm::dyn_cast<attn::AndAttr>(mask)) {
    llvm::Expected<std::vector<Predicate>> all = compileAll(attr.getOperands(), context);
    if (!all)
      return all.takeError();
    return [fs = *all](const Pair &p) { return llvm::all_of(fs, [&](auto &f) { return f(p); }); };
  }
  if (auto attr = llvm::dyn_cast<attn::OrAttr>(mask)) {
    llvm::Expected<std::vector<Predicate>> all = compileAll(attr.getOperands(), context);
    if (!all)
      return all.takeError();
    return [fs = *all](const Pair &p) { return llvm::any_of(fs, [&](auto &f) { return f(p); }); };
  }
  if (auto it = plugins().find(mask.getTypeID()); it != plugins().end())
    return it->second(mask, context);
  std::string text;
  llvm::raw_string_ostream(text) << mask;
  return error("the oracle does not know mask " + text + "; a plugin teaches it by registerMask()");
}

} // namespace llmopt::reference
