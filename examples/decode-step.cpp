// JIT at model load and one decode step: a spec is compiled for this machine, its kernel is
// loaded, and two sequences attend over a paged cache.
#include "codegen/compile/CompileText.h"
#include "runtime/api/Session.h"

#include <cstdio>

using namespace llmopt;
using namespace llmopt::runtime;
using bundle::ElementType;

constexpr int kHeads = 4, kKvHeads = 2, kDim = 16, kPage = 8, kPages = 4;

constexpr const char *kSpec = R"(
func.func @decode(%q: tensor<?x4x16xf32>, %kv: !attn.kv_cache<2x16xf32, page = 8>,
                  %seq: !attn.sequences) -> tensor<?x4x16xf32> {
  %o = attn.attention %q, %kv, %seq mask(causal)
       : tensor<?x4x16xf32>, !attn.kv_cache<2x16xf32, page = 8>, !attn.sequences
         -> tensor<?x4x16xf32>
  return %o : tensor<?x4x16xf32>
})";

Status decode() {
  // At model load.
  StatusOr<std::vector<bundle::Program>> compiled = compileText(kSpec, "cpu");
  if (!compiled)
    return compiled.status();
  StatusOr<Session> session = Session::open("cpu");
  if (!session)
    return session.status();
  StatusOr<std::shared_ptr<DeviceProgram>> kernel = session->load(*std::move(compiled));
  if (!kernel)
    return kernel.status();
  // One step: sequences of 11 and 5 keys, one query each. Values are 1: so is their mean.
  std::vector<float> q(2 * kHeads * kDim, 0.5f), o(q.size());
  std::vector<float> k(kPages * kPage * kKvHeads * kDim, 0.25f), v(k.size(), 1.0f);
  std::vector<int32_t> table = {2, 0, 3, -1}, lengths = {11, 5}, offsets = {0, 1, 2};
  CallArguments step;
  auto give = [&](const char *name, auto &array, ElementType type, std::vector<int64_t> shape) {
    step.arrays[name] = ArrayRef::contiguous(array.data(), type, std::move(shape));
  };
  give("q", q, ElementType::F32, {2, kHeads, kDim});
  give("k_pool", k, ElementType::F32, {kPages, kPage, kKvHeads, kDim});
  give("v_pool", v, ElementType::F32, {kPages, kPage, kKvHeads, kDim});
  give("block_table", table, ElementType::I32, {2, 2});
  give("kv_len", lengths, ElementType::I32, {2});
  give("cu_seqlens_q", offsets, ElementType::I32, {3});
  give("o", o, ElementType::F32, {2, kHeads, kDim});
  LLMOPT_RETURN_IF_ERROR(session->run(*kernel, step));
  std::printf("o[0] = %g, o[last] = %g\n", o.front(), o.back());
  return {};
}

int main() {
  Status status = decode();
  if (!status.ok())
    std::fprintf(stderr, "decode-step: %s\n", status.toString().c_str());
  return status.ok() ? 0 : 1;
}
