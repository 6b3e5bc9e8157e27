#include "tests/unit/sim/Support.h"

namespace llmopt::sim::test {

std::shared_ptr<const Module> load(std::string_view ptx) {
  auto module = loadPtx(ptx, "test.ptx");
  EXPECT_TRUE(module.ok()) << module.status().toString();
  return module ? *module : nullptr;
}

std::string kernelText(std::string_view body, std::string_view declarations,
                       std::string_view target) {
  return fmt::format(R"(.version 9.0
.target {}
.address_size 64
{}
.visible .entry k(.param .u64 k_param_0, .param .u64 k_param_1)
{{
  .reg .pred %p<16>;
  .reg .b16 %h<32>;
  .reg .b32 %r<64>;
  .reg .f32 %f<64>;
  .reg .b64 %d<32>;
  .reg .f64 %fd<16>;
  ld.param.u64 %d0, [k_param_0];
  ld.param.u64 %d1, [k_param_1];
  mov.u32 %r0, %tid.x;
{}
  ret;
}}
)",
                     target, declarations, body);
}

} // namespace llmopt::sim::test
