// The ONNX importer on bytes and files, with or without the schema.
#include "tools/import/Onnx.h"

#include <gtest/gtest.h>

using namespace llmopt::importer;

TEST(Onnx, what_is_no_model_is_refused) {
  for (std::string_view bytes : {std::string_view("not a model"), std::string_view("")}) {
    auto result = importOnnx(bytes, "m.onnx");
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().message().find("m.onnx: "), 0u);
    if (onnxIsAvailable())
      EXPECT_EQ(result.status().message(), "m.onnx: not an ONNX model");
    else
      EXPECT_EQ(result.status().code(), StatusCode::Unavailable);
  }
}
