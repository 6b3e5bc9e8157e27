// attn.attention: what its operands and attributes say, for everyone who reads the op.
#include "dialect/attn/AttnDialect.h"

#include "mlir/IR/Builders.h"

#include <cmath>

using namespace mlir;
using namespace llmopt::attn;

KvCacheType AttentionOp::getCacheType() { return dyn_cast<KvCacheType>(getKey().getType()); }

RankedTensorType AttentionOp::getQueryType() {
  return cast<RankedTensorType>(getQuery().getType());
}

Type AttentionOp::getElementType() { return getQueryType().getElementType(); }

bool AttentionOp::isRaggedQuery() { return getQueryType().getRank() == 3; }

bool AttentionOp::isRaggedKv() {
  auto type = dyn_cast<RankedTensorType>(getKey().getType());
  return type && type.getRank() == 3;
}

int64_t AttentionOp::getQueryHeads() {
  RankedTensorType type = getQueryType();
  return type.getDimSize(type.getRank() - 2);
}

int64_t AttentionOp::getKvHeads() {
  if (KvCacheType cache = getCacheType())
    return cache.getKvHeads();
  auto type = cast<RankedTensorType>(getKey().getType());
  return type.getDimSize(type.getRank() - 2);
}

int64_t AttentionOp::getQkDim() { return getQueryType().getShape().back(); }

int64_t AttentionOp::getVDim() {
  if (KvCacheType cache = getCacheType())
    return cache.getVDim();
  return cast<RankedTensorType>(getValue().getType()).getShape().back();
}

MaskAttrInterface AttentionOp::getMaskInterface() {
  return dyn_cast_if_present<MaskAttrInterface>(getMaskAttr());
}

Attribute AttentionOp::getScaleOrDefault() {
  if (Attribute scale = getScaleAttr())
    return scale;
  return Builder(getContext()).getF64FloatAttr(1.0 / std::sqrt(double(getQkDim())));
}

SmallVector<NumberUse> AttentionOp::getNumbers() {
  SmallVector<NumberUse> all;
  all.push_back({Attribute(), 0, "scale", getScaleOrDefault(), true});
  if (MaskAttrInterface mask = getMaskInterface())
    mask.collectNumbers(all);
  if (ArrayAttr scores = getScoresAttr())
    for (Attribute score : scores)
      cast<ScoreAttrInterface>(score).collectNumbers(all);

  // Equal attributes are one: `window<4>` written twice has one number.
  SmallVector<NumberUse> numbers;
  llvm::SmallDenseSet<std::pair<Attribute, unsigned>> seen;
  for (const NumberUse &use : all)
    if (seen.insert({use.owner, use.index}).second)
      numbers.push_back(use);
  return numbers;
}

unsigned AttentionOp::getNumMaskRegions() {
  unsigned scoreRegions = 0;
  if (ArrayAttr scores = getScoresAttr())
    scoreRegions = llvm::count_if(scores, llvm::IsaPred<CustomScoreAttr>);
  unsigned regions = getBodies().size();
  return regions - std::min(regions, scoreRegions);
}

void AttentionOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  if (isPaged())
    effects.emplace_back(MemoryEffects::Read::get(), &getKeyMutable());
}
