// wgmma (PTX ISA 9.7.15): D = A * B + D by a warpgroup, where each warp has 16 of the
// 64 rows. All four warps take part at once; what they read from shared memory is read
// then, and the sums are in their registers at once, but nobody may look before
// wgmma.wait_group (exec/WgmmaChecks.cpp). Products are exact and summed in f32 in the
// order of k; of bytes, in s32.
#include "runtime/device/sim/decode/KernelDecoder.h"
#include "runtime/device/sim/exec/Cluster.h"
#include "runtime/device/sim/exec/SharedChecks.h"
#include "runtime/device/sim/ops/MatrixMath.h"
#include "runtime/device/sim/ops/Ops.h"

#include <charconv>

namespace llmopt::sim {

using ptx::Operand;
using ptx::Type;
using runtime::Status;

namespace {

constexpr uint32_t kWarps = 4, kChunk = 16;

/// What the handler reads; packed into inst.imm.
struct Variant {
  Type a = Type::None, b = Type::None;
  uint16_t n = 0;
  bool halfD = false, integer = false, saturate = false, registersA = false;
  bool negateA = false, negateB = false, transposeA = false, transposeB = false;

  int64_t pack() const {
    return static_cast<int64_t>(a) | static_cast<int64_t>(b) << 8 | int64_t{n} << 16 |
           int64_t{halfD} << 32 | int64_t{registersA} << 33 | int64_t{negateA} << 34 |
           int64_t{negateB} << 35 | int64_t{transposeA} << 36 | int64_t{transposeB} << 37 |
           int64_t{integer} << 38 | int64_t{saturate} << 39;
  }
  static Variant unpack(int64_t bits) {
    auto flag = [&](int at) { return (bits >> at & 1) != 0; };
    return {static_cast<Type>(bits & 0xff),
            static_cast<Type>(bits >> 8 & 0xff),
            static_cast<uint16_t>(bits >> 16),
            flag(32),
            flag(38),
            flag(39),
            flag(33),
            flag(34),
            flag(35),
            flag(36),
            flag(37)};
  }
};

uint32_t bytesOf(Type type) { return ptx::sizeOf(type); }
uint32_t depthOf(Type type) { return 32 / bytesOf(type); }

/// A matrix in shared memory, as its descriptor says (PTX ISA, "matrix descriptor").
/// Rows of 16 bytes, 8 of them a core matrix; where the next ones are depends on whether
/// k or the rows (m or n) are contiguous, and on the swizzle.
class SharedMatrix {
public:
  SharedMatrix(uint64_t descriptor, bool transposed)
      : base(field(descriptor, 0)), leading(field(descriptor, 16)), stride(field(descriptor, 32)),
        phase(static_cast<uint32_t>(descriptor >> 49 & 7)), transposed(transposed) {
    constexpr TensorSwizzle kSwizzles[] = {TensorSwizzle::None, TensorSwizzle::B128,
                                           TensorSwizzle::B64, TensorSwizzle::B32};
    swizzle = kSwizzles[descriptor >> 62];
  }

  /// Address of 16 bytes: of row `row` from byte 16 * `chunk` along k on; transposed: of
  /// k = `row` from byte 16 * `chunk` along the rows on.
  uint32_t at(uint32_t row, uint32_t chunk) const {
    uint32_t span = spanOf(swizzle), address = base;
    if (!span)
      // Without a swizzle the strides mean the other way round when transposed.
      address +=
          transposed ? row / 8 * leading + chunk * stride : row / 8 * stride + chunk * leading;
    else if (transposed)
      address +=
          chunk / (span / kChunk) * leading + chunk % (span / kChunk) * kChunk + row / 8 * stride;
    else
      address += row / 8 * stride + chunk * kChunk;
    address += row % 8 * std::max(span, kChunk);
    // The pattern begins where the base offset says.
    uint32_t shift = phase << 7;
    return swizzled(address - shift, swizzle) + shift;
  }

private:
  static uint32_t field(uint64_t descriptor, uint32_t at) {
    return static_cast<uint32_t>(descriptor >> at & 0x3fff) << 4;
  }

