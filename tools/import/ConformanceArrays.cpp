#include "tools/import/ConformanceArrays.h"

#include "tools/import/Assign.h"

#include <cstring>

using namespace llmopt::importer;

namespace {

using Storage = std::shared_ptr<AlignedBytes>;

Storage share(const std::vector<uint8_t> &bytes) {
  return std::make_shared<AlignedBytes>(bytes.begin(), bytes.end());
}

class ArrayBuilder {
public:
  ArrayBuilder(const OnnxFunction &function, const TensorMap &inputs, std::string_view caseName)
      : function(function), inputs(inputs), caseName(caseName) {}

  StatusOr<std::vector<NamedArray>> build() {
    for (const OnnxBinding &binding : function.bindings) {
      StatusOr<NamedArray> array = buildOne(binding);
      if (!array)
        return array.status().withContext(fmt::format("{}: array '{}'", caseName, binding.array));
      array->name = binding.array;
      arrays.push_back(std::move(*array));
    }
    return std::move(arrays);
  }

private:
  StatusOr<NamedArray> buildOne(const OnnxBinding &binding) {
    if (binding.array == "o")
      return output(binding.form == OnnxBinding::Form::Packed);
    LLMOPT_ASSIGN(tensor, tensorOf(binding.value));
    switch (binding.form) {
    case OnnxBinding::Form::Mask:
      return mask(*tensor);
    case OnnxBinding::Form::Lengths:
      return lengths(*tensor);
    default:
      return sequence(binding, *tensor);
    }
  }

  StatusOr<const Tensor *> tensorOf(const std::string &value) const {
    auto found = inputs.find(value);
    if (found == inputs.end())
      return makeStatus(StatusCode::NotFound, "the case has no data for '{}'", value);
    return &found->second;
  }

  const NamedArray &built(std::string_view name) const {
    for (const NamedArray &array : arrays)
      if (array.name == name)
        return array;
    return arrays.front();
  }

  /// q, k or v as (B, S, H, D) over the tensor's bytes, past keys in front.
  StatusOr<NamedArray> sequence(const OnnxBinding &binding, const Tensor &tensor) {
    int64_t heads = binding.array == "q" ? function.queryHeads : function.kvHeads;
    int64_t dim = binding.array == "v" ? function.vHeadDim : function.headDim;
    bool packed = binding.form == OnnxBinding::Form::Packed;
    if (tensor.type != function.type)
      return invalidArgument("'{}' is of {}; {} is expected", binding.value, nameOf(tensor.type),
                             nameOf(function.type));
    bool fits = packed
                    ? tensor.dims.size() == 3 && tensor.dims[2] == heads * dim
                    : tensor.dims.size() == 4 && tensor.dims[1] == heads && tensor.dims[3] == dim;
    if (!fits)
      return invalidArgument("'{}' is ({}); {} heads of {} are expected", binding.value,
                             fmt::join(tensor.dims, ", "), heads, dim);
    NamedArray array =
        view(share(tensor.bytes), tensor.dims[0], tensor.dims[packed ? 1 : 2], heads, dim, packed);
    if (!arrays.empty() && array.shape[0] != built("q").shape[0])
      return invalidArgument("'{}' has batch {}; {} is expected", binding.value, array.shape[0],
                             built("q").shape[0]);
    if (!binding.past.empty()) {
      LLMOPT_ASSIGN(past, tensorOf(binding.past));
      LLMOPT_ASSIGN(joined, concatenate(*past, array));
      array = std::move(joined);
    }
    if (binding.array == "v" && array.shape[1] != built("k").shape[1])
      return invalidArgument("{} values for {} keys", array.shape[1], built("k").shape[1]);
    return array;
  }

  NamedArray view(Storage storage, int64_t batch, int64_t length, int64_t heads, int64_t dim,
                  bool packed) const {
    NamedArray array;
    array.type = function.type;
    array.shape = {batch, length, heads, dim};
    array.strides = packed ? std::vector{length * heads * dim, heads * dim, dim, int64_t(1)}
                           : std::vector{heads * length * dim, dim, length * dim, int64_t(1)};
    array.storage = std::move(storage);
    return array;
  }

  /// Past keys (B, H, P, D), then the new ones, both copied to (B, H, P + S, D).
  StatusOr<NamedArray> concatenate(const Tensor &past, const NamedArray &fresh) const {
    int64_t batch = fresh.shape[0], heads = fresh.shape[2], dim = fresh.shape[3];
    if (past.type != function.type || past.dims.size() != 4 || past.dims[0] != batch ||
        past.dims[1] != heads || past.dims[3] != dim)
      return invalidArgument("past is ({}) of {}; ({}, {}, P, {}) of {} is expected",
                             fmt::join(past.dims, ", "), nameOf(past.type), batch, heads, dim,
                             nameOf(function.type));
    int64_t before = past.dims[2], total = before + fresh.shape[1];
    size_t row = size_t(dim) * sizeOf(function.type);
    NamedArray result = view(share(std::vector<uint8_t>(size_t(batch * heads * total) * row)),
                             batch, total, heads, dim, false);
    uint8_t *to = result.storage->data();
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t h = 0; h < heads; ++h) {
        const uint8_t *old = past.bytes.data() + size_t((b * heads + h) * before) * row;
        std::memcpy(to, old, size_t(before) * row);
        to += size_t(before) * row;
        for (int64_t s = 0; s < fresh.shape[1]; ++s, to += row) {
          int64_t offset = b * fresh.strides[0] + s * fresh.strides[1] + h * fresh.strides[2];
          std::memcpy(to, fresh.storage->data() + size_t(offset) * sizeOf(function.type), row);
        }
      }
    return result;
  }

