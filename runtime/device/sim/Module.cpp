#include "runtime/device/sim/Simulator.h"
#include "runtime/device/sim/decode/KernelDecoder.h"
#include "runtime/device/sim/ptx/Parser.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace llmopt::sim {

using runtime::Status;
using runtime::StatusOr;

Module::Module(std::unique_ptr<const detail::Program> program) : decoded(std::move(program)) {}
Module::~Module() = default;

const std::string &Module::name() const { return decoded->name; }
const std::string &Module::target() const { return decoded->target; }
const std::vector<KernelInfo> &Module::kernels() const { return decoded->infos; }

const KernelInfo *Module::kernel(std::string_view name) const {
  for (const KernelInfo &info : decoded->infos)
    if (info.name == name)
      return &info;
  return nullptr;
}

namespace {

StatusOr<GlobalVariable> decodeVariable(const ptx::Variable &variable, const ptx::Module &module,
                                        std::string_view moduleName) {
  GlobalVariable result{std::string(variable.name),
                        variable.bytes,
                        std::max(variable.align, 1u),
                        variable.space == ptx::Space::Const,
                        {},
                        {}};
  if (variable.external || variable.unsized)
    return runtime::makeStatus(runtime::StatusCode::Unsupported,
                               "{}:{}: variable '{}' is defined in another module; only whole "
                               "modules are simulated",
                               moduleName, variable.line, variable.name);
  uint64_t elementBytes = ptx::sizeOf(variable.type);
  if (variable.initial.size() * elementBytes > variable.bytes)
    return runtime::invalidArgument("{}:{}: '{}' has {} initial values; there is room for {}",
                                    moduleName, variable.line, variable.name,
                                    variable.initial.size(), variable.bytes / elementBytes);
  for (const ptx::Initial &initial : variable.initial) {
    uint64_t offset = result.initial.size();
    result.initial.resize(offset + elementBytes);
    if (initial.symbol.empty()) {
      std::memcpy(&result.initial[offset], &initial.bits, std::min<uint64_t>(elementBytes, 8));
      continue;
    }
    uint32_t number = 0;
    bool found = false;
    for (const ptx::Variable &other : module.variables) {
      if (other.space == ptx::Space::Shared)
        continue;
      if ((found = other.name == initial.symbol))
        break;
      ++number;
    }
    if (!found || elementBytes != 8)
      return runtime::makeStatus(runtime::StatusCode::Unsupported,
                                 "{}:{}: initial value '{}' of '{}'; the address of a .global or "
                                 ".const variable in 8 bytes is supported",
                                 moduleName, variable.line, initial.symbol, variable.name);
    result.relocations.push_back({offset, number, initial.bits});
  }
  return result;
}

/// The kSpecComment lines; one that does not read so is a comment like others.
std::vector<SpecRange> readSpecLines(std::string_view text) {
  std::vector<SpecRange> ranges;
  for (size_t at = 0; (at = text.find(kSpecComment, at)) != std::string_view::npos;) {
    at += kSpecComment.size();
    std::string line(text.substr(at, text.find('\n', at) - at));
    SpecRange range;
    char file[1024];
    size_t colon = line.rfind(':');
    if (colon == std::string::npos || line.size() >= sizeof(file))
      continue;
    if (std::sscanf(line.c_str(), "%u %u %[^\n]", &range.first, &range.last, file) != 3)
      continue;
    range.file = file;
    range.file.resize(range.file.rfind(':'));
    range.line = static_cast<uint32_t>(std::strtoul(&line[colon + 1], nullptr, 10));
    ranges.push_back(std::move(range));
  }
  return ranges;
}

} // namespace

StatusOr<std::shared_ptr<const Module>> loadPtx(std::string_view text, std::string_view name) {
  static std::atomic<uint64_t> nextId{1};
  auto program = std::make_unique<detail::Program>();
  program->id = nextId++;
  program->name = name;
  program->text = text;
  StatusOr<ptx::Module> module = ptx::parse(program->text, program->name);
  if (!module)
    return module.status();
  program->target = module->target;
  program->files = module->files;
  program->specLines = readSpecLines(program->text);
  for (const ptx::Variable &variable : module->variables) {
    if (variable.space == ptx::Space::Shared)
      continue;
    StatusOr<GlobalVariable> decoded = decodeVariable(variable, *module, name);
    if (!decoded)
      return decoded.status();
    program->variables.push_back(std::move(*decoded));
  }
  for (const ptx::Function &function : module->functions) {
    if (!function.hasBody)
      continue;
    StatusOr<Kernel> kernel = KernelDecoder(*program, *module, function).decode();
    if (!kernel)
      return kernel.status();
    if (!function.entry)
      continue; // decoded only so that every instruction of the text is known
    program->infos.push_back(kernel->info);
    program->kernels.push_back(std::move(*kernel));
  }
  return std::make_shared<const Module>(std::move(program));
}

} // namespace llmopt::sim
