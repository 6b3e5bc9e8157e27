/* JIT at model load and one decode step, in C: see decode-step.cpp. */
#include "codegen/compile/llmopt_compiler.h"
#include "runtime/api/llmopt.h"

#include <stdio.h>

enum { kHeads = 4, kKvHeads = 2, kDim = 16, kPage = 8, kPages = 4 };
#define Q "tensor<?x4x16xf32>"
#define KV "!attn.kv_cache<2x16xf32, page = 8>"
static const char *const kSpec =
    "func.func @decode(%q: " Q ", %kv: " KV ", %seq: !attn.sequences) -> " Q " {"
    "  %o = attn.attention %q, %kv, %seq mask(causal) : " Q ", " KV ", !attn.sequences -> " Q
    "  return %o : " Q " }";

static llmopt_status *decode(llmopt_kernel *kernel) {
  static float q[2 * kHeads * kDim], o[2 * kHeads * kDim];
  static float k[kPages * kPage * kKvHeads * kDim], v[kPages * kPage * kKvHeads * kDim];
  int32_t table[] = {2, 0, 3, -1}, lengths[] = {11, 5}, offsets[] = {0, 1, 2};
  for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); ++i)
    v[i] = 1;
  const int64_t rows[] = {2, kHeads, kDim}, pool[] = {kPages, kPage, kKvHeads, kDim},
                two[] = {2, 2}, three[] = {3};
  const size_t size = sizeof(llmopt_array);
  const llmopt_array arrays[] = {
      {size, "q", q, LLMOPT_F32, 3, rows, NULL},
      {size, "k_pool", k, LLMOPT_F32, 4, pool, NULL},
      {size, "v_pool", v, LLMOPT_F32, 4, pool, NULL},
      {size, "block_table", table, LLMOPT_I32, 2, two, NULL},
      {size, "kv_len", lengths, LLMOPT_I32, 1, two, NULL},
      {size, "cu_seqlens_q", offsets, LLMOPT_I32, 1, three, NULL},
      {size, "o", o, LLMOPT_F32, 3, rows, NULL},
  };
  llmopt_status *failed = llmopt_kernel_run(kernel, arrays, 7, NULL, 0);
  if (!failed)
    printf("o[0] = %g, o[last] = %g\n", o[0], o[2 * kHeads * kDim - 1]);
  return failed;
}

int main(void) {
  void *bundle = NULL;
  char *message = NULL;
  size_t bytes = 0;
  llmopt_device *device = NULL;
  llmopt_kernel *kernel = NULL;
  llmopt_status *failed = NULL;
  if (llmopt_compile(kSpec, "cpu", &bundle, &bytes, &message) == 0 &&
      !(failed = llmopt_device_open("cpu", &device)) &&
      !(failed = llmopt_kernel_load(device, bundle, bytes, &kernel)))
    failed = decode(kernel);
  if (failed || !kernel)
    fprintf(stderr, "decode-step: %s\n", message ? message : llmopt_status_message(failed));
  int code = failed || !kernel;
  llmopt_status_free(failed);
  llmopt_kernel_free(kernel);
  llmopt_device_free(device);
  llmopt_compiler_free(message);
  llmopt_compiler_free(bundle);
  return code;
}
