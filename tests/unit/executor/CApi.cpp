#include "CApi.h"

#include "runtime/bundle/BundleIO.h"

#include <stdexcept>
#include <string_view>

namespace llmopt::test {

std::vector<kv::Token> somePrompt(uint32_t stream) {
  std::vector<kv::Token> prompt(70 + stream);
  for (uint32_t i = 0; i < prompt.size(); ++i)
    prompt[i] = (i * 11 + i * i * stream) % 256;
  return prompt;
}

const std::vector<TinyGroup> &oneGroup() {
  static const std::vector<TinyGroup> groups = {{{0, 1}, 16, 0, 0}};
  return groups;
}

namespace {

CState &state(void *user) { return *static_cast<CState *>(user); }

void mayThrow(const CState &s, std::string_view where) {
  if (s.thrower != where)
    return;
  if (s.throws == 1)
    throw std::runtime_error("thrown");
  throw s.throws;
}

llmopt_status *cBegin(void *user, const llmopt_batch *batch) {
  CState &s = state(user);
  mayThrow(s, "begin");
  if (s.fails)
    return llmopt_status_new(LLMOPT_UNAVAILABLE, "the weights are away");
  s.hidden.resize(batch->tokens_n * s.model.config().hidden);
  for (size_t t = 0; t < batch->tokens_n; ++t)
    s.model.embed(batch->ids[t], &s.hidden[t * s.model.config().hidden]);
  s.adapters.insert(s.adapters.end(), batch->adapters, batch->adapters + batch->tokens_n);
  return nullptr;
}

llmopt_status *cProject(void *user, const llmopt_batch *batch, uint32_t layer,
                        const llmopt_layer_arrays *arrays) {
  CState &s = state(user);
  mayThrow(s, "project");
  for (size_t t = 0; t < batch->tokens_n; ++t)
    s.model.project(layer, batch->positions[t], &s.hidden[t * s.model.config().hidden],
                    static_cast<float *>(arrays->query) + t * s.model.queryWidth(),
                    static_cast<float *>(arrays->key) + t * s.model.keyWidth(),
                    static_cast<float *>(arrays->value) + t * s.model.keyWidth());
  return nullptr;
}

llmopt_status *cAbsorb(void *user, const llmopt_batch *batch, uint32_t layer,
                       const llmopt_layer_arrays *arrays) {
  CState &s = state(user);
  mayThrow(s, "absorb");
  for (size_t t = 0; t < batch->tokens_n; ++t)
    s.model.absorb(layer, static_cast<const float *>(arrays->output) + t * s.model.queryWidth(),
                   &s.hidden[t * s.model.config().hidden]);
  return nullptr;
}

llmopt_status *cFinish(void *user, const llmopt_batch *batch) {
  CState &s = state(user);
  mayThrow(s, "finish");
  s.logits.resize(batch->logits_n * s.model.config().vocabulary);
  for (size_t i = 0; i < batch->logits_n; ++i)
    s.model.logits(&s.hidden[batch->logits[i] * s.model.config().hidden],
                   &s.logits[i * s.model.config().vocabulary]);
  return nullptr;
}

llmopt_status *cSample(void *user, const llmopt_sample *query, uint32_t *token) {
  CState &s = state(user);
  mayThrow(s, "sample");
  uint32_t vocabulary = s.model.config().vocabulary;
  *token = s.largeToken
               ? uint32_t(1) << 31
               : sampleFrom(std::span(s.logits).subspan(query->logit * vocabulary, vocabulary),
                            query->greedy, query->seed, query->position);
  return nullptr;
}

} // namespace

llmopt_model cModel(CState &s) {
  return {sizeof(llmopt_model), &s, cBegin, cProject, cAbsorb, cFinish, cSample};
}

llmopt_status *compiledFor(CState &s, const std::string &text, const void **bundle, size_t *bytes) {
  StatusOr<bundle::Program> program = compileText(text);
  if (!program)
    return llmopt_status_new(llmopt_code(program.status().code()),
                             program.status().message().c_str());
  s.bundle = bundle::serialize(*program);
  *bytes = s.bundle.size();
  *bundle = s.bundle.data();
  return nullptr;
}

llmopt_status *cSource(void *user, const char *name, const void **bundle, size_t *bytes) {
  CState &s = state(user);
  mayThrow(s, "source");
  SpecOptions spec;
  bool append = std::string_view(name) == "append";
  return compiledFor(s, append ? appendSpec(spec, oneGroup()[0]) : pagedSpec(spec, oneGroup()[0]),
                     bundle, bytes);
}

CServerParts::CServerParts(const TinyGroup &from, const char *appendKernel,
                           const char *attendKernel) {
  group.struct_size = sizeof(group);
  group.layers = layers;
  group.layers_n = 2;
  group.query_heads = 4;
  group.kv_heads = 2;
  group.key_dim = group.value_dim = 8;
  group.page_size = from.pageSize;
  group.window = from.window;
  group.sink = from.sink;
  group.chunk = from.chunk;
  group.append_kernel = appendKernel;
  rules[0] = {sizeof(rules[0]), 0, LLMOPT_PREFILL, 1, 512, attendKernel};
  rules[1] = {sizeof(rules[1]), 0, LLMOPT_DECODE, 1, 1, attendKernel};
  options.struct_size = sizeof(options);
  options.groups = &group;
  options.groups_n = 1;
  options.rules = rules;
  options.rules_n = 2;
  options.token_budget = 512;
  options.max_length = 1024;
}

void CApi::SetUp() {
  take(llmopt_device_open("cpu", &device), LLMOPT_OK);
  model = cModel(own);
}

void CApi::TearDown() {
  llmopt_server_free(server);
  llmopt_device_free(device);
}

std::string CApi::take(llmopt_status *status, llmopt_code wanted) {
  std::string message = llmopt_status_message(status);
  EXPECT_EQ(llmopt_status_code(status), wanted) << message;
  llmopt_status_free(status);
  return message;
}

llmopt_request CApi::requestOf(const std::vector<uint32_t> &prompt) const {
  llmopt_request request = {};
  request.struct_size = sizeof(request);
  request.prompt = prompt.data();
  request.prompt_n = prompt.size();
  request.max_new_tokens = 25;
  request.seed = 5;
  return request;
}

uint64_t CApi::submit(const llmopt_request &request) {
  uint64_t id = 0;
  take(llmopt_server_submit(server, &request, &id), LLMOPT_OK);
  return id;
}

std::map<uint64_t, std::string> CApi::runOut() {
  std::map<uint64_t, std::string> reasons;
  for (int32_t busy = 1; busy;) {
    take(llmopt_server_advance(server, &busy), LLMOPT_OK);
    llmopt_event event = {};
    event.struct_size = sizeof(event);
    while (take(llmopt_server_next(server, &event), LLMOPT_OK).empty() &&
           event.kind != LLMOPT_EVENT_NONE)
      if (event.kind == LLMOPT_EVENT_TOKEN) {
        answers[event.id].push_back(event.token);
      } else {
        reasons[event.id] = event.reason;
        order.push_back(event.id);
      }
  }
  return reasons;
}

} // namespace llmopt::test
