/* The C API of the runtime: devices, bundles, calls of kernels, and a server of requests.
 *
 * Errors. Functions that can fail return a status: NULL is success, else free it with
 * llmopt_status_free. No exception leaves a function.
 * Objects are opaque; each is freed by its own function, which takes NULL. What an object was
 * made from may be freed before it.
 * Structs begin with `struct_size`, which the caller sets to sizeof of the struct as it was
 * compiled: fields that a later version adds count as 0. A size that is larger than the
 * library's is InvalidArgument.
 * Threads. An object is used by one thread at a time; different objects are independent.
 */
#ifndef LLMOPT_H
#define LLMOPT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An enum of a caller may hold any int: what it is not allowed to be is refused, not undefined. */
#ifdef __cplusplus
#define LLMOPT_INT_ENUM : int
#else
#define LLMOPT_INT_ENUM
#endif

#define LLMOPT_API_VERSION 1
/* LLMOPT_API_VERSION of the library. */
uint32_t llmopt_api_version(void);

/* ---- Status */

typedef enum llmopt_code LLMOPT_INT_ENUM {
  LLMOPT_OK = 0,
  LLMOPT_INVALID_ARGUMENT = 1,   /* wrong on every machine */
  LLMOPT_NOT_FOUND = 2,          /* a named file or array is not there */
  LLMOPT_UNAVAILABLE = 3,        /* this machine lacks something */
  LLMOPT_RESOURCE_EXHAUSTED = 4, /* memory, queue or a count ran out: a smaller request may do */
  LLMOPT_DATA_LOSS = 5,          /* stored bytes are damaged */
  LLMOPT_UNSUPPORTED = 6,        /* valid, and not served by this version */
  LLMOPT_INTERNAL = 7            /* a broken promise of the library: report it */
} llmopt_code;

typedef struct llmopt_status llmopt_status;
/* LLMOPT_OK for NULL. */
llmopt_code llmopt_status_code(const llmopt_status *status);
/* What was found, what is allowed, what to do; "" for NULL. Valid until the status is freed. */
const char *llmopt_status_message(const llmopt_status *status);
void llmopt_status_free(llmopt_status *status);
/* For callbacks: a failure of the caller's own. LLMOPT_OK gives NULL. */
llmopt_status *llmopt_status_new(llmopt_code code, const char *message);

/* ---- Devices and kernels */

typedef struct llmopt_device llmopt_device;
/* "auto", "cpu", "cuda", "cuda:1". Unavailable says what is missing. */
llmopt_status *llmopt_device_open(const char *name, llmopt_device **device);
void llmopt_device_free(llmopt_device *device);

typedef struct llmopt_kernel llmopt_kernel;
/* From the bytes of a bundle (llmopt_compile of llmopt_compiler.h, or a file's content). Of a
 * family the program that fits the device best is taken. DataLoss for damaged bytes. */
llmopt_status *llmopt_kernel_load(llmopt_device *device, const void *bundle, size_t bytes,
                                  llmopt_kernel **kernel);
void llmopt_kernel_free(llmopt_kernel *kernel);

typedef enum llmopt_type LLMOPT_INT_ENUM {
  LLMOPT_F32 = 0,
  LLMOPT_F16 = 1,
  LLMOPT_BF16 = 2,
  LLMOPT_I8 = 3,
  LLMOPT_I32 = 4,
  LLMOPT_I64 = 5,
  LLMOPT_U32 = 6,
  LLMOPT_BOOL = 7
} llmopt_type;

/* An array in host memory, by the name that the spec gives it. */
typedef struct llmopt_array {
  size_t struct_size;
  const char *name;
  void *data;
  llmopt_type type;
  uint32_t rank;
  const int64_t *shape;
  const int64_t *strides; /* in elements; NULL: contiguous */
} llmopt_array;

/* A number of the spec: with another value than the spec's (scale, window, ...), or one that the
 * spec has no value for and each call gives (arg0, user4, ...). */
typedef struct llmopt_number {
  size_t struct_size;
  const char *name;
  int32_t is_integer;
  int64_t integer;
  double real;
} llmopt_number;

/* Runs a kernel once and waits. InvalidArgument names the array or number that
 * does not fit or is missing. */
llmopt_status *llmopt_kernel_run(llmopt_kernel *kernel, const llmopt_array *arrays, size_t arrays_n,
                                 const llmopt_number *numbers, size_t numbers_n);

/* ---- Server */

typedef enum llmopt_phase LLMOPT_INT_ENUM {
  LLMOPT_PREFILL = 0,
  LLMOPT_DECODE = 1,
  LLMOPT_VERIFY = 2
} llmopt_phase;

/* Layers that share block tables. window 0 and chunk 0: every earlier key is visible. The kernels'
 * masks may see no key that the group gives back: such a kernel is InvalidArgument. */
