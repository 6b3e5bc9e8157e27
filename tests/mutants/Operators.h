// Mechanical mistakes in the CUDA text of a kernel.
#pragma once

#include <string>
#include <vector>

namespace llmopt::mutants {

struct Mutant {
  std::string op;     ///< "delete-barrier"
  std::string rule;   ///< the pattern, or the operator where it is one rule
  size_t kernel = 0;  ///< number of the text
  size_t line = 0;    ///< from 1
  std::string before; ///< that line
  std::string now;    ///< what it is in the mutant
  std::string after;  ///< the next one, in the original
  std::string text;   ///< the whole kernel with the mistake; as many lines as before
};

/// Names of all operators.
std::vector<std::string> operators();

/// What Mutant::rule may be.
std::vector<std::string> rulesOf(const std::string &op);

/// Every mutant that an operator can make of the texts, in their order. Some change nothing:
/// in a function that the kernel does not use.
std::vector<Mutant> mutantsOf(const std::string &op, const std::vector<std::string> &kernels);

} // namespace llmopt::mutants