  uint32_t base, leading, stride, phase;
  bool transposed;
  TensorSwizzle swizzle = TensorSwizzle::None;
};

/// Reads 16 bytes, as the matrix units do for a warp; null after a fault.
const std::byte *readChunk(Warp &warp, uint32_t address) {
  Block &block = *warp.block;
  if (uint64_t{address} + kChunk > block.launch().sharedBytes) {
    warp.fault(FaultKind::SharedOutOfBounds, std::nullopt, address,
               fmt::format("wgmma reads 16 bytes at offset {} of shared memory; it has {} bytes",
                           address, block.launch().sharedBytes));
    return nullptr;
  }
  SharedChecks *checks = block.checks();
  if (checks &&
      !checks->agentRead(warp, kAllLanes, address, kChunk, block.clocks()->productsOf(warp.agent),
                         warp.wgmma.committed + 1))
    return nullptr;
  return block.shared() + address;
}

/// Calls body(line, chunk, bytes) for the 16-byte chunks of rows [first, first + rows) of
/// a matrix: lines are rows, or k if it is transposed. False after a fault.
template <typename F>
bool forEachChunk(Warp &warp, const SharedMatrix &matrix, Type type, bool transposed,
                  uint32_t first, uint32_t rows, F &&body) {
  uint32_t per = kChunk / bytesOf(type), depth = depthOf(type);
  uint32_t lines = transposed ? depth : rows, chunks = (transposed ? rows : depth) / per;
  for (uint32_t line = 0; line < lines; ++line) {
    for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
      const std::byte *from = readChunk(warp, transposed ? matrix.at(line, first / per + chunk)
                                                         : matrix.at(first + line, chunk));
      if (!from)
        return false;
      body(line, chunk, from);
    }
  }
  return true;
}

/// The elements of those rows: put(row, k, value).
template <typename F>
bool readMatrix(Warp &warp, const SharedMatrix &matrix, Type type, bool transposed, uint32_t first,
                uint32_t rows, F &&put) {
  return forEachChunk(warp, matrix, type, transposed, first, rows,
                      [&](uint32_t line, uint32_t chunk, const std::byte *from) {
                        float values[kChunk];
                        uint32_t per = chunkToFloats(from, type, values);
                        for (uint32_t i = 0; i < per; ++i)
                          transposed ? put(chunk * per + i, line, values[i])
                                     : put(line, chunk * per + i, values[i]);
                      });
}

/// The value of a descriptor, which must be the same for all threads of the warpgroup.
bool descriptorOf(Warp &warp, uint32_t row, uint64_t &value) {
  value = warp.wide(row)[0];
  uint32_t first = warp.index / kWarps * kWarps;
  for (uint32_t i = 0; i < kWarps; ++i) {
    const uint64_t *cells = warp.block->warp(first + i).wide(row);
    for (uint32_t lane = 0; lane < kLanes; ++lane)
      if (cells[lane] != value) {
        warp.fault(FaultKind::InvalidAddress, lane, std::nullopt,
                   fmt::format("the matrix descriptor of warp {} lane {} is {:#x}; that of warp {} "
                               "lane 0 is {:#x}, and all of a warpgroup must agree",
                               first + i, lane, cells[lane], warp.index, value));
        return false;
      }
  }
  return true;
}

/// A in registers, by bytes of an element; and D, by its bits.
const Fragment &fragmentA(Type type) {
  static const Fragment two(operandLayoutA(16, 16, 16), Part::A),
      four(operandLayoutA(16, 8, 32), Part::A), one(operandLayoutA(16, 32, 8), Part::A);
  return bytesOf(type) == 2 ? two : bytesOf(type) == 4 ? four : one;
}
const Fragment &fragmentD(bool half) {
  static const Fragment full(accumulatorLayout(16, 32), Part::C),
      halves(accumulatorLayout(16, 16), Part::C);
  return half ? halves : full;
}

/// D of one warp: 16 rows, in blocks of 8 columns.
void multiplyRows(Warp &warp, const Inst &inst, const Variant &v, const float *a, const float *b) {
  const Fragment &sums = fragmentD(v.halfD);
  uint32_t depth = depthOf(v.a);
  bool scale = has(warp.predicates[inst.c], 0);
  const uint32_t *rows = warp.list(inst);
  for (uint32_t block = 0; block < v.n / kTileN; ++block, rows += sums.registers()) {
    alignas(64) float tile[kTileM * kTileN] = {};
    if (scale && !v.integer)
      unpackFloats(warp, rows, sums, v.halfD ? Type::F16 : Type::F32, tile);
    multiplyTile(a, b + block * depth * kTileN, tile, depth);
    if (!v.integer) {
      packSums(warp, rows, v.halfD, tile);
      continue;
    }
    for (uint32_t reg = 0; reg < sums.registers(); ++reg) {
      uint32_t *cells = warp.narrow(rows[reg]);
      for (uint32_t lane = 0; lane < kLanes; ++lane)
        cells[lane] = addProducts(scale ? cells[lane] : 0, tile[sumAt(reg, lane)], v.saturate);
    }
  }
  warp.tally->mmaMultiplyAdds += uint64_t{kTileM} * v.n * depth;
}

void multiply(Warp &last, const Inst &inst, LaneMask) {
  Variant v = Variant::unpack(inst.imm);
  uint32_t depth = depthOf(v.a), first = last.index / kWarps * kWarps;
  uint64_t descriptorA = 0, descriptorB = 0;
  if (!descriptorOf(last, inst.b, descriptorB) ||
      (!v.registersA && !descriptorOf(last, inst.a, descriptorA)))
    return;
  SharedMatrix matrixA(descriptorA, v.transposeA), matrixB(descriptorB, v.transposeB);
  alignas(64) std::array<float, 256 * kTileMaxK> b; // [n / 8][k][n % 8]
  auto putB = [&](uint32_t n, uint32_t k, float x) {
    b[(n / kTileN * depth + k) * kTileN + n % kTileN] = v.negateB ? -x : x;
  };
  for (uint32_t i = 0; i < kWarps; ++i) {
    Warp &warp = last.block->warp(first + i);
    warp.pc = last.pc;
    // Each warp reads all of B, which is the same for all.
    bool known = i == 0 ? readMatrix(warp, matrixB, v.b, v.transposeB, 0, v.n, putB)
                        : !warp.block->checks() ||
                              forEachChunk(warp, matrixB, v.b, v.transposeB, 0, v.n,
                                           [](uint32_t, uint32_t, const std::byte *) {});
    if (!known)
      return;
    alignas(64) float a[kTileM * kTileMaxK] = {};
    if (v.registersA)
      unpackFloats(warp, warp.list(inst) + inst.outputs, fragmentA(v.a), v.a, a);
    else if (!readMatrix(warp, matrixA, v.a, v.transposeA, i * kTileM, kTileM,
                         [&](uint32_t m, uint32_t k, float x) { a[m * depth + k] = x; }))
      return;
    for (float &x : a)
      x = v.negateA ? -x : x;
    multiplyRows(warp, inst, v, a, b.data());
  }
}

void fence(Warp &warp, const Inst &, LaneMask) { ++warp.wgmma.fences; }
void commit(Warp &warp, const Inst &, LaneMask) { ++warp.wgmma.committed; }
void waitGroup(Warp &warp, const Inst &inst, LaneMask) {
  auto pending = static_cast<uint32_t>(inst.imm);
  WgmmaGroups &groups = warp.wgmma;
  if (groups.committed < pending)
    return;
  groups.completed = std::max(groups.completed, groups.committed - pending);
  if (Clocks *clocks = warp.block->clocks())
    clocks->complete(warp.agent, clocks->productsOf(warp.agent), groups.completed);
}

Status decodeSync(InstDecoder &d) {
  int kind = d.takeOneOf({"fence", "commit_group", "wait_group"});
  if (kind < 0 || !d.take("sync") || !d.take("aligned"))
    return d.unsupported();
  constexpr Handler kHandlers[] = {&fence, &commit, &waitGroup};
  d.converge(Need::All, InstClass::Barrier, kHandlers[kind]);
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(kind == 2 ? 1 : 0));
  if (kind != 2)
    return {};
  runtime::StatusOr<uint64_t> pending = d.literal(0);
  if (!pending)
    return pending.status();
  d.inst.imm = static_cast<int64_t>(*pending);
  return *pending <= 7 ? Status() : d.invalid("0 to 7 groups are allowed");
}

