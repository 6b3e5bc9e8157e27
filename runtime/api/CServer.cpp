// The C API: the server of requests.
#include "runtime/api/CObjects.h"
#include "runtime/api/Server.h"

#include <algorithm>

using namespace llmopt::runtime;
using namespace llmopt::runtime::capi;

namespace bundle = llmopt::bundle;

namespace {

/// The caller's callbacks as the executor calls them.
class CModel : public ModelLayers {
public:
  explicit CModel(const llmopt_model &model) : calls(model) {}

  Status begin(const ModelBatch &batch) override {
    describe(batch);
    return fromC(calls.begin(calls.user, &current));
  }
  Status project(const ModelBatch &, uint32_t layer, const LayerArrays &arrays) override {
    llmopt_layer_arrays given = of(arrays);
    return fromC(calls.project(calls.user, &current, layer, &given));
  }
  Status absorb(const ModelBatch &, uint32_t layer, const LayerArrays &arrays) override {
    llmopt_layer_arrays given = of(arrays);
    return fromC(calls.absorb(calls.user, &current, layer, &given));
  }
  Status finish(const ModelBatch &) override { return fromC(calls.finish(calls.user, &current)); }
  StatusOr<kv::Token> sample(const SampleQuery &query) override {
    const step::Row &row = *query.row->row;
    llmopt_sample given{sizeof(given), query.logit, query.position, row.samplingSeed,
                        (row.flags & step::kGreedy) != 0};
    uint32_t token = 0;
    if (Status failed = fromC(calls.sample(calls.user, &given, &token)); !failed.ok())
      return failed;
    if (token >> 31)
      return invalidArgument("the model samples token {}; tokens are below 2^31", token);
    return token;
  }

private:
  static llmopt_layer_arrays of(const LayerArrays &arrays) {
    return {sizeof(llmopt_layer_arrays), arrays.query, arrays.key, arrays.value, arrays.output};
  }
  void describe(const ModelBatch &batch) {
    adapters.resize(batch.ids.size());
    for (const ModelRow &row : batch.rows)
      std::fill_n(adapters.begin() + row.firstToken, row.tokenCount, row.row->adapter);
    current = {sizeof(current),     batch.ids.data(),    batch.positions.data(), batch.ids.size(),
               batch.logits.data(), batch.logits.size(), adapters.data()};
  }

