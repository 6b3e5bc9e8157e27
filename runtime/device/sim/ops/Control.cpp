// Branches, calls, ends and traps (PTX ISA 9.7.12).
#include "runtime/device/sim/decode/KernelDecoder.h"
#include "runtime/device/sim/exec/Access.h"
#include "runtime/device/sim/ops/Ops.h"

namespace llmopt::sim {

using ptx::Operand;
using ptx::Space;
using ptx::Type;
using runtime::Status;

namespace {

Status decodeBranch(InstDecoder &d) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(1));
  d.take("uni");
  if (d.operand(0).kind != Operand::Kind::Name)
    return d.invalid("the name of a label is expected");
  d.inst.flow = Flow::Branch;
  d.inst.cls = InstClass::Branch;
  d.kernel.branchTo(d.operand(0).name, d.source.line);
  return {};
}

Status decodeBranchTable(InstDecoder &d) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(2));
  d.take("uni");
  if (!d.take("idx"))
    return d.unsupported();
  d.inst.flow = Flow::Table;
  d.inst.cls = InstClass::Branch;
  LLMOPT_RETURN_IF_ERROR(d.input(Field::A, 0, Type::U32));
  return d.kernel.branchTable(d, d.operand(1).name);
}

Status decodeReturn(InstDecoder &d) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(0));
  d.take("uni");
  d.inst.cls = InstClass::Branch;
  if (d.opcode() == "ret" && d.kernel.inlined()) {
    d.inst.flow = Flow::Branch;
    d.kernel.returnFromInlined();
  } else {
    d.inst.flow = Flow::Exit;
  }
  return {};
}

void trap(Warp &warp, const Inst &, LaneMask mask) {
  warp.fault(FaultKind::Trap, std::countr_zero(mask), std::nullopt, "the kernel gave up");
}

Status decodeTrap(InstDecoder &d) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(0));
  d.inst.cls = InstClass::Branch;
  d.inst.run = &trap;
  return {};
}

std::string readString(Warp &warp, uint32_t lane, uint64_t address) {
  std::string text;
  while (text.size() < 512) {
    const std::byte *at = locate(warp, Space::Generic, lane, address++, 1, AccessKind::Load);
    if (!at || *at == std::byte{0})
      break;
    text += static_cast<char>(*at);
  }
  return text;
}

/// __assertfail(message, file, line, function, character size)
void failAssertion(Warp &warp, const Inst &inst, LaneMask mask) {
  auto lane = static_cast<uint32_t>(std::countr_zero(mask));
  const uint32_t *rows = warp.list(inst);
  std::array<uint64_t, 4> values = {};
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t bytes = i == 2 ? 4 : 8;
    const std::byte *at =
        locate(warp, Space::Local, lane, warp.wide(rows[i])[lane], bytes, AccessKind::Load);
    if (!at)
      return;
    std::memcpy(&values[i], at, bytes);
  }
  std::string message = readString(warp, lane, values[0]);
  std::string file = readString(warp, lane, values[1]);
  std::string function = readString(warp, lane, values[3]);
  warp.fault(
      FaultKind::Trap, lane, std::nullopt,
      fmt::format("the assertion '{}' in '{}' failed ({}:{})", message, function, file, values[2]));
}

Status decodeCall(InstDecoder &d) {
  d.take("uni");
  bool assertion = d.count() == 2 && d.operand(0).kind == Operand::Kind::Name &&
                   d.operand(0).name == "__assertfail" && d.operand(1).parts.size() == 5;
  if (!assertion)
    return d.kernel.call(d);
  for (const Operand &argument : d.operand(1).parts) {
    const auto *symbol = d.kernel.find(argument.name);
    if (!symbol || symbol->space != Space::Local)
      return d.unsupported("a parameter that is not a .param variable");
    LLMOPT_RETURN_IF_ERROR(d.listInput(argument, Type::B64));
  }
  d.inst.cls = InstClass::Branch;
  d.inst.run = &failAssertion;
  return {};
}

} // namespace

void addControlOps(OpTable &table) {
  table["bra"] = &decodeBranch;
  table["brx"] = &decodeBranchTable;
  table["ret"] = &decodeReturn;
  table["exit"] = &decodeReturn;
  table["trap"] = &decodeTrap;
  table["call"] = &decodeCall;
}

} // namespace llmopt::sim