  /// Rank 4 with 1s in front; a broadcast extent has stride 0.
  StatusOr<NamedArray> mask(const Tensor &tensor) {
    const std::vector<int64_t> &q = built("q").shape;
    int64_t keys = built("k").shape[1];
    if (tensor.type != function.maskType || tensor.dims.empty() || tensor.dims.size() > 4)
      return invalidArgument("a mask of {} and rank {}; {} and rank 1 to 4 are expected",
                             nameOf(tensor.type), tensor.dims.size(), nameOf(function.maskType));
    NamedArray array;
    array.type = tensor.type;
    array.shape.assign(4 - tensor.dims.size(), 1);
    array.shape.insert(array.shape.end(), tensor.dims.begin(), tensor.dims.end());
    const int64_t wanted[] = {q[0], q[2], q[1]};
    for (size_t i = 0; i < 3; ++i)
      if (array.shape[i] != 1 && array.shape[i] != wanted[i])
        return invalidArgument("the mask has extent {} in dimension {}; 1 or {} is expected",
                               array.shape[i], i, wanted[i]);
    if (array.shape[3] > keys)
      return invalidArgument("the mask is for {} keys; there are {}", array.shape[3], keys);
    array.storage = share(filledUp(tensor, keys));
    array.shape[3] = keys;
    array.strides.assign(4, 0);
    int64_t stride = 1;
    for (size_t i = 4; i-- > 0; stride *= array.shape[i])
      array.strides[i] = array.shape[i] == 1 ? 0 : stride;
    return array;
  }

  /// The rows of a mask at a length of `keys`; what they lack is "hidden".
  static std::vector<uint8_t> filledUp(const Tensor &tensor, int64_t keys) {
    int64_t given = tensor.dims.back();
    if (given == keys)
      return tensor.bytes;
    size_t size = sizeOf(tensor.type);
    int64_t rows = 1;
    for (size_t i = 0; i + 1 < tensor.dims.size(); ++i)
      rows *= tensor.dims[i];
    std::vector<uint8_t> bytes;
    for (int64_t r = 0; r < rows; ++r) {
      auto from = tensor.bytes.begin() + r * given * int64_t(size);
      bytes.insert(bytes.end(), from, from + given * int64_t(size));
      for (int64_t i = given; i < keys; ++i)
        appendHidden(bytes, tensor.type);
    }
    return bytes;
  }

  /// False, or minus infinity.
  static void appendHidden(std::vector<uint8_t> &bytes, DataType type) {
    uint32_t bits = type == DataType::F32    ? 0xff800000
                    : type == DataType::F16  ? 0xfc00
                    : type == DataType::BF16 ? 0xff80
                                             : 0;
    for (size_t i = 0; i < sizeOf(type); ++i)
      bytes.push_back(uint8_t(bits >> 8 * i));
  }

  StatusOr<NamedArray> lengths(const Tensor &tensor) {
    int64_t batch = built("q").shape[0], keys = built("k").shape[1];
    if (tensor.type != DataType::I64 || tensor.dims != std::vector{batch})
      return invalidArgument("lengths of {} in ({}); i64 in ({}) is expected", nameOf(tensor.type),
                             fmt::join(tensor.dims, ", "), batch);
    NamedArray array;
    array.type = DataType::I32;
    array.shape = {batch};
    array.strides = {1};
    array.storage = share(std::vector<uint8_t>(size_t(batch) * 4));
    for (int64_t b = 0; b < batch; ++b) {
      int64_t length;
      std::memcpy(&length, tensor.bytes.data() + b * 8, 8);
      if (length < 0 || length > keys)
        return invalidArgument("length {}; 0 to {} is allowed", length, keys);
      int32_t narrow = int32_t(length);
      std::memcpy(array.storage->data() + b * 4, &narrow, 4);
    }
    return array;
  }

  /// The result in the model's own layout, all NaN.
  NamedArray output(bool packed) {
    const std::vector<int64_t> &q = built("q").shape;
    int64_t elements = q[0] * q[1] * q[2] * function.vHeadDim;
    std::vector<uint8_t> nan(size_t(elements) * sizeOf(function.type), 0xff);
    return view(share(nan), q[0], q[1], q[2], function.vHeadDim, packed);
  }

  const OnnxFunction &function;
  const TensorMap &inputs;
  std::string_view caseName;
  std::vector<NamedArray> arrays;
};

} // namespace

int64_t NamedArray::elements() const {
  int64_t count = 1;
  for (int64_t extent : shape)
    count *= extent;
  return count;
}

double NamedArray::at(const std::vector<int64_t> &index) const {
  int64_t offset = 0;
  for (size_t d = 0; d < index.size(); ++d)
    offset += index[d] * strides[d];
  return loadElement(data(), type, offset);
}

StatusOr<std::vector<NamedArray>> llmopt::importer::buildArrays(const OnnxFunction &function,
                                                                const TensorMap &inputs,
                                                                std::string_view caseName) {
  return ArrayBuilder(function, inputs, caseName).build();
}

NamedArray llmopt::importer::modelView(const NamedArray &array, bool packed) {
  NamedArray result = array;
  if (packed) {
    result.shape = {array.shape[0], array.shape[1], array.shape[2] * array.shape[3]};
    result.strides = {array.strides[0], array.strides[1], 1};
    return result;
  }
  std::swap(result.shape[1], result.shape[2]);
  std::swap(result.strides[1], result.strides[2]);
  return result;
}
