#include "tools/llm-opt/SimLaunch.h"

#include "runtime/base/File.h"
#include "runtime/base/Json.h"
#include "tools/import/JsonText.h"
#include "tools/llm-opt/SimNumber.h"
#include "tools/llm-opt/SimTensorMap.h"

#include <cstring>
#include <filesystem>
#include <limits>
#include <new>
#include <nlohmann/json.hpp>
#include <random>
#include <type_traits>

namespace llmopt::cli {

using nlohmann::json;
using runtime::invalidArgument;
using runtime::NpyArray;
using runtime::NpyType;
using runtime::shortJson;
using runtime::Status;

namespace {

constexpr uint64_t kMaxTextBytes = 64 << 20;
constexpr uint64_t kMaxCount = 0xffffffff;
/// Of all arrays of a launch that have a fill; files may be larger.
constexpr uint64_t kMaxFilledBytes = uint64_t{16} << 30;

/// The entry, if it is there.
template <typename T>
Status readOptional(const json &object, const char *key, const char *wanted, T &into) {
  auto found = object.find(key);
  if (found == object.end())
    return {};
  if (!(std::is_same_v<T, bool> ? found->is_boolean() : found->is_string()))
    return invalidArgument("'{}' is {}; {} is wanted", key, shortJson(*found), wanted);
  into = found->template get<T>();
  return {};
}

class Reader {
public:
  Reader(const std::string &path, const sim::Module &module)
      : folder(std::filesystem::path(path).parent_path()), path(path), module(module) {}

  Status read(SimLaunch &result) {
    runtime::StatusOr<std::vector<uint8_t>> bytes = runtime::readFile(path, kMaxTextBytes);
    if (!bytes)
      return bytes.status();
    runtime::StatusOr<importer::JsonText> parsed =
        importer::JsonText::parse({bytes->begin(), bytes->end()}, path);
    if (!parsed)
      return parsed.status();
    document = *std::move(parsed);
    const json &text = document.root();
    for (const auto &[key, value] : text.items())
      if (key != "kernel" && key != "grid" && key != "block" && key != "cluster" &&
          key != "shared" && key != "params")
        return at("/" + key,
                  invalidArgument("there is no entry '{}' in a launch; kernel, grid, block, "
                                  "cluster, shared and params are known",
                                  key));
    const sim::KernelInfo *kernel = nullptr;
    LLMOPT_RETURN_IF_ERROR(at("/kernel", findKernel(text, kernel)));
    result.kernel = kernel->name;
    LLMOPT_RETURN_IF_ERROR(at("/grid", readAxes(text, "grid", result.launch.grid)));
    LLMOPT_RETURN_IF_ERROR(at("/block", readAxes(text, "block", result.launch.block)));
    if (text.contains("cluster")) {
      result.launch.cluster = {1, 1, 1};
      LLMOPT_RETURN_IF_ERROR(at("/cluster", readAxes(text, "cluster", result.launch.cluster)));
    }
    runtime::StatusOr<uint64_t> shared =
        readCount(text.value("shared", json(0u)), "shared", 0, kMaxCount);
    if (!shared)
      return at("/shared", shared.status());
    result.launch.dynamicShared = static_cast<uint32_t>(*shared);
    LLMOPT_RETURN_IF_ERROR(readParams(text, *kernel, result));
    result.launch.kernel = result.kernel;
    result.launch.params = result.params;
    return {};
  }

private:
  /// An error with the file, line and column of the entry.
  Status at(const std::string &entry, const Status &status) const {
    return status.ok() ? status : status.withContext(document.locate(entry));
  }

  Status findKernel(const json &text, const sim::KernelInfo *&kernel) const {
    const std::vector<sim::KernelInfo> &kernels = module.kernels();
    std::string names;
    for (const sim::KernelInfo &info : kernels)
      names += (names.empty() ? "" : ", ") + info.name;
    if (!text.contains("kernel") && kernels.size() == 1)
      kernel = &kernels[0];
    else if (text.contains("kernel") && text["kernel"].is_string())
      kernel = module.kernel(text["kernel"].get<std::string>());
    if (kernel)
      return {};
    return invalidArgument("'kernel' is {}; one of these is wanted: {}",
                           shortJson(text.value("kernel", json())), names);
  }

  static Status readAxes(const json &text, const char *key, std::array<uint32_t, 3> &axes) {
    json value = text.value(key, json::array());
    bool valid = value.is_array() && !value.empty() && value.size() <= 3;
    for (size_t i = 0; valid && i < value.size(); ++i) {
      runtime::StatusOr<uint64_t> count = readCount(value[i], key, 1, kMaxCount);
      valid = count.ok();
      if (valid)
        axes[i] = static_cast<uint32_t>(*count);
    }
    return valid ? Status()
                 : invalidArgument("'{}' is {}; one to three counts from 1 to {} are wanted", key,
                                   shortJson(value), kMaxCount);
  }

