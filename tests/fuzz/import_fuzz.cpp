// Both importers on arbitrary bytes: no crash, and either a module or one line.
// What starts with '{' is a config, anything else a model and a tensor.
#include "tools/import/Onnx.h"

#include <cstdio>
#include <cstdlib>

using namespace llmopt::importer;

/// Stops the fuzzer at a broken promise.
static void require(bool holds, const char *what, const std::string &text) {
  if (holds)
    return;
  std::fprintf(stderr, "%s: %s\n", what, text.c_str());
  std::abort();
}

template <typename T> static void check(const StatusOr<T> &result, const std::string &ir) {
  if (result.ok()) {
    require(ir.find("attn.attention") != std::string::npos, "no attention", ir);
    return;
  }
  const std::string &message = result.status().message();
  require(message.starts_with("f:") && message.find('\n') == std::string::npos,
          "not one line about the file", message);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string_view bytes(reinterpret_cast<const char *>(data), size);
  if (bytes.starts_with('{')) {
    auto config = importHuggingFace(bytes, "f");
    check(config, config.ok() ? config->ir : "");
    return 0;
  }
  auto model = importOnnx(bytes, "f");
  check(model, model.ok() ? model->ir : "");
  auto tensor = readTensorProto(bytes, "f");
  if (tensor.ok())
    require(tensor->bytes.size() == size_t(tensor->elements()) * sizeOf(tensor->type),
            "bytes that the dims do not ask for", tensor->name);
  return 0;
}
