#include "runtime/device/sim/decode/KernelDecoder.h"

#include <algorithm>
#include <utility>

namespace llmopt::sim {

using ptx::Operand;
using runtime::invalidArgument;

namespace {

/// Far above what any GPU has; keeps sums of sizes from overflowing.
constexpr uint64_t kMaxShared = 1 << 20;
constexpr uint64_t kMaxLocal = 1 << 24;

uint64_t alignUp(uint64_t value, uint64_t align) { return (value + align - 1) / align * align; }

} // namespace

uint32_t KernelDecoder::openScope() {
  Scope inner;
  inner.parent = scopes.empty() ? kNoScope : scope;
  scopes.push_back(std::move(inner));
  return scope = static_cast<uint32_t>(scopes.size()) - 1;
}

const KernelDecoder::Symbol *KernelDecoder::find(std::string_view name) {
  for (uint32_t s = scope; s != kNoScope; s = scopes[s].parent) {
    auto it = scopes[s].symbols.find(name);
    if (it == scopes[s].symbols.end())
      continue;
    if (const ptx::Variable *variable = std::exchange(it->second.unplaced, nullptr))
      place(it->second, *variable);
    return &it->second;
  }
  return nullptr;
}

uint32_t KernelDecoder::newRegister(RegClass cls, bool pinned) {
  registers.push_back({cls, pinned});
  return static_cast<uint32_t>(registers.size()) - 1;
}

uint32_t KernelDecoder::literalRow(RegClass cls, uint64_t bits) {
  if (cls == RegClass::Narrow)
    bits &= 0xffffffff;
  if (cls == RegClass::Predicate)
    bits = bits != 0;
  auto [it, added] = literals[static_cast<size_t>(cls)].try_emplace(bits, 0);
  if (added) {
    it->second = newRegister(cls, true);
    kernel.constants.push_back({Constant::Kind::Literal, cls, it->second, bits, 0});
  }
  return it->second;
}

uint32_t KernelDecoder::variableRow(RegClass cls, const Symbol &symbol, int64_t offset) {
  auto bits = static_cast<uint64_t>(offset);
  if (symbol.dynamic) { // known only when all shared variables are: see decode()
    uint32_t reg = newRegister(cls, true);
    kernel.constants.push_back({Constant::Kind::DynamicShared, cls, reg, bits, 0});
    return reg;
  }
  bool inMemory = symbol.space == ptx::Space::Global || symbol.space == ptx::Space::Const;
  if (!inMemory)
    return literalRow(cls, symbol.address + bits);
  uint32_t reg = newRegister(cls, true);
  kernel.constants.push_back({Constant::Kind::Variable, cls, reg, symbol.variable, offset});
  return reg;
}

uint32_t KernelDecoder::specialRow(RegClass cls, Special special) {
  for (const Constant &constant : kernel.constants)
    if (constant.kind == Constant::Kind::Special && constant.cls == cls &&
        constant.value == static_cast<uint64_t>(special))
      return constant.row;
  uint32_t reg = newRegister(cls, true);
  kernel.constants.push_back(
      {Constant::Kind::Special, cls, reg, static_cast<uint64_t>(special), 0});
  return reg;
}

void KernelDecoder::emit(const Inst &inst, const ptx::Instruction &source) {
  kernel.code.push_back(inst);
  kernel.places.push_back({source.text, source.line, sourceFile, sourceLine});
}

void KernelDecoder::branchTo(std::string_view label, uint32_t line) {
  jumps.push_back({nextInst(), 0, scope, label, line});
}

runtime::Status KernelDecoder::branchTable(InstDecoder &decoder, std::string_view table) {
  for (uint32_t s = scope; s != kNoScope; s = scopes[s].parent) {
    auto it = scopes[s].tables.find(table);
    if (it == scopes[s].tables.end())
      continue;
    decoder.inst.target = static_cast<uint32_t>(kernel.targets.size());
    decoder.inst.imm = static_cast<int64_t>(it->second->labels.size());
    for (std::string_view label : it->second->labels) {
      jumps.push_back({kNoInst, static_cast<uint32_t>(kernel.targets.size()), scope, label,
                       decoder.source.line});
      kernel.targets.push_back(0);
    }
    return {};
  }
  return decoder.invalid(fmt::format("no .branchtargets '{}' before it", table));
}

void KernelDecoder::returnFromInlined() { frames.back().returns.push_back(nextInst()); }

runtime::Status KernelDecoder::resolveJumps() {
  for (const Jump &jump : jumps) {
    bool found = false;
    for (uint32_t s = jump.scope; s != kNoScope && !found; s = scopes[s].parent) {
      auto it = scopes[s].labels.find(jump.label);
      if (it == scopes[s].labels.end())
        continue;
      found = true;
      if (jump.inst == kNoInst)
        kernel.targets[jump.entry] = it->second;
      else
        kernel.code[jump.inst].target = it->second;
    }
    if (!found)
      return invalidArgument("{}:{}: there is no label '{}' in sight of this branch", program.name,
                             jump.line, jump.label);
  }
  return {};
}

runtime::Status KernelDecoder::declareModuleVariables() {
  Scope &outer = scopes[0];
  uint32_t number = 0;
  for (const ptx::Variable &variable : module.variables) {
    Symbol symbol;
    symbol.kind = Symbol::Kind::Variable;
    symbol.space = variable.space;
    symbol.type = variable.type;
    if (variable.space == ptx::Space::Shared)
      symbol.unplaced = &variable;
    else
      symbol.variable = number++;
    outer.symbols[variable.name] = symbol;
  }
  return {};
}

runtime::Status KernelDecoder::declareParams() {
  uint64_t offset = 0;
  for (const ptx::Variable &param : function.params) {
    offset = alignUp(offset, param.align);
    Symbol symbol;
    symbol.kind = Symbol::Kind::Variable;
    symbol.space = ptx::Space::Param;
    symbol.type = param.type;
    symbol.address = offset;
    if (!function.entry)
      place(symbol, param); // a function that is decoded only to be checked
    if (!scopes[scope].symbols.emplace(param.name, symbol).second)
      return invalidArgument("{}:{}: '{}' has two parameters '{}'", program.name, param.line,
                             function.name, param.name);
    kernel.info.params.push_back({std::string(param.name), static_cast<uint32_t>(offset),
                                  static_cast<uint32_t>(param.bytes), param.align});
    offset += param.bytes;
  }
  if (offset > 32764)
    return invalidArgument("{}:{}: kernel '{}' has {} bytes of parameters; 32764 are allowed",
                           program.name, function.line, function.name, offset);
  kernel.info.paramBytes = static_cast<uint32_t>(offset);
  for (const ptx::Variable &result : function.results) {
    Symbol symbol;
    symbol.kind = Symbol::Kind::Variable;
    place(symbol, result);
    scopes[scope].symbols[result.name] = symbol;
  }
  return {};
}

void KernelDecoder::place(Symbol &symbol, const ptx::Variable &variable) {
  if (variable.space == ptx::Space::Shared) {
    symbol.space = ptx::Space::Shared;
    if (variable.unsized) {
      // All such arrays begin together behind the sized variables.
      kernel.dynamicShared = true;
      dynamicAlign = std::max(dynamicAlign, variable.align);
      symbol.dynamic = true;
      dynamicArrays.push_back({std::string(variable.name), 0, 0, true});
      return;
    }
    staticShared = alignUp(staticShared, variable.align);
    symbol.address = staticShared;
    kernel.sharedArrays.push_back({std::string(variable.name), static_cast<uint32_t>(staticShared),
                                   static_cast<uint32_t>(variable.bytes)});
    staticShared += variable.bytes;
    return;
  }
  // Local variables, and parameters of inlined calls.
  symbol.space = ptx::Space::Local;
  localBytes = alignUp(localBytes, variable.align);
  symbol.address = localBytes;
  localBytes += variable.bytes;
}

runtime::Status KernelDecoder::declare(const ptx::RegisterDecl &decl) {
  auto add = [&](std::string_view name) {
    Symbol symbol;
    symbol.type = decl.type;
    symbol.reg = newRegister(classOf(decl.type));
    registers.back().name = name;
    scopes[scope].symbols[name] = symbol;
  };
  if (decl.type == ptx::Type::B128)
    return runtime::makeStatus(runtime::StatusCode::Unsupported,
                               "{}: unsupported register type '.b128' of '{}'", program.name,
                               decl.name);
  if (decl.count == 0) {
    add(decl.name);
    return {};
  }
  for (uint32_t i = 0; i < decl.count; ++i)
    add(names.emplace_back(fmt::format("{}{}", decl.name, i)));
  return {};
}

runtime::Status KernelDecoder::declare(const ptx::Variable &variable) {
  if (variable.space == ptx::Space::Global || variable.space == ptx::Space::Const ||
      !variable.initial.empty())
    return runtime::makeStatus(runtime::StatusCode::Unsupported,
                               "{}:{}: unsupported declaration of '{}' inside a function",
                               program.name, variable.line, variable.name);
  Symbol symbol;
  symbol.kind = Symbol::Kind::Variable;
  symbol.type = variable.type;
  place(symbol, variable);
  scopes[scope].symbols[variable.name] = symbol;
  return {};
}

runtime::Status KernelDecoder::decodeBody(const ptx::Function &body) {
  for (const ptx::Statement &statement : body.body) {
    if (const auto *instruction = std::get_if<ptx::Instruction>(&statement)) {
      LLMOPT_RETURN_IF_ERROR(decodeInstruction(*instruction));
    } else if (const auto *decl = std::get_if<ptx::RegisterDecl>(&statement)) {
      LLMOPT_RETURN_IF_ERROR(declare(*decl));
    } else if (const auto *variable = std::get_if<ptx::Variable>(&statement)) {
      LLMOPT_RETURN_IF_ERROR(declare(*variable));
    } else if (const auto *label = std::get_if<ptx::Label>(&statement)) {
      scopes[scope].labels[label->name] = nextInst();
    } else if (const auto *targets = std::get_if<ptx::BranchTargets>(&statement)) {
      scopes[scope].tables[targets->name] = targets;
    } else if (const auto *line = std::get_if<ptx::SourceLine>(&statement)) {
      sourceFile = line->file;
      sourceLine = line->line;
    } else if (std::holds_alternative<ptx::ScopeBegin>(statement)) {
      openScope();
    } else {
      scope = scopes[scope].parent;
    }
  }
  return {};
}

runtime::Status KernelDecoder::decodeInstruction(const ptx::Instruction &instruction) {
  InstDecoder decoder(*this, instruction);
  const OpTable &table = opTable();
  auto op = table.find(instruction.opcode);
  if (op == table.end())
    return decoder.unsupported();
  if (!instruction.guard.empty()) {
    Operand guard;
    guard.name = instruction.guard;
    LLMOPT_RETURN_IF_ERROR(decoder.input(Field::Guard, guard, ptx::Type::Pred));
    decoder.inst.guardNegated = instruction.guardNegated;
  }
  decoder.inst.list = static_cast<uint32_t>(kernel.lists.size());
  LLMOPT_RETURN_IF_ERROR(op->second(decoder));
  if (!decoder.remaining().empty())
    return decoder.unsupported(
        fmt::format("modifier '.{}' is not known here", decoder.remaining().front()));
  if (!decoder.inst.run && decoder.inst.flow == Flow::Next)
    return {}; // a call: its body stands in its place
  kernel.lists.resize(kernel.lists.size() + decoder.inst.outputs + decoder.inst.inputs);
  emit(decoder.inst, instruction);
  return {};
}

const ptx::Function *KernelDecoder::findFunction(std::string_view name) const {
  const ptx::Function *declared = nullptr;
  for (const ptx::Function &candidate : module.functions) {
    if (candidate.name != name)
      continue;
    if (candidate.hasBody)
      return &candidate;
    declared = &candidate;
  }
  return declared;
}

runtime::Status KernelDecoder::bindParams(InstDecoder &decoder, const Operand *list,
                                          const std::vector<ptx::Variable> &formals,
                                          Scope &callee) {
  size_t given = list ? list->parts.size() : 0;
  if (given != formals.size())
    return decoder.invalid(
        fmt::format("{} parameters are given; the function has {}", given, formals.size()));
  for (size_t i = 0; i < given; ++i) {
    const Operand &actual = list->parts[i];
    const Symbol *symbol = actual.kind == Operand::Kind::Name ? find(actual.name) : nullptr;
    if (!symbol || symbol->space != ptx::Space::Local)
      return decoder.unsupported("a parameter that is not a .param variable");
    callee.symbols[formals[i].name] = *symbol;
  }
  return {};
}

runtime::Status KernelDecoder::call(InstDecoder &decoder) {
  const Operand *results = nullptr, *arguments = nullptr;
  size_t index = 0;
  auto isList = [&](size_t i) {
    return i < decoder.count() && decoder.operand(i).kind == Operand::Kind::List;
  };
  if (isList(index))
    results = &decoder.operand(index++);
  if (index == decoder.count() || decoder.operand(index).kind != Operand::Kind::Name)
    return decoder.invalid("the name of a function is expected");
  std::string_view name = decoder.operand(index++).name;
  if (isList(index))
    arguments = &decoder.operand(index++);
  if (index != decoder.count())
    return decoder.unsupported("calls through a function pointer are not simulated");
  const ptx::Function *callee = findFunction(name);
  if (!callee)
    return decoder.invalid(fmt::format("there is no function '{}'", name));
  if (!callee->hasBody)
    return decoder.unsupported(fmt::format("'{}' has no body in this text", name));
  if (!decoder.source.guard.empty())
    return decoder.unsupported("a call under a predicate");
  if (frames.size() > 64 || std::any_of(frames.begin(), frames.end(),
                                        [&](const Frame &frame) { return frame.name == name; }))
    return decoder.unsupported("recursive calls are not simulated");

  Scope inner;
  inner.parent = 0; // the callee sees the module, not its caller
  LLMOPT_RETURN_IF_ERROR(bindParams(decoder, results, callee->results, inner));
  LLMOPT_RETURN_IF_ERROR(bindParams(decoder, arguments, callee->params, inner));
  uint32_t caller = scope;
  scopes.push_back(std::move(inner));
  scope = static_cast<uint32_t>(scopes.size()) - 1;
  frames.push_back({name, {}});
  LLMOPT_RETURN_IF_ERROR(decodeBody(*callee));
  for (uint32_t jump : frames.back().returns)
    kernel.code[jump].target = nextInst();
  frames.pop_back();
  scope = caller;
  return {};
}

runtime::StatusOr<Kernel> KernelDecoder::decode() {
  kernel.info.name = function.name;
  kernel.info.maxThreads = function.maxThreads;
  kernel.info.requiredThreads = function.requiredThreads;
  kernel.info.requiredCluster = function.requiredCluster;
  kernel.info.explicitCluster = function.explicitCluster || function.requiredCluster[0] != 0;
  openScope();
  LLMOPT_RETURN_IF_ERROR(declareModuleVariables());
  openScope();
  LLMOPT_RETURN_IF_ERROR(declareParams());
  LLMOPT_RETURN_IF_ERROR(decodeBody(function));
  Inst end;
  end.flow = Flow::Exit;
  end.cls = InstClass::Branch;
  ptx::Instruction closing;
  closing.text = "}";
  closing.line = kernel.places.empty() ? function.line : kernel.places.back().line;
  emit(end, closing);
  LLMOPT_RETURN_IF_ERROR(resolveJumps());

  if (staticShared > kMaxShared || localBytes > kMaxLocal)
    return invalidArgument("{}:{}: '{}' declares {} bytes of shared and {} of local memory; {} and "
                           "{} are allowed",
                           program.name, function.line, function.name, staticShared, localBytes,
                           kMaxShared, kMaxLocal);
  kernel.info.staticShared = static_cast<uint32_t>(staticShared);
  kernel.info.localBytes = static_cast<uint32_t>(alignUp(localBytes, 16));
  kernel.dynamicSharedOffset = static_cast<uint32_t>(alignUp(staticShared, dynamicAlign));
  for (SharedArray &array : dynamicArrays) {
    array.begin = kernel.dynamicSharedOffset;
    kernel.sharedArrays.push_back(std::move(array));
  }
  for (Constant &constant : kernel.constants) {
    if (constant.kind != Constant::Kind::DynamicShared)
      continue;
    constant.kind = Constant::Kind::Literal;
    constant.value += kernel.dynamicSharedOffset;
  }
  trackUndefined(kernel, registers, refs, allocateSlots(kernel, registers, refs));
  trackWgmmaRegisters(kernel, registers, refs);
  return std::move(kernel);
}

} // namespace llmopt::sim
