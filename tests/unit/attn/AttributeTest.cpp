// Attributes that only builders can make: syntax has no form for what these verifiers refuse.
#include "dialect/attn/AttnDialect.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace llmopt::attn;

namespace {

class Attributes : public testing::Test {
protected:
  Attributes() { context.loadDialect<AttnDialect>(); }

  /// What the verifier of an attribute says; "" where it is made.
  template <typename Attr, typename... Args> std::string refusal(Args... args) {
    std::string message;
    ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
      message += diagnostic.str();
      return success();
    });
    Attr made =
        Attr::getChecked([&] { return emitError(UnknownLoc::get(&context)); }, &context, args...);
    EXPECT_EQ(!made, !message.empty());
    return message;
  }
  Attribute integer(int64_t value, unsigned width = 64) {
    return IntegerAttr::get(IntegerType::get(&context, width), value);
  }

  MLIRContext context;
};

} // namespace

TEST_F(Attributes, a_split_has_a_count_or_a_length) {
  for (auto [count, length] : {std::pair{0, 0}, {2, 64}, {-1, 64}, {2, -1}})
    EXPECT_EQ(refusal<SplitAttr>(int64_t(count), int64_t(length)),
              "a split has either a count or a length of 1 or more, got count " +
                  std::to_string(count) + " and length " + std::to_string(length));
  EXPECT_EQ(refusal<SplitAttr>(int64_t(2), int64_t(0)), "");
}

TEST_F(Attributes, a_schedule_says_something) {
  EXPECT_EQ(refusal<ScheduleAttr>(int64_t(-1), int64_t(16), false),
            "rows and keys of a schedule are 1 or more (0: not given), got -1 and 16");
  EXPECT_EQ(refusal<ScheduleAttr>(int64_t(0), int64_t(0), false),
            "a schedule says something: rows, keys or batch_invariant");
  EXPECT_EQ(refusal<ScheduleAttr>(int64_t(0), int64_t(16), false), "");
}

TEST_F(Attributes, a_one_sided_window_has_one_number) {
  EXPECT_EQ(refusal<WindowAttr>(integer(4), integer(5), false),
            "a one-sided window has no right side, got 5 : i64");
  EXPECT_EQ(refusal<WindowAttr>(integer(4), integer(5), true), "");
}

TEST_F(Attributes, numbers_are_i64) {
  EXPECT_EQ(refusal<WindowAttr>(integer(4, 32), Attribute(), false),
            "window is an i64 integer or argN, got 4 : i32");
  EXPECT_EQ(refusal<WindowAttr>(Attribute(StringAttr::get(&context, "4")), Attribute(), false),
            "window is an i64 integer or argN, got \"4\"");
}