  llmopt_model calls;
  llmopt_batch current = {};
  std::vector<uint32_t> adapters; ///< of each token
};

template <typename T> void set(T &field, T value) {
  if (value)
    field = value;
}

Status takeGroups(const llmopt_server_options &from, ServerOptions &options) {
  for (size_t i = 0; i < from.groups_n; ++i) {
    llmopt_layer_group given;
    LLMOPT_RETURN_IF_ERROR(takeAt(from.groups, i, "a layer group", given));
    LLMOPT_RETURN_IF_ERROR(notNull(given.layers, "the layers of a group"));
    LLMOPT_RETURN_IF_ERROR(notNull(given.append_kernel, "the append kernel of a group"));
    StatusOr<bundle::ElementType> type = typeOf(given.type);
    if (!type)
      return type.status();
    LayerGroup &group = options.groups.emplace_back();
    group.layers.assign(given.layers, given.layers + given.layers_n);
    group.type = *type;
    group.queryHeads = given.query_heads;
    group.kvHeads = given.kv_heads;
    group.keyDim = given.key_dim;
    group.valueDim = given.value_dim;
    group.pages.pageSize = given.page_size;
    group.pages.window = given.window;
    group.pages.sink = given.sink;
    group.pages.chunk = given.chunk;
    if (given.window && given.chunk)
      return invalidArgument("a layer group has a window of {} keys and chunks of {}; one of them "
                             "is allowed",
                             given.window, given.chunk);
    group.pages.kind = given.window  ? kv::GroupKind::Window
                       : given.chunk ? kv::GroupKind::Chunked
                                     : kv::GroupKind::Full;
    group.appendKernel = given.append_kernel;
    LLMOPT_RETURN_IF_ERROR(takeNumbers(given.numbers, given.numbers_n, group.numbers));
  }
  for (size_t i = 0; i < from.rules_n; ++i) {
    llmopt_kernel_rule given;
    LLMOPT_RETURN_IF_ERROR(takeAt(from.rules, i, "a kernel rule", given));
    LLMOPT_RETURN_IF_ERROR(notNull(given.kernel, "the kernel of a rule"));
    if (int(given.phase) < LLMOPT_PREFILL || int(given.phase) > LLMOPT_VERIFY)
      return invalidArgument("a kernel rule for phase {}; llmopt_phase has {} to {}",
                             int(given.phase), int(LLMOPT_PREFILL), int(LLMOPT_VERIFY));
    options.rules.push_back({given.group, step::Phase(given.phase), given.min_queries,
                             given.max_queries, given.kernel});
  }
  return {};
}

static_assert(int(PolicyKind::Fcfs) == LLMOPT_FCFS &&
              int(PolicyKind::Priority) == LLMOPT_PRIORITY &&
              int(PolicyKind::LongestPrefix) == LLMOPT_LONGEST_PREFIX &&
              int(PolicyKind::ShortestRemaining) == LLMOPT_SHORTEST_REMAINING);
static_assert(kPrefills == 1 << LLMOPT_PREFILL && kDecodes == 1 << LLMOPT_DECODE &&
              kVerifies == 1 << LLMOPT_VERIFY);

Status takeCaptures(const llmopt_server_options &from, ServerOptions &options) {
  for (size_t i = 0; i < from.captures_n; ++i) {
    llmopt_capture given;
    LLMOPT_RETURN_IF_ERROR(takeAt(from.captures, i, "a capture", given));
    if (!given.phases || given.phases > kAllPhases)
      return invalidArgument("a capture of phases {:#x}; bits 1 << llmopt_phase, {:#x} for all, "
                             "are allowed",
                             given.phases, kAllPhases);
    options.captures.push_back({given.max_rows, given.max_query_tokens, uint8_t(given.phases), {}});
  }
  return {};
}

Status takeOptions(const llmopt_server_options &from, ServerOptions &options) {
  LLMOPT_RETURN_IF_ERROR(takeGroups(from, options));
  LLMOPT_RETURN_IF_ERROR(takeCaptures(from, options));
  if (int(from.policy) < LLMOPT_FCFS || int(from.policy) > LLMOPT_SHORTEST_REMAINING)
    return invalidArgument("policy {}; llmopt_policy has {} to {}", int(from.policy),
                           int(LLMOPT_FCFS), int(LLMOPT_SHORTEST_REMAINING));
  options.scheduler.policy = PolicyKind(from.policy);
  options.scheduler.chunkTokens = from.chunk_tokens;
  options.scheduler.maxAdapters = from.max_adapters;
  options.cacheEvents = from.cache_events;
  options.secondLevel = !from.no_second_level;
  if (from.no_cascade)
    options.plan.cascadeLevels = 0;
  set(options.pages, from.pages);
  set(options.hostPages, from.host_pages);
  set(options.scheduler.tokenBudget, from.token_budget);
  set(options.scheduler.maxRunning, from.max_running);
  set(options.scheduler.maxWaiting, from.max_waiting);
  set(options.scheduler.maxLength, from.max_length);
  set(options.scheduler.stepsInFlight, from.steps_in_flight);
  options.prefixCache = !from.no_prefix_cache;
  options.cacheSeed = from.cache_seed;
  return {};
}

Status takeMedia(const llmopt_request &from, std::vector<kv::MediaSpan> &media) {
  for (size_t i = 0; i < from.media_n; ++i) {
    llmopt_medium given;
    LLMOPT_RETURN_IF_ERROR(takeAt(from.media, i, "a medium", given));
    if (given.digest_n)
      LLMOPT_RETURN_IF_ERROR(notNull(given.digest, "the digest of a medium"));
    media.push_back({given.begin, given.end, {}});
    media.back().digest.assign(static_cast<const char *>(given.digest), given.digest_n);
  }
  return {};
}

Status checkModel(const llmopt_model &model) {
  bool whole = model.begin && model.project && model.absorb && model.finish && model.sample;
  return whole ? Status() : invalidArgument("the model lacks a callback; all five are needed");
}

KernelSource sourceOf(llmopt_kernel_source source, void *user) {
  return [=](const std::string &name) -> StatusOr<std::vector<bundle::Program>> {
    const void *bytes = nullptr;
    size_t size = 0;
    LLMOPT_RETURN_IF_ERROR(fromC(source(user, name.c_str(), &bytes, &size)));
    return familyOf(bytes, size);
  };
}

} // namespace

