#include "dialect/reference/Layout.h"

namespace llmopt::reference {

namespace {

/// Lengths and first rows from an array of cumulative lengths (B + 1).
llvm::Error readCumulative(const Context &context, const std::string &name, std::vector<int64_t> &lengths,
                           std::vector<int64_t> &bases) {
  llvm::Expected<Array> cumulative = context.array(name);
  if (!cumulative)
    return cumulative.takeError();
  for (int64_t b = 0; b + 1 < cumulative->shape[0]; ++b) {
    bases.push_back(int64_t(cumulative->at({b})));
    lengths.push_back(int64_t(cumulative->at({b + 1})) - bases.back());
    if (lengths.back() < 0)
      return error(name + " decreases at sequence " + llvm::Twine(b));
  }
  return llvm::Error::success();
}

/// The pool's half `which` of an interleaved cache: (pages, 2, ...) without the 2.
Array half(const Array &pool, int64_t which) {
  Array view = pool;
  view.data = static_cast<char *>(pool.data) + which * pool.strides[1] * int64_t(sizeOf(pool.type));
  view.shape.erase(view.shape.begin() + 1);
  view.strides.erase(view.strides.begin() + 1);
  return view;
}

} // namespace

llvm::Expected<Layout> Layout::create(const Context &context) {
  Layout layout;
  if (llvm::Error failure = layout.bindQuery(context))
    return failure;
  attn::AttentionOp op = context.op;
  if (llvm::Error failure = op.isPaged() ? layout.bindCache(context) : layout.bindKeys(context))
    return failure;
  if (layout.keyLengths.size() != layout.queryLengths.size())
    return error("the query has " + llvm::Twine(layout.queryLengths.size()) + " sequences, the keys have " +
                 llvm::Twine(layout.keyLengths.size()));
  if (layout.keyHeads == 0 || layout.queryHeads() % layout.keyHeads != 0)
    return error("query heads are no multiple of KV heads");
  return layout;
}

llvm::Error Layout::bindQuery(const Context &context) {
  llvm::Expected<Array> q = context.array("q");
  if (!q)
    return q.takeError();
  query = *q;
  if (query.rank() == 3) {
    queryForm = Form::Ragged;
    return readCumulative(context, "cu_seqlens_q", queryLengths, queryBases);
  }
  queryLengths.assign(size_t(query.shape[0]), query.shape[1]);
  return llvm::Error::success();
}

llvm::Error Layout::bindKeys(const Context &context) {
  llvm::Expected<Array> k = context.array("k"), v = context.array("v");
  if (!k || !v)
    return llvm::joinErrors(k.takeError(), v.takeError());
  keys = *k;
  values = *v;
  keyHeads = keys.shape[keys.shape.size() - 2];
  valueDim = values.shape.back();
  if (keys.rank() == 3) {
    keyForm = Form::Ragged;
    return readCumulative(context, "cu_seqlens_kv", keyLengths, keyBases);
  }
  keyLengths.assign(size_t(keys.shape[0]), keys.shape[1]);
  if (const Array *lengths = context.inputs.find("kv_len"))
    for (int64_t b = 0; b < keys.shape[0]; ++b)
      keyLengths[size_t(b)] = int64_t(lengths->at({b}));
  return llvm::Error::success();
}

llvm::Error Layout::bindCache(const Context &context) {
  keyForm = Form::Paged;
  attn::AttentionOp op = context.op;
  attn::KvCacheType cache = op.getCacheType();
  pageSize = cache.getPageSize();
  headMajor = cache.getHeadMajor();
  indptr = cache.getIndptr();
  keyHeads = cache.getKvHeads();
  valueDim = cache.getVDim();
  if (cache.getInterleaved()) {
    llvm::Expected<Array> pool = context.array("kv_pool");
    if (!pool)
      return pool.takeError();
    keys = half(*pool, 0);
    values = half(*pool, 1);
  } else {
    llvm::Expected<Array> k = context.array("k_pool"), v = context.array("v_pool");
    if (!k || !v)
      return llvm::joinErrors(k.takeError(), v.takeError());
    keys = *k;
    values = *v;
  }
  llvm::Expected<Array> pages = context.array(indptr ? "kv_indices" : "block_table");
  llvm::Expected<Array> lengths = context.array("kv_len");
  if (!pages || !lengths)
    return llvm::joinErrors(pages.takeError(), lengths.takeError());
  table = *pages;
  for (int64_t b = 0; b < lengths->shape[0]; ++b)
    keyLengths.push_back(int64_t(lengths->at({b})));
  if (!indptr)
    return llvm::Error::success();
  llvm::Expected<Array> begins = context.array("kv_indptr");
  if (!begins)
    return begins.takeError();
  tableIndptr = *begins;
  return llvm::Error::success();
}

std::vector<float> Layout::queryRow(int64_t batch, int64_t index, int64_t head) const {
  llvm::SmallVector<int64_t, 4> at = rowIndex(batch, index, head);
  int64_t offset = query.offset(at);
  std::vector<float> row;
  row.resize(size_t(qkDim()));
  for (int64_t c = 0; c < qkDim(); ++c)
    row[size_t(c)] = float(load(query.data, query.type, offset + c * query.strides.back()));
  return row;
}

llvm::SmallVector<int64_t, 4> Layout::rowIndex(int64_t batch, int64_t index, int64_t head) const {
  if (queryForm == Form::Ragged)
    return {queryBases[size_t(batch)] + index, head};
  return {batch, index, head};
}

llvm::Expected<int64_t> Layout::pageOf(int64_t batch, int64_t key) const {
  int64_t column = key / pageSize;
  int64_t columns = indptr ? int64_t(tableIndptr.at({batch + 1}) - tableIndptr.at({batch})) : table.shape[1];
  if (column >= columns)
    return error("sequence " + llvm::Twine(batch) + ": key " + llvm::Twine(key) + " lies beyond the " +
                 llvm::Twine(columns) + " pages of its table");
  int64_t page = int64_t(indptr ? table.at({int64_t(tableIndptr.at({batch})) + column}) : table.at({batch, column}));
  if (page < 0 || page >= keys.shape[0])
    return error("sequence " + llvm::Twine(batch) + ": visible key " + llvm::Twine(key) + " has page " +
                 llvm::Twine(page) + " of " + llvm::Twine(keys.shape[0]));
  return page;
}

llvm::Expected<int64_t> Layout::offset(const Array &array, int64_t batch, int64_t kvHead, int64_t key) const {
  if (keyForm == Form::Ragged)
    return array.offset({keyBases[size_t(batch)] + key, kvHead});
  if (keyForm == Form::Dense)
    return array.offset({batch, key, kvHead});
  llvm::Expected<int64_t> page = pageOf(batch, key);
  if (!page)
    return page.takeError();
  int64_t slot = key % pageSize;
  return headMajor ? array.offset({*page, kvHead, slot}) : array.offset({*page, slot, kvHead});
}

llvm::Error Layout::read(const Array &array, int64_t dim, int64_t batch, int64_t kvHead, int64_t key,
                         std::vector<float> &row) const {
  llvm::Expected<int64_t> base = offset(array, batch, kvHead, key);
  if (!base)
    return base.takeError();
  row.resize(size_t(dim));
  for (int64_t c = 0; c < dim; ++c)
    row[size_t(c)] = float(load(array.data, array.type, *base + c * array.strides.back()));
  return llvm::Error::success();
}

llvm::Error Layout::readKey(int64_t batch, int64_t kvHead, int64_t key, std::vector<float> &row) const {
  return read(keys, qkDim(), batch, kvHead, key, row);
}

llvm::Error Layout::readValue(int64_t batch, int64_t kvHead, int64_t key, std::vector<float> &row) const {
  return read(values, vDim(), batch, kvHead, key, row);
}

} // namespace llmopt::reference
