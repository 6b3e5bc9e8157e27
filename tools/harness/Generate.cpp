#include "tools/harness/Generate.h"

#include "dialect/reference/Reference.h"
#include "tools/harness/Arguments.h"
#include "tools/harness/Random.h"

#include <limits>
#include <numeric>

namespace llmopt::harness {

namespace {

using reference::error;
using Access = HostArray::Access;

double garbageValue(Garbage kind, Random &random) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  switch (kind) {
  case Garbage::Zero:
    return 0;
  case Garbage::NaN:
    return nan;
  case Garbage::Infinity:
    return infinity;
  case Garbage::NegInfinity:
    return -infinity;
  case Garbage::Mixed:
    return random.pick(std::array{nan, infinity, -infinity, 6e4, -6e4});
  }
  return 0;
}

class Generator {
public:
  Generator(const Spec &spec, const Shape &shape) : spec(spec), shape(shape) {}
  llvm::Expected<Call> run();

private:
  void addMerge();
  llvm::Error addAttention();
  void addQuery();
  void addLengths();
  void addKeys();
  void addPools();
  void addTable();
  llvm::Error hideAndSpoil();
  void fillKeys();
  void addAppend();
  void addFreeAppend();
  void addOutputs();

  HostArray &add(std::string name, ElementType type, llvm::ArrayRef<int64_t> extents,
                 Access access = Access::In, StrideStyle style = StrideStyle::Packed) {
    call.arrays.emplace_back(std::move(name), type, extents, access, style);
    return call.arrays.back();
  }
  /// An array of elements, which may have no memory: Shape::contents.
  HostArray &addElements(std::string name, ElementType type, llvm::ArrayRef<int64_t> extents,
                         Access access = Access::In, StrideStyle style = StrideStyle::Packed) {
    HostArray::Memory memory = shape.contents ? HostArray::Memory::Own : HostArray::Memory::None;
    call.arrays.emplace_back(std::move(name), type, extents, access, style, memory);
    return call.arrays.back();
  }
  void addIntegers(std::string name, ElementType type, llvm::ArrayRef<int64_t> values);
  void spoil(HostArray &array, bool wanted);
  double keyComponent(bool value, int64_t key, int64_t head, int64_t component,
                      Random &random) const;
  /// The index of a row of K (or V) in `array`.
  llvm::SmallVector<int64_t, 5> keyIndex(bool value, int64_t batch, int64_t key,
                                         int64_t head) const;
  int64_t batch() const { return int64_t(shape.queryLengths.size()); }
  int64_t pagesOf(int64_t b) const {
    return (shape.keyLengths[size_t(b)] + pageSize - 1) / pageSize;
  }
  int64_t sharedPages() const {
    int64_t keys = shape.sharedKeys;
    for (int64_t b = 0; b < batch(); ++b)
      keys = std::min(keys, shape.keyLengths[size_t(b)] -
                                (spec.append ? shape.queryLengths[size_t(b)] : 0));
    return std::max<int64_t>(0, keys) / pageSize;
  }
  HostArray &keyArray(bool value);
  bool appended(int64_t b, int64_t key) const {
    return spec.append && key >= shape.keyLengths[size_t(b)] - shape.queryLengths[size_t(b)];
  }

