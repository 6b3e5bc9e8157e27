#include "tools/import/Conformance.h"

#include "tools/import/Assign.h"
#include "tools/import/ConformanceArrays.h"
#include "tools/import/Text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

using namespace llmopt::importer;
namespace fs = std::filesystem;

namespace {

struct Tolerance {
  double absolute, relative;
};

/// The published results are float32 or float16 evaluations of their own: these are
/// a few roundings of each format on values of order 1.
Tolerance toleranceOf(DataType type) {
  switch (type) {
  case DataType::F16:
    return {2e-3, 2e-3};
  case DataType::BF16:
    return {1.6e-2, 1.6e-2};
  default:
    return {1e-5, 1e-4};
  }
}

/// The N of "prefix_N"; none for other names.
std::optional<uint64_t> number(const std::string &name, std::string_view prefix) {
  if (!name.starts_with(prefix))
    return std::nullopt;
  uint64_t value = 0;
  const char *end = name.data() + name.size();
  auto [at, failure] = std::from_chars(name.data() + prefix.size(), end, value);
  return failure == std::errc() && at == end ? std::optional(value) : std::nullopt;
}

StatusOr<std::vector<fs::path>> dataSets(const fs::path &folder) {
  std::vector<std::pair<uint64_t, fs::path>> found;
  std::error_code failure;
  for (fs::directory_iterator it(folder, failure), end; !failure && it != end;
       it.increment(failure))
    if (auto n = number(it->path().filename().string(), "test_data_set_"))
      found.emplace_back(*n, it->path());
  if (failure)
    return makeStatus(StatusCode::NotFound, "{}: {}", folder.string(), failure.message());
  if (found.empty())
    return makeStatus(StatusCode::NotFound, "{}: no test_data_set_N in this folder",
                      folder.string());
  std::sort(found.begin(), found.end());
  std::vector<fs::path> paths;
  for (auto &[n, path] : found)
    paths.push_back(std::move(path));
  return paths;
}

/// The tensors of "<prefix>_N.pb", N counting the model's values.
Status readTensors(const fs::path &folder, std::string_view prefix,
                   const std::vector<std::string> &values, TensorMap &tensors) {
  for (size_t i = 0; i < values.size(); ++i) {
    fs::path path = folder / fmt::format("{}_{}.pb", prefix, i);
    LLMOPT_ASSIGN(tensor, readTensorProto(path.string()));
    tensors.emplace(values[i], std::move(tensor));
  }
  return {};
}

Status addOutputs(const OnnxCase &model, const TensorMap &wanted, ConformanceCase &result) {
  for (const OnnxBinding &binding : model.functions[0].bindings) {
    const NamedArray *array = result.find(binding.array);
    std::string value = binding.array == "o" ? binding.value : binding.present;
    auto want = wanted.find(value);
    if (value.empty() || want == wanted.end())
      continue;
    ExpectedOutput output;
    output.name = value;
    bool packed = binding.array == "o" && binding.form == OnnxBinding::Form::Packed;
    output.got = modelView(*array, packed);
    output.want = want->second;
    if (binding.array == "o") {
      Tolerance tolerance = toleranceOf(array->type);
      output.absolute = tolerance.absolute;
      output.relative = tolerance.relative;
    }
    if (output.got.shape != output.want.dims || output.got.type != output.want.type)
      return invalidArgument("{}: output '{}' is ({}) of {}; ({}) of {} is computed", result.name,
                             value, fmt::join(output.want.dims, ", "), nameOf(output.want.type),
                             fmt::join(output.got.shape, ", "), nameOf(output.got.type));
    result.outputs.push_back(std::move(output));
  }
  return {};
}

StatusOr<ConformanceCase> loadDataSet(const OnnxCase &model, const fs::path &folder,
                                      const std::string &name) {
  const OnnxFunction &function = model.functions[0];
  ConformanceCase result;
  result.name = name;
  result.skipReason = function.missing;
  result.ir = model.ir;
  result.function = function.name;
  TensorMap inputs, outputs;
  LLMOPT_RETURN_IF_ERROR(readTensors(folder, "input", model.inputs, inputs));
  LLMOPT_RETURN_IF_ERROR(readTensors(folder, "output", model.outputs, outputs));
  LLMOPT_ASSIGN(arrays, buildArrays(function, inputs, name));
  result.arrays = std::move(arrays);
  LLMOPT_RETURN_IF_ERROR(addOutputs(model, outputs, result));
  return result;
}

bool agrees(double got, double want, const ExpectedOutput &output) {
  if (std::isnan(want) || std::isnan(got))
    return std::isnan(want) && std::isnan(got);
  if (std::isinf(want) || std::isinf(got))
    return got == want;
  return std::fabs(got - want) <= output.absolute + output.relative * std::fabs(want);
}

} // namespace

const NamedArray *ConformanceCase::find(std::string_view array) const {
  for (const NamedArray &candidate : arrays)
    if (candidate.name == array)
      return &candidate;
  return nullptr;
}

StatusOr<std::vector<ConformanceCase>>
llmopt::importer::loadConformanceCases(const std::string &folder) {
  fs::path root = fs::path(folder).lexically_normal();
  std::string name =
      root.filename().empty() ? root.parent_path().filename().string() : root.filename().string();
  std::vector<ConformanceCase> cases;
  std::string modelPath = (root / "model.onnx").string();
  StatusOr<OnnxCase> model = importOnnx(modelPath);
  if (!model && model.status().code() == kUnsupported) {
    cases.emplace_back();
    cases[0].name = name;
    std::string_view reason = model.status().message();
    if (reason.starts_with(modelPath + ": "))
      reason.remove_prefix(modelPath.size() + 2);
    cases[0].skipReason = reason;
    return cases;
  }
  if (!model)
    return model.status();
  if (model->functions.size() != 1 || model->functions[0].nodes.size() != 1 || model->otherNodes)
    return invalidArgument("{}: a conformance case has one node", modelPath);
  LLMOPT_ASSIGN(sets, dataSets(root));
  for (const fs::path &set : sets) {
    std::string setName =
        sets.size() == 1 ? name : fmt::format("{}/{}", name, set.filename().string());
    StatusOr<ConformanceCase> loaded = loadDataSet(*model, set, setName);
    if (!loaded) // the model's names are foreign text
      return Status(loaded.status().code(), oneLine(loaded.status().message()));
    cases.push_back(std::move(*loaded));
  }
  return cases;
}

OutputMismatch llmopt::importer::compare(const ExpectedOutput &output) {
  OutputMismatch result;
  std::vector<int64_t> index(output.got.shape.size(), 0);
  int64_t elements = output.want.elements();
  for (int64_t flat = 0; flat < elements; ++flat) {
    double got = output.got.at(index), want = output.want.at(flat);
    double error = std::fabs(got - want);
    if (std::isfinite(error))
      result.worst = std::max(result.worst, error);
    if (!agrees(got, want, output) && result.count++ == 0) {
      result.first = flat;
      result.got = got;
      result.want = want;
    }
    for (size_t d = index.size(); d > 0 && ++index[d - 1] == output.got.shape[d - 1];)
      index[--d] = 0;
  }
  return result;
}
