// The tiny model behind C callbacks, and what the tests of the C API share.
#pragma once

#include "Alone.h"

#include "runtime/api/llmopt.h"

#include <gtest/gtest.h>
#include <map>

namespace llmopt::test {

/// 70 tokens and more; another text for each stream.
std::vector<kv::Token> somePrompt(uint32_t stream);
/// Both layers in one group.
const std::vector<TinyGroup> &oneGroup();

struct CState {
  TinyModel model{TinyConfig()};
  std::vector<float> hidden, logits;
  std::vector<uint8_t> bundle;
  std::vector<uint32_t> adapters; ///< of the rows that were computed, one after the other
  bool fails = false;
  /// A callback that throws, and what: 1 an exception, 2 a number.
  const char *thrower = "";
  int throws = 1;
  bool largeToken = false; ///< the model samples token 2^31
};

/// Compiles a spec; the bytes stay in `s`.
llmopt_status *compiledFor(CState &s, const std::string &text, const void **bundle, size_t *bytes);
/// "append" and "attend" of `oneGroup`, for a CState.
llmopt_status *cSource(void *user, const char *name, const void **bundle, size_t *bytes);
llmopt_model cModel(CState &s);

/// What a server of the tiny model's two layers is made from: one group, and one kernel for all of
/// its rows.
struct CServerParts {
  CServerParts(const TinyGroup &from, const char *appendKernel, const char *attendKernel);
  CServerParts(const CServerParts &) = delete; // they point at each other

  uint32_t layers[2] = {0, 1};
  llmopt_layer_group group = {};
  llmopt_kernel_rule rules[2] = {};
  llmopt_server_options options = {};
};

class CApi : public testing::Test, protected CServerParts {
protected:
  CApi() : CServerParts(oneGroup()[0], "append", "attend") {}
  void SetUp() override;
  void TearDown() override;
  /// Checks the code, frees the status and gives its message.
  std::string take(llmopt_status *status, llmopt_code wanted);
  std::string create(llmopt_code wanted) {
    return take(llmopt_server_new(device, &options, cSource, &own, &model, &server), wanted);
  }
  llmopt_request requestOf(const std::vector<uint32_t> &prompt) const;
  uint64_t submit(const llmopt_request &request);
  uint64_t submit(const std::vector<uint32_t> &prompt) { return submit(requestOf(prompt)); }
  /// Until nothing is left; the reason of each end. `order`: of the ends.
  std::map<uint64_t, std::string> runOut();
  std::string metrics() { return llmopt_server_metrics(server); }

  CState own;
  llmopt_model model = {};
  llmopt_device *device = nullptr;
  llmopt_server *server = nullptr;
  std::map<uint64_t, std::vector<uint32_t>> answers;
  std::vector<uint64_t> order; ///< of ends
};

} // namespace llmopt::test