  Status readParams(const json &text, const sim::KernelInfo &kernel, SimLaunch &result) {
    json params = text.value("params", json::array());
    if (!params.is_array())
      return at("/params", invalidArgument("'params' is {}; a list is wanted", shortJson(params)));
    if (params.size() != kernel.params.size())
      return at("/params", invalidArgument("'params' has {} entries; kernel '{}' has {} parameters",
                                           params.size(), kernel.name, kernel.params.size()));
    result.params.resize(kernel.paramBytes);
    for (size_t i = 0; i < params.size(); ++i) {
      std::vector<uint8_t> bytes;
      Status status = params[i].is_object() ? readParam(params[i], i, result, bytes)
                                            : invalidArgument("an object is wanted");
      if (status.ok() && bytes.size() != kernel.params[i].size)
        status = invalidArgument("it has {} bytes; the kernel's parameter has {}", bytes.size(),
                                 kernel.params[i].size);
      if (!status.ok())
        return at(fmt::format("/params/{}", i),
                  status.withContext(fmt::format("'params' entry {}", i)));
      std::memcpy(&result.params[kernel.params[i].offset], bytes.data(), bytes.size());
    }
    return {};
  }

  Status readParam(const json &param, size_t index, SimLaunch &result,
                   std::vector<uint8_t> &bytes) {
    if (param.contains("npy") || param.contains("shape")) {
      LLMOPT_RETURN_IF_ERROR(checkEntries(param));
      return readArray(param, index, result, bytes);
    }
    if (param.size() == 1 && param.contains("tensormap") && param["tensormap"].is_object())
      return readMap(param["tensormap"], index, result, bytes);
    if (param.size() == 1 && param.contains("bytes"))
      return readBytes(param["bytes"], bytes);
    if (param.size() == 1) {
      std::optional<NpyType> type = typeOf(param.begin().key());
      if (type && param.begin()->is_number())
        return appendNumber(bytes, *type, *param.begin());
    }
    return invalidArgument(
        "{} is neither an array (npy, or type, shape and fill), nor a tensor "
        "map, nor a number ({{\"i32\": 5}}), nor bytes ({{\"bytes\": \"00ff\"}})",
        shortJson(param));
  }

  static Status checkEntries(const json &array) {
    bool isFile = array.contains("npy");
    for (const auto &[key, value] : array.items())
      if (key != "name" && key != "output" && key != "write" && key != (isFile ? "npy" : "shape") &&
          (isFile || (key != "type" && key != "fill")))
        return invalidArgument(
            "there is no entry '{}' in an array {}, name, output and write are known", key,
            isFile ? "of a file; npy" : "without a file; type, shape, fill");
    return {};
  }

  static Status readBytes(const json &value, std::vector<uint8_t> &bytes) {
    std::string text = value.is_string() ? value.get<std::string>() : "";
    if (text.size() % 2 != 0 ||
        text.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos)
      return invalidArgument("'bytes' is {}; an even number of hex digits is wanted",
                             shortJson(value));
    for (size_t i = 0; i < text.size(); i += 2)
      bytes.push_back(static_cast<uint8_t>(std::stoul(text.substr(i, 2), nullptr, 16)));
    return {};
  }

  Status readArray(const json &param, size_t index, SimLaunch &result,
                   std::vector<uint8_t> &bytes) {
    SimArray array;
    array.name = fmt::format("params[{}]", index);
    LLMOPT_RETURN_IF_ERROR(readOptional(param, "name", "a string", array.name));
    for (const SimArray &other : result.arrays)
      if (other.name == array.name)
        return invalidArgument("'name' is '{}', as of an array before", array.name);
    std::string file, output;
    LLMOPT_RETURN_IF_ERROR(readOptional(param, "output", "a file's name", output));
    LLMOPT_RETURN_IF_ERROR(readOptional(param, "write", "true or false", array.writable));
    LLMOPT_RETURN_IF_ERROR(readOptional(param, "npy", "a file's name", file));
    if (!output.empty()) {
      array.output = folder / output;
      array.writable = true;
    }
    if (param.contains("npy")) {
      runtime::StatusOr<NpyArray> loaded = runtime::readNpy(folder / file);
      if (!loaded)
        return loaded.status();
      array.array = *std::move(loaded);
    } else {
      LLMOPT_RETURN_IF_ERROR(fillArray(param, array.array));
    }
    if (array.array.bytes.empty()) // an address of its own, by which a fault names it
      array.array.bytes.reserve(1);
    result.arrays.push_back(std::move(array));
    const void *address = result.arrays.back().array.bytes.data();
    bytes.resize(sizeof(address));
    std::memcpy(bytes.data(), &address, sizeof(address));
    return {};
  }

