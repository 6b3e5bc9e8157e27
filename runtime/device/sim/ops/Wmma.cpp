// wmma.load, wmma.store, wmma.mma (PTX ISA 9.7.14.4), which nvcuda::wmma of mma.h becomes. Where
// the elements of a matrix lie in the registers of a warp is left open by the ISA. Here lane l has
// the l-th of 32 equal parts of the matrix, row by row; of A and B along their layout. f16 of A and
// B has more registers than elements: they are repeated.
#include "runtime/device/sim/exec/Access.h"
#include "runtime/device/sim/numeric/Float32.h"
#include "runtime/device/sim/numeric/Half.h"
#include "runtime/device/sim/ops/MatrixMath.h"
#include "runtime/device/sim/ops/Ops.h"

#include <algorithm>

namespace llmopt::sim {

using ptx::Operand;
using ptx::Space;
using ptx::Type;
using runtime::Status;

namespace {

struct Shape {
  std::string_view name;
  uint32_t m, n, k;
};
constexpr Shape kShapes[] = {
    {"m16n16k16", 16, 16, 16},
    {"m32n8k16", 32, 8, 16},
    {"m8n32k16", 8, 32, 16},
    {"m16n16k8", 16, 16, 8} // tf32
};
constexpr uint32_t kMaxElements = 512, kMaxBytes = 1024;

enum class Matrix : uint8_t { A, B, C, D };

bool isBytes(Type type) { return type == Type::S8 || type == Type::U8; }

/// Of one matrix: how many elements each lane has, in how many registers of 32 bits.
struct Held {
  uint32_t rows, cols, elementBytes, registers;
  uint32_t laneBytes() const { return rows * cols * elementBytes / kLanes; }
};

Held heldOf(const Shape &shape, Matrix matrix, Type type) {
  Held f = {matrix == Matrix::B ? shape.k : shape.m, matrix == Matrix::A ? shape.k : shape.n,
            ptx::sizeOf(type), 0};
  bool operand = matrix == Matrix::A || matrix == Matrix::B;
  f.registers = operand && type == Type::F16 ? 8 : f.laneBytes() / 4;
  return f;
}

/// True if there is such a matrix of that type.
bool allowed(const Shape &shape, Matrix matrix, Type type) {
  bool deep = shape.k == 16;
  if (matrix == Matrix::A || matrix == Matrix::B)
    return deep ? type == Type::F16 || type == Type::BF16 || isBytes(type) : type == Type::TF32;
  return type == Type::F32 || (deep && (type == Type::F16 || type == Type::S32));
}

/// The elements of a fragment, in the order of lanes.
struct Elements {
  alignas(64) std::array<std::byte, kMaxBytes> bytes;
};

void fromRegisters(const Warp &warp, const uint32_t *rows, const Held &f, Elements &elements) {
  uint32_t size = f.laneBytes();
  for (uint32_t lane = 0; lane < kLanes; ++lane)
    for (uint32_t at = 0; at < size; at += 4)
      std::memcpy(&elements.bytes[lane * size + at], warp.narrow(rows[at / 4]) + lane, 4);
}

void toRegisters(Warp &warp, const uint32_t *rows, const Held &f, const Elements &elements) {
  uint32_t size = f.laneBytes();
  for (uint32_t lane = 0; lane < kLanes; ++lane)
    for (uint32_t reg = 0; reg < f.registers; ++reg)
      std::memcpy(warp.narrow(rows[reg]) + lane, &elements.bytes[lane * size + 4 * reg % size], 4);
}

// Inst::mode of loads and stores, and what Inst::d2 packs.
constexpr uint8_t kWideAddress = 1, kAlongRows = 2, kFragmentAlongRows = 4, kSpaceShift = 4;

uint32_t packed(size_t shape, Matrix matrix, Type type) {
  return static_cast<uint32_t>(shape) | static_cast<uint32_t>(matrix) << 8 |
         static_cast<uint32_t>(type) << 16;
}
Held unpacked(uint32_t bits) {
  return heldOf(kShapes[bits & 0xff], static_cast<Matrix>(bits >> 8 & 0xff),
                static_cast<Type>(bits >> 16));
}

/// Moves a matrix between memory and elements. Neighbours that are neighbours in memory too move
/// together, up to 16 bytes.
template <bool Store>
bool moveMatrix(Warp &warp, const Inst &inst, const Held &f, Elements &elements) {
  constexpr uint32_t kMost = 16;
  auto space = static_cast<Space>(inst.mode >> kSpaceShift);
  bool along = inst.mode & kAlongRows, fragmentAlong = inst.mode & kFragmentAlongRows;
  AccessKind kind = Store ? AccessKind::Store : AccessKind::Load;
  uint32_t size = f.laneBytes(), per = size / f.elementBytes;
  uint32_t step = along == fragmentAlong ? std::min(size, kMost) : f.elementBytes;
  uint32_t inner = fragmentAlong ? f.cols : f.rows;
  for (uint32_t at = 0; at < size; at += step) {
    LaneAddresses addresses;
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      uint32_t number = lane * per + at / f.elementBytes, stride = warp.narrow(inst.b)[lane];
      uint32_t major = number / inner, minor = number % inner;
      if (along != fragmentAlong)
        std::swap(major, minor);
      uint64_t address = baseAddress(warp, inst, inst.a, inst.mode & kWideAddress, lane) +
                         (uint64_t{major} * stride + minor) * f.elementBytes;
      std::byte *there = locate(warp, space, lane, address, step, kind);
      if (!there)
        return false;
      std::byte *here = &elements.bytes[lane * size + at];
      std::memcpy(Store ? there : here, Store ? here : there, step);
      addresses.add(lane, address);
    }
    record(warp, space, addresses, step, kind);
  }
  return !warp.faulted;
}

void load(Warp &warp, const Inst &inst, LaneMask) {
  Held f = unpacked(inst.d2);
  Elements elements;
  if (moveMatrix<false>(warp, inst, f, elements))
    toRegisters(warp, warp.list(inst), f, elements);
}

void store(Warp &warp, const Inst &inst, LaneMask) {
  Held f = unpacked(inst.d2);
  Elements elements;
  fromRegisters(warp, warp.list(inst), f, elements);
  moveMatrix<true>(warp, inst, f, elements);
}

/// What wmma.mma multiplies; packed into inst.imm.
struct Product {
  uint8_t shape = 0;
  Type a = Type::None, b = Type::None, c = Type::None, d = Type::None;
  bool rowsA = false, rowsB = false, saturate = false;

