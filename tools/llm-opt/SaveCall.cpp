// See SaveCall.h.
#include "tools/llm-opt/SaveCall.h"
#include "runtime/base/File.h"
#include "runtime/base/Npy.h"
#include "tools/llm-opt/DumpJson.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <set>

namespace llmopt::cli {
namespace {

using runtime::NpyArray;
using runtime::NpyType;
using Format = reference::ElementType;

NpyType npyTypeOf(Format type) {
  switch (type) {
  case Format::F32:
    return NpyType::F32;
  case Format::F16:
    return NpyType::F16;
  case Format::BF16:
    return NpyType::BF16;
  case Format::I8:
    return NpyType::I8;
  case Format::I32:
    return NpyType::I32;
  case Format::I64:
    return NpyType::I64;
  case Format::Bool:
    return NpyType::Bool;
  }
  return NpyType::F32;
}

llvm::Error write(const std::string &folder, const std::string &name, NpyArray array) {
  runtime::Status status = runtime::writeNpy(array, folder + "/" + name + ".npy");
  return status.ok() ? llvm::Error::success() : llvm::createStringError(status.message());
}

} // namespace

llvm::Error saveCall(const std::string &folder, const harness::Call &call, StagedCall &staged) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure)
    return llvm::createStringError(
        fmt::format("the folder '{}' cannot be made: {}", folder, failure.message()));
  nlohmann::ordered_json arrays = nlohmann::ordered_json::object();
  std::set<Format> blocks;
  for (const harness::HostArray &array : call.arrays) {
    NpyArray file{npyTypeOf(array.type), {array.shape.begin(), array.shape.end()}, {}};
    if (array.hasMemory()) {
      file.bytes = array.elementBytes();
      if (llvm::Error error = write(folder, array.name, std::move(file)))
        return error;
      continue;
    }
    const PatternArrays::Array &placed = staged.patternArrays().arrays().at(array.name);
    if (placed.result) {
      llvm::Expected<std::vector<uint8_t>> bytes = staged.download(placed);
      if (!bytes)
        return bytes.takeError();
      file.bytes = std::move(*bytes);
      if (llvm::Error error = write(folder, array.name, std::move(file)))
        return error;
      continue;
    }
    arrays[array.name] = {
        {"type", toString(file.type)}, {"shape", file.shape}, {"start", placed.start}};
    if (!blocks.insert(array.type).second)
      continue;
    NpyArray block{file.type, {PatternArrays::kBlock}, PatternArrays::block(placed.ref.type)};
    if (llvm::Error error = write(folder, "block-" + std::string(toString(file.type)), block))
      return error;
  }
  nlohmann::ordered_json all = {{"arrays", arrays}, {"numbers", call.numbers}};
  std::string text = dumpJson(all, 2) + "\n";
  runtime::Status status = runtime::writeFileAtomic(
      folder + "/call.json", {reinterpret_cast<const uint8_t *>(text.data()), text.size()});
  return status.ok() ? llvm::Error::success() : llvm::createStringError(status.message());
}

} // namespace llmopt::cli
