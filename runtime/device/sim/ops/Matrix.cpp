// mma.sync (PTX ISA 9.7.14): D = A * B + C on fragments. Products are exact in
// f32 and summed in f32 in the order of k, which the ISA leaves open; a result
// of f16 is rounded once, at the end.
#include "runtime/device/sim/numeric/Float32.h"
#include "runtime/device/sim/numeric/Half.h"
#include "runtime/device/sim/ops/MatrixMath.h"
#include "runtime/device/sim/ops/Ops.h"

#include <memory>

namespace llmopt::sim {

using ptx::Operand;
using ptx::Type;
using runtime::Status;

namespace {

constexpr uint32_t kMaxM = kTileM, kN = kTileN, kMaxK = kTileMaxK;

/// Classes of element types that a shape exists for.
enum class Elements : uint8_t { F16, BF16, TF32, F8, Int8 };

struct MmaRow {
  std::string_view shape;
  uint32_t m, k;
  Elements elements;
};

constexpr MmaRow kRows[] = {
    {"m16n8k8", 16, 8, Elements::F16},    {"m16n8k16", 16, 16, Elements::F16},
    {"m16n8k8", 16, 8, Elements::BF16},   {"m16n8k16", 16, 16, Elements::BF16},
    {"m16n8k4", 16, 4, Elements::TF32},   {"m16n8k8", 16, 8, Elements::TF32},
    {"m16n8k16", 16, 16, Elements::F8},   {"m16n8k32", 16, 32, Elements::F8},
    {"m8n8k16", 8, 16, Elements::Int8},   {"m16n8k16", 16, 16, Elements::Int8},
    {"m16n8k32", 16, 32, Elements::Int8},
};

uint32_t elementBits(Elements elements) {
  switch (elements) {
  case Elements::F16:
  case Elements::BF16:
    return 16;
  case Elements::TF32:
    return 32;
  case Elements::F8:
  case Elements::Int8:
    return 8;
  }
  return 0;
}

/// A row of the table, with all layouts worked out.
struct MmaPlan {
  const MmaRow &row;
  Fragment a, b, c32, c16;

  explicit MmaPlan(const MmaRow &row)
      : row(row), a(operandLayoutA(row.m, row.k, elementBits(row.elements)), Part::A),
        b(operandLayoutB(row.k, elementBits(row.elements)), Part::B),
        c32(accumulatorLayout(row.m, 32), Part::C), c16(accumulatorLayout(row.m, 16), Part::C) {}
};

const MmaPlan &planOf(size_t row) {
  static const std::vector<MmaPlan> plans = [] {
    std::vector<MmaPlan> all;
    for (const MmaRow &r : kRows)
      all.emplace_back(r);
    return all;
  }();
  return plans[row];
}

/// What the handlers read; packed into inst.imm.
struct Variant {
  uint8_t row = 0;
  Type a = Type::None, b = Type::None;
  bool halfC = false, halfD = false, saturate = false;