  int64_t pack() const {
    return shape | static_cast<int64_t>(a) << 8 | static_cast<int64_t>(b) << 16 |
           static_cast<int64_t>(c) << 24 | static_cast<int64_t>(d) << 32 | int64_t{rowsA} << 40 |
           int64_t{rowsB} << 41 | int64_t{saturate} << 42;
  }
  static Product unpack(int64_t bits) {
    auto type = [&](int at) { return static_cast<Type>(bits >> at & 0xff); };
    auto flag = [&](int at) { return (bits >> at & 1) != 0; };
    return {static_cast<uint8_t>(bits & 0xff),
            type(8),
            type(16),
            type(24),
            type(32),
            flag(40),
            flag(41),
            flag(42)};
  }
};

/// An operand as floats: element (row, col) at place(row, col) of `to`.
template <typename F>
void operandToFloats(const Elements &elements, const Held &f, Type type, bool along, F &&place,
                     float *to) {
  uint32_t inner = along ? f.cols : f.rows, count = f.rows * f.cols;
  for (uint32_t at = 0; at < count;) {
    float values[kChunkBytes];
    uint32_t got = chunkToFloats(&elements.bytes[at * f.elementBytes], type, values);
    for (uint32_t i = 0; i < got; ++i, ++at) {
      uint32_t row = along ? at / inner : at % inner, col = along ? at % inner : at / inner;
      to[place(row, col)] = values[i];
    }
  }
}

/// Of C that is no integer.
float valueOf(const Elements &elements, Type type, uint32_t element) {
  if (type == Type::F16) {
    uint16_t bits = 0;
    std::memcpy(&bits, &elements.bytes[2 * element], 2);
    return fromBits<F16>(bits).value();
  }
  float value = 0;
  std::memcpy(&value, &elements.bytes[4 * element], 4);
  return value;
}

/// Of D: a sum, which of integers lacks C.
void setResult(Elements &result, const Product &p, const Elements &c, uint32_t element,
               float value) {
  if (p.d == Type::F16) {
    uint16_t bits = F16(value).bits;
    std::memcpy(&result.bytes[2 * element], &bits, 2);
    return;
  }
  uint32_t bits = std::bit_cast<uint32_t>(canonical(value));
  if (p.d == Type::S32) {
    std::memcpy(&bits, &c.bytes[4 * element], 4);
    bits = addProducts(bits, value, p.saturate);
  }
  std::memcpy(&result.bytes[4 * element], &bits, 4);
}

void multiply(Warp &warp, const Inst &inst, LaneMask) {
  Product p = Product::unpack(inst.imm);
  const Shape &shape = kShapes[p.shape];
  Held a = heldOf(shape, Matrix::A, p.a), b = heldOf(shape, Matrix::B, p.b);
  Held c = heldOf(shape, Matrix::C, p.c), d = heldOf(shape, Matrix::D, p.d);
  const uint32_t *rows = warp.list(inst);
  Elements given, sums;
  // Tiles of 16 rows of A, and of 8 columns of B.
  alignas(64) float matrixA[kMaxElements] = {};
  alignas(64) float matrixB[kMaxElements];
  const uint32_t *at = rows + d.registers;
  fromRegisters(warp, at, a, given);
  operandToFloats(
      given, a, p.a, p.rowsA, [&](uint32_t r, uint32_t k) { return r * shape.k + k; }, matrixA);
  fromRegisters(warp, at += a.registers, b, given);
  operandToFloats(
      given, b, p.b, p.rowsB,
      [&](uint32_t k, uint32_t n) { return (n / kTileN * shape.k + k) * kTileN + n % kTileN; },
      matrixB);
  fromRegisters(warp, at + b.registers, c, given);
  for (uint32_t row = 0; row < shape.m; row += kTileM)
    for (uint32_t col = 0; col < shape.n; col += kTileN) {
      alignas(64) float tile[kTileM * kTileN] = {};
      auto forEach = [&](auto &&body) {
        for (uint32_t i = 0; i < kTileM * kTileN; ++i)
          if (row + i / kTileN < shape.m)
            body((row + i / kTileN) * shape.n + col + i % kTileN, tile[i]);
      };
      if (p.c != Type::S32)
        forEach([&](uint32_t element, float &sum) { sum = valueOf(given, p.c, element); });
      multiplyTile(matrixA + row * shape.k, matrixB + col * shape.k, tile, shape.k);
      forEach([&](uint32_t element, float &sum) { setResult(sums, p, given, element, sum); });
    }
  toRegisters(warp, rows, d, sums);
  warp.tally->mmaMultiplyAdds += uint64_t{shape.m} * shape.n * shape.k;
}

size_t takeShape(InstDecoder &d) {
  size_t shape = 0;
  while (shape < std::size(kShapes) && !d.take(kShapes[shape].name))
    ++shape;
  return shape;
}

template <bool Output> Status bindRegisters(InstDecoder &d, size_t index, const Held &f) {
  const Operand &operand = d.operand(index);
  size_t given = operand.kind == Operand::Kind::Vector ? operand.parts.size() : 1;
  if (given != f.registers)
    return d.invalid(fmt::format("operand {} has {} registers; this matrix has {}", index + 1,
                                 given, f.registers));
  for (size_t i = 0; i < given; ++i) {
    const Operand &part = operand.kind == Operand::Kind::Vector ? operand.parts[i] : operand;
    LLMOPT_RETURN_IF_ERROR(Output ? d.listOutput(part, Type::B32) : d.listInput(part, Type::B32));
  }
  return {};
}

template <bool Store> Status decodeMove(InstDecoder &d) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(2, 3));
  auto matrix = Store ? Matrix::D : static_cast<Matrix>(d.takeOneOf({"a", "b", "c"}));
  bool known = !Store || d.take("d");
  known &= d.take("sync") && d.take("aligned");
  int layout = d.takeOneOf({"row", "col"});
  size_t shape = takeShape(d);
  Space space = d.takeSpace();
  Type type = d.takeType();
  known &= layout >= 0 && shape < std::size(kShapes) && matrix <= Matrix::D &&
           (space == Space::Generic || space == Space::Global || space == Space::Shared);
  if (!known || !allowed(kShapes[shape], matrix, type))
    return d.unsupported();
  Held f = heldOf(kShapes[shape], matrix, type);
  LLMOPT_RETURN_IF_ERROR(bindRegisters<!Store>(d, Store ? 1 : 0, f));
  runtime::StatusOr<AddressBase> base = d.address(Field::A, Store ? 0 : 1);
  if (!base)
    return base.status();
  if (base->space != Space::Generic && base->space != space)
    return d.unsupported(fmt::format("the variable is in {} memory", toString(base->space)));
  bool along = layout == 0, operand = matrix == Matrix::A || matrix == Matrix::B;
  Operand dense; // lines one after another
  dense.kind = Operand::Kind::Integer;
  dense.bits = along ? f.cols : f.rows;
  LLMOPT_RETURN_IF_ERROR(d.input(Field::B, d.count() > 2 ? d.operand(2) : dense, Type::U32));
  d.inst.mode = static_cast<uint8_t>((base->wide ? kWideAddress : 0) | (along ? kAlongRows : 0) |
                                     (along || !operand ? kFragmentAlongRows : 0) |
                                     static_cast<uint8_t>(space) << kSpaceShift);
  d.inst.d2 = packed(shape, matrix, type);
  d.converge(Need::All, space == Space::Shared ? InstClass::Shared : InstClass::Global,
             Store ? &store : static_cast<Handler>(&load));
  return {};
}

