#include "runtime/device/sim/ptx/Ast.h"

#include <bit>

namespace llmopt::sim::ptx {

namespace {

struct TypeRow {
  Type type;
  std::string_view name;
  uint32_t bytes;
  bool isFloat;
  bool isSigned;
};

constexpr TypeRow kTypes[] = {
    {Type::Pred, "pred", 0, false, false},    {Type::B8, "b8", 1, false, false},
    {Type::B16, "b16", 2, false, false},      {Type::B32, "b32", 4, false, false},
    {Type::B64, "b64", 8, false, false},      {Type::B128, "b128", 16, false, false},
    {Type::U8, "u8", 1, false, false},        {Type::U16, "u16", 2, false, false},
    {Type::U32, "u32", 4, false, false},      {Type::U64, "u64", 8, false, false},
    {Type::S8, "s8", 1, false, true},         {Type::S16, "s16", 2, false, true},
    {Type::S32, "s32", 4, false, true},       {Type::S64, "s64", 8, false, true},
    {Type::F16, "f16", 2, true, false},       {Type::F16x2, "f16x2", 4, true, false},
    {Type::BF16, "bf16", 2, true, false},     {Type::BF16x2, "bf16x2", 4, true, false},
    {Type::F32, "f32", 4, true, false},       {Type::F64, "f64", 8, true, false},
    {Type::TF32, "tf32", 4, true, false},     {Type::E4M3, "e4m3", 1, true, false},
    {Type::E5M2, "e5m2", 1, true, false},     {Type::E4M3x2, "e4m3x2", 2, true, false},
    {Type::E5M2x2, "e5m2x2", 2, true, false},
};

const TypeRow *rowOf(Type type) {
  for (const TypeRow &row : kTypes)
    if (row.type == type)
      return &row;
  return nullptr;
}

} // namespace

Type parseType(std::string_view name) {
  for (const TypeRow &row : kTypes)
    if (row.name == name)
      return row.type;
  return Type::None;
}

std::string_view toString(Type type) {
  const TypeRow *row = rowOf(type);
  return row ? row->name : "none";
}

uint32_t sizeOf(Type type) {
  const TypeRow *row = rowOf(type);
  return row ? row->bytes : 0;
}

bool isFloat(Type type) {
  const TypeRow *row = rowOf(type);
  return row && row->isFloat;
}

bool isSigned(Type type) {
  const TypeRow *row = rowOf(type);
  return row && row->isSigned;
}

uint64_t literalBits(const Operand &literal, Type type) {
  bool single = literal.kind == Operand::Kind::Float32;
  bool isDouble = literal.kind == Operand::Kind::Float64;
  if (type == Type::F64 && single)
    return std::bit_cast<uint64_t>(
        static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(literal.bits))));
  if (isDouble && sizeOf(type) == 4)
    return std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(literal.bits)));
  return literal.bits;
}

std::string_view toString(Space space) {
  switch (space) {
  case Space::Generic:
    return "generic";
  case Space::Reg:
    return "reg";
  case Space::Global:
    return "global";
  case Space::Shared:
    return "shared";
  case Space::Local:
    return "local";
  case Space::Param:
    return "param";
  case Space::Const:
    return "const";
  }
  return "unknown";
}

} // namespace llmopt::sim::ptx
