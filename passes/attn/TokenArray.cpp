// Where the rows of Q-like arrays lie; see AttendKernel.h.
#include "passes/attn/AttendKernel.h"

using namespace mlir;
using namespace llmopt;

TokenArray::TokenArray(KernelBuilder &k, int buffer, bool ragged) {
  unsigned token = ragged ? 0 : 1;
  batchStride = ragged ? Value() : k.stride(buffer, 0);
  tokenStride = k.stride(buffer, token);
  headStride = k.stride(buffer, token + 1);
  if (k.signature.buffers[buffer].extents.size() > token + 2)
    innerStride = k.stride(buffer, token + 2);
}

Value TokenArray::offset(KernelBuilder &k, Value batch, Value queryBase, Value query,
                         Value head) const {
  Value token = KernelBuilder::called("token", k.add(queryBase, query));
  Value offset = k.add(k.mul(token, tokenStride), k.mul(head, headStride));
  return batchStride ? k.add(offset, k.mul(batch, batchStride)) : offset;
}
