// The recursive-descent parser behind parse(): tokens, operands and statements.
#pragma once

#include "runtime/device/sim/ptx/Lexer.h"
#include "runtime/device/sim/ptx/Parser.h"

namespace llmopt::sim::ptx {

class Parser {
public:
  Parser(std::string_view text, std::string_view name);

  runtime::StatusOr<Module> parseModule();

private:
  using Status = runtime::Status;

  // Tokens.
  void advance();
  bool takePunct(char c);
  bool takeDotted(std::string_view name);
  Status expectPunct(char c);
  Status expectName(std::string_view &name);
  Status expectInteger(uint64_t &value);
  Status skipUntil(char c);
  /// One level deeper, before its bracket is taken; whoever leaves it counts `nesting` down.
  Status enter();
  Status error(std::string_view expected) const;
  Status unsupported(std::string_view what) const;

  // Module level (Parser.cpp).
  Status parseDirective();
  Status parseTarget();
  Status parseLinkage(bool &external);
  Status parseFunction(bool entry);
  Status parseParams(std::vector<Variable> &params);
  Status parseThreads(std::array<uint32_t, 3> &threads);
  Status parseFunctionDirectives(Function &function);
  Status parseFile();
  Status skipSection();

  // Declarations (ParseVariable.cpp).
  Status parseVariables(Space space, bool external, std::vector<Variable> &into);
  Status parseArraySize(Variable &variable, uint64_t &elements);
  Status parseInitialisers(Variable &variable);
  Status parseInitial(Type type, Initial &initial);

  // Bodies (ParseBody.cpp).
  Status parseBody(Function &function);
  Status parseBodyDirective(Function &function);
  Status parseRegisters(Function &function);
  Status parseLoc(Function &function);
  Status parseInstruction(Function &function, Token first);
  Status parseOpcode(Instruction &instruction);
  Status parseLabelled(Function &function, std::string_view label);
  Status parseOperand(Operand &operand);
  Status parseOperandList(std::vector<Operand> &operands, char close);
  Status parseGroup(Operand &operand, Operand::Kind kind, char close);
  Status parseNumber(Operand &operand, bool negative);

  std::string_view name;
  Lexer lexer;
  Token current;
  Token ahead;
  uint32_t nesting = 0; ///< brackets and scopes that are open
  Module module;
};

/// The value of a number token. False if it is malformed or does not fit.
bool parseNumberText(std::string_view text, bool negative, Operand &operand);

} // namespace llmopt::sim::ptx