/// The n of "m64n128k16"; 0 if the shape is not one of that depth, or not one of integers.
uint16_t columnsOf(std::string_view shape, uint32_t depth, bool integer) {
  uint16_t n = 0;
  if (!shape.starts_with("m64n"))
    return 0;
  const char *begin = shape.data() + 4, *end = shape.data() + shape.size();
  auto [rest, error] = std::from_chars(begin, end, n);
  bool fits = error == std::errc() && n % 8 == 0 && n >= 8 && n <= 256;
  if (integer)
    fits &= n % 16 == 0 || n == 8 || n == 24;
  return fits && std::string_view(rest, static_cast<size_t>(end - rest)) ==
                     fmt::format("k{}", depth)
             ? n
             : uint16_t{0};
}

bool allowedTypes(Type d, Type a, Type b) {
  bool small = (a == Type::E4M3 || a == Type::E5M2) && (b == Type::E4M3 || b == Type::E5M2);
  if (a == Type::F16 && b == Type::F16)
    small = true; // for D: f16 or f32
  if (d == Type::S32)
    return (a == Type::S8 || a == Type::U8) && (b == Type::S8 || b == Type::U8);
  bool wide = a == b && (a == Type::BF16 || a == Type::TF32);
  return (small && (d == Type::F16 || d == Type::F32)) || (wide && d == Type::F32);
}

