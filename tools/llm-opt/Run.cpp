// llm-opt run: one call of a spec or of a saved bundle on given .npy arrays.
#include "runtime/base/File.h"
#include "runtime/base/Npy.h"
#include "runtime/bundle/BundleIO.h"
#include "tools/llm-opt/Command.h"
#include "tools/llm-opt/Devices.h"
#include "tools/llm-opt/Options.h"
#include "tools/llm-opt/Runner.h"
#include "tools/llm-opt/SpecFile.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <list>
#include <optional>

namespace llmopt::cli {
namespace {

using bundle::ElementType;
using runtime::NpyArray;
using runtime::NpyType;

struct Options {
  std::string spec, device = "auto", function;
  std::vector<std::string> inputs, outputs, numbers;
  bool json = false;
};

std::optional<ElementType> elementTypeOf(NpyType type) {
  switch (type) {
  case NpyType::F16:
    return ElementType::F16;
  case NpyType::F32:
    return ElementType::F32;
  case NpyType::BF16:
    return ElementType::BF16;
  case NpyType::I8:
    return ElementType::I8;
  case NpyType::I32:
    return ElementType::I32;
  case NpyType::I64:
    return ElementType::I64;
  case NpyType::U32:
    return ElementType::U32;
  case NpyType::Bool:
    return ElementType::Bool;
  default:
    return std::nullopt;
  }
}

NpyType npyTypeOf(ElementType type) {
  switch (type) {
  case ElementType::F16:
    return NpyType::F16;
  case ElementType::BF16:
    return NpyType::BF16;
  default:
    return NpyType::F32;
  }
}

llvm::Expected<std::pair<std::string, std::string>> splitSetting(const std::string &option,
                                                                 const std::string &text) {
  size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    return llvm::createStringError(fmt::format("{} {}: NAME=VALUE is wanted", option, text));
  return std::pair{text.substr(0, equals), text.substr(equals + 1)};
}

/// Owns what a call's arguments point to.
struct Arrays {
  std::list<NpyArray> inputs;
  std::map<std::string, NpyArray> outputs;
  runtime::CallArguments arguments;
};

/// A number for scalar `name`: an integer where the program wants one and it is one.
runtime::ScalarValue scalarValue(const bundle::Program &program, const std::string &name,
                                 double value) {
  for (const bundle::Scalar &scalar : program.scalars)
    if (scalar.name == name && scalar.type != bundle::ScalarType::F32 &&
        value == std::nearbyint(value) && std::abs(value) < 0x1p53)
      return int64_t(value);
  return value;
}

bool isReal(const bundle::Program &program, const std::string &name) {
  return std::any_of(program.scalars.begin(), program.scalars.end(), [&](const auto &scalar) {
    return scalar.name == name && scalar.type == bundle::ScalarType::F32;
  });
}

llvm::Error readInputs(const bundle::Program &program, const Options &options, Arrays &arrays) {
  for (const std::string &text : options.inputs) {
    auto setting = splitSetting("--input", text);
    if (!setting)
      return setting.takeError();
    runtime::StatusOr<NpyArray> array = runtime::readNpy(setting->second);
    if (!array)
      return llvm::createStringError(array.status().message());
    std::optional<ElementType> type = elementTypeOf(array->type);
    if (!type)
      return llvm::createStringError(
          fmt::format("{}: elements are {}; kernels take f32, f16, bf16, bool and "
                      "integers",
                      setting->second, runtime::toString(array->type)));
    arrays.inputs.push_back(std::move(*array));
    NpyArray &held = arrays.inputs.back();
    arrays.arguments.arrays[setting->first] =
        runtime::ArrayRef::contiguous(held.bytes.data(), *type, held.shape);
  }
  for (const std::string &text : options.numbers) {
    auto setting = splitSetting("--set", text);
    if (!setting)
      return setting.takeError();
    char *end = nullptr;
    double value = std::strtod(setting->second.c_str(), &end);
    if (*end)
      return llvm::createStringError(
          fmt::format("--set {}: '{}' is no number", text, setting->second));
    if (!std::isfinite(value) || (isReal(program, setting->first) && !std::isfinite(float(value))))
      return llvm::createStringError(
          fmt::format("--set {}: '{}' is not finite in float32", text, setting->second));
    arrays.arguments.scalars[setting->first] = scalarValue(program, setting->first, value);
  }
  return llvm::Error::success();
}

/// Shape of an output: that of the query, with d_v; without the last dimension for LSE.
llvm::Error makeOutputs(const bundle::Program &program, Arrays &arrays) {
  const char *like = program.facts.queryHeads ? "q" : "partials";
  auto query = arrays.arguments.arrays.find(like);
  for (const bundle::Buffer &buffer : program.buffers) {
    if (!buffer.output)
      continue;
    if (query == arrays.arguments.arrays.end())
      return llvm::createStringError(fmt::format("--input {}=FILE.npy is missing", like));
    std::vector<int64_t> shape = query->second.shape;
    if (!program.facts.queryHeads && !shape.empty())
      shape.erase(shape.begin());
    shape.resize(buffer.extents.size(), 1);
    for (size_t d = 0; d < shape.size(); ++d)
      if (buffer.extents[d] >= 0)
        shape[d] = buffer.extents[d];
    NpyArray &array = arrays.outputs[buffer.name];
    array.type = npyTypeOf(buffer.type);
    array.shape = shape;
    int64_t count = 1;
    for (int64_t extent : shape)
      count *= extent;
    array.bytes.resize(size_t(count) * runtime::bytesOf(array.type));
    arrays.arguments.arrays[buffer.name] =
        runtime::ArrayRef::contiguous(array.bytes.data(), buffer.type, shape);
  }
  return llvm::Error::success();
}

/// Name and file of each output; all are checked before anything runs or is written.
using OutputFiles = std::vector<std::pair<std::string, std::string>>;

llvm::Expected<OutputFiles> outputFiles(const bundle::Program &program, const Options &options) {
  OutputFiles files;
  for (const std::string &text : options.outputs) {
    auto setting = splitSetting("--output", text);
    if (!setting)
      return setting.takeError();
    bool known = std::any_of(program.buffers.begin(), program.buffers.end(),
                             [&](const auto &b) { return b.output && b.name == setting->first; });
    if (!known)
      return llvm::createStringError(
          fmt::format("--output {}: the spec has no result of that name; o and lse "
                      "are results",
                      text));
    if (runtime::Status status = runtime::checkWritable(setting->second); !status.ok())
      return llvm::createStringError(status.message());
    for (const auto &[name, file] : files)
      if (file == setting->second)
        return llvm::createStringError(
            fmt::format("--output {}: '{}' is written to that file already", text, name));
    files.push_back(std::move(*setting));
  }
  return files;
}

llvm::Error writeOutputs(const OutputFiles &files, const Arrays &arrays) {
  for (const auto &[name, file] : files)
    if (runtime::Status status = runtime::writeNpy(arrays.outputs.at(name), file); !status.ok())
      return llvm::createStringError(status.message());
  return llvm::Error::success();
}

/// Null after a message on stderr.
llvm::Expected<std::unique_ptr<Runner>> load(const Options &options) {
  if (options.spec.ends_with(".bundle")) {
    runtime::StatusOr<bundle::Program> program = bundle::loadBundle(options.spec);
    if (!program)
      return llvm::createStringError(program.status().message());
    return Runner::load(std::move(*program));
  }
  std::unique_ptr<SpecFile> file = SpecFile::open(options.spec);
  std::vector<mlir::func::FuncOp> specs =
      file ? file->specs(options.function) : std::vector<mlir::func::FuncOp>();
  if (specs.empty())
    return nullptr;
  if (specs.size() > 1)
    return llvm::createStringError("the file holds several specs; choose one with --func");
  return Runner::compile(specs.front());
}

llvm::Error runOnce(const Options &options, Runner &runner) {
  llvm::Expected<OutputFiles> files = outputFiles(runner.program(), options);
  if (!files)
    return files.takeError();
  Arrays arrays;
  if (llvm::Error error = readInputs(runner.program(), options, arrays))
    return error;
  if (llvm::Error error = makeOutputs(runner.program(), arrays))
    return error;
  RunFigures figures;
  if (llvm::Error error = runner.run(arrays.arguments, &figures, 1, /*validatePages=*/true))
    return error;
  if (llvm::Error error = writeOutputs(*files, arrays))
    return error;
  if (options.json)
    fmt::print("{}\n", nlohmann::json{{"compile_ms", runner.compileSeconds() * 1e3},
                                      {"bind_ms", figures.bind * 1e3},
                                      {"run_ms", figures.run * 1e3}}
                           .dump());
  return llvm::Error::success();
}

} // namespace

int runCommand(int argc, char **argv) {
  CLI::App app{"Run a spec once on given arrays", "llm-opt run"};
  Options options;
  app.add_option("SPEC", options.spec, "attn IR file, - for standard input, or a saved .bundle")
      ->required();
  app.add_option("--device", options.device, "auto or cpu");
  app.add_option("--func", options.function, "the spec function, where the file holds several");
  app.add_option("--input", options.inputs,
                 "NAME=FILE.npy: q, k, v, k_pool, v_pool, block_table, kv_len, "
                 "cu_seqlens_q, arg0, ...");
  app.add_option("--output", options.outputs, "NAME=FILE.npy: o, lse");
  app.add_option("--set", options.numbers,
                 "NAME=VALUE: scale, window, softcap, ...; the spec's value otherwise");
  app.add_flag("--json", options.json, "print times as JSON");
  if (std::optional<int> code = parseOptions(app, argc, argv))
    return *code;
  if (std::string problem = deviceProblem(options.device); !problem.empty())
    return fail("run", problem);
  llvm::Expected<std::unique_ptr<Runner>> runner = load(options);
  if (!runner)
    return fail("run", runner.takeError());
  if (!*runner)
    return 1;
  if (llvm::Error error = runOnce(options, **runner))
    return fail("run", std::move(error));
  return 0;
}

} // namespace llmopt::cli
