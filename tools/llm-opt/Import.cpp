// llm-opt import: a model description to attn IR.
#include "tools/llm-opt/Command.h"
#include "tools/llm-opt/DumpJson.h"
#include "tools/llm-opt/Options.h"
#include "tools/llm-opt/SpecFile.h"

#include "runtime/base/File.h"
#include "tools/import/Assign.h"
#include "tools/import/Onnx.h"

#include <cstdio>
#include <nlohmann/json.hpp>

using namespace llmopt;
using namespace llmopt::importer;
using nlohmann::ordered_json;

namespace {

struct ImportOptions {
  std::string file, output;
  std::optional<int64_t> page;
  std::string elementType;
  bool json = false;
};

struct Imported {
  std::string ir;
  ordered_json description;
  std::vector<std::string> notes;
};

ordered_json describe(const LayerKind &kind) {
  ordered_json json = {
      {"name", kind.name},        {"layers", kind.layers},    {"query_heads", kind.queryHeads},
      {"kv_heads", kind.kvHeads}, {"head_dim", kind.headDim}, {"v_head_dim", kind.vHeadDim},
      {"scale", kind.scale}};
  if (kind.window)
    json["window"] = *kind.window;
  if (kind.chunk)
    json["chunk"] = *kind.chunk;
  if (kind.softcap)
    json["softcap"] = *kind.softcap;
  if (kind.sink)
    json["sink"] = true;
  return json;
}

StatusOr<Imported> importConfig(const ImportOptions &options) {
  constexpr uint64_t kMostBytes = 16 << 20;
  LLMOPT_ASSIGN(bytes, runtime::readFile(options.file, kMostBytes));
  HuggingFaceOptions wanted;
  wanted.page = options.page.value_or(wanted.page);
  wanted.elementType = options.elementType;
  std::string_view text(reinterpret_cast<const char *>(bytes.data()), bytes.size());
  LLMOPT_ASSIGN(result, importHuggingFace(text, options.file, wanted));
  ordered_json kinds = ordered_json::array(), functions = ordered_json::array();
  for (const LayerKind &kind : result.kinds)
    kinds.push_back(describe(kind));
  for (const ImportedFunction &function : result.functions)
    functions.push_back({{"name", function.name},
                         {"phase", function.phase},
                         {"kind", result.kinds[function.kind].name}});
  ordered_json description = {{"file", options.file},
                              {"format", "huggingface"},
                              {"model_type", result.modelType},
                              {"element_type", result.elementType},
                              {"page", result.page},
                              {"layers", result.layers},
                              {"kinds", std::move(kinds)},
                              {"functions", std::move(functions)},
                              {"notes", result.notes}};
  return Imported{std::move(result.ir), std::move(description), std::move(result.notes)};
}

ordered_json describe(const OnnxFunction &function) {
  constexpr const char *forms[] = {"heads_first", "packed", "mask", "lengths"};
  ordered_json bindings = ordered_json::array();
  for (const OnnxBinding &binding : function.bindings) {
    ordered_json item = {
        {"array", binding.array}, {"value", binding.value}, {"form", forms[size_t(binding.form)]}};
    if (!binding.past.empty())
      item["past"] = binding.past;
    if (!binding.present.empty())
      item["present"] = binding.present;
    bindings.push_back(std::move(item));
  }
  return {{"name", function.name}, {"nodes", function.nodes}, {"bindings", std::move(bindings)}};
}

StatusOr<Imported> importModel(const ImportOptions &options) {
  if (options.page || !options.elementType.empty())
    return invalidArgument("{}: --page and --dtype are for a config.json; an ONNX model "
                           "says its own types and has no pages",
                           options.file);
  LLMOPT_ASSIGN(model, importOnnx(options.file));
  ordered_json functions = ordered_json::array();
  for (const OnnxFunction &function : model.functions) {
    if (!function.missing.empty())
      return makeStatus(kUnsupported, "{}: {} is not supported yet", options.file,
                        function.missing);
    functions.push_back(describe(function));
  }
  ordered_json description = {{"file", options.file},
                              {"format", "onnx"},
                              {"functions", std::move(functions)},
                              {"other_nodes", model.otherNodes}};
  return Imported{std::move(model.ir), std::move(description), {}};
}

StatusOr<Imported> importFile(const ImportOptions &options) {
  if (options.file.ends_with(".json"))
    return importConfig(options);
  if (options.file.ends_with(".onnx"))
    return importModel(options);
  return invalidArgument("{}: the name ends in neither .json nor .onnx", options.file);
}

/// Nothing is written unless the import succeeded.
Status run(const ImportOptions &options) {
  LLMOPT_ASSIGN(imported, importFile(options));
  if (options.output.empty()) {
    imported.description["ir"] = imported.ir;
  } else {
    const auto *bytes = reinterpret_cast<const uint8_t *>(imported.ir.data());
    LLMOPT_RETURN_IF_ERROR(runtime::writeFileAtomic(options.output, {bytes, imported.ir.size()}));
  }
  std::string text;
  if (options.json)
    text = cli::dumpJson(imported.description, 2) + "\n";
  else if (options.output.empty())
    text = imported.ir;
  for (const std::string &note : imported.notes)
    std::fprintf(stderr, "%s: note: %s\n", options.file.c_str(), note.c_str());
  fmt::print("{}", text);
  return {};
}

} // namespace

int llmopt::cli::importCommand(int argc, char **argv) {
  ImportOptions options;
  CLI::App app("A Hugging Face config.json or an ONNX model to attn IR", argv[0]);
  app.add_option("FILE", options.file, "the model: config.json or model.onnx")->required();
  app.add_option("-o,--output", options.output, "write the IR here instead of to stdout");
  app.add_option("--page", options.page, "slots a page of the KV cache (16)");
  app.add_option("--dtype", options.elementType,
                 "bf16, f16 or f32 instead of the config's torch_dtype");
  app.add_flag("--json", options.json, "print a description as JSON");
  if (std::optional<int> code = parseOptions(app, argc, argv))
    return *code;
  Status status = run(options);
  if (status.ok())
    return 0;
  return fail("import", status.message());
}
