#include "tools/import/Text.h"
#include "tools/import/JsonText.h"

#include <cstdlib>
#include <gtest/gtest.h>

using namespace llmopt::importer;

TEST(Text, float_literals_are_mlir_floats) {
  EXPECT_EQ(floatLiteral(1), "1.0");
  EXPECT_EQ(floatLiteral(0.125), "0.125");
  EXPECT_EQ(floatLiteral(1e-5), "1.0e-05");
  EXPECT_EQ(floatLiteral(1.5e30), "1.5e+30");
  for (double value : {0.08838834764831843, 1.0 / 3, 5e-324, 1e300})
    EXPECT_EQ(std::strtod(floatLiteral(value).c_str(), nullptr), value);
}

TEST(Text, ranges_are_short) {
  EXPECT_EQ(ranges({}), "");
  EXPECT_EQ(ranges({3}), "3");
  EXPECT_EQ(ranges({0, 1, 2, 3}), "0-3");
  EXPECT_EQ(ranges({0, 2, 4, 6}), "0, 2, ..., 6");
  EXPECT_EQ(ranges({0, 2, 4}), "0, 2, 4");
  EXPECT_EQ(ranges({0, 1, 3, 4, 8}), "0-1, 3-4, 8");
}

TEST(Text, one_line_has_no_control_characters) {
  EXPECT_EQ(oneLine("a\nb\t\x7f\x01"
                    "c"),
            "a?b???c");
}

TEST(JsonText, keys_are_located_through_strings_and_lists) {
  auto text = JsonText::parse("{\"a\": [{\"x\": 1}, \"}\\\"{\"],\n \"b\": {\"c\":\n  {\"d\": 1}},"
                              "\n\t\"e\": null}",
                              "f");
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(text->locate("/a"), "f:1:2");
  EXPECT_EQ(text->locate("/b"), "f:2:2");
  EXPECT_EQ(text->locate("/b/c"), "f:2:8");
  EXPECT_EQ(text->locate("/e"), "f:4:2");
  EXPECT_EQ(text->locate("/a/0"), "f:1:8");
  EXPECT_EQ(text->locate("/a/0/x"), "f:1:9");
  EXPECT_EQ(text->locate("/a/1"), "f:1:18");
  EXPECT_EQ(text->locate("/b/c/d"), "f:3:4");
  EXPECT_EQ(text->locate("/none"), "f");
  EXPECT_EQ(text->locate("/a/2"), "f");
  EXPECT_EQ(JsonText::parse("{\"a\": 1, \"b\": [[1, -2.5e3], [true, [null]]],\n\"a\": 2}", "f")
                ->locate("/a"),
            "f:2:1"); // of equal keys the last
  EXPECT_EQ(
      JsonText::parse("{\"b\":[[1,-2.5e3],\n[true,[null,7]],{\"c\":{}}]}", "f")->locate("/b/1/1/1"),
      "f:2:13");
}
