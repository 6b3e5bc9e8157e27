// ldmatrix, stmatrix, movmatrix (PTX ISA 9.7.14): 8x8 matrices of 16-bit
// elements between shared memory and the registers of a warp.
#include "runtime/device/sim/exec/Access.h"
#include "runtime/device/sim/ops/Ops.h"

namespace llmopt::sim {

using ptx::Operand;
using ptx::Space;
using ptx::Type;
using runtime::Status;

namespace {

constexpr uint32_t kSize = 8;
constexpr uint32_t kRowBytes = 16;
using Matrix = std::array<std::array<uint16_t, kSize>, kSize>;
static_assert(std::endian::native == std::endian::little);

// Inst::mode.
constexpr uint8_t kTransposed = 1;
constexpr uint8_t kWideAddress = 2;

/// Lane 4 r + j has elements 2 j and 2 j + 1 of row r; transposed, of column r.
void toRegisters(const Matrix &matrix, bool transposed, uint32_t *cells) {
  if (!transposed) {
    std::memcpy(cells, matrix.data(), sizeof(matrix));
    return;
  }
  for (uint32_t r = 0; r < kSize; ++r)
    for (uint32_t j = 0; j < kSize / 2; ++j)
      cells[r * kSize / 2 + j] = matrix[2 * j][r] | matrix[2 * j + 1][r] << 16;
}

void fromRegisters(const uint32_t *cells, bool transposed, Matrix &matrix) {
  if (!transposed) {
    std::memcpy(matrix.data(), cells, sizeof(matrix));
    return;
  }
  for (uint32_t r = 0; r < kSize; ++r)
    for (uint32_t j = 0; j < kSize / 2; ++j) {
      matrix[2 * j][r] = static_cast<uint16_t>(cells[r * kSize / 2 + j]);
      matrix[2 * j + 1][r] = static_cast<uint16_t>(cells[r * kSize / 2 + j] >> 16);
    }
}

/// Calls body(row, bytes) for the rows of matrix `index`: lane 8 * index + r
/// has the address of row r. False after a fault.
template <typename F>
bool forEachRow(Warp &warp, const Inst &inst, uint32_t index, AccessKind kind, F &&body) {
  LaneAddresses addresses;
  for (uint32_t r = 0; r < kSize; ++r) {
    uint32_t lane = kSize * index + r;
    uint64_t address = baseAddress(warp, inst, inst.a, inst.mode & kWideAddress, lane);
    std::byte *at = locateOwn(warp, lane, address, kRowBytes, kind);
    if (!at)
      return false;
    addresses.add(r, address);
    body(r, at);
  }
  recordRows(warp, addresses, kRowBytes, kind);
  return true;
}

void loadMatrix(Warp &warp, const Inst &inst, LaneMask) {
  // All addresses are read before the first result is written.
  std::array<Matrix, 4> matrices;
  for (uint32_t i = 0; i < inst.outputs; ++i)
    if (!forEachRow(warp, inst, i, AccessKind::Load, [&](uint32_t r, std::byte *at) {
          std::memcpy(matrices[i][r].data(), at, kRowBytes);
        }))
      return;
  for (uint32_t i = 0; i < inst.outputs; ++i)
    toRegisters(matrices[i], inst.mode & kTransposed, warp.narrow(warp.list(inst)[i]));
}

void storeMatrix(Warp &warp, const Inst &inst, LaneMask) {
  for (uint32_t i = 0; i < inst.inputs; ++i) {
    Matrix matrix;
    fromRegisters(warp.narrow(warp.list(inst)[i]), inst.mode & kTransposed, matrix);
    if (!forEachRow(warp, inst, i, AccessKind::Store, [&](uint32_t r, std::byte *at) {
          std::memcpy(at, matrix[r].data(), kRowBytes);
        }))
      return;
  }
}

void transposeMatrix(Warp &warp, const Inst &inst, LaneMask) {
  Matrix matrix;
  fromRegisters(warp.narrow(inst.a), false, matrix);
  toRegisters(matrix, true, warp.narrow(inst.d));
}

template <bool Store> Status decodeTransfer(InstDecoder &d) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(2));
  bool sync = d.take("sync") && d.take("aligned") && d.take("m8n8");
  int count = d.takeOneOf({"x1", "x2", "x4"});
  bool transposed = d.take("trans");
  bool shared = d.take("shared") || d.take("shared::cta");
  if (!sync || count < 0 || !shared || d.takeType() != Type::B16)
    return d.unsupported();
  runtime::StatusOr<AddressBase> base = d.address(Field::A, Store ? 0 : 1);
  if (!base)
    return base.status();
  d.inst.mode =
      static_cast<uint8_t>((transposed ? kTransposed : 0) | (base->wide ? kWideAddress : 0));
  const Operand &value = d.operand(Store ? 1 : 0);
  size_t registers = value.kind == Operand::Kind::Vector ? value.parts.size() : 1;
  if (registers != size_t{1} << count)
    return d.invalid(fmt::format("{} registers; .x{} is given", registers, 1 << count));
  for (size_t i = 0; i < registers; ++i) {
    const Operand &part = value.kind == Operand::Kind::Vector ? value.parts[i] : value;
    LLMOPT_RETURN_IF_ERROR(Store ? d.listInput(part, Type::B32) : d.listOutput(part, Type::B32));
  }
  d.converge(Need::All, InstClass::Shared, Store ? &storeMatrix : &loadMatrix);
  return {};
}

Status decodeTranspose(InstDecoder &d) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(2));
  bool known = d.take("sync") && d.take("aligned") && d.take("m8n8") && d.take("trans");
  if (!known || d.takeType() != Type::B16)
    return d.unsupported();
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, Type::B32));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::A, 1, Type::B32));
  d.converge(Need::All, InstClass::Collective, &transposeMatrix);
  return {};
}

} // namespace

void addMatrixMoveOps(OpTable &table) {
  table["ldmatrix"] = &decodeTransfer<false>;
  table["stmatrix"] = &decodeTransfer<true>;
  table["movmatrix"] = &decodeTranspose;
}

} // namespace llmopt::sim
