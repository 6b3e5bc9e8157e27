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

TEST(Load, TheTargetIsOneThatThereIs) {
  auto target = [](std::string_view name) {
    return loadError(fmt::format(".version 8.0\n\n.target {}\n.address_size 64\n", name));
  };
  for (const char *name : {"sm_52", "sm_80", "sm_87", "sm_90a", "sm_100f", "sm_121", "sm_80, debug",
                           "sm_80, texmode_independent"})
    EXPECT_EQ(target(name), "loaded") << name;
  for (const char *name : {"sm_9999", "sm_81", "sm_80a", "sm_90f"})
    EXPECT_TRUE(target(name).starts_with(fmt::format(
        "InvalidArgument: bad.ptx:3: .target: there is no architecture '{}'; sm_50, ", name)))
        << target(name);
  for (const char *name : {"sm_90b", "compute_80", "sm_", "hopper"})
    EXPECT_EQ(target(name), fmt::format("InvalidArgument: bad.ptx:3: '.target {}' is no "
                                        "architecture; write for example sm_80 or sm_90a",
                                        name));
  EXPECT_EQ(target("sm_80, map_f64_to_f32"),
            "Unsupported: bad.ptx:3: unsupported option of the target 'map_f64_to_f32'");
}

TEST(Load, ParametersHaveDifferentNames) {
  EXPECT_EQ(loadError(".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(\n"
                      ".param .u64 a,\n.param .u64 a)\n{ ret; }\n"),
            "InvalidArgument: bad.ptx:6: 'k' has two parameters 'a'");
  // A parameter may hide a variable of the module.
  EXPECT_EQ(loadError(".version 8.0\n.target sm_80\n.address_size 64\n.global .b32 a;\n"
                      ".visible .entry k(.param .u64 a)\n{ ret; }\n"),
            "loaded");
}

// A text must not choose how much of the stack the parser takes.
TEST(Load, NestingHasALimit) {
  auto repeat = [](std::string_view part, size_t count) {
    std::string text;
    for (size_t i = 0; i < count; ++i)
      text += part;
    return text;
  };
  for (size_t count : {size_t{257}, size_t{300000}}) {
    for (std::string_view part : {"(", "{", "[", "%r1|"})
      EXPECT_EQ(loadError(kernelText("  mov.b32 %r1, " + repeat(part, count) + "%r2;")),
                "InvalidArgument: bad.ptx:16: nested too deeply; 256 levels are allowed")
          << part;
    EXPECT_EQ(loadError(kernelText("  ret;\n" + repeat("{", count))),
              "InvalidArgument: bad.ptx:17: nested too deeply; 256 levels are allowed");
    EXPECT_EQ(
        loadError(".version 8.0\n.target sm_80\n.global .b32 a[1] = \n" + repeat("{", count) + "1"),
        "InvalidArgument: bad.ptx:4: nested too deeply; 256 levels are allowed");
  }
  // Beside each other is no nesting, and the limit itself is allowed.
  EXPECT_EQ(loadError(".version 8.0\n.target sm_80\n.address_size 64\n.global .b32 a[300] = {" +
                      repeat("{1},", 299) + "{1}};\n.global .b32 b[1] = " + repeat("{", 256) + "1" +
                      repeat("}", 256) + ";\n"),
            "loaded");
  EXPECT_EQ(loadError(kernelText(repeat("{ }\n  mov.u32 %r1, %r2;\n", 300) + repeat("{", 256) +
                                 repeat("}", 256))),
            "loaded");
}

TEST(Load, UnknownModifierIsLocated) {
  EXPECT_EQ(loadError(kernelText("  add.rx.s32 %r1, %r2, %r3;")),
            "Unsupported: bad.ptx:16: unsupported instruction 'add.rx.s32 %r1, %r2, %r3'; modifier "
            "'.rx' is not known here");
}