  /// An array, of which the kernel gets a tensor map in place of the address.
  Status readMap(const json &param, size_t index, SimLaunch &result, std::vector<uint8_t> &bytes) {
    LLMOPT_RETURN_IF_ERROR(readArray(param, index, result, bytes));
    runtime::StatusOr<sim::EncodedTensorMap> map = readTensorMap(param, result.arrays.back().array);
    if (!map)
      return map.status();
    result.tensorMaps = true;
    bytes.resize(sim::kTensorMapBytes);
    std::memcpy(bytes.data(), map->bytes.data(), sim::kTensorMapBytes);
    return {};
  }

  Status fillArray(const json &param, NpyArray &array) {
    std::string typeName;
    LLMOPT_RETURN_IF_ERROR(readOptional(param, "type", "a type's name", typeName));
    std::optional<NpyType> type = typeOf(typeName);
    if (!type)
      return invalidArgument("'type' is {}; f16, bf16, f32, f64, i8, u8, i32, u32, i64 and bool "
                             "are allowed",
                             shortJson(param.value("type", json())));
    array.type = *type;
    json shape = param.value("shape", json::array());
    if (!shape.is_array())
      return invalidArgument("'shape' is {}; a list of extents is wanted", shortJson(shape));
    for (const json &value : shape) {
      runtime::StatusOr<uint64_t> extent =
          readCount(value, "shape", 0, std::numeric_limits<int64_t>::max());
      if (!extent)
        return extent.status();
      array.shape.push_back(static_cast<int64_t>(*extent));
    }
    runtime::StatusOr<int64_t> count = runtime::elementCount(array.shape);
    if (!count)
      return count.status();
    json fill = param.value("fill", json(0));
    if (!fill.is_number() && fill != "index" && fill != "normal")
      return invalidArgument("'fill' is {}; a number, \"index\" and \"normal\" are allowed",
                             shortJson(fill));
    // The one value, or the greatest.
    std::vector<uint8_t> element;
    if (fill.is_number() || (fill == "index" && *count > 0))
      if (Status status = appendNumber(element, *type, fill.is_number() ? fill : json(*count - 1));
          !status.ok())
        return status.withContext("'fill'");
    uint64_t size = runtime::bytesOf(*type);
    if (uint64_t(*count) > (kMaxFilledBytes - filledBytes) / size)
      return invalidArgument("'shape' is {}, {} elements of {}; the arrays of a launch that are "
                             "no files have at most {} bytes together; write this one to a file "
                             "and name it with 'npy'",
                             shortJson(shape), *count, toString(*type), kMaxFilledBytes);
    uint64_t bytes = uint64_t(*count) * size;
    filledBytes += bytes;
    try {
      array.bytes.resize(bytes);
    } catch (const std::bad_alloc &) {
      return runtime::makeStatus(runtime::StatusCode::ResourceExhausted,
                                 "'shape' is {}: no memory for {} bytes", shortJson(shape), bytes);
    }
    if (fill.is_number())
      repeat(element, array.bytes);
    else
      sequence(fill == "index", *type, *count, array.bytes);
    return {};
  }

  /// Nothing but copies of the element, which doubles what is there.
  static void repeat(const std::vector<uint8_t> &element, std::vector<uint8_t> &bytes) {
    if (bytes.empty() || std::all_of(element.begin(), element.end(), [](auto b) { return !b; }))
      return;
    std::memcpy(bytes.data(), element.data(), element.size());
    for (size_t done = element.size(); done < bytes.size(); done *= 2)
      std::memcpy(&bytes[done], bytes.data(), std::min(done, bytes.size() - done));
  }

  /// 0, 1, 2, ..., or random numbers.
  static void sequence(bool index, NpyType type, int64_t count, std::vector<uint8_t> &bytes) {
    std::mt19937 random(static_cast<uint32_t>(count));
    std::normal_distribution<double> normal;
    uint32_t size = runtime::bytesOf(type);
    for (int64_t i = 0; i < count; ++i)
      storeConverted(&bytes[uint64_t(i) * size], type,
                     index ? static_cast<double>(i) : normal(random));
  }

  std::filesystem::path folder;
  std::string path;
  const sim::Module &module;
  importer::JsonText document;
  uint64_t filledBytes = 0;
};

} // namespace

Status readSimLaunch(const std::string &path, const sim::Module &module, SimLaunch &result) {
  return Reader(path, module).read(result);
}

} // namespace llmopt::cli
