// llm-opt run: one call of a spec or of a saved bundle on given .npy arrays.
#include "runtime/base/File.h"
#include "runtime/bundle/BundleIO.h"
#include "runtime/device/NpyCall.h"
#include "tools/llm-opt/Command.h"
#include "tools/llm-opt/Options.h"
#include "tools/llm-opt/Place.h"
#include "tools/llm-opt/Runner.h"
#include "tools/llm-opt/SpecFile.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

namespace llmopt::cli {
namespace {

struct Options {
  std::string spec, device = "auto", function;
  std::vector<std::string> inputs, outputs, numbers;
  bool json = false;
};

llvm::Expected<std::pair<std::string, std::string>> splitSetting(const std::string &option,
                                                                 const std::string &text) {
  size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    return llvm::createStringError(fmt::format("{} {}: NAME=VALUE is wanted", option, text));
  return std::pair{text.substr(0, equals), text.substr(equals + 1)};
}

llvm::Error errorOf(const runtime::Status &status) {
  return status.ok() ? llvm::Error::success() : llvm::createStringError(status.message());
}

bool isReal(const bundle::Program &program, const std::string &name) {
  return std::any_of(program.scalars.begin(), program.scalars.end(), [&](const auto &scalar) {
    return scalar.name == name && scalar.type == bundle::ScalarType::F32;
  });
}

llvm::Error readInputs(const Options &options, const bundle::Program &program,
                       runtime::NpyCall &call) {
  for (const std::string &text : options.inputs) {
    auto setting = splitSetting("--input", text);
    if (!setting)
      return setting.takeError();
    if (llvm::Error error = errorOf(call.addInput(setting->first, setting->second)))
      return error;
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
    call.addNumber(setting->first, value);
  }
  return errorOf(call.makeOutputs());
}

/// What is wrong with asking a program for the result `name`; empty if it has it.
std::string noSuchResult(const bundle::Program &program, const std::string &name) {
  const bundle::Buffer *output = nullptr;
  std::string names;
  for (const bundle::Buffer &buffer : program.buffers) {
    if (!buffer.output)
      continue;
    if (buffer.name == name)
      return "";
    names += (names.empty() ? "" : ", ") + buffer.name;
    output = buffer.name == "o" ? &buffer : output;
  }
  if (name != "lse" || !output)
    return fmt::format("the spec has no result of that name; it has {}",
                       names.empty() ? "none" : names);
  std::string type;
  for (size_t dim = 0; dim + 1 < output->extents.size(); ++dim)
    type += (output->extents[dim] < 0 ? "?" : std::to_string(output->extents[dim])) + "x";
  return fmt::format("the spec returns no LSE; give its attention a second result, tensor<{}f32>, "
                     "and return it as well",
                     type);
}

/// Name and file of each output; all are checked before anything runs or is written.
using OutputFiles = std::vector<std::pair<std::string, std::string>>;

llvm::Expected<OutputFiles> outputFiles(const bundle::Program &program, const Options &options) {
  OutputFiles files;
  for (const std::string &text : options.outputs) {
    auto setting = splitSetting("--output", text);
    if (!setting)
      return setting.takeError();
    if (std::string problem = noSuchResult(program, setting->first); !problem.empty())
      return llvm::createStringError(fmt::format("--output {}: {}", text, problem));
    if (llvm::Error error = errorOf(runtime::checkWritable(setting->second)))
      return error;
    for (const auto &[name, file] : files)
      if (file == setting->second)
        return llvm::createStringError(
            fmt::format("--output {}: '{}' is written to that file already", text, name));
    files.push_back(std::move(*setting));
  }
  return files;
}

llvm::Error writeOutputs(const OutputFiles &files, const runtime::NpyCall &call) {
  for (const auto &[name, file] : files)
    if (llvm::Error error = errorOf(call.writeOutput(name, file)))
      return error;
  return llvm::Error::success();
}

/// Null after a message on stderr.
llvm::Expected<std::unique_ptr<Runner>> load(const Options &options, const Place &place) {
  if (options.spec.ends_with(".bundle") || bundle::isBundleFile(options.spec)) {
    runtime::StatusOr<std::vector<bundle::Program>> family = bundle::loadFamily(options.spec);
    if (!family)
      return llvm::createStringError(family.status().message());
    return Runner::load(std::move(*family), place);
  }
  std::unique_ptr<SpecFile> file = SpecFile::open(options.spec);
  std::vector<mlir::func::FuncOp> specs =
      file ? file->specs(options.function) : std::vector<mlir::func::FuncOp>();
  if (specs.empty())
    return nullptr;
  if (specs.size() > 1)
    return llvm::createStringError("the file holds several specs; choose one with --func");
  return Runner::compile(specs.front(), place);
}

llvm::Error runOnce(const Options &options, Runner &runner) {
  llvm::Expected<OutputFiles> files = outputFiles(runner.program(), options);
  if (!files)
    return files.takeError();
  runtime::NpyCall call(runner.program());
  if (llvm::Error error = readInputs(options, runner.program(), call))
    return error;
  RunFigures figures;
  if (llvm::Error error = runner.run(call.arguments(), &figures, 1, /*validatePages=*/true))
    return error;
  if (llvm::Error error = writeOutputs(*files, call))
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
  app.add_option("--device", options.device, kDeviceHelp);
  app.add_option("--func", options.function, "the spec function, where the file holds several");
  app.add_option("--input", options.inputs,
                 "NAME=FILE.npy: q, k, v, k_pool, v_pool, block_table, kv_len, "
                 "cu_seqlens_q, arg0, ...");
  app.add_option("--output", options.outputs, "NAME=FILE.npy: o, lse; one or more, or --json");
  app.add_option("--set", options.numbers,
                 "NAME=VALUE: scale, window, softcap, ...; the spec's value otherwise");
  app.add_flag("--json", options.json, "print times as JSON");
  if (std::optional<int> code = parseOptions(app, argc, argv))
    return *code;
  llvm::Expected<Place> place = openPlace(options.device, /*cached=*/true);
  if (!place)
    return fail("run", place.takeError());
  if (options.outputs.empty() && !options.json)
    return fail("run", "no --output is given, so the results would be lost; name a file, as in "
                       "--output o=o.npy, or ask for the times alone with --json");
  llvm::Expected<std::unique_ptr<Runner>> runner = load(options, *place);
  if (!runner)
    return fail("run", runner.takeError());
  if (!*runner)
    return 1;
  if (llvm::Error error = runOnce(options, **runner))
    return fail("run", std::move(error));
  return 0;
}

} // namespace llmopt::cli