  int64_t pack() const {
    return row | static_cast<int64_t>(a) << 8 | static_cast<int64_t>(b) << 16 |
           int64_t{halfC} << 24 | int64_t{halfD} << 25 | int64_t{saturate} << 26;
  }
  static Variant unpack(int64_t bits) {
    return {static_cast<uint8_t>(bits & 0xff),
            static_cast<Type>(bits >> 8 & 0xff),
            static_cast<Type>(bits >> 16 & 0xff),
            (bits >> 24 & 1) != 0,
            (bits >> 25 & 1) != 0,
            (bits >> 26 & 1) != 0};
  }
};

void countProduct(Warp &warp, const MmaRow &row) {
  warp.tally->mmaMultiplyAdds += uint64_t{row.m} * kN * row.k;
}

void mmaFloat(Warp &warp, const Inst &inst, LaneMask) {
  Variant v = Variant::unpack(inst.imm);
  const MmaPlan &plan = planOf(v.row);
  const uint32_t *d = warp.list(inst);
  const uint32_t *a = d + inst.outputs;
  const uint32_t *b = a + plan.a.registers();
  const uint32_t *c = b + plan.b.registers();
  alignas(64) float matrixA[kMaxM * kMaxK];
  alignas(64) float matrixB[kMaxK * kN];
  alignas(64) float matrixC[kMaxM * kN];
  unpackFloats(warp, a, plan.a, v.a, matrixA);
  unpackFloats(warp, b, plan.b, v.b, matrixB);
  if (v.halfC)
    unpackFloats(warp, c, plan.c16, Type::F16, matrixC);
  else
    unpackFloats(warp, c, plan.c32, Type::F32, matrixC);

  multiplyTile(matrixA, matrixB, matrixC, plan.row.k);

  packSums(warp, d, v.halfD, matrixC);
  countProduct(warp, plan.row);
}

void mmaInteger(Warp &warp, const Inst &inst, LaneMask) {
  Variant v = Variant::unpack(inst.imm);
  const MmaPlan &plan = planOf(v.row);
  const uint32_t *d = warp.list(inst);
  const uint32_t *a = d + inst.outputs;
  const uint32_t *b = a + plan.a.registers();
  const uint32_t *c = b + plan.b.registers();
  alignas(64) float matrixA[kMaxM * kMaxK] = {};
  alignas(64) float matrixB[kMaxK * kN];
  alignas(64) float products[kMaxM * kN] = {};
  unpackFloats(warp, a, plan.a, v.a, matrixA);
  unpackFloats(warp, b, plan.b, v.b, matrixB);
  multiplyTile(matrixA, matrixB, products, plan.row.k);
  for (uint32_t reg = 0; reg < plan.c32.registers(); ++reg)
    for (uint32_t lane = 0; lane < kLanes; ++lane)
      warp.narrow(d[reg])[lane] =
          addProducts(warp.narrow(c[reg])[lane], products[sumAt(reg, lane)], v.saturate);
  countProduct(warp, plan.row);
}

std::optional<Elements> elementsOf(Type a, Type b) {
  auto bytes = [](Type t) { return t == Type::S8 || t == Type::U8; };
  auto small = [](Type t) { return t == Type::E4M3 || t == Type::E5M2; };
  if (bytes(a) && bytes(b))
    return Elements::Int8;
  if (small(a) && small(b))
    return Elements::F8;
  if (a != b)
    return std::nullopt;
  if (a == Type::F16)
    return Elements::F16;
  if (a == Type::BF16)
    return Elements::BF16;
  return a == Type::TF32 ? std::optional(Elements::TF32) : std::nullopt;
}

Status bindFragment(InstDecoder &d, size_t index, uint32_t registers, Type type, bool output) {
  const Operand &operand = d.operand(index);
  size_t given = operand.kind == Operand::Kind::Vector ? operand.parts.size() : 1;
  if (given != registers)
    return d.invalid(
        fmt::format("operand {} has {} registers; this shape has {}", index + 1, given, registers));
  for (size_t i = 0; i < registers; ++i) {
    const Operand &part = operand.kind == Operand::Kind::Vector ? operand.parts[i] : operand;
    LLMOPT_RETURN_IF_ERROR(output ? d.listOutput(part, type) : d.listInput(part, type));
  }
  return {};
}

Status decodeMma(InstDecoder &d) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(4));
  bool sync = d.take("sync") && d.take("aligned") && d.take("row") && d.take("col");
  Variant v;
  v.saturate = d.take("satfinite");
  d.take("kind::f8f6f4");
  Type result = d.takeType();
  v.a = d.takeType();
  v.b = d.takeType();
  Type accumulator = d.takeType();
  std::optional<Elements> elements = elementsOf(v.a, v.b);
  size_t row = 0;
  while (row < std::size(kRows) &&
         (!elements || kRows[row].elements != *elements || !d.take(kRows[row].shape)))
    ++row;
  if (!sync || row == std::size(kRows))
    return d.unsupported();
  bool integer = *elements == Elements::Int8;
  auto allowed = [&](Type type) {
    if (integer)
      return type == Type::S32;
    bool half = *elements == Elements::F16 || *elements == Elements::F8;
    return type == Type::F32 || (type == Type::F16 && half);
  };
  if (!allowed(result) || !allowed(accumulator) || (v.saturate && !integer))
    return d.unsupported();
  v.row = static_cast<uint8_t>(row);
  v.halfC = accumulator == Type::F16;
  v.halfD = result == Type::F16;
  const MmaPlan &plan = planOf(row);
  auto registers = [&](bool half) { return half ? plan.c16.registers() : plan.c32.registers(); };
  LLMOPT_RETURN_IF_ERROR(bindFragment(d, 0, registers(v.halfD), Type::B32, true));
  LLMOPT_RETURN_IF_ERROR(bindFragment(d, 1, plan.a.registers(), Type::B32, false));
  LLMOPT_RETURN_IF_ERROR(bindFragment(d, 2, plan.b.registers(), Type::B32, false));
  LLMOPT_RETURN_IF_ERROR(bindFragment(d, 3, registers(v.halfC), Type::B32, false));
  d.inst.imm = v.pack();
  d.converge(Need::All, InstClass::Matrix, integer ? &mmaInteger : &mmaFloat);
  return {};
}

} // namespace

void addMatrixOps(OpTable &table) { table["mma"] = &decodeMma; }

} // namespace llmopt::sim