Status decodeProduct(InstDecoder &d) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(4));
  Product p;
  bool known = d.take("sync") && d.take("aligned");
  // The layout of A, then that of B.
  for (bool *rows : {&p.rowsA, &p.rowsB}) {
    std::string_view word = d.remaining().empty() ? "" : d.remaining().front();
    known &= word == "row" || word == "col";
    *rows = word == "row";
    d.take(word);
  }
  size_t shape = takeShape(d);
  p.saturate = d.take("satfinite");
  Type types[4];
  for (Type &type : types)
    type = d.takeType();
  bool half = types[2] == Type::None; // only D and C are named then
  p.shape = static_cast<uint8_t>(shape);
  p.d = types[0];
  p.a = half ? Type::F16 : types[1];
  p.b = half ? Type::F16 : types[2];
  p.c = half ? types[1] : types[3];
  if (!known || shape == std::size(kShapes))
    return d.unsupported();
  const Shape &s = kShapes[shape];
  bool integer = isBytes(p.a);
  known = allowed(s, Matrix::A, p.a) && allowed(s, Matrix::B, p.b) &&
          (integer ? isBytes(p.b) : p.a == p.b);
  for (Type type : {p.c, p.d})
    known &=
        integer ? type == Type::S32 : type == Type::F32 || (type == Type::F16 && p.a == Type::F16);
  if (!known || (p.saturate && !integer))
    return d.unsupported();
  LLMOPT_RETURN_IF_ERROR(bindRegisters<true>(d, 0, heldOf(s, Matrix::D, p.d)));
  LLMOPT_RETURN_IF_ERROR(bindRegisters<false>(d, 1, heldOf(s, Matrix::A, p.a)));
  LLMOPT_RETURN_IF_ERROR(bindRegisters<false>(d, 2, heldOf(s, Matrix::B, p.b)));
  LLMOPT_RETURN_IF_ERROR(bindRegisters<false>(d, 3, heldOf(s, Matrix::C, p.c)));
  d.inst.imm = p.pack();
  d.converge(Need::All, InstClass::Matrix, &multiply);
  return {};
}

Status decodeWmma(InstDecoder &d) {
  switch (d.takeOneOf({"load", "store", "mma"})) {
  case 0:
    return decodeMove<false>(d);
  case 1:
    return decodeMove<true>(d);
  case 2:
    return decodeProduct(d);
  default:
    return d.unsupported();
  }
}

} // namespace

void addWmmaOps(OpTable &table) { table["wmma"] = &decodeWmma; }

} // namespace llmopt::sim
