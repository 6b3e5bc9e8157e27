// Decodes one kernel: names to registers and addresses, labels to instructions,
// calls to the called function's body in their place. Device functions with a
// body can be called, but not recursively.
#pragma once

#include "runtime/device/sim/decode/InstDecoder.h"

#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace llmopt::sim {

/// A use or definition of a virtual register in an instruction.
struct RegRef {
  uint32_t inst = 0;
  uint32_t index = 0; ///< of the list, for Field::List
  uint32_t reg = 0;
  Field field = Field::A;
  bool output = false;
};

struct VirtualReg {
  RegClass cls = RegClass::Narrow;
  bool pinned = false; ///< a constant row: keeps its place for the whole kernel
  std::string_view name = {};
};

class KernelDecoder {
public:
  KernelDecoder(detail::Program &program, const ptx::Module &module, const ptx::Function &function)
      : program(program), module(module), function(function) {}

  runtime::StatusOr<Kernel> decode();

  // For InstDecoder.
  struct Symbol {
    enum class Kind : uint8_t { Register, Variable };
    Kind kind = Kind::Register;
    ptx::Space space = ptx::Space::Reg;
    ptx::Type type = ptx::Type::None;
    uint32_t reg = 0;      ///< of a register
    uint64_t address = 0;  ///< in the variable's space, except .global and .const
    uint32_t variable = 0; ///< number in Program::variables, for those two
    bool dynamic = false;  ///< shared, without a size: an address behind all others
    const ptx::Variable *unplaced = nullptr;
  };
  /// Null if the name is not declared here. Shared variables of the module
  /// get their place when they are first used.
  const Symbol *find(std::string_view name);
  uint32_t newRegister(RegClass cls, bool pinned = false);
  uint32_t literalRow(RegClass cls, uint64_t bits);
  uint32_t variableRow(RegClass cls, const Symbol &symbol, int64_t offset);
  uint32_t specialRow(RegClass cls, Special special);
  void addReference(RegRef ref) { refs.push_back(ref); }
  uint32_t nextInst() const { return static_cast<uint32_t>(kernel.code.size()); }
  const std::string &moduleName() const { return program.name; }

  /// Appends an instruction.
  void emit(const Inst &inst, const ptx::Instruction &source);
  /// The jump of the instruction that is emitted next.
  void branchTo(std::string_view label, uint32_t line);
  runtime::Status branchTable(InstDecoder &decoder, std::string_view table);
  /// Inlines the called function.
  runtime::Status call(InstDecoder &decoder);
  /// True inside an inlined function: `ret` is a jump to the end of its body.
  bool inlined() const { return !frames.empty(); }
  void returnFromInlined();

  Kernel kernel;

private:
  using Status = runtime::Status;

  struct Scope {
    std::unordered_map<std::string_view, Symbol> symbols;
    std::unordered_map<std::string_view, uint32_t> labels;
    std::unordered_map<std::string_view, const ptx::BranchTargets *> tables;
    uint32_t parent = 0;
  };
  struct Jump {
    uint32_t inst = 0; ///< whose target is meant, or kNoInst: targets[entry]
    uint32_t entry = 0;
    uint32_t scope = 0;
    std::string_view label;
    uint32_t line = 0;
  };
  struct Frame { ///< of an inlined function
    std::string_view name;
    std::vector<uint32_t> returns; ///< jumps to its end
  };
  static constexpr uint32_t kNoInst = ~uint32_t{0};
  static constexpr uint32_t kNoScope = ~uint32_t{0};

  uint32_t openScope();
  Status declareModuleVariables();
  Status declareParams();
  Status declare(const ptx::RegisterDecl &decl);
  Status declare(const ptx::Variable &variable);
  void place(Symbol &symbol, const ptx::Variable &variable);
  Status decodeBody(const ptx::Function &body);
  Status decodeInstruction(const ptx::Instruction &instruction);
  Status resolveJumps();
  Status bindParams(InstDecoder &decoder, const ptx::Operand *list,
                    const std::vector<ptx::Variable> &formals, Scope &callee);
  const ptx::Function *findFunction(std::string_view name) const;

  detail::Program &program;
  const ptx::Module &module;
  const ptx::Function &function;
  std::vector<Scope> scopes; ///< all; the first is the kernel's outermost
  uint32_t scope = 0;        ///< the innermost open one
  std::vector<Jump> jumps;
  std::vector<Frame> frames;
  std::vector<VirtualReg> registers;
  std::vector<RegRef> refs;
  std::unordered_map<uint64_t, uint32_t> literals[3]; ///< by RegClass
  std::deque<std::string> names;                      ///< of registers declared by number
  uint32_t sourceFile = 0;
  uint32_t sourceLine = 0;
  uint64_t staticShared = 0;
  uint32_t dynamicAlign = 16;
  std::vector<SharedArray> dynamicArrays; ///< they begin where all with a size end
  uint64_t localBytes = 0;
};

/// Places virtual registers in the register file of a warp so that registers
/// that are never live together share a row; rewrites the operands of the
/// kernel's instructions and the rows of its constants. Returns the registers
/// that are live when the kernel begins.
std::vector<uint32_t> allocateSlots(Kernel &kernel, const std::vector<VirtualReg> &registers,
                                    const std::vector<RegRef> &refs);

/// Fills Kernel::tracked, after the rows are known.
void trackUndefined(Kernel &kernel, const std::vector<VirtualReg> &registers,
                    std::vector<RegRef> refs, const std::vector<uint32_t> &liveAtEntry);

/// Fills Kernel::wgmmaRegisters and their uses.
void trackWgmmaRegisters(Kernel &kernel, const std::vector<VirtualReg> &registers,
                         std::vector<RegRef> refs);

} // namespace llmopt::sim
