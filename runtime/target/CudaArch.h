// Names of CUDA architectures, and which images run on which chip. NVIDIA's rules: machine
// code (a cubin) runs on chips of its major version with the same or a later minor one; PTX is
// compiled by the driver for its own architecture and all later ones; "a" variants run on
// their own chip alone, "f" variants within their major version.
#pragma once

#include "runtime/base/Status.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace llmopt::runtime {

struct CudaArch {
  uint32_t major = 0, minor = 0;
  char variant = 0;       ///< 'a', 'f' or 0
  bool isVirtual = false; ///< "compute_80": PTX; "sm_80": machine code

  /// "sm_80", "sm_90a", "compute_80". InvalidArgument shows the form.
  static StatusOr<CudaArch> parse(std::string_view name);

  /// 10 * major + minor: 80, 120.
  uint32_t number() const { return major * 10 + minor; }
  /// "sm_90a", "compute_90a".
  std::string name() const;

  /// Nothing for an architecture of NVIDIA's table (PTX ISA 9.0, from sm_50 on), with an 'a' or
  /// 'f' where it has such a variant; else InvalidArgument with what there is.
  Status known() const;

  /// Whether machine code for this runs on a chip.
  bool cubinRunsOn(const CudaArch &chip) const;
  /// Whether a driver can compile PTX for this to run on a chip.
  bool ptxRunsOn(const CudaArch &chip) const;

  bool operator==(const CudaArch &) const = default;
};

} // namespace llmopt::runtime
