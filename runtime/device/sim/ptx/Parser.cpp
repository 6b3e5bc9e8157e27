#include "runtime/device/sim/ptx/Parser.h"

#include "runtime/device/sim/ptx/ParserImpl.h"
#include "runtime/target/CudaArch.h"

namespace llmopt::sim::ptx {

using runtime::invalidArgument;
using runtime::makeStatus;
using runtime::StatusCode;

Parser::Parser(std::string_view text, std::string_view name) : name(name), lexer(text) {
  current = lexer.next();
  ahead = lexer.next();
}

void Parser::advance() {
  current = ahead;
  ahead = lexer.next();
}

bool Parser::takePunct(char c) {
  if (!current.is(c))
    return false;
  advance();
  return true;
}

bool Parser::takeDotted(std::string_view wanted) {
  if (!current.isDotted(wanted))
    return false;
  advance();
  return true;
}

runtime::Status Parser::error(std::string_view expected) const {
  if (current.kind == Token::Kind::End)
    return invalidArgument("{}:{}: the text ends where {} is expected", name, current.line,
                           expected);
  std::string_view found(current.begin, static_cast<size_t>(current.end - current.begin));
  return invalidArgument("{}:{}: found '{}'; expected {}", name, current.line, found, expected);
}

runtime::Status Parser::unsupported(std::string_view what) const {
  std::string_view found(current.begin, static_cast<size_t>(current.end - current.begin));
  return makeStatus(StatusCode::Unsupported, "{}:{}: unsupported {} '{}'", name, current.line, what,
                    found);
}

runtime::Status Parser::expectPunct(char c) {
  if (takePunct(c))
    return {};
  return error(fmt::format("'{}'", c));
}

runtime::Status Parser::expectName(std::string_view &result) {
  if (current.kind != Token::Kind::Name)
    return error("a name");
  result = current.text;
  advance();
  return {};
}

runtime::Status Parser::expectInteger(uint64_t &value) {
  Operand operand;
  if (current.kind != Token::Kind::Number || !parseNumberText(current.text, false, operand) ||
      operand.kind != Operand::Kind::Integer)
    return error("an integer");
  value = operand.bits;
  advance();
  return {};
}

runtime::Status Parser::skipUntil(char c) {
  while (!current.is(c)) {
    if (current.kind == Token::Kind::End)
      return error(fmt::format("'{}'", c));
    advance();
  }
  advance();
  return {};
}

runtime::Status Parser::enter() {
  // The parser recurses, and so does what reads its tree. Compilers nest to three levels.
  constexpr uint32_t kMaxNesting = 256;
  if (++nesting > kMaxNesting)
    return invalidArgument("{}:{}: nested too deeply; {} levels are allowed", name, current.line,
                           kMaxNesting);
  return {};
}

runtime::StatusOr<Module> Parser::parseModule() {
  while (current.kind != Token::Kind::End)
    LLMOPT_RETURN_IF_ERROR(parseDirective());
  if (module.version.empty())
    return invalidArgument("{}:1: no .version directive; PTX text begins with one", name);
  if (module.target.empty())
    return invalidArgument("{}:1: no .target directive; PTX text has one after .version", name);
  return std::move(module);
}

runtime::Status Parser::parseDirective() {
  if (current.kind != Token::Kind::Dotted)
    return error("a directive");
  if (takeDotted("version")) {
    module.version = current.text;
    if (current.kind != Token::Kind::Number)
      return error("a version");
    advance();
    return {};
  }
  if (takeDotted("target"))
    return parseTarget();
  if (takeDotted("address_size")) {
    if (current.text != "64")
      return unsupported("address size");
    advance();
    return {};
  }
  if (takeDotted("file"))
    return parseFile();
  if (takeDotted("section"))
    return skipSection();
  if (takeDotted("pragma"))
    return skipUntil(';');

  bool external = false;
  LLMOPT_RETURN_IF_ERROR(parseLinkage(external));
  if (takeDotted("entry"))
    return parseFunction(true);
  if (takeDotted("func"))
    return parseFunction(false);
  Space space = Space::Generic;
  if (takeDotted("global"))
    space = Space::Global;
  else if (takeDotted("const"))
    space = Space::Const;
  else if (takeDotted("shared"))
    space = Space::Shared;
  else
    return unsupported("directive");
  LLMOPT_RETURN_IF_ERROR(parseVariables(space, external, module.variables));
  return expectPunct(';');
}

runtime::Status Parser::parseTarget() {
  uint32_t line = current.line;
  LLMOPT_RETURN_IF_ERROR(expectName(module.target));
  runtime::StatusOr<runtime::CudaArch> arch = runtime::CudaArch::parse(module.target);
  if (!arch || arch->isVirtual)
    return invalidArgument("{}:{}: '.target {}' is no architecture; write for example sm_80 or "
                           "sm_90a",
                           name, line, module.target);
  if (runtime::Status status = arch->known(); !status.ok())
    return status.withContext(fmt::format("{}:{}: .target", name, line));
  while (takePunct(',')) {
    if (current.text != "debug" && !current.text.starts_with("texmode_"))
      return unsupported("option of the target");
    advance();
  }
  return {};
}

runtime::Status Parser::parseLinkage(bool &external) {
  for (;;) {
    if (takeDotted("extern"))
      external = true;
    else if (!takeDotted("visible") && !takeDotted("weak") && !takeDotted("common"))
      return {};
  }
}

runtime::Status Parser::parseFile() {
  uint64_t number = 0;
  LLMOPT_RETURN_IF_ERROR(expectInteger(number));
  if (current.kind != Token::Kind::String)
    return error("a file name");
  module.files.emplace_back(static_cast<uint32_t>(number), std::string(current.text));
  advance();
  while (takePunct(',')) { // time stamp, size
    uint64_t ignored = 0;
    LLMOPT_RETURN_IF_ERROR(expectInteger(ignored));
  }
  return {};
}

runtime::Status Parser::skipSection() {
  if (current.kind != Token::Kind::Dotted && current.kind != Token::Kind::Name)
    return error("a section name");
  advance();
  LLMOPT_RETURN_IF_ERROR(expectPunct('{'));
  return skipUntil('}');
}

runtime::Status Parser::parseFunction(bool entry) {
  Function function;
  function.entry = entry;
  function.line = current.line;
  if (!entry && current.is('('))
    LLMOPT_RETURN_IF_ERROR(parseParams(function.results));
  LLMOPT_RETURN_IF_ERROR(expectName(function.name));
  if (current.is('('))
    LLMOPT_RETURN_IF_ERROR(parseParams(function.params));
  LLMOPT_RETURN_IF_ERROR(parseFunctionDirectives(function));
  if (!takePunct(';')) {
    LLMOPT_RETURN_IF_ERROR(expectPunct('{'));
    function.hasBody = true;
    LLMOPT_RETURN_IF_ERROR(parseBody(function));
  }
  module.functions.push_back(std::move(function));
  return {};
}

runtime::Status Parser::parseParams(std::vector<Variable> &params) {
  LLMOPT_RETURN_IF_ERROR(expectPunct('('));
  if (takePunct(')'))
    return {};
  do {
    if (!takeDotted("param"))
      return current.isDotted("reg") ? unsupported("parameter space") : error("'.param'");
    LLMOPT_RETURN_IF_ERROR(parseVariables(Space::Param, false, params));
  } while (takePunct(','));
  return expectPunct(')');
}

runtime::Status Parser::parseThreads(std::array<uint32_t, 3> &threads) {
  threads = {1, 1, 1};
  for (int axis = 0; axis < 3; ++axis) {
    uint64_t value = 0;
    LLMOPT_RETURN_IF_ERROR(expectInteger(value));
    threads[axis] = static_cast<uint32_t>(value);
    if (!takePunct(','))
      break;
  }
  return {};
}

runtime::Status Parser::parseFunctionDirectives(Function &function) {
  while (current.kind == Token::Kind::Dotted) {
    if (takeDotted("maxntid")) {
      LLMOPT_RETURN_IF_ERROR(parseThreads(function.maxThreads));
    } else if (takeDotted("reqntid")) {
      LLMOPT_RETURN_IF_ERROR(parseThreads(function.requiredThreads));
    } else if (takeDotted("reqnctapercluster")) {
      LLMOPT_RETURN_IF_ERROR(parseThreads(function.requiredCluster));
    } else if (takeDotted("explicitcluster")) {
      function.explicitCluster = true;
    } else if (takeDotted("maxclusterrank") || takeDotted("minnctapersm") ||
               takeDotted("maxnctapersm") || takeDotted("maxnreg")) {
      uint64_t ignored = 0; // hints about registers and occupancy
      LLMOPT_RETURN_IF_ERROR(expectInteger(ignored));
    } else if (takeDotted("pragma")) {
      LLMOPT_RETURN_IF_ERROR(skipUntil(';'));
    } else if (!takeDotted("noreturn")) {
      return unsupported("function directive");
    }
  }
  return {};
}

runtime::StatusOr<Module> parse(std::string_view text, std::string_view name) {
  return Parser(text, name).parseModule();
}

} // namespace llmopt::sim::ptx
