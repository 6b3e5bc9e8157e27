// The description of a launch for `llm-opt sim`, as JSON (docs/simulator.md):
//
//   { "kernel": "saxpy", "grid": [4], "block": [256], "shared": 0,
//     "params": [ { "npy": "x.npy" },
//                 { "type": "f32", "shape": [1000], "fill": 1, "output": "y.npy" },
//                 { "f32": 2.5 }, { "i32": 1000 } ] }
//
// Files are relative to the description's folder.
#pragma once

#include "runtime/base/Npy.h"
#include "runtime/device/sim/Simulator.h"

#include <list>
#include <string>
#include <vector>

namespace llmopt::cli {

/// An array parameter and what becomes of it.
struct SimArray {
  std::string name;
  runtime::NpyArray array;
  bool writable = false;
  std::string output; ///< file to write it to; empty: none
};

struct SimLaunch {
  std::string kernel;
  sim::Launch launch; ///< views of `kernel` and `params`
  std::list<SimArray> arrays;
  std::vector<std::byte> params;
  bool tensorMaps = false; ///< `params` holds tensor maps, in the simulator's form
};

/// Reads the description and the arrays, and lays the parameters out as the
/// kernel wants them. InvalidArgument names the entry and what is allowed.
runtime::Status readSimLaunch(const std::string &path, const sim::Module &module,
                              SimLaunch &result);

} // namespace llmopt::cli
