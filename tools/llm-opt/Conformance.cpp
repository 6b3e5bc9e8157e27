// llm-opt conformance: ONNX-style case folders (model.onnx, test_data_set_*/), compiled,
// run and compared with the recorded outputs.
#include "tools/import/Conformance.h"
#include "tools/llm-opt/Command.h"
#include "tools/llm-opt/DumpJson.h"
#include "tools/llm-opt/Options.h"
#include "tools/llm-opt/Place.h"
#include "tools/llm-opt/Runner.h"
#include "tools/llm-opt/SpecFile.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace llmopt::cli {
namespace {

enum class Verdict { Passed, Failed, Skipped };

struct Result {
  Verdict verdict = Verdict::Failed;
  std::string detail;
};

bundle::ElementType elementTypeOf(importer::DataType type) {
  switch (type) {
  case importer::DataType::F32:
    return bundle::ElementType::F32;
  case importer::DataType::F16:
    return bundle::ElementType::F16;
  case importer::DataType::BF16:
    return bundle::ElementType::BF16;
  case importer::DataType::Bool:
    return bundle::ElementType::Bool;
  case importer::DataType::I32:
    return bundle::ElementType::I32;
  default:
    return bundle::ElementType::I64;
  }
}

std::string mismatches(const importer::ConformanceCase &one) {
  std::string text;
  for (const importer::ExpectedOutput &output : one.outputs) {
    importer::OutputMismatch mismatch = importer::compare(output);
    if (mismatch.count)
      text += fmt::format("{}output {}: {} elements differ, the first at {}: got {}, want {}",
                          text.empty() ? "" : "; ", output.name, mismatch.count, mismatch.first,
                          mismatch.got, mismatch.want);
  }
  return text;
}

Result runCase(const importer::ConformanceCase &one, const Place &place) {
  if (!one.skipReason.empty())
    return {Verdict::Skipped, one.skipReason};
  std::unique_ptr<SpecFile> file = SpecFile::parse(one.ir, one.name);
  std::vector<mlir::func::FuncOp> specs =
      file ? file->specs(one.function) : std::vector<mlir::func::FuncOp>();
  if (specs.empty())
    return {Verdict::Failed, "the imported IR does not parse"};
  llvm::Expected<std::unique_ptr<Runner>> runner = Runner::compile(specs.front(), place);
  if (!runner)
    return {Verdict::Failed, llvm::toString(runner.takeError())};
  runtime::CallArguments arguments;
  for (const importer::NamedArray &array : one.arrays)
    arguments.arrays[array.name] = {array.data(), elementTypeOf(array.type), array.shape,
                                    array.strides};
  if (llvm::Error error = (*runner)->run(arguments))
    return {Verdict::Failed, llvm::toString(std::move(error))};
  std::string wrong = mismatches(one);
  return {wrong.empty() ? Verdict::Passed : Verdict::Failed, wrong};
}

const char *wordFor(Verdict verdict) {
  return verdict == Verdict::Passed ? "ok" : verdict == Verdict::Failed ? "FAILED" : "skipped";
}

} // namespace

int conformanceCommand(int argc, char **argv) {
  CLI::App app{"Run ONNX-style conformance case folders", "llm-opt conformance"};
  std::vector<std::string> folders;
  std::string device = "auto";
  bool json = false;
  app.add_option("DIR", folders, "case folders: model.onnx and test_data_set_*/")->required();
  app.add_option("--device", device, kDeviceHelp);
  app.add_flag("--json", json, "one JSON object a case");
  if (std::optional<int> code = parseOptions(app, argc, argv))
    return *code;
  llvm::Expected<Place> place = openPlace(device, /*cached=*/false);
  if (!place)
    return fail("conformance", place.takeError());
  int64_t counts[3] = {};
  for (const std::string &folder : folders) {
    importer::StatusOr<std::vector<importer::ConformanceCase>> cases =
        importer::loadConformanceCases(folder);
    if (!cases)
      return fail("conformance", cases.status().message());
    for (const importer::ConformanceCase &one : *cases) {
      Result result = runCase(one, *place);
      ++counts[int(result.verdict)];
      if (json) {
        nlohmann::json line = {
            {"case", one.name}, {"result", wordFor(result.verdict)}, {"detail", result.detail}};
        fmt::print("{}\n", dumpJson(line));
      } else {
        fmt::print("{:<8}{}{}{}\n", wordFor(result.verdict), one.name,
                   result.detail.empty() ? "" : ": ", result.detail);
      }
    }
  }
  if (!json)
    fmt::print("{} passed, {} failed, {} skipped\n", counts[0], counts[1], counts[2]);
  return counts[1] ? 1 : 0;
}

} // namespace llmopt::cli
