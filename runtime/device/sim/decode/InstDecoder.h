// One PTX instruction on its way to an Inst: what the functions in ops/ see
// when they decode. Each modifier of the opcode must be taken; one that is left
// over makes the instruction an unsupported one.
#pragma once

#include "runtime/device/sim/decode/Program.h"
#include "runtime/device/sim/ptx/Ast.h"

#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace llmopt::sim {

class KernelDecoder;

/// Members of Inst that name a row or predicate.
enum class Field : uint8_t { D, D2, A, B, C, Guard, List };

RegClass classOf(ptx::Type type);

/// The base of an address: a row, wide or narrow, and Inst::imm.
struct AddressBase {
  bool wide = false;
  /// The space of the variable if the base is a variable, else Generic.
  ptx::Space space = ptx::Space::Generic;
};

class InstDecoder {
public:
  InstDecoder(KernelDecoder &kernel, const ptx::Instruction &source);

  // The opcode.
  std::string_view opcode() const { return source.opcode; }
  /// Takes the modifier away if it is there.
  bool take(std::string_view modifier);
  /// Takes the first of these that is there; its place in the list, or -1.
  int takeOneOf(std::span<const std::string_view> modifiers);
  int takeOneOf(std::initializer_list<std::string_view> modifiers) {
    return takeOneOf(std::span(modifiers.begin(), modifiers.size()));
  }
  /// Takes the next modifier that is a type; None if there is none.
  ptx::Type takeType();
  /// Takes .v2, .v4, .v8 (or nothing): 2, 4, 8 (or 1).
  uint32_t takeVector();
  /// Takes .ca, .cg, .L2::128B and other hints that do not change the result.
  void takeCacheHints();
  /// Takes .global, .shared, ...; Generic if there is none.
  ptx::Space takeSpace();
  const std::vector<std::string_view> &remaining() const { return modifiers; }

  // Operands. `type` is what the instruction makes of it: the register's width
  // must fit (`anyWidth`: it may differ), a literal gets its bits.
  size_t count() const { return source.operands.size(); }
  const ptx::Operand &operand(size_t index) const { return source.operands[index]; }
  runtime::Status expectOperands(size_t least, size_t most);
  runtime::Status expectOperands(size_t exactly) { return expectOperands(exactly, exactly); }
  runtime::Status output(Field field, const ptx::Operand &operand, ptx::Type type);
  runtime::Status input(Field field, const ptx::Operand &operand, ptx::Type type);
  runtime::Status output(Field field, size_t index, ptx::Type type) {
    return output(field, operand(index), type);
  }
  runtime::Status input(Field field, size_t index, ptx::Type type) {
    return input(field, operand(index), type);
  }
  /// Adds rows to the instruction's list; outputs come first.
  runtime::Status listOutput(const ptx::Operand &operand, ptx::Type type);
  runtime::Status listInput(const ptx::Operand &operand, ptx::Type type);
  /// A predicate, negated or not (`negated` is set from "!p").
  runtime::Status predicateInput(Field field, const ptx::Operand &operand, bool &negated);
  /// The width class of a register operand; of `type` for anything else.
  RegClass widthOf(const ptx::Operand &operand, ptx::Type type) const;
  /// Row of the base into `field`, the offset into inst.imm.
  runtime::StatusOr<AddressBase> address(Field field, size_t index);
  runtime::StatusOr<AddressBase> address(Field field, const ptx::Operand &base);
  /// An address as two rows of the list: the base, and the offset (64 bits).
  runtime::StatusOr<AddressBase> listAddress(const ptx::Operand &base);
  /// The same of an operand in brackets.
  runtime::StatusOr<AddressBase> listAddress(size_t index);
  /// A literal integer.
  runtime::StatusOr<uint64_t> literal(size_t index);

  /// Lets register widths differ from the type's (ld, st, cvt).
  void allowAnyWidth() { anyWidth = true; }

  /// The lanes that `need` names run `handler` together.
  void converge(Need need, InstClass cls, Handler handler);

  runtime::Status unsupported() const;
  runtime::Status unsupported(std::string_view why) const;
  runtime::Status invalid(std::string_view why) const;

  KernelDecoder &kernel;
  const ptx::Instruction &source;
  Inst inst;

private:
  friend class KernelDecoder;

  runtime::Status reference(Field field, const ptx::Operand &operand, ptx::Type type, bool output);
  void refer(Field field, uint32_t reg, bool output = false);

  std::vector<std::string_view> modifiers;
  bool anyWidth = false;
};

using DecodeFn = runtime::Status (*)(InstDecoder &);
using OpTable = std::unordered_map<std::string_view, DecodeFn>;

/// All opcodes, by name.
const OpTable &opTable();

} // namespace llmopt::sim