struct llmopt_server {
  explicit llmopt_server(const llmopt_model &callbacks) : model(callbacks) {}

  CModel model;
  std::unique_ptr<Server> server; ///< ends before the model
  std::string metrics;
};

namespace {

template <typename Print> const char *textOf(llmopt_server *server, Print print) {
  if (!server)
    return "";
  llmopt_status *failed = guarded([&]() -> Status {
    server->metrics = print(server->server->metrics());
    return {};
  });
  if (!failed)
    return server->metrics.c_str();
  llmopt_status_free(failed);
  return "";
}

static_assert(int(kv::CacheEvent::Kind::Stored) + LLMOPT_CACHE_STORED == LLMOPT_CACHE_STORED &&
              int(kv::CacheEvent::Kind::Removed) + LLMOPT_CACHE_STORED == LLMOPT_CACHE_REMOVED &&
              int(kv::CacheEvent::Kind::Cleared) + LLMOPT_CACHE_STORED == LLMOPT_CACHE_CLEARED);

} // namespace

extern "C" {

llmopt_status *llmopt_server_new(llmopt_device *device, const llmopt_server_options *options,
                                 llmopt_kernel_source source, void *source_user,
                                 const llmopt_model *model, llmopt_server **server) {
  return guarded([&]() -> Status {
    LLMOPT_RETURN_IF_ERROR(notNull(device, "the device"));
    LLMOPT_RETURN_IF_ERROR(notNull(reinterpret_cast<const void *>(source), "the kernel source"));
    LLMOPT_RETURN_IF_ERROR(notNull(server, "where the server goes"));
    llmopt_server_options given;
    llmopt_model callbacks;
    LLMOPT_RETURN_IF_ERROR(take(options, "the server's options", given));
    LLMOPT_RETURN_IF_ERROR(take(model, "the model", callbacks));
    LLMOPT_RETURN_IF_ERROR(checkModel(callbacks));
    ServerOptions wanted;
    LLMOPT_RETURN_IF_ERROR(takeOptions(given, wanted));
    auto made = std::make_unique<llmopt_server>(callbacks);
    StatusOr<std::unique_ptr<Server>> created = Server::create(
        device->device, std::move(wanted), sourceOf(source, source_user), made->model);
    if (!created)
      return created.status();
    made->server = *std::move(created);
    *server = made.release();
    return {};
  });
}

void llmopt_server_free(llmopt_server *server) { delete server; }

llmopt_status *llmopt_server_submit(llmopt_server *server, const llmopt_request *request,
                                    uint64_t *id) {
  return guarded([&]() -> Status {
    LLMOPT_RETURN_IF_ERROR(notNull(server, "the server"));
    LLMOPT_RETURN_IF_ERROR(notNull(id, "where the request's id goes"));
    llmopt_request given;
    LLMOPT_RETURN_IF_ERROR(take(request, "the request", given));
    if (given.prompt_n)
      LLMOPT_RETURN_IF_ERROR(notNull(given.prompt, "the prompt"));
    if (given.stop_tokens_n)
      LLMOPT_RETURN_IF_ERROR(notNull(given.stop_tokens, "the stop tokens"));
    RequestParams params;
    params.prompt = {given.prompt, given.prompt_n};
    params.maxNewTokens = given.max_new_tokens;
    params.priority = given.priority;
    params.samplingSeed = given.seed;
    params.greedy = given.greedy != 0;
    params.stopTokens = {given.stop_tokens, given.stop_tokens_n};
    if (int64_t now = server->server->now(); given.deadline_ns)
      params.deadlineNs =
          now + int64_t(std::min<uint64_t>(given.deadline_ns, uint64_t(kNoDeadline - 1 - now)));
    params.adapter = given.adapter;
    params.key.adapterVersion = given.adapter_version;
    params.key.salt = given.salt ? given.salt : "";
    params.neverInsert = given.never_insert != 0;
    std::vector<kv::MediaSpan> media;
    LLMOPT_RETURN_IF_ERROR(takeMedia(given, media));
    params.media = media;
    StatusOr<uint64_t> submitted =
        server->server->submit(params, given.samples ? given.samples : 1);
    if (!submitted)
      return submitted.status();
    *id = *submitted;
    return {};
  });
}

llmopt_status *llmopt_server_abort(llmopt_server *server, uint64_t id) {
  return guarded([&]() -> Status {
    LLMOPT_RETURN_IF_ERROR(notNull(server, "the server"));
    if (!server->server->abort(id))
      return makeStatus(StatusCode::NotFound, "request {} has ended, or never was", id);
    return {};
  });
}

llmopt_status *llmopt_server_advance(llmopt_server *server, int32_t *busy) {
  return guarded([&]() -> Status {
    LLMOPT_RETURN_IF_ERROR(notNull(server, "the server"));
    LLMOPT_RETURN_IF_ERROR(notNull(busy, "where the answer goes"));
    StatusOr<bool> more = server->server->advance();
    if (!more)
      return more.status();
    *busy = *more;
    return {};
  });
}

llmopt_status *llmopt_server_next(llmopt_server *server, llmopt_event *event) {
  return guarded([&]() -> Status {
    LLMOPT_RETURN_IF_ERROR(notNull(server, "the server"));
    llmopt_event known;
    LLMOPT_RETURN_IF_ERROR(take(event, "the event", known));
    size_t size = known.struct_size;
    known = {};
    known.struct_size = size;
    ServerEvent next;
    if (server->server->next(next)) {
      bool token = next.kind == ServerEvent::Kind::Token;
      known.kind = token ? LLMOPT_EVENT_TOKEN : LLMOPT_EVENT_FINISH;
      known.id = next.request;
      known.token = next.token;
      known.reason = token ? nullptr : toString(next.reason);
    }
    std::memcpy(static_cast<void *>(event), &known, size);
    return {};
  });
}

const char *llmopt_server_metrics(llmopt_server *server) {
  return textOf(server, [](const ServingMetrics &metrics) { return prometheusText(metrics); });
}

const char *llmopt_server_metrics_json(llmopt_server *server) {
  return textOf(server, [](const ServingMetrics &metrics) { return jsonText(metrics); });
}

llmopt_status *llmopt_server_reset_cache(llmopt_server *server) {
  return guarded([&]() -> Status {
    LLMOPT_RETURN_IF_ERROR(notNull(server, "the server"));
    server->server->resetCache();
    return {};
  });
}

llmopt_status *llmopt_server_next_cache_event(llmopt_server *server, llmopt_cache_event *event) {
  return guarded([&]() -> Status {
    LLMOPT_RETURN_IF_ERROR(notNull(server, "the server"));
    llmopt_cache_event known;
    LLMOPT_RETURN_IF_ERROR(take(event, "the event", known));
    size_t size = known.struct_size;
    known = {};
    known.struct_size = size;
    known.lost = server->server->lostCacheEvents();
    kv::CacheEvent next;
    if (server->server->nextCacheEvent(next)) {
      known.kind = llmopt_cache_event_kind(LLMOPT_CACHE_STORED + int(next.kind));
      known.block = next.block;
      known.parent = next.parent;
    }
    std::memcpy(static_cast<void *>(event), &known, size);
    return {};
  });
}

llmopt_status *llmopt_server_cached_blocks(
    llmopt_server *server, void (*visit)(void *user, uint64_t block, uint64_t parent), void *user) {
  return guarded([&]() -> Status {
    LLMOPT_RETURN_IF_ERROR(notNull(server, "the server"));
    LLMOPT_RETURN_IF_ERROR(notNull(reinterpret_cast<const void *>(visit), "the visitor"));
    server->server->forEachCachedBlock(
        [&](uint64_t block, uint64_t parent) { visit(user, block, parent); });
    return {};
  });
}

} // extern "C"