  const Spec &spec;
  const Shape &shape;
  Call call;
  attn::AttentionOp op;
  attn::KvCacheType cache;
  ElementType type = ElementType::F32;
  int64_t pageSize = 1, pages = 0;
  std::vector<std::vector<int64_t>> tables; ///< page ids of each sequence, -1 when hidden
  std::vector<std::vector<int64_t>> homes;  ///< as tables, before hiding
  std::vector<std::vector<bool>> seen;      ///< keys that some row sees; empty: all
};

llvm::Expected<Call> Generator::run() {
  call.numbers = shape.numbers;
  call.arrays.reserve(32); // references stay valid
  cache = spec.cache();
  op = spec.attention;
  if (cache) {
    pageSize = cache.getPageSize();
    std::optional<ElementType> element = reference::elementTypeOf(cache.getElementType());
    if (!element)
      return error("the harness does not know the cache's element type");
    type = *element;
  }
  if (spec.merge)
    addMerge();
  else if (!op)
    addFreeAppend();
  else if (llvm::Error failure = addAttention())
    return failure;
  for (HostArray &array : call.arrays)
    array.seal();
  return std::move(call);
}

void Generator::addIntegers(std::string name, ElementType element, llvm::ArrayRef<int64_t> values) {
  HostArray &array = add(std::move(name), element, {int64_t(values.size())});
  for (size_t i = 0; i < values.size(); ++i)
    array.set({int64_t(i)}, double(values[i]));
}

/// Garbage all over an array, to be overwritten where the data is.
void Generator::spoil(HostArray &array, bool wanted) {
  Random random(shape.seed, "garbage " + array.name);
  array.fill([&] { return garbageValue(wanted ? shape.garbage : Garbage::Zero, random); });
}

llvm::Error Generator::addAttention() {
  std::optional<ElementType> element = reference::elementTypeOf(op.getElementType());
  if (!element)
    return error("the harness does not know the element type of the query");
  type = *element;
  addQuery();
  addLengths();
  ArgumentExtents extents{batch(), shape.heads, *llvm::max_element(shape.queryLengths),
                          *llvm::max_element(shape.keyLengths)};
  if (llvm::Error failure = addArguments(op, extents, shape, call))
    return failure;
  if (llvm::Error failure = addNumbers(op, shape, call))
    return failure;
  if (cache) {
    addPools();
    addTable();
  } else {
    addKeys();
  }
  if (llvm::Error failure = hideAndSpoil())
    return failure;
  fillKeys();
  if (spec.append)
    addAppend();
  addOutputs();
  return llvm::Error::success();
}

void Generator::addQuery() {
  Random random(shape.seed, "q");
  int64_t tokens =
      std::accumulate(shape.queryLengths.begin(), shape.queryLengths.end(), int64_t(0));
  call.rows = op.isRaggedQuery() ? tokens : batch();
  llvm::SmallVector<int64_t, 5> extents = {batch(), shape.queryLengths[0], shape.heads,
                                           shape.qkDim};
  if (op.isRaggedQuery())
    extents = {tokens + shape.paddedTokens, shape.heads, shape.qkDim};
  HostArray &q = addElements("q", type, extents, Access::In, shape.strides);
  int64_t left = tokens * shape.heads * shape.qkDim;
  q.fill([&] {
    if (left-- <= 0)
      return garbageValue(shape.garbage, random);
    double value = random.normal() * shape.queryMagnitude;
    return shape.fill == Fill::ZeroQuery ? 0
           : shape.fill == Fill::Opposed ? std::fabs(value)
                                         : value;
  });
}

void Generator::addLengths() {
  auto cumulative = [](llvm::ArrayRef<int64_t> lengths) {
    std::vector<int64_t> sums = {0};
    for (int64_t length : lengths)
      sums.push_back(sums.back() + length);
    return sums;
  };
  if (op.isRaggedQuery())
    addIntegers("cu_seqlens_q", ElementType::I32, cumulative(shape.queryLengths));
  if (!cache && op.isRaggedKv())
    addIntegers("cu_seqlens_kv", ElementType::I32, cumulative(shape.keyLengths));
  else if (cache || op.getSequences())
    addIntegers("kv_len", ElementType::I32, shape.keyLengths);
}

void Generator::addKeys() {
  int64_t total = std::accumulate(shape.keyLengths.begin(), shape.keyLengths.end(), int64_t(0));
  for (bool value : {false, true}) {
    int64_t dim = value ? shape.vDim : shape.qkDim;
    auto keyType = llvm::cast<mlir::RankedTensorType>(op.getKey().getType());
    int64_t padding = keyType.isDynamicDim(0) ? shape.paddedTokens : 0; // none fits a fixed extent
    llvm::SmallVector<int64_t, 5> extents = {total + padding, shape.kvHeads, dim};
    if (!op.isRaggedKv()) {
      int64_t length = keyType.getDimSize(1); // static, or room for unused slots
      if (mlir::ShapedType::isDynamic(length))
        length = *llvm::max_element(shape.keyLengths) + (op.getSequences() ? 3 : 0);
      extents = {batch(), length, shape.kvHeads, dim};
    }
    spoil(addElements(value ? "v" : "k", type, extents, Access::In, shape.strides),
          value ? shape.garbageInValues : shape.garbageInKeys);
  }
}

void Generator::addPools() {
  int64_t used = 0;
  for (int64_t b = 0; b < batch(); ++b)
    used += pagesOf(b);
  pages = used + shape.sparePages;
  StrideStyle style = shape.strides == StrideStyle::Inner2 ? StrideStyle::Packed : shape.strides;
  Access access = spec.append ? Access::InOut : Access::In;
  llvm::SmallVector<int64_t, 5> extents = {pages, pageSize, shape.kvHeads, shape.qkDim};
  if (cache.getHeadMajor())
    std::swap(extents[1], extents[2]);
  if (cache.getInterleaved()) {
    extents.insert(extents.begin() + 1, 2);
    spoil(addElements("kv_pool", type, extents, access, style),
          shape.garbageInKeys && shape.garbageInValues);
    return;
  }
  spoil(addElements("k_pool", type, extents, access, style), shape.garbageInKeys);
  extents.back() = shape.vDim;
  spoil(addElements("v_pool", type, extents, access, style), shape.garbageInValues);
}

void Generator::addTable() {
  std::vector<int64_t> free(static_cast<size_t>(pages));
  std::iota(free.begin(), free.end(), 0);
  Random random(shape.seed, "pages");
  if (shape.shufflePages)
    for (size_t i = free.size(); i > 1; --i)
      std::swap(free[i - 1], free[size_t(random.integer(0, int64_t(i) - 1))]);
  int64_t columns = shape.spareColumns;
  for (int64_t b = 0; b < batch(); ++b) {
    tables.emplace_back(free.end() - pagesOf(b), free.end());
    std::reverse(tables.back().begin(), tables.back().end());
    free.resize(free.size() - size_t(pagesOf(b)));
    columns = std::max(columns, pagesOf(b) + shape.spareColumns);
  }
  for (int64_t b = 1, shared = sharedPages(); b < batch(); ++b)
    std::copy_n(tables[0].begin(), shared, tables[size_t(b)].begin());
  homes = tables;
  if (!cache.getIndptr()) {
    HostArray &table = add("block_table", ElementType::I32, {batch(), columns});
    for (int64_t b = 0; b < batch(); ++b)
      for (int64_t c = 0; c < columns; ++c)
        table.set({b, c}, c < pagesOf(b) ? double(tables[size_t(b)][size_t(c)]) : -1);
    return;
  }
  std::vector<int64_t> indptr = {0}, indices;
  for (const std::vector<int64_t> &table : tables) {
    indices.insert(indices.end(), table.begin(), table.end());
    indptr.push_back(int64_t(indices.size()));
  }
  indices.insert(indices.end(), size_t(shape.spareColumns), -1);
  addIntegers("kv_indptr", ElementType::I32, indptr);
  addIntegers("kv_indices", ElementType::I32, indices);
}

/// Finds the keys that no row sees, and takes their pages out of the table.
llvm::Error Generator::hideAndSpoil() {
  if (!shape.hideUnseen && !shape.spoilUnseen)
    return llvm::Error::success();
  for (HostArray &array : call.arrays)
    array.seal();
  reference::Inputs inputs = call.inputs();
  for (int64_t b = 0; b < batch(); ++b) {
    llvm::Expected<std::vector<bool>> keys = reference::seenKeys(op, inputs, b);
    if (!keys)
      return keys.takeError();
    seen.push_back(*keys);
  }
  if (!shape.hideUnseen || !cache)
    return llvm::Error::success();
  int64_t entry = 0;
  for (int64_t b = 0; b < batch(); ++b)
    for (int64_t page = 0; page < pagesOf(b); ++page, ++entry) {
      bool used = false;
      for (int64_t key = page * pageSize;
           key < std::min((page + 1) * pageSize, shape.keyLengths[size_t(b)]); ++key)
        used |= seen[size_t(b)][size_t(key)] || appended(b, key);
      if (used)
        continue;
      tables[size_t(b)][size_t(page)] = -1;
      if (cache.getIndptr())
        call.find("kv_indices")->set({entry}, -1);
      else
        call.find("block_table")->set({b, page}, -1);
    }
  return llvm::Error::success();
}

double Generator::keyComponent(bool value, int64_t key, int64_t head, int64_t component,
                               Random &random) const {
  double x = random.normal();
  if (value && shape.fill == Fill::OneHotValue)
    return key % shape.vDim == component;
  if (value && shape.fill == Fill::ConstantValue)
    return double(1 + head);
  if (value)
    return x;
  return (shape.fill == Fill::Opposed ? -std::fabs(x) : x) * shape.keyMagnitude;
}

HostArray &Generator::keyArray(bool value) {
  if (!cache)
    return *call.find(value ? "v" : "k");
  return *call.find(cache.getInterleaved() ? "kv_pool" : value ? "v_pool" : "k_pool");
}

llvm::SmallVector<int64_t, 5> Generator::keyIndex(bool value, int64_t b, int64_t key,
                                                  int64_t head) const {
  if (!cache && !attn::AttentionOp(op).isRaggedKv())
    return {b, key, head};
  if (!cache)
    return {std::accumulate(shape.keyLengths.begin(), shape.keyLengths.begin() + b, int64_t(0)) +
                key,
            head};
  llvm::SmallVector<int64_t, 5> index = {tables[size_t(b)][size_t(key / pageSize)], key % pageSize,
                                         head};
  if (attn::KvCacheType(cache).getHeadMajor())
    std::swap(index[1], index[2]);
  if (attn::KvCacheType(cache).getInterleaved())
    index.insert(index.begin() + 1, value ? 1 : 0);
  return index;
}

/// Writes the valid keys: neither hidden nor spoilt, nor yet to be appended.
void Generator::fillKeys() {
  if (!shape.contents)
    return;
  for (bool value : {false, true}) {
    HostArray &array = keyArray(value);
    int64_t dim = value ? shape.vDim : shape.qkDim;
    for (int64_t b = 0; b < batch(); ++b) {
      Random random(shape.seed, value ? "v" : "k", uint64_t(b));
      for (int64_t key = 0; key < shape.keyLengths[size_t(b)]; ++key) {
        bool absent = appended(b, key) ||
                      (cache && tables[size_t(b)][size_t(key / pageSize)] < 0) ||
                      (shape.spoilUnseen && !seen[size_t(b)][size_t(key)]);
        for (int64_t head = 0; head < shape.kvHeads; ++head) {
          llvm::SmallVector<int64_t, 5> index;
          if (!absent)
            index = keyIndex(value, b, key, head);
          index.push_back(0);
          for (int64_t c = 0; c < dim; ++c) {
            double x = keyComponent(value, key, head, c, random);
            index.back() = c;
            if (!absent)
              array.set(index, x);
          }
        }
      }
    }
  }
}

/// New keys for the last q_len positions of each sequence, and padded rows with slot -1.
void Generator::addAppend() {
  std::vector<int64_t> slots;
  for (int64_t b = 0; b < batch(); ++b)
    for (int64_t i = 0; i < shape.queryLengths[size_t(b)]; ++i) {
      int64_t key = shape.keyLengths[size_t(b)] - shape.queryLengths[size_t(b)] + i;
      slots.push_back(
          key < 0 ? -1 : homes[size_t(b)][size_t(key / pageSize)] * pageSize + key % pageSize);
    }
  slots.insert(slots.end(), size_t(shape.paddedTokens), -1);
  for (bool value : {false, true}) {
    Random random(shape.seed, value ? "new_v" : "new_k");
    int64_t dim = value ? shape.vDim : shape.qkDim, row = 0, left = 0;
    HostArray &array =
        addElements(value ? "new_v" : "new_k", type, {int64_t(slots.size()), shape.kvHeads, dim},
                    Access::In, shape.strides);
    array.fill([&] {
      if (left == 0)
        left = shape.kvHeads * dim, ++row;
      --left;
      if (slots[size_t(row - 1)] < 0)
        return garbageValue(shape.garbage, random);
      int64_t within = shape.kvHeads * dim - 1 - left;
      return keyComponent(value, row - 1, within / dim, within % dim, random);
    });
  }
  addIntegers("slots", ElementType::I64, slots);
}

/// attn.append alone: T rows to random slots of a full pool, every fifth one skipped.
void Generator::addFreeAppend() {
  addPools();
  Random random(shape.seed, "slots");
  for (HostArray &pool : call.arrays)
    pool.fill([&] { return random.normal(); });
  int64_t rows = std::accumulate(shape.queryLengths.begin(), shape.queryLengths.end(), int64_t(0));
  std::vector<int64_t> all(static_cast<size_t>(pages * pageSize));
  std::iota(all.begin(), all.end(), 0);
  for (size_t i = all.size(); i > 1; --i)
    std::swap(all[i - 1], all[size_t(random.integer(0, int64_t(i) - 1))]);
  std::vector<int64_t> slots;
  for (int64_t t = 0; t < rows; ++t)
    slots.push_back(t % 5 == 4 || size_t(t) >= all.size() ? -1 : all[size_t(t)]);
  for (bool value : {false, true})
    addElements(value ? "new_v" : "new_k", type,
                {rows, shape.kvHeads, value ? shape.vDim : shape.qkDim}, Access::In, shape.strides)
        .fill([&] { return random.normal(); });
  addIntegers("slots", ElementType::I64, slots);
}

void Generator::addOutputs() {
  llvm::SmallVector<int64_t, 5> extents = call.find("q")->shape;
  extents.back() = shape.vDim;
  auto outputType = llvm::cast<mlir::RankedTensorType>(op.getOutput().getType());
  addElements("o", *reference::elementTypeOf(outputType.getElementType()), extents, Access::Out,
              shape.strides);
  extents.pop_back();
  if (op.getLse())
    addElements("lse", ElementType::F32, extents, Access::Out);
}

/// Partials of which some saw no key: LSE -inf, and garbage as output.
void Generator::addMerge() {
  attn::MergeOp merge = spec.merge;
  int64_t tokens =
      std::accumulate(shape.queryLengths.begin(), shape.queryLengths.end(), int64_t(0));
  call.rows = tokens;
  Random random(shape.seed, "merge");
  llvm::SmallVector<int64_t, 4> extents = {shape.partials, tokens, shape.heads};
  HostArray &lse = add("partial_lse", ElementType::F32, extents);
  lse.fill([&] {
    return random.chance(0.3) ? -std::numeric_limits<double>::infinity() : 4 * random.normal();
  });
  extents.push_back(shape.vDim);
  HostArray &partials = add("partials", ElementType::F32, extents, Access::In, shape.strides);
  for (int64_t n = 0; n < shape.partials; ++n)
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t h = 0; h < shape.heads; ++h)
        for (int64_t c = 0; c < shape.vDim; ++c)
          partials.set({n, t, h, c}, std::isinf(lse.get({n, t, h}))
                                         ? garbageValue(shape.garbage, random)
                                         : random.normal());
  auto outputType = llvm::cast<mlir::RankedTensorType>(merge.getOutput().getType());
  extents.erase(extents.begin());
  add("o", *reference::elementTypeOf(outputType.getElementType()), extents, Access::Out,
      shape.strides);
  extents.pop_back();
  if (merge.getLse())
    add("lse", ElementType::F32, extents, Access::Out);
}

} // namespace

llvm::Expected<Call> generate(const Spec &spec, const Shape &shape) {
  llvm::Expected<Shape> fitted = fit(spec, shape);
  if (!fitted)
    return fitted.takeError();
  return Generator(spec, *fitted).run();
}

} // namespace llmopt::harness
