// A call whose arrays come from .npy files and go to them.
#pragma once

#include "runtime/base/Npy.h"
#include "runtime/device/Arguments.h"

#include <list>
#include <map>
#include <string>

namespace llmopt::runtime {

class NpyCall {
public:
  /// The program must stay.
  explicit NpyCall(const bundle::Program &program) : program(program) {}
  NpyCall(const NpyCall &) = delete;
  NpyCall &operator=(const NpyCall &) = delete;

  /// int32 and int64 are converted where the program wants the other: exactly, or refused.
  Status addInput(const std::string &name, const std::string &path);
  /// An integer where the program wants one and the value is one.
  void addNumber(const std::string &name, double value);
  /// Memory for the results: shaped as the query, with d_v; without the last dimension for
  /// LSE. Zeros, which stay in rows that belong to no sequence. After the inputs.
  Status makeOutputs();
  Status writeOutput(const std::string &name, const std::string &path) const;

  /// Host arrays.
  const CallArguments &arguments() const { return given; }

private:
  const bundle::Program &program;
  std::list<NpyArray> inputs;
  std::map<std::string, NpyArray> outputs;
  CallArguments given;
};

} // namespace llmopt::runtime