Status decodeFlags(InstDecoder &d, Variant &v) {
  // scale-d, imm-scale-a, imm-scale-b, and which of A and B in shared memory is transposed.
  if (v.integer)
    return d.expectOperands(4);
  size_t first = 4, transposes = bytesOf(v.a) == 2 ? (v.registersA ? 1 : 2) : 0;
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(4 + 2 + transposes));
  std::array<uint64_t, 4> values{};
  for (size_t i = 0; i < 2 + transposes; ++i) {
    runtime::StatusOr<uint64_t> value = d.literal(first + i);
    if (!value)
      return value.status();
    values[i] = *value;
    bool scale = i < 2;
    if (scale ? *value != 1 && *value != ~uint64_t{0} : *value > 1)
      return d.invalid(scale ? "a scale of A or B is 1 or -1" : "a transposition is 0 or 1");
  }
  v.negateA = values[0] != 1;
  v.negateB = values[1] != 1;
  v.transposeB = transposes && values[1 + transposes];
  v.transposeA = transposes == 2 && values[2];
  return {};
}

Status decodeProduct(InstDecoder &d) {
  if (!d.take("sync") || !d.take("aligned") || d.remaining().empty() || d.count() < 4)
    return d.unsupported();
  std::string_view shape = d.remaining().front();
  d.take(shape);
  Variant v;
  Type result = d.takeType();
  v.a = d.takeType();
  v.b = d.takeType();
  v.integer = result == Type::S32;
  v.saturate = v.integer && d.take("satfinite");
  if (!allowedTypes(result, v.a, v.b) || (v.n = columnsOf(shape, depthOf(v.a), v.integer)) == 0)
    return d.unsupported();
  v.halfD = result == Type::F16;
  v.registersA = d.operand(1).kind == Operand::Kind::Vector;
  LLMOPT_RETURN_IF_ERROR(decodeFlags(d, v));

  const Operand &sums = d.operand(0);
  size_t registers = v.n / (v.halfD ? 4 : 2);
  if (sums.parts.size() != registers)
    return d.invalid(
        fmt::format("D has {} registers; this shape has {}", sums.parts.size(), registers));
  Type cell = v.halfD || v.integer ? Type::B32 : Type::F32;
  for (const Operand &sum : sums.parts)
    LLMOPT_RETURN_IF_ERROR(d.listOutput(sum, cell));
  if (v.registersA && d.operand(1).parts.size() != 4)
    return d.invalid(fmt::format("A has {} registers; 4 are allowed", d.operand(1).parts.size()));
  for (const Operand &part : d.operand(1).parts)
    LLMOPT_RETURN_IF_ERROR(d.listInput(part, Type::B32));
  if (!v.registersA)
    LLMOPT_RETURN_IF_ERROR(d.input(Field::A, 1, Type::B64));
  for (const Operand &sum : sums.parts) // D is read as well
    LLMOPT_RETURN_IF_ERROR(d.listInput(sum, cell));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::B, 2, Type::B64));
  // A predicate, or a literal 0 or 1.
  LLMOPT_RETURN_IF_ERROR(d.input(Field::C, 3, Type::Pred));
  d.kernel.kernel.async = true;
  d.inst.imm = v.pack();
  d.inst.mode =
      static_cast<uint8_t>(v.n / 8 - 1 + (bytesOf(v.a) << 5)); // the shape, for the checks
  d.inst.flow = Flow::Group;
  d.inst.need = Need::All;
  d.inst.cls = InstClass::Matrix;
  d.inst.run = &multiply;
  return {};
}

Status decodeWgmma(InstDecoder &d) {
  return d.take("mma_async") ? decodeProduct(d) : decodeSync(d);
}

} // namespace

void addWgmmaOps(OpTable &table) { table["wgmma"] = &decodeWgmma; }

} // namespace llmopt::sim
