// attn.append: new K and V rows into the pages of a cache.
#include "passes/attn/AttendKernel.h"

using namespace mlir;
using namespace llmopt;
using bundle::BufferRole;
using Pred = arith::CmpIPredicate;

namespace {

/// Tokens that one copy moves: enough to amortise the address arithmetic, few enough that
/// the staged rows stay in L1 (16 rows of 576 f32 are 36 KiB).
constexpr int64_t kTokens = 16;

struct Copy {
  int source, pool;
  int64_t dim;
  bool isValue;
};

/// Pool addresses of tokens first .. first + count of head `head`, nowhere for slot -1.
Value poolRows(KernelBuilder &k, attn::KvCacheType cache, const Copy &copy, Value first,
               Value count, Value head) {
  int slots = k.signature.findBuffer(BufferRole::SlotMapping);
  unsigned inner = cache.getInterleaved() ? 2 : 1;
  Value slotStride = k.stride(copy.pool, inner + (cache.getHeadMajor() ? 1 : 0));
  Value headStride = k.stride(copy.pool, inner + (cache.getHeadMajor() ? 0 : 1));
  Value base = k.mul(head, headStride);
  if (copy.isValue && cache.getInterleaved())
    base = k.add(base, k.stride(copy.pool, 1));
  return k.map(k.tileType(kTokens, 1, k.b.getI64Type()), {},
               [&](OpBuilder &, ValueRange, Value row, Value) -> SmallVector<Value> {
                 Value r = arith::IndexCastOp::create(k.b, k.loc, k.b.getIndexType(), row);
                 Value last = k.max(k.sub(count, k.idx(1)), k.idx(0));
                 Value token = k.add(first, k.min(r, last));
                 Value raw = memref::LoadOp::create(k.b, k.loc, k.pointer(slots),
                                                    k.mul(token, k.stride(slots, 0)));
                 Value slot = arith::IndexCastOp::create(k.b, k.loc, k.b.getIndexType(), raw);
                 Value page = k.floorDiv(slot, cache.getPageSize());
                 Value place = k.sub(slot, k.mul(page, k.idx(cache.getPageSize())));
                 Value offset = k.add(
                     base, k.add(k.mul(page, k.stride(copy.pool, 0)), k.mul(place, slotStride)));
                 Value used = arith::AndIOp::create(k.b, k.loc, k.cmp(Pred::sge, slot, k.idx(0)),
                                                    k.cmp(Pred::slt, r, count));
                 Value address = k.select(used, offset, k.idx(-1));
                 return {arith::IndexCastOp::create(k.b, k.loc, k.b.getI64Type(), address)};
               });
}

} // namespace

void llmopt::emitAppendKernel(ModuleOp module, const Signature &signature, StringRef name) {
  attn::AppendOp op = signature.append;
  attn::KvCacheType cache = op.getCache().getType();
  KernelBuilder k(module, op.getLoc(), signature, name);
  int keyPool = signature.findBuffer(BufferRole::KeyPool);
  int valuePool = cache.getInterleaved() ? keyPool : signature.findBuffer(BufferRole::ValuePool);
  Copy copies[] = {{signature.findBuffer(BufferRole::NewKey), keyPool, cache.getHeadDim(), false},
                   {signature.findBuffer(BufferRole::NewValue), valuePool, cache.getVDim(), true}};
  auto [begin, end] = k.range(BufferRole::ItemOffsets);
  Value last = end;
  k.forEach("item", begin, end, kTokens, [&](Value first) {
    Value count = k.min(k.sub(last, first), k.idx(kTokens));
    k.forEach("item", k.idx(0), k.idx(cache.getKvHeads()), 1, [&](Value head) {
      for (const Copy &copy : copies) {
        Value offset =
            k.add(k.mul(first, k.stride(copy.source, 0)), k.mul(head, k.stride(copy.source, 1)));
        Value target = poolRows(k, cache, copy, first, count, head);
        // A skipped token is not read either: both ends take its address away.
        Value source =
            tile::StridedRowsOp::create(k.b, k.loc, k.tileType(kTokens, 1, k.b.getI64Type()),
                                        offset, k.stride(copy.source, 0), count);
        source = k.map(cast<RankedTensorType>(source.getType()), {source, target},
                       [&](OpBuilder &b, ValueRange x, Value, Value) -> SmallVector<Value> {
                         Value zero = arith::ConstantOp::create(b, k.loc, b.getI64IntegerAttr(0));
                         Value skip = arith::CmpIOp::create(b, k.loc, Pred::slt, x[1], zero);
                         return {arith::SelectOp::create(b, k.loc, skip, x[1], x[0])};
                       });
        Value tile = tile::LoadOp::create(
            k.b, k.loc, k.tileType(kTokens, copy.dim, k.elementType(copy.source)),
            k.pointer(copy.source), source, Value(), k.stride(copy.source, 2), Value());
        tile::StoreOp::create(k.b, k.loc, tile, k.pointer(copy.pool), target, Value(), Value(),
                              Value());
      }
    });
  });
  k.finish();
}
