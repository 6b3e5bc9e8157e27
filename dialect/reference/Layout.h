// Where the queries, keys and values of each sequence lie: dense, ragged and paged
// forms behind one face. Nothing outside a sequence's valid keys is ever read.
#pragma once

#include "dialect/reference/Context.h"

namespace llmopt::reference {

class Layout {
public:
  static llvm::Expected<Layout> create(const Context &context);

  int64_t sequences() const { return int64_t(queryLengths.size()); }
  int64_t queryLength(int64_t batch) const { return queryLengths[size_t(batch)]; }
  int64_t keyLength(int64_t batch) const { return keyLengths[size_t(batch)]; }
  int64_t queryHeads() const { return query.shape[query.shape.size() - 2]; }
  int64_t kvHeads() const { return keyHeads; }
  int64_t qkDim() const { return query.shape.back(); }
  int64_t vDim() const { return valueDim; }
  ElementType elementType() const { return query.type; }

  std::vector<float> queryRow(int64_t batch, int64_t index, int64_t head) const;
  /// K (or V) of key `key`; an error where the page table names no page for it.
  llvm::Error readKey(int64_t batch, int64_t kvHead, int64_t key, std::vector<float> &row) const;
  llvm::Error readValue(int64_t batch, int64_t kvHead, int64_t key, std::vector<float> &row) const;
  /// The page id of a key, or why there is none (paged form only).
  llvm::Expected<int64_t> pageOf(int64_t batch, int64_t key) const;

  /// Index of the row in output and LSE: (batch, index, head) or (token, head).
  llvm::SmallVector<int64_t, 4> rowIndex(int64_t batch, int64_t index, int64_t head) const;

private:
  enum class Form { Dense, Ragged, Paged };
  llvm::Error bindQuery(const Context &context);
  llvm::Error bindKeys(const Context &context);
  llvm::Error bindCache(const Context &context);
  llvm::Expected<int64_t> offset(const Array &array, int64_t batch, int64_t kvHead, int64_t key) const;
  llvm::Error read(const Array &array, int64_t dim, int64_t batch, int64_t kvHead, int64_t key,
                   std::vector<float> &row) const;

  Form queryForm = Form::Dense, keyForm = Form::Dense;
  Array query, keys, values; ///< pools in the paged form, the half of an interleaved one
  Array table, tableIndptr;
  int64_t pageSize = 1, keyHeads = 1, valueDim = 1;
  bool headMajor = false, indptr = false;
  std::vector<int64_t> queryLengths, keyLengths, queryBases, keyBases;
};

} // namespace llmopt::reference
