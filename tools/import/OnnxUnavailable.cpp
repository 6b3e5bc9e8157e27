// Stands in for the ONNX importer in a build without ONNX's protobuf schema.
#include "tools/import/Onnx.h"

using namespace llmopt::importer;

static Status unavailable(std::string_view filename) {
  return makeStatus(StatusCode::Unavailable,
                    "{}: this llm-opt was built without ONNX; install libonnx-dev and "
                    "libprotobuf-dev and build it again",
                    filename);
}

bool llmopt::importer::onnxIsAvailable() { return false; }

StatusOr<OnnxCase> llmopt::importer::importOnnx(const std::string &modelPath) {
  return unavailable(modelPath);
}

StatusOr<OnnxCase> llmopt::importer::importOnnx(std::string_view, std::string_view filename) {
  return unavailable(filename);
}

StatusOr<Tensor> llmopt::importer::readTensorProto(const std::string &path) {
  return unavailable(path);
}

StatusOr<Tensor> llmopt::importer::readTensorProto(std::string_view, std::string_view filename) {
  return unavailable(filename);
}
