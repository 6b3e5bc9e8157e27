/* The compiler's side of the C API: a spec as text in, the bytes of a bundle out, for
 * llmopt_kernel_load and kernel sources (runtime/api/llmopt.h). In a library of its own: a
 * program that loads saved bundles does not need it. */
#ifndef LLMOPT_COMPILER_H
#define LLMOPT_COMPILER_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Compiles the one spec of a text for "cpu" or "cuda:sm_80". 0 and a bundle, or an llmopt_code
 * and, where there is memory for it, a message. Bundle and message are freed with
 * llmopt_compiler_free; `message` may be NULL. Any number of threads may call it. */
int llmopt_compile(const char *spec, const char *target, void **bundle, size_t *bytes,
                   char **message);
void llmopt_compiler_free(void *memory);

#ifdef __cplusplus
}
#endif

#endif /* LLMOPT_COMPILER_H */
