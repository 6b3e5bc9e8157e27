// TensorProto in its two encodings, and its faults.
#include "tests/unit/import/OnnxModels.h"

#include <gtest/gtest.h>

using namespace llmopt::importer;

namespace {

onnx::TensorProto tensor(int type, std::vector<int64_t> dims) {
  onnx::TensorProto proto;
  proto.set_data_type(type);
  for (int64_t dim : dims)
    proto.add_dims(dim);
  return proto;
}

StatusOr<Tensor> read(const onnx::TensorProto &proto) {
  return readTensorProto(proto.SerializeAsString(), "t.pb");
}

} // namespace

TEST(OnnxTensor, raw_and_typed_data_are_the_same) {
  auto raw = tensor(onnx::TensorProto::FLOAT, {2}), typed = raw;
  float values[] = {1.5f, -2.0f};
  raw.set_raw_data(values, sizeof values);
  typed.add_float_data(1.5f);
  typed.add_float_data(-2.0f);
  ASSERT_TRUE(read(raw).ok());
  EXPECT_EQ(read(raw)->bytes, read(typed)->bytes);
  EXPECT_EQ(read(raw)->at(1), -2.0);
}

TEST(OnnxTensor, narrow_types_stand_in_int32_data) {
  auto half = tensor(onnx::TensorProto::FLOAT16, {1});
  half.add_int32_data(0x3c00);
  EXPECT_EQ(read(half)->at(0), 1.0);
  auto brain = tensor(onnx::TensorProto::BFLOAT16, {1});
  brain.add_int32_data(0x4000);
  EXPECT_EQ(read(brain)->at(0), 2.0);
  auto boolean = tensor(onnx::TensorProto::BOOL, {2});
  boolean.add_int32_data(0);
  boolean.add_int32_data(1);
  EXPECT_EQ(read(boolean)->bytes, (std::vector<uint8_t>{0, 1}));
}

TEST(OnnxTensor, wide_types) {
  auto longs = tensor(onnx::TensorProto::INT64, {1});
  longs.add_int64_data(-7);
  EXPECT_EQ(read(longs)->at(0), -7);
  auto doubles = tensor(onnx::TensorProto::DOUBLE, {});
  doubles.add_double_data(0.1);
  EXPECT_EQ(read(doubles)->at(0), 0.1);
  auto ints = tensor(onnx::TensorProto::INT32, {0, 3});
  EXPECT_EQ(read(ints)->elements(), 0);
}

TEST(OnnxTensor, any_boolean_byte_but_zero_is_true) {
  auto boolean = tensor(onnx::TensorProto::BOOL, {2});
  boolean.set_raw_data(std::string("\x00\x7f", 2));
  EXPECT_EQ(read(boolean)->bytes, (std::vector<uint8_t>{0, 1}));
}

TEST(OnnxTensor, sizes_that_do_not_fit_are_refused) {
  auto proto = tensor(onnx::TensorProto::FLOAT, {3});
  proto.add_float_data(1);
  EXPECT_EQ(read(proto).status().message(), "t.pb: 4 bytes of data; dimensions (3) of f32 need 12");
  auto negative = tensor(onnx::TensorProto::FLOAT, {-1});
  EXPECT_FALSE(read(negative).ok());
  auto huge = tensor(onnx::TensorProto::FLOAT, {int64_t(1) << 40, int64_t(1) << 40});
  EXPECT_EQ(read(huge).status().message(),
            "t.pb: 0 bytes of data; dimensions (1099511627776, 1099511627776) of f32 need "
            "what cannot be");
}

TEST(OnnxTensor, what_cannot_be_read_is_refused) {
  EXPECT_EQ(read(tensor(onnx::TensorProto::STRING, {1})).status().message(),
            "t.pb: elements of type string are not supported yet");
  auto outside = tensor(onnx::TensorProto::FLOAT, {1});
  outside.set_data_location(onnx::TensorProto::EXTERNAL);
  EXPECT_EQ(read(outside).status().message(),
            "t.pb: a tensor with external data is not supported yet");
  EXPECT_EQ(readTensorProto("\xff\xff", "t.pb").status().message(), "t.pb: not an ONNX tensor");
}
