// PTX text as a tree: names unresolved, instructions split into their opcode's
// parts and their operands. Views point into the text, which must outlive it.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace llmopt::sim::ptx {

/// The type of a register, variable or instruction: ".f32" without the dot.
enum class Type : uint8_t {
  None,
  Pred,
  B8,
  B16,
  B32,
  B64,
  B128,
  U8,
  U16,
  U32,
  U64,
  S8,
  S16,
  S32,
  S64,
  F16,
  F16x2,
  BF16,
  BF16x2,
  F32,
  F64,
  TF32,
  E4M3,
  E5M2,
  E4M3x2,
  E5M2x2,
};

/// None if there is no type of that name ("f32", "b64", "pred").
Type parseType(std::string_view name);
std::string_view toString(Type type);
/// Bytes of a value; a predicate has 0.
uint32_t sizeOf(Type type);
bool isFloat(Type type);
bool isSigned(Type type);

enum class Space : uint8_t { Generic, Reg, Global, Shared, Local, Param, Const };
std::string_view toString(Space space);

struct Operand {
  enum class Kind : uint8_t {
    Name,    ///< register, label, variable or special register, with an offset
    Integer, ///< bits, two's complement
    Float32, ///< bits of 0f...
    Float64, ///< bits of 0d... or of a decimal number
    Vector,  ///< {a, b}
    Address, ///< [base], [base + offset]; or [base, {coordinates}]
    Pair,    ///< a|b
    List,    ///< (a, b) of a call
  };
  Kind kind = Kind::Name;
  bool negated = false; ///< !p
  std::string_view name;
  int64_t offset = 0; ///< name + offset
  uint64_t bits = 0;
  std::vector<Operand> parts;
};

struct Instruction {
  uint32_t line = 0;
  std::string_view text; ///< from the guard to the semicolon
  std::string_view guard;
  bool guardNegated = false;
  std::string_view opcode;                 ///< "ld"
  std::vector<std::string_view> modifiers; ///< "global", "f32"
  std::vector<Operand> operands;
};

/// The bits of a literal as a value of `type`.
uint64_t literalBits(const Operand &literal, Type type);

/// One value of an initialiser: a number, or the address of a variable.
struct Initial {
  uint64_t bits = 0; ///< a number, or what is added to the address
  std::string_view symbol;
  bool generic = false; ///< generic(symbol)
};

struct Variable {
  uint32_t line = 0;
  std::string_view name;
  Space space = Space::Global;
  Type type = Type::B8; ///< of one element
  uint32_t align = 0;   ///< bytes; never 0 after parsing
  uint64_t bytes = 0;   ///< 0: an array without a size (dynamic shared memory)
  bool external = false;
  bool unsized = false;
  std::vector<Initial> initial;
};

struct RegisterDecl {
  Type type = Type::None;
  std::string_view name; ///< the name, or its part before the number
  uint32_t count = 0;    ///< 0: a single register; else name0 ... name<count-1>
};

struct ScopeBegin {};
struct ScopeEnd {};
struct Label {
  std::string_view name;
};
struct BranchTargets {
  std::string_view name;
  std::vector<std::string_view> labels;
};
struct SourceLine {
  uint32_t file = 0;
  uint32_t line = 0;
};

using Statement = std::variant<Instruction, RegisterDecl, Variable, ScopeBegin, ScopeEnd, Label,
                               BranchTargets, SourceLine>;

struct Function {
  uint32_t line = 0;
  std::string_view name;
  bool entry = false;
  bool hasBody = false;
  std::vector<Variable> params;
  std::vector<Variable> results;
  std::array<uint32_t, 3> maxThreads = {0, 0, 0};
  std::array<uint32_t, 3> requiredThreads = {0, 0, 0};
  std::array<uint32_t, 3> requiredCluster = {0, 0, 0};
  bool explicitCluster = false;
  std::vector<Statement> body;
};

struct Module {
  std::string_view version;
  std::string_view target;
  std::vector<Variable> variables;
  std::deque<Function> functions;
  std::vector<std::pair<uint32_t, std::string>> files; ///< .file number, path
};

} // namespace llmopt::sim::ptx
