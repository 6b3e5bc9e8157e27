#include "runtime/device/sim/decode/InstDecoder.h"

#include "runtime/device/sim/decode/KernelDecoder.h"

#include <algorithm>

namespace llmopt::sim {

using ptx::Operand;
using ptx::Type;
using runtime::Status;

RegClass classOf(Type type) {
  if (type == Type::Pred)
    return RegClass::Predicate;
  return ptx::sizeOf(type) == 8 ? RegClass::Wide : RegClass::Narrow;
}

InstDecoder::InstDecoder(KernelDecoder &kernel, const ptx::Instruction &source)
    : kernel(kernel), source(source), modifiers(source.modifiers) {}

bool InstDecoder::take(std::string_view modifier) {
  auto it = std::find(modifiers.begin(), modifiers.end(), modifier);
  if (it == modifiers.end())
    return false;
  modifiers.erase(it);
  return true;
}

int InstDecoder::takeOneOf(std::span<const std::string_view> choices) {
  int index = 0;
  for (std::string_view choice : choices) {
    if (take(choice))
      return index;
    ++index;
  }
  return -1;
}

Type InstDecoder::takeType() {
  for (auto it = modifiers.begin(); it != modifiers.end(); ++it) {
    if (Type type = ptx::parseType(*it); type != Type::None) {
      modifiers.erase(it);
      return type;
    }
  }
  return Type::None;
}

uint32_t InstDecoder::takeVector() {
  int index = takeOneOf({"v2", "v4", "v8"});
  return index < 0 ? 1 : 2u << index;
}

void InstDecoder::takeCacheHints() {
  std::erase_if(modifiers, [](std::string_view m) {
    constexpr std::string_view kHints[] = {"ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc"};
    return std::find(std::begin(kHints), std::end(kHints), m) != std::end(kHints) ||
           m.starts_with("L1::evict") || m.starts_with("L1::no_allocate") ||
           m.starts_with("L2::evict") || m == "L2::64B" || m == "L2::128B" || m == "L2::256B";
  });
}

ptx::Space InstDecoder::takeSpace() {
  using ptx::Space;
  struct Row {
    std::string_view name;
    Space space;
  };
  constexpr Row kSpaces[] = {{"global", Space::Global},      {"shared", Space::Shared},
                             {"shared::cta", Space::Shared}, {"shared::cluster", Space::Shared},
                             {"local", Space::Local},        {"param", Space::Param},
                             {"param::entry", Space::Param}, {"param::func", Space::Param},
                             {"const", Space::Const}};
  for (const Row &row : kSpaces)
    if (take(row.name))
      return row.space;
  return Space::Generic;
}

void InstDecoder::converge(Need need, InstClass cls, Handler handler) {
  inst.flow = Flow::Converge;
  inst.need = need;
  inst.cls = cls;
  inst.run = handler;
}

Status InstDecoder::unsupported() const { return unsupported(""); }

Status InstDecoder::unsupported(std::string_view why) const {
  return runtime::makeStatus(runtime::StatusCode::Unsupported,
                             "{}:{}: unsupported instruction '{}'{}{}", kernel.moduleName(),
                             source.line, source.text, why.empty() ? "" : "; ", why);
}

Status InstDecoder::invalid(std::string_view why) const {
  return runtime::invalidArgument("{}:{}: in '{}': {}", kernel.moduleName(), source.line,
                                  source.text, why);
}

Status InstDecoder::expectOperands(size_t least, size_t most) {
  if (count() >= least && count() <= most)
    return {};
  if (least == most)
    return invalid(fmt::format("{} operands; {} are allowed", count(), least));
  return invalid(fmt::format("{} operands; {} to {} are allowed", count(), least, most));
}

namespace {

struct SpecialName {
  std::string_view name;
  Special special;
};

constexpr SpecialName kSpecials[] = {
    {"%tid.x", Special::TidX},
    {"%tid.y", Special::TidY},
    {"%tid.z", Special::TidZ},
    {"%ntid.x", Special::NtidX},
    {"%ntid.y", Special::NtidY},
    {"%ntid.z", Special::NtidZ},
    {"%ctaid.x", Special::CtaidX},
    {"%ctaid.y", Special::CtaidY},
    {"%ctaid.z", Special::CtaidZ},
    {"%nctaid.x", Special::NctaidX},
    {"%nctaid.y", Special::NctaidY},
    {"%nctaid.z", Special::NctaidZ},
    {"%laneid", Special::LaneId},
    {"%warpid", Special::WarpId},
    {"%nwarpid", Special::NwarpId},
    {"%lanemask_eq", Special::LanemaskEq},
    {"%lanemask_le", Special::LanemaskLe},
    {"%lanemask_lt", Special::LanemaskLt},
    {"%lanemask_ge", Special::LanemaskGe},
    {"%lanemask_gt", Special::LanemaskGt},
    {"%dynamic_smem_size", Special::DynamicSmemSize},
    {"%total_smem_size", Special::TotalSmemSize},
    {"%smid", Special::Zero},
    {"%gridid", Special::Zero},
    {"%nsmid", Special::One},
    {"%clusterid.x", Special::ClusterIdX},
    {"%clusterid.y", Special::ClusterIdY},
    {"%clusterid.z", Special::ClusterIdZ},
    {"%nclusterid.x", Special::NclusterIdX},
    {"%nclusterid.y", Special::NclusterIdY},
    {"%nclusterid.z", Special::NclusterIdZ},
    {"%cluster_ctaid.x", Special::ClusterCtaidX},
    {"%cluster_ctaid.y", Special::ClusterCtaidY},
    {"%cluster_ctaid.z", Special::ClusterCtaidZ},
    {"%cluster_nctaid.x", Special::ClusterNctaidX},
    {"%cluster_nctaid.y", Special::ClusterNctaidY},
    {"%cluster_nctaid.z", Special::ClusterNctaidZ},
    {"%cluster_ctarank", Special::ClusterCtarank},
    {"%cluster_nctarank", Special::ClusterNctarank},
    {"%is_explicit_cluster", Special::IsExplicitCluster},
};

} // namespace

RegClass InstDecoder::widthOf(const Operand &operand, Type type) const {
  if (operand.kind == Operand::Kind::Name)
    if (const auto *symbol = kernel.find(operand.name);
        symbol && symbol->kind == KernelDecoder::Symbol::Kind::Register)
      return classOf(symbol->type);
  return classOf(type);
}

Status InstDecoder::reference(Field field, const Operand &operand, Type type, bool output) {
  RegClass cls = classOf(type);
  if (anyWidth)
    cls = widthOf(operand, type);
  uint32_t reg = 0;
  if (operand.kind == Operand::Kind::Integer || operand.kind == Operand::Kind::Float32 ||
      operand.kind == Operand::Kind::Float64) {
    if (output)
      return invalid("a literal cannot be written");
    reg = kernel.literalRow(cls, ptx::literalBits(operand, type));
  } else if (operand.kind != Operand::Kind::Name) {
    return invalid("a register or a literal is expected in place of a list");
  } else if (operand.name == "_" && output) {
    reg = kernel.newRegister(cls);
  } else if (const KernelDecoder::Symbol *symbol = kernel.find(operand.name)) {
    if (symbol->kind == KernelDecoder::Symbol::Kind::Variable) {
      if (output)
        return invalid(fmt::format("'{}' is a variable; a register is allowed", operand.name));
      reg = kernel.variableRow(cls, *symbol, operand.offset);
    } else {
      if (operand.offset != 0)
        return invalid("a register with an offset; that is allowed in addresses only");
      if (classOf(symbol->type) != cls)
        return invalid(fmt::format("'{}' is a .{} register; a .{} value is expected", operand.name,
                                   ptx::toString(symbol->type), ptx::toString(type)));
      reg = symbol->reg;
    }
  } else {
    if (operand.name == "WARP_SZ" && !output) {
      reg = kernel.literalRow(cls, kLanes);
    } else {
      auto special = std::find_if(std::begin(kSpecials), std::end(kSpecials),
                                  [&](const SpecialName &s) { return s.name == operand.name; });
      if (special == std::end(kSpecials) || output) {
        if (operand.name.starts_with('%') && !output)
          return unsupported(fmt::format("'{}' is neither a declared register nor a special "
                                         "register that is supported",
                                         operand.name));
        return invalid(fmt::format("'{}' is not declared", operand.name));
      }
      reg = kernel.specialRow(cls, special->special);
    }
  }
  if (operand.negated && cls != RegClass::Predicate)
    return invalid("'!' is allowed on predicates only");
  refer(field, reg, output);
  return {};
}

void InstDecoder::refer(Field field, uint32_t reg, bool output) {
  RegRef ref{kernel.nextInst(), 0, reg, field, output};
  if (field == Field::List)
    ref.index = inst.outputs + inst.inputs;
  kernel.addReference(ref);
}

Status InstDecoder::output(Field field, const Operand &operand, Type type) {
  return reference(field, operand, type, true);
}

Status InstDecoder::input(Field field, const Operand &operand, Type type) {
  return reference(field, operand, type, false);
}

Status InstDecoder::listOutput(const Operand &operand, Type type) {
  LLMOPT_RETURN_IF_ERROR(reference(Field::List, operand, type, true));
  ++inst.outputs;
  return {};
}

Status InstDecoder::listInput(const Operand &operand, Type type) {
  LLMOPT_RETURN_IF_ERROR(reference(Field::List, operand, type, false));
  ++inst.inputs;
  return {};
}

Status InstDecoder::predicateInput(Field field, const Operand &operand, bool &negated) {
  negated = operand.negated;
  return reference(field, operand, Type::Pred, false);
}

runtime::StatusOr<AddressBase> InstDecoder::address(Field field, size_t index) {
  const Operand &outer = operand(index);
  if (outer.kind != Operand::Kind::Address || outer.parts.size() != 1)
    return invalid("an address in brackets is expected");
  return address(field, outer.parts[0]);
}

runtime::StatusOr<AddressBase> InstDecoder::listAddress(size_t index) {
  const Operand &outer = operand(index);
  if (outer.kind != Operand::Kind::Address || outer.parts.size() != 1)
    return invalid(fmt::format("operand {} must be an address", index + 1));
  return listAddress(outer.parts[0]);
}

runtime::StatusOr<AddressBase> InstDecoder::listAddress(const Operand &base) {
  runtime::StatusOr<AddressBase> result = address(Field::List, base);
  if (!result)
    return result;
  ++inst.inputs;
  Operand offset;
  offset.kind = Operand::Kind::Integer;
  offset.bits = static_cast<uint64_t>(inst.imm);
  inst.imm = 0;
  LLMOPT_RETURN_IF_ERROR(listInput(offset, Type::B64));
  return result;
}

runtime::StatusOr<AddressBase> InstDecoder::address(Field field, const Operand &base) {
  AddressBase result;
  if (base.kind == Operand::Kind::Integer) {
    result.wide = true;
    inst.imm = static_cast<int64_t>(base.bits);
    refer(field, kernel.literalRow(RegClass::Wide, 0));
    return result;
  }
  const KernelDecoder::Symbol *symbol =
      base.kind == Operand::Kind::Name ? kernel.find(base.name) : nullptr;
  if (!symbol)
    return invalid("the address is neither a declared register, nor a variable, nor a number");
  inst.imm = base.offset;
  uint32_t reg = 0;
  if (symbol->kind == KernelDecoder::Symbol::Kind::Variable) {
    result.wide = true;
    result.space = symbol->space;
    reg = kernel.variableRow(RegClass::Wide, *symbol, 0);
  } else {
    if (classOf(symbol->type) == RegClass::Predicate)
      return invalid("a predicate is not an address");
    result.wide = classOf(symbol->type) == RegClass::Wide;
    reg = symbol->reg;
  }
  refer(field, reg);
  return result;
}

runtime::StatusOr<uint64_t> InstDecoder::literal(size_t index) {
  if (operand(index).kind != Operand::Kind::Integer)
    return invalid(fmt::format("operand {} must be a literal number", index + 1));
  return operand(index).bits;
}

} // namespace llmopt::sim