typedef struct llmopt_layer_group {
  size_t struct_size;
  const uint32_t *layers; /* of the model */
  size_t layers_n;
  llmopt_type type; /* of Q, K, V, the cache and the output */
  uint32_t query_heads, kv_heads, key_dim, value_dim;
  uint32_t page_size, window, sink;
  const char *append_kernel;
  uint32_t chunk;    /* keys of the query's own chunk of so many positions; not with a window */
  uint32_t reserved; /* padding of earlier versions: not read */
  /* Of the kernels of all its layers: other values than the specs', and those that a spec has no
   * value for. A kernel that wants one which is not here is InvalidArgument. */
  const llmopt_number *numbers;
  size_t numbers_n;
} llmopt_layer_group;

/* Rows of a phase with min_queries to max_queries tokens run on a kernel of the name. */
typedef struct llmopt_kernel_rule {
  size_t struct_size;
  uint32_t group;
  llmopt_phase phase;
  uint32_t min_queries, max_queries;
  const char *kernel;
} llmopt_kernel_rule;

/* The query tokens of a step, valid during the callbacks of the step. */
typedef struct llmopt_batch {
  size_t struct_size;
  const uint32_t *ids, *positions;
  size_t tokens_n;
  const uint32_t *logits; /* indices of the tokens whose logits are wanted */
  size_t logits_n;
  const uint32_t *adapters; /* of each token: its request's */
} llmopt_batch;

/* Arrays of a layer in device memory, (tokens, heads, dimension), contiguous. */
typedef struct llmopt_layer_arrays {
  size_t struct_size;
  void *query, *key, *value;
  const void *output;
} llmopt_layer_arrays;

/* The next token of an answer. */
typedef struct llmopt_sample {
  size_t struct_size;
  uint32_t logit;    /* index in llmopt_batch.logits */
  uint32_t position; /* of the token in the answer: keys its random number */
  uint64_t seed;
  int32_t greedy;
} llmopt_sample;

/* Everything of the model but attention. Called by one thread, for each step: begin; project
 * (writes Q, K, V) and absorb (reads the output) of each layer; finish; sample for each token.
 * A status that is not NULL fails the rows of the step; the library frees it. `user` is given
 * to each call. Functions must not throw or jump out. */
typedef struct llmopt_model {
  size_t struct_size;
  void *user;
  llmopt_status *(*begin)(void *user, const llmopt_batch *batch);
  llmopt_status *(*project)(void *user, const llmopt_batch *batch, uint32_t layer,
                            const llmopt_layer_arrays *arrays);
  llmopt_status *(*absorb)(void *user, const llmopt_batch *batch, uint32_t layer,
                           const llmopt_layer_arrays *arrays);
  llmopt_status *(*finish)(void *user, const llmopt_batch *batch);
  llmopt_status *(*sample)(void *user, const llmopt_sample *query, uint32_t *token);
} llmopt_model;

/* Gives the bundle of a kernel's name; the library copies the bytes before it asks again. */
typedef llmopt_status *(*llmopt_kernel_source)(void *user, const char *name, const void **bundle,
                                               size_t *bytes);

/* Who of the waiting is admitted next; ties by arrival. A request that has waited long stands above
 * all, whatever the policy. */
typedef enum llmopt_policy LLMOPT_INT_ENUM {
  LLMOPT_FCFS = 0,
  LLMOPT_PRIORITY = 1,          /* the lowest llmopt_request.priority */
  LLMOPT_LONGEST_PREFIX = 2,    /* the most tokens in the prefix cache */
  LLMOPT_SHORTEST_REMAINING = 3 /* the fewest tokens left to compute and to give */
} llmopt_policy;

/* Steps of at most so many rows with at most so many query tokens each, of the phases alone, are
 * replayed from captured work; where several fit, the smallest. */
typedef struct llmopt_capture {
  size_t struct_size;
  uint32_t max_rows, max_query_tokens;
  uint32_t phases; /* bit 1 << llmopt_phase of each */
} llmopt_capture;

/* 0 in a field stands for the default in parentheses. */
typedef struct llmopt_server_options {
  size_t struct_size;
  const llmopt_layer_group *groups;
  size_t groups_n;
  const llmopt_kernel_rule *rules;
  size_t rules_n;
  uint64_t pages;           /* on the device (1024) */
  uint64_t host_pages;      /* for preempted requests (none: they are computed again), and for
                             * cached pages where a copy costs less than computing */
  uint32_t token_budget;    /* query tokens a step (2048) */
  uint32_t max_running;     /* requests (256) */
  uint32_t max_waiting;     /* requests; more are refused (4096) */
  uint32_t max_length;      /* prompt and answer (32768) */
  uint32_t steps_in_flight; /* (1) */
  int32_t no_prefix_cache;
  uint64_t cache_seed;
  llmopt_policy policy;
  uint32_t chunk_tokens; /* of one prompt in one step at most (token_budget) */
  uint32_t max_adapters; /* distinct ones among the running (no limit) */
  uint32_t cache_events; /* kept for llmopt_server_next_cache_event (none is made) */
  const llmopt_capture *captures;
  size_t captures_n;
  int32_t no_cascade;      /* requests whose tables begin alike share no work items */
  int32_t no_second_level; /* host_pages hold preempted requests only */
} llmopt_server_options;

