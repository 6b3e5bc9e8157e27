// What loadPtx accepts, and how it refuses.
#include "tests/unit/sim/Support.h"

using namespace llmopt::sim;
using namespace llmopt::sim::test;

namespace {

std::string loadError(std::string_view ptx) {
  auto module = loadPtx(ptx, "bad.ptx");
  return module ? "loaded" : module.status().toString();
}

} // namespace

TEST(Load, UnknownInstructionIsLocated) {
  EXPECT_EQ(loadError(kernelText("  frobnicate.b32 %r1, %r2;")),
            "Unsupported: bad.ptx:16: unsupported instruction 'frobnicate.b32 %r1, %r2'");
}

TEST(Load, UnknownModifierIsLocated) {
  EXPECT_EQ(loadError(kernelText("  add.rx.s32 %r1, %r2, %r3;")),
            "Unsupported: bad.ptx:16: unsupported instruction 'add.rx.s32 %r1, %r2, %r3'; modifier "
            "'.rx' is not known here");
}
