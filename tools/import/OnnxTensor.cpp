// TensorProto files.
#include "tools/import/OnnxGraph.h"

#include "runtime/base/File.h"
#include "tools/import/Assign.h"
#include "tools/import/Text.h"

#include <cstring>

using namespace llmopt::importer;

namespace {

/// Appends the low bytes of each item of a typed field.
template <typename Item, typename Field>
void append(std::vector<uint8_t> &bytes, const Field &field) {
  for (auto value : field) {
    Item item = Item(value);
    const auto *raw = reinterpret_cast<const uint8_t *>(&item);
    bytes.insert(bytes.end(), raw, raw + sizeof item);
  }
}

void appendTyped(Tensor &tensor, const onnx::TensorProto &proto) {
  switch (tensor.type) {
  case DataType::F32:
    return append<float>(tensor.bytes, proto.float_data());
  case DataType::F64:
    return append<double>(tensor.bytes, proto.double_data());
  case DataType::I64:
    return append<int64_t>(tensor.bytes, proto.int64_data());
  case DataType::I32:
    return append<int32_t>(tensor.bytes, proto.int32_data());
  case DataType::F16:
  case DataType::BF16:
    return append<uint16_t>(tensor.bytes, proto.int32_data());
  case DataType::Bool:
    return append<uint8_t>(tensor.bytes, proto.int32_data());
  }
}

/// The bytes that the dims ask for; none where they are negative or absurd.
std::optional<uint64_t> byteCount(const Tensor &tensor) {
  uint64_t count = sizeOf(tensor.type);
  for (int64_t dim : tensor.dims)
    if (dim < 0 || __builtin_mul_overflow(count, uint64_t(dim), &count))
      return std::nullopt;
  return count <= uint64_t(std::numeric_limits<int64_t>::max()) ? std::optional(count)
                                                                : std::nullopt;
}

} // namespace

StatusOr<Tensor> llmopt::importer::readTensorProto(std::string_view bytes,
                                                   std::string_view filename) {
  google::protobuf::SetLogHandler(nullptr); // errors are told once, by us
  onnx::TensorProto proto;
  if (bytes.size() > size_t(std::numeric_limits<int32_t>::max()) ||
      !proto.ParseFromArray(bytes.data(), int(bytes.size())))
    return dataLoss("{}: not an ONNX tensor", filename);
  std::optional<DataType> type = dataType(proto.data_type());
  if (!type)
    return makeStatus(kUnsupported, "{}: elements of type {} are not supported yet", filename,
                      elementName(proto.data_type()));
  if (proto.data_location() == onnx::TensorProto::EXTERNAL)
    return makeStatus(kUnsupported, "{}: a tensor with external data is not supported yet",
                      filename);
  Tensor tensor;
  tensor.name = proto.name();
  tensor.type = *type;
  tensor.dims.assign(proto.dims().begin(), proto.dims().end());
  if (proto.has_raw_data())
    tensor.bytes.assign(proto.raw_data().begin(), proto.raw_data().end());
  else
    appendTyped(tensor, proto);
  std::optional<uint64_t> expected = byteCount(tensor);
  if (!expected || *expected != tensor.bytes.size())
    return dataLoss("{}: {} bytes of data; dimensions ({}) of {} need {}", filename,
                    tensor.bytes.size(), fmt::join(tensor.dims, ", "), nameOf(*type),
                    expected ? fmt::format("{}", *expected) : "what cannot be");
  if (tensor.type == DataType::Bool)
    for (uint8_t &byte : tensor.bytes)
      byte = byte != 0;
  return tensor;
}

StatusOr<Tensor> llmopt::importer::readTensorProto(const std::string &path) {
  LLMOPT_ASSIGN(bytes, runtime::readFile(path, std::numeric_limits<int32_t>::max()));
  return readTensorProto(
      std::string_view(reinterpret_cast<const char *>(bytes.data()), bytes.size()), path);
}