typedef struct llmopt_server llmopt_server;
/* Loads all kernels and allocates all memory. `model.user` outlives the server. */
llmopt_status *llmopt_server_new(llmopt_device *device, const llmopt_server_options *options,
                                 llmopt_kernel_source source, void *source_user,
                                 const llmopt_model *model, llmopt_server **server);
void llmopt_server_free(llmopt_server *server);

/* An image, a sound, ... that tokens [begin, end) of a prompt stand for. `digest`: a hash of the
 * content, of at least a byte. */
typedef struct llmopt_medium {
  size_t struct_size;
  uint32_t begin, end;
  const void *digest;
  size_t digest_n;
} llmopt_medium;

typedef struct llmopt_request {
  size_t struct_size;
  const uint32_t *prompt; /* copied; tokens below 2^31 */
  size_t prompt_n;
  uint32_t max_new_tokens;
  uint32_t priority; /* 0 (highest) to 7. The highest number is preempted first; it orders the
                      * queue with LLMOPT_PRIORITY only */
  uint64_t seed;
  int32_t greedy;
  const uint32_t *stop_tokens; /* at most 8 */
  size_t stop_tokens_n;
  /* Answers to this prompt, which is computed once (0: one). Their ids are `id`, `id` + 1, ...,
   * their seeds `seed`, `seed` + 1, ...; each ends by itself. */
  uint32_t samples;
  uint32_t reserved;    /* padding of earlier versions: not read */
  uint64_t deadline_ns; /* from now on; what is not finished then ends as "deadline" (0: none) */
  /* Whatever besides the tokens changes the content of pages: requests share pages only where all
   * of these are equal. */
  uint32_t adapter; /* 0: none */
  uint32_t reserved2;
  uint64_t adapter_version;
  const char *salt;      /* tenants that must not see each other's timing; NULL: "" */
  uint32_t never_insert; /* not 0: its pages are never found by others */
  uint32_t reserved3;
  const llmopt_medium *media; /* copied; in order, none over another */
  size_t media_n;
} llmopt_request;

/* InvalidArgument for an empty or too long prompt, ResourceExhausted where the queue is full or
 * the pool could never hold it. `id` names the request in events. */
llmopt_status *llmopt_server_submit(llmopt_server *server, const llmopt_request *request,
                                    uint64_t *id);
/* NotFound when it has ended already. */
llmopt_status *llmopt_server_abort(llmopt_server *server, uint64_t id);
/* Launches a step or takes the results of one; `busy` is 0 when there is nothing to do. A
 * failure is final. */
llmopt_status *llmopt_server_advance(llmopt_server *server, int32_t *busy);

typedef enum llmopt_event_kind LLMOPT_INT_ENUM {
  LLMOPT_EVENT_NONE = 0, /* all events were taken */
  LLMOPT_EVENT_TOKEN = 1,
  LLMOPT_EVENT_FINISH = 2 /* the request's last; `reason` says why */
} llmopt_event_kind;

typedef struct llmopt_event {
  size_t struct_size;
  llmopt_event_kind kind;
  uint64_t id;
  uint32_t token;
  const char *reason; /* "length", "stop", "abort", ...; static */
} llmopt_event;

/* The oldest event that was not taken. */
llmopt_status *llmopt_server_next(llmopt_server *server, llmopt_event *event);
/* Prometheus text; valid until the next call with the server. */
const char *llmopt_server_metrics(llmopt_server *server);
/* The same as a JSON object; valid until the next call with the server. */
const char *llmopt_server_metrics_json(llmopt_server *server);

/* The weights have changed: nothing that was computed before is hit any more. Requests that run go
 * on with the pages that they have. */
llmopt_status *llmopt_server_reset_cache(llmopt_server *server);

/* For a router in front: which blocks of prompts this server's prefix cache holds. Hashes are
 * equal on servers with the same cache_seed. */
typedef enum llmopt_cache_event_kind LLMOPT_INT_ENUM {
  LLMOPT_CACHE_NONE = 0,    /* all events were taken */
  LLMOPT_CACHE_STORED = 1,  /* `block` behind `parent` can be hit */
  LLMOPT_CACHE_REMOVED = 2, /* `block` cannot be hit any more */
  LLMOPT_CACHE_CLEARED = 3  /* none can */
} llmopt_cache_event_kind;

typedef struct llmopt_cache_event {
  size_t struct_size;
  llmopt_cache_event_kind kind;
  uint64_t block, parent;
  uint64_t lost; /* events since the last call that nobody took in time: ask for all blocks */
} llmopt_cache_event;

/* The oldest event that was not taken. */
llmopt_status *llmopt_server_next_cache_event(llmopt_server *server, llmopt_cache_event *event);
/* Calls `visit` for each block that can be hit; it must not call the server. */
llmopt_status *
llmopt_server_cached_blocks(llmopt_server *server,
                            void (*visit)(void *user, uint64_t block, uint64_t parent), void *user);

/* What the C++ API has and this one has not: token filters, drafts (of the host and of the device),
 * prompt log-probabilities, KV from other machines, latent layer groups, further arrays of kernels
 * (logits of a sink, values for each head), the step timeline, and the choice of what becomes of
 * requests when the device is lost (they begin anew). */

#ifdef __cplusplus
}
#endif

#endif /* LLMOPT_H */
